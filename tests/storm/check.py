#!/usr/bin/env python3
"""check.py [--lease MS] HISTORY... - is what many clients were told about runs true?

Reads the lines that record.c writes and says what is violated, one line each; the exit status is 1
then. Nothing in here knows how an answer came about. Every call has a beginning and an end on one
clock, and took effect in between. One that ended in !ambiguous takes effect at any later time, or
never; every other error has promised that nothing was changed, and is taken at its word.

An id that was found to be an alias counts as the run that it leads to, but for times: what was done
through it before it was merged is seen through the other one only afterwards.
"""
import sys
from collections import Counter, defaultdict
from statistics import median

FINAL = ("COMPLETED", "FAILED", "CANCELED")
MAKES = ("trigger", "replay")
ATTEMPTS = ("complete", "fail", "return", "beat")


class Deed:
    """One call: what was asked, what was answered, and the run in the answer, if there is one."""

    __slots__ = ("act", "begin", "end", "asked", "what", "token", "outcome", "flags", "run", "canonical",
                 "status", "counter", "tags", "fence", "held", "output", "key", "payload", "queue", "order", "line")

    def __init__(self, line):
        self.line = line.rstrip("\n")
        words = [None if word == "-" else word for word in self.line.split("\t")]
        self.act, begin, end, self.asked, self.what, self.token, self.outcome, self.flags = words[:8]
        self.begin, self.end = int(begin), int(end)
        self.run = self.status = self.key = None
        if len(words) == 8:
            return
        (self.run, self.canonical, self.status, counter, tags, fence, self.held, self.output, self.key,
         self.payload, self.queue, self.order) = words[8:]
        self.counter, self.fence = int(counter), int(fence)
        self.tags = frozenset(tags.split(",")) if tags else frozenset()

    @property
    def ok(self):
        return self.outcome == "ok"

    @property
    def maybe(self):
        return self.outcome == "!ambiguous"

    @property
    def final(self):
        return "f" in self.flags

    @property
    def buffered(self):
        return "b" in self.flags

    def __str__(self):
        return self.line.replace("\t", " ")


class History:
    def __init__(self, deeds):
        self.deeds = sorted(deeds, key=lambda d: d.begin)
        self.found = []
        self.told = {}  # id -> the first trigger that was answered with it
        self.last = {}  # id -> what it was found to be when all was over
        self.listed = {}
        self.resets = [d for d in self.deeds if d.act == "reset"]
        self.by_id = defaultdict(list)  # what was asked about an id
        for d in self.deeds:
            if d.act in MAKES and d.outcome in ("ok", "cached"):
                self.told.setdefault(d.run, d)
            if d.act == "get" and d.final:
                self.last[d.asked] = d
            if d.asked and d.act not in MAKES:
                self.by_id[d.asked].append(d)
        self.groups = defaultdict(set)  # canonical id -> all that lead to it
        for i in self.told:
            self.groups[self.canonical(i)].add(i)

    def canonical(self, i):
        last = self.last.get(i)
        return last.run if last and last.run else i

    def end(self, i):
        """The last answer about it, by whichever id: an alias may be merged after the run was found to be
        final, when the drainer has it that came back last. None: it is not found."""
        answers = [self.last.get(j) for j in self.groups[i] | {i}] + [self.listed.get(i)]
        return max((d for d in answers if d and d.run == i), key=lambda d: d.begin, default=None)

    def start(self, i):
        """A replay begins with what the other one had: counter and tags."""
        told = self.told.get(i)
        return (told.counter, told.tags) if told and told.act == "replay" else (0, frozenset())

    def violates(self, rule, text, *deeds):
        self.found.append(f"violates {rule}: {text}" + "".join(f"\n    {d}" for d in deeds))

    def about(self, group, *acts):
        return [d for i in group for d in self.by_id[i] if d.act in acts]


# ---- every id leads to a run, at any time (C8), and that ends -------------------------------------


def check_resolves(h):
    for d in h.deeds:
        if d.outcome == "absent" and d.asked in h.told and h.told[d.asked].end < d.begin:
            h.violates("C8", "an id that was handed out is not found", h.told[d.asked], d)
        if d.outcome == "!corrupt" or d.outcome == "!invalid" or d.outcome == "!unsupported":
            h.violates("test", "no answer to that", d)
    for i, told in h.told.items():
        last = h.last.get(i)
        if not last or not last.run:
            h.violates("C8", "an id does not lead to a run in the end", told, *([last] if last else []))
        elif last.status not in FINAL:
            h.violates("C5", "a run is stuck", told, last)
        elif last.buffered:
            h.violates("C5", "a run is stuck in the buffer", told, last)


# ---- one key, one run (V2) -------------------------------------------------------------------------


# One that was buffered, and met another payload under its key when it was drained, is FAILED, too; unless it
# had been canceled, and stays so (U1, U3).
def gave_up_key(i, status):
    last = status[i]
    if not last or last.status not in ("FAILED", "CANCELED"):
        return False
    others = [status[j] for j in status if j != i and status[j]]
    return last.status == "FAILED" or any(o.payload != last.payload for o in others)


def check_keys(h):
    runs = defaultdict(dict)  # of a key: canonical id -> what says so
    for d in h.deeds:
        if d.act == "trigger" and d.outcome in ("ok", "cached"):
            if d.what:
                runs[d.what][h.canonical(d.run)] = d
            if d.what != d.key:
                h.violates("V2", "a run of another key", d)
        if d.act == "list" and d.key:
            runs[d.key].setdefault(d.run, d)
    for key, of_key in runs.items():
        if any(d.act == "reset" and d.what == key for d in h.resets):
            continue
        status = {i: (h.last.get(i) or h.listed.get(i)) for i in of_key}
        live = [i for i in of_key if not gave_up_key(i, status)]
        if len(live) > 1:
            h.violates("V2", f"key {key} has {len(live)} runs", *[of_key[i] for i in live],
                       *[h.last[i] for i in live if i in h.last])


# Who triggers a key after it was reset is not led to the run that it led to before.
def check_resets(h):
    triggers = defaultdict(list)
    for d in h.deeds:
        if d.act == "trigger" and d.outcome in ("ok", "cached") and d.what:
            triggers[d.what].append(d)
    for reset in h.resets:
        if not reset.ok:
            continue
        before = {h.canonical(d.run): d for d in triggers[reset.what] if d.end < reset.begin}
        for d in triggers[reset.what]:
            if d.begin > reset.end and h.canonical(d.run) in before:
                h.violates("V2", "a key that was reset", before[h.canonical(d.run)], reset, d)


def check_payloads(h):
    for d in h.deeds:
        if d.act == "trigger" and d.outcome in ("ok", "cached") and d.payload != d.token:
            h.violates("C7", "a run that is about something else", d)
    for i, told in h.told.items():
        last = h.last.get(i)
        if told.act == "trigger" and last and last.run and last.payload != told.token:
            h.violates("C7", "an id leads to a run that is about something else", told, last)


# Of those who trigger the same, one is told that it has made it: but for who asks again.
def check_created(h):
    created = defaultdict(list)
    unsure = {d.asked for d in h.deeds if d.act == "trigger" and d.asked and d.outcome.startswith("!")}
    for d in h.deeds:
        if d.act == "trigger" and d.ok:
            created[d.run].append(d)
    for i, deeds in created.items():
        if len(deeds) > 1 and i not in unsure:
            h.violates("V2", "a run was made twice", *deeds)


# ---- the list has everything, once, and nothing that nobody asked for ------------------------------


CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
MADE_US = 20000  # ids of a process only grow, so one may be a little ahead of its time


def made_ms(i):
    """When an id was made, by the clock of who made it. None: it does not say."""
    digits = [CROCKFORD.find(c) for c in i.removeprefix("run_")[:10]]
    if len(digits) != 10 or min(digits) < 0:
        return None
    return sum(digit * 32 ** n for n, digit in enumerate(reversed(digits)))


def clock_offset_us(h):
    """From the clock of the calls to that of the ids."""
    offsets = [made_ms(d.run) * 1000 - d.begin for d in h.deeds
               if d.act == "trigger" and d.ok and not d.asked and made_ms(d.run) is not None]
    return median(offsets) if offsets else None


def made_for_nobody(h, i, seen, offset_us):
    """A trigger that is asked again within one call, because its daemon died, finds its run by the key; unless
    that was reset in between. Then there is a run that only the reset was told of. Or unless it finds another
    one: the daemon that died was cut off from the buffer, which has one of this key. Then there is a run that
    nobody was told of, as old as that call, with the same payload."""
    resets = [d for d in h.resets if d.ok and d.run == i]
    if any(d.act == "trigger" and d.what == seen.key and d.begin < r.end and r.begin < d.end
           for r in resets for d in h.deeds):
        return True
    if offset_us is None or made_ms(i) is None:
        return False
    made_us = made_ms(i) * 1000 - offset_us
    return any(d.act == "trigger" and d.outcome == "cached" and d.what == seen.key and d.token == seen.payload
               and d.begin - MADE_US < made_us < d.end + MADE_US for d in h.deeds)


def check_listed(h):
    listed = [d for d in h.deeds if d.act == "list"]
    for d in listed:
        if not d.run:
            h.violates("test", "the list failed", d)
            continue
        if d.run in h.listed:
            h.violates("list", "a run is there twice", h.listed[d.run], d)
        h.listed[d.run] = d
    unsure = [d for d in h.deeds if d.act in MAKES and d.maybe]
    keys = {d.what for d in unsure}
    ids = {d.asked for d in unsure if d.act == "trigger"}
    nameless = sum(d.act == "replay" or not (d.what or d.asked) for d in unsure)
    offset_us = clock_offset_us(h)
    for i, d in h.listed.items():
        if i in h.told or i in ids or (d.key and d.key in keys) or made_for_nobody(h, i, d, offset_us):
            continue
        nameless -= not d.key
        if d.key or nameless < 0:
            h.violates("C9", "a run of a trigger that was refused", d)
    for i in h.groups:
        if i in h.last and h.last[i].run and i not in h.listed:
            h.violates("list", "a run is not in it", h.last[i])
        elif i in h.last and h.last[i].run and h.listed[i].status != h.last[i].status:
            h.violates("list", "a run is in another state there", h.last[i], h.listed[i])


# ---- changes: all that were acknowledged, and no others (V4) ---------------------------------------


def check_changes_kept(h):
    for i, group in h.groups.items():
        last = h.end(i)
        if not last:
            continue
        counter, had = h.start(i)
        increments = h.about(group, "increment")
        acked = counter + sum(d.ok for d in increments)
        maybe = sum(d.maybe for d in increments)
        if not acked <= last.counter <= acked + maybe:
            h.violates("V4", f"{acked} increments, {maybe} that may have counted, and the sum is {last.counter}",
                       last, *increments)
        tags = h.about(group, "tag")
        acked = had | {d.what for d in tags if d.ok}
        maybe = {d.what for d in tags if d.maybe}
        if not acked <= last.tags <= acked | maybe:
            h.violates("V4", f"tags {sorted(acked)}, perhaps {sorted(maybe)}, and there are {sorted(last.tags)}",
                       last, *tags)


# What one client was told before another one asks is in that one's answer.
def check_changes_seen(h):
    for i in h.told:
        deeds = h.by_id[i]
        group = h.groups[h.canonical(i)]
        tried = [d for d in h.about(group, "increment") if d.ok or d.maybe]
        counter, had = h.start(i)
        for d in deeds:
            if not d.run or d.act == "list":
                continue
            acked = counter + sum(o.act == "increment" and o.ok and o.end < d.begin for o in deeds)
            most = counter + sum(o.begin < d.end for o in tried)
            if not acked <= d.counter <= most:
                h.violates("V4", f"{acked} to {most} increments before this answer", d)
            missing = had | {o.what for o in deeds if o.act == "tag" and o.ok and o.end < d.begin}
            missing -= d.tags
            if missing:
                h.violates("V4", f"tags {sorted(missing)} were there before this answer", d)


def check_cancels(h):
    for i, group in h.groups.items():
        last = h.last.get(i)
        if not last or not last.run:
            continue
        cancels = h.about(group, "cancel")
        for d in cancels:
            if not d.ok or h.canonical(d.run) != d.run:
                continue
            if d.status not in FINAL:
                h.violates("U1", "canceled, and it is not", d)
            elif d.status != last.status:
                h.violates("V4", "a cancel was acknowledged", d, last)
        if last.status == "CANCELED" and not any(d.ok or d.maybe for d in cancels):
            h.violates("V4", "canceled, and nobody asked for it", last, *cancels)


# ---- a state that is final stays (U1) --------------------------------------------------------------


def check_final(h):
    states = defaultdict(list)
    for d in h.deeds:
        if d.run and h.canonical(d.run) == d.run:
            states[d.run].append(d)
    for deeds in states.values():
        ended = None
        for d in deeds:
            if ended and d.begin > ended.end and d.status != ended.status:
                h.violates("U1", "it was final before", ended, d)
                break
            if d.status in FINAL and (not ended or d.end < ended.end):
                ended = d


# ---- work: one holder at a time, by fence, and its end counts (U2) ---------------------------------


def check_leases(h, lease_us):
    leases, by_token = defaultdict(list), defaultdict(list)
    for d in h.deeds:
        if d.act == "lease" and d.run:
            leases[d.run].append(d)
        if d.act in ATTEMPTS:
            by_token[d.token].append(d)
    for i, deeds in leases.items():
        deeds.sort(key=lambda d: d.fence)
        for a, b in zip(deeds, deeds[1:]):
            ended = any(o.act != "beat" and o.begin < b.end and (o.ok or o.maybe) for o in by_token[a.held])
            beats = [o.begin for o in by_token[a.held] if o.act == "beat" and o.ok and o.begin < b.end]
            if a.fence == b.fence or a.held == b.held:
                h.violates("U2", "leased twice with one fence", a, b)
            elif b.end < a.begin:
                h.violates("U2", "a fence that is not higher than the one before", a, b)
            elif not ended and b.end < max([a.begin] + beats) + lease_us:
                h.violates("U2", "leased while somebody else had it", a, b, *by_token[a.held])
        cancels = [d for d in h.by_id[i] if d.act == "cancel" and d.ok and d.status == "CANCELED" and d.run == i]
        for d in deeds:
            before = [c for c in cancels if c.end < d.begin]
            if before:
                h.violates("U1", "handed out although it was canceled", before[0], d)


# Of those with one ordering key, one at a time. What an answer was on its way for does not count.
def check_order(h, lease_us):
    ends, held = {}, defaultdict(list)
    for d in h.deeds:
        if d.act in ATTEMPTS and d.act != "beat":
            ends[d.token] = min(d.begin, ends.get(d.token, d.begin))
    canceled = {d.run: d.begin for d in reversed(h.deeds) if d.act == "cancel" and d.run == d.asked}
    for d in h.deeds:
        if d.act == "lease" and d.run and d.order:
            until = min(d.begin + lease_us, ends.get(d.held, d.begin + lease_us), canceled.get(d.run, d.begin + lease_us))
            held[d.queue, d.order].append((d.end, until, d))
    for spans in held.values():
        spans.sort(key=lambda span: span[0])
        for (_, until, a), (begin, end, b) in zip(spans, spans[1:]):
            if begin < until and end > begin and a.run != b.run:
                h.violates("L3", "two of one ordering key at once", a, b)


def check_ends(h):
    for i, last in h.last.items():
        if not last.run or last.run != i:
            continue
        completes = [d for d in h.by_id[i] if d.act == "complete"]
        acked = {d.what for d in completes if d.ok}
        maybe = {d.what for d in completes if d.maybe}
        if len(acked) > 1:
            h.violates("U2", "completed more than once", *completes)
        if acked and (last.status != "COMPLETED" or last.output not in acked):
            h.violates("U1", "a run was completed otherwise", last, *completes)
        if last.status == "COMPLETED" and last.output not in acked | maybe:
            h.violates("U2", "completed by somebody who was told that it was not", last, *completes)
        ends = [d for d in h.by_id[i] if d.act in ATTEMPTS and d.ok]
        lost = [d for d in h.by_id[i] if d.act in ATTEMPTS and d.outcome == "lost"]
        for d in lost:
            if any(e.token == d.token and e.act == d.act and e.what == d.what and e.begin > d.end for e in ends):
                h.violates("U2", "lost, and then it was not", d)


# ---- everything ------------------------------------------------------------------------------------


def check(deeds, lease_ms=1500):
    h = History(deeds)
    check_resolves(h)
    check_listed(h)
    check_keys(h)
    check_resets(h)
    check_payloads(h)
    check_created(h)
    check_changes_kept(h)
    check_changes_seen(h)
    check_cancels(h)
    check_final(h)
    lease_us = (lease_ms - 1) * 1000  # a ledger counts whole milliseconds: the first one may have been nearly over
    check_leases(h, lease_us)
    check_order(h, lease_us)
    check_ends(h)
    return h


def totals(h):
    outcomes = Counter(d.outcome for d in h.deeds)
    told = Counter(d.act for d in h.deeds if not d.outcome.startswith("!"))
    aliases = sum(h.canonical(i) != i for i in h.told)
    buffered = sum(d.buffered for d in h.deeds if d.act != "list")
    degraded = sum("d" in d.flags for d in h.deeds)
    states = Counter(d.status for d in h.last.values() if d.run)
    return (f"{len(h.deeds)} answers: "
            + ", ".join(f"{n} {act}" for act, n in sorted(told.items()))
            + f"; {outcomes['!ambiguous']} ambiguous, {outcomes['!unavailable']} unavailable,"
            + f" {outcomes['timed_out']} timed out; {len(h.told)} ids, {aliases} aliases, "
            + ", ".join(f"{n} {state}" for state, n in sorted(states.items()))
            + f"; {buffered} by the buffer, {degraded} degraded; {len(h.found)} violations")


def main(argv):
    lease_ms = 1500
    if argv[:1] == ["--lease"]:
        lease_ms, argv = int(argv[1]), argv[2:]
    deeds = []
    for path in argv:
        with open(path, encoding="utf-8") as lines:
            deeds += [Deed(line) for line in lines]
    h = check(deeds, lease_ms)
    for text in h.found[:20]:
        print(text)
    print(totals(h))
    return 1 if h.found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
