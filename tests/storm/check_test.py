#!/usr/bin/env python3
"""check_test.py - the checker on histories made by hand: one that is fine, and one for each violation."""
import sys

import check

A, B = "run_A", "run_B"
clock = 0


def line(act, asked="-", what="-", token="-", outcome="ok", flags=".", at=None, **run):
    """The next thing that happens; at: from then until then."""
    global clock
    begin, end = at or (clock + 10, clock + 20)
    clock = max(clock, end)
    words = [act, str(begin), str(end), asked, what, token, outcome, flags]
    if run:
        has = dict(id=A, canonical="-", status="QUEUED", counter=0, tags="-", fence=0, held="-", output="-",
                   key="-", payload="{}", queue="q", order="-")
        has.update(run)
        words += [str(has[name]) for name in has]
    return "\t".join(words)


def trigger(key="k", outcome="ok", **run):
    return line("trigger", what=key, token="{}", outcome=outcome, key=key, **run)


def last(asked=A, **run):
    return line("get", asked, flags=".f", **{"id": asked, "key": "k", "status": "COMPLETED", **run})


def listed(**run):
    return line("list", flags=".f", **{"key": "k", "status": "COMPLETED", **run})


def lease(fence, held, **run):
    return line("lease", what="q", **{"status": "EXECUTING", "fence": fence, "held": held, **run})


def ended(**run):
    """As it is when nothing else is said: completed by one worker, found, and listed."""
    run = {"output": "1", **run}
    return [lease(1, "t1"), line("complete", A, "1", "t1", id=A, status="COMPLETED", **run), last(**run), listed(**run)]


def made_at(us):
    """The id of a run that was made then."""
    ms = 1000000 + us // 1000
    return "run_" + "".join(check.CROCKFORD[ms >> 5 * n & 31] for n in range(9, -1, -1)) + 16 * "0"


def beside(us):
    """A trigger that is answered with A for half a second, and a run of its key that was made then, or not."""
    other = made_at(1000000)
    return [trigger("-", id=other, at=(1000000, 1001000)), line("cancel", other, id=other, status="CANCELED"),
            last(other, status="CANCELED", key="-"), listed(id=other, status="CANCELED", key="-"), trigger(id=A),
            trigger(outcome="cached", id=A, at=(2000000, 2500000)), *ended(), listed(id=made_at(us), status="FAILED")]


def canceled(*deeds):
    return [*deeds, last(status="CANCELED"), listed(status="CANCELED")]


HISTORIES = [
    ("a run from start to end", None, lambda: [trigger(id=A), *ended()]),
    ("an alias", None, lambda: [trigger(id=A), trigger(id=B), *ended(), last(B, id=A, canonical=A, output="1")]),
    ("an alias that is merged when its run was over", None,
     lambda: [trigger(id=A), trigger(id=B), line("tag", B, "t", id=B, tags="t"), *ended()[:-1],
              last(B, id=A, canonical=A, output="1", tags="t"), listed(output="1", tags="t")]),
    ("an alias whose tag is lost", "V4",
     lambda: [trigger(id=A), trigger(id=B), line("tag", B, "t", id=B, tags="t"), *ended()[:-1],
              last(B, id=A, canonical=A, output="1"), listed(output="1")]),
    ("an increment that may have counted", None,
     lambda: [trigger(id=A), line("increment", A, outcome="!ambiguous"), *ended(counter=1)]),
    ("a key whose run has failed", None,
     lambda: [trigger(id=A), last(status="FAILED"), trigger(id=B), listed(status="FAILED"), last(B, status="CANCELED"),
              line("cancel", B, id=B, status="CANCELED"), listed(id=B, status="CANCELED")]),
    ("a replay begins with what the other one had", None,
     lambda: [line("replay", B, id=A, counter=2, tags="t"), *ended(counter=2, tags="t", key="-")]),
    ("a replay that has lost it", "V4",
     lambda: [line("replay", B, id=A, counter=2, tags="t"), *ended(counter=1, tags="t", key="-")]),
    ("an id that is not found in the end", "C8", lambda: [trigger(id=A), line("get", A, outcome="absent", flags=".f")]),
    ("an id that is not found for a while", "C8", lambda: [trigger(id=A), line("tag", A, "t", outcome="absent"), *ended()]),
    ("a run that does not end", "C5", lambda: [trigger(id=A), last(status="QUEUED"), listed(status="QUEUED")]),
    ("a run that stays in the buffer", "C5",
     lambda: canceled(trigger(id=A), line("cancel", A, id=A, status="CANCELED"))[:-2]
     + [line("get", A, flags=".bf", id=A, key="k", status="CANCELED"), listed(status="CANCELED")]),
    ("two runs of one key", "V2",
     lambda: [trigger(id=A), trigger(id=B), *ended(), lease(1, "t2", id=B),
              line("complete", B, "1", "t2", id=B, status="COMPLETED", output="1"), last(B, output="1"),
              listed(id=B, output="1")]),
    ("a second run of a key, of which nobody was told", "V2",
     lambda: [trigger(id=A), line("trigger", what="k", outcome="!ambiguous"), *ended(), listed(id=B)]),
    ("a run that two have made", "V2", lambda: [trigger(id=A), trigger(id=A), *ended()]),
    ("a key that was reset in vain", "V2",
     lambda: [trigger(id=A), line("reset", what="k", id=A), trigger(id=A, outcome="cached"), *ended()]),
    ("another payload", "C7", lambda: [trigger(id=A, payload="[]"), *ended()]),
    ("an alias of a run with another payload", "C7",
     lambda: [trigger(id=A), trigger(id=B), *ended(), last(B, id=A, canonical=A, output="1", payload="[]")]),
    ("a run of a trigger that was refused", "C9",
     lambda: [trigger(id=A), line("trigger", outcome="!unavailable"), *ended(), listed(id=B, key="-")]),
    ("a run that was reset while its trigger was asked again", None,
     lambda: [line("trigger", what="k", token="{}", id=A, key="k", at=(10, 100)), line("reset", what="k", id=B, at=(30, 40)),
              *ended(), listed(id=B)]),
    ("a run that was reset, and nobody has triggered it", "C9",
     lambda: [trigger(id=A), line("reset", what="k", id=B), *ended(), listed(id=B)]),
    ("a run of a daemon that died, whose trigger found another one", None, lambda: beside(2200000)),
    ("a run of that key, made when nobody triggered it", "C9", lambda: beside(2600000)),
    ("a run that is listed twice", "list", lambda: [trigger(id=A), *ended(), listed(output="1")]),
    ("a run that is not listed", "list", lambda: [trigger(id=A), *ended()[:-1]]),
    ("an increment that is lost", "V4", lambda: [trigger(id=A), line("increment", A, id=A, counter=1), *ended()]),
    ("an increment that counts twice", "V4",
     lambda: [trigger(id=A), line("increment", A, id=A, counter=1), *ended(counter=2)]),
    ("an increment that was refused and counts", "V4",
     lambda: [trigger(id=A), line("increment", A, outcome="!unavailable"), *ended(counter=1)]),
    ("an increment that is not there for a while", "V4",
     lambda: [trigger(id=A), line("increment", A, id=A, counter=1), line("get", A, id=A), *ended(counter=1)]),
    ("a tag that is lost", "V4", lambda: [trigger(id=A), line("tag", A, "t", id=A, tags="t"), *ended()]),
    ("a tag that nobody added", "V4", lambda: [trigger(id=A), *ended(tags="t")]),
    ("a tag that is not there for a while", "V4",
     lambda: [trigger(id=A), line("tag", A, "t", id=A, tags="t"), line("get", A, id=A), *ended(tags="t")]),
    ("a cancel that is lost", "V4",
     lambda: [trigger(id=A), line("cancel", A, id=A, status="CANCELED"), *ended()]),
    ("canceled by nobody", "V4", lambda: canceled(trigger(id=A))),
    ("canceled, and handed out", "U1",
     lambda: canceled(trigger(id=A), line("cancel", A, id=A, status="CANCELED"), lease(1, "t1"))),
    ("final, and then not", "U1", lambda: [trigger(id=A), *ended(), line("get", A, id=A, status="QUEUED")]),
    ("one fence for two", "U2", lambda: [trigger(id=A), lease(1, "t0"), *ended()]),
    ("two at once", "U2", lambda: [trigger(id=A), lease(0, "t0"), *ended()]),
    ("one after the other", None, lambda: [trigger(id=A), lease(0, "t0"), line("fail", A, "2", "t0", id=A), *ended()]),
    ("completed by who had lost it", "U2",
     lambda: [trigger(id=A), lease(1, "t1"), line("complete", A, "1", "t1", outcome="lost"),
              last(output="1"), listed(output="1")]),
    ("completed twice", "U2",
     lambda: [trigger(id=A), lease(0, "t0"), line("complete", A, "0", "t0", id=A, status="COMPLETED", output="0"), *ended()]),
    ("two payloads of one key, one canceled in the buffer", None,
     lambda: [trigger(id=A), line("trigger", what="k", token='{"other":1}', id=B, key="k", payload='{"other":1}'), line("cancel", B, id=B, status="CANCELED", key="k", payload='{"other":1}'),
              last(B, status="CANCELED", payload='{"other":1}'), listed(id=B, status="CANCELED", payload='{"other":1}'), *ended()]),
    ("two of one ordering key at once", "L3",
     lambda: [trigger("-", id=B), line("cancel", B, id=B, status="CANCELED", at=(900, 901)), lease(1, "t2", id=B, order="o", at=(30, 40)),
              lease(1, "t3", id=A, order="o", at=(50, 60)), last(B, status="CANCELED", key="-"),
              listed(id=B, status="CANCELED", key="-")]),
]


def main():
    global clock
    failures = 0
    for number, (name, rule, make) in enumerate(HISTORIES, 1):
        clock = 0
        h = check.check([check.Deed(text) for text in make()], lease_ms=2)
        rules = {text.split(":")[0].removeprefix("violates ") for text in h.found}
        good = rule in rules if rule else not rules
        failures += not good
        print(f"{'ok' if good else 'not ok'} {number} - checker: {name}")
        if not good:
            print(f"# {rule or 'nothing'} is violated, and it finds {sorted(rules) or 'nothing'}", *h.found, sep="\n# ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
