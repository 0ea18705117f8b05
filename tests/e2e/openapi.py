#!/usr/bin/python3
"""openapi.py HOST:PORT - asks a running daemon for everything in its OpenAPI document, and compares
the answers with what the document says: status, type, fields, schema. One line per request, for
http.sh: "ok NAME" or "not ok NAME: why"."""
import http.client
import json
import sys

from jsonschema import Draft202012Validator

address = sys.argv[1]
failures = 0


def send(method, path, body=None, fields=None):
    connection = http.client.HTTPConnection(address, timeout=20)
    fields = dict(fields or {})
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        fields.setdefault("Content-Type", "application/json")
    connection.request(method, path, body, fields)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


document = json.loads(send("GET", "/openapi.json")[1])


def resolve(node):
    while "$ref" in node:
        target = document
        for name in node["$ref"][2:].split("/"):
            target = target[name]
        node = target
    return node


operations = {}
for path, item in document["paths"].items():
    for method, operation in item.items():
        if method != "parameters":
            operations[operation["operationId"]] = (method.upper(), path, operation)


def validate(schema, value):
    errors = Draft202012Validator({**schema, "components": document["components"]}).iter_errors(value)
    return [error.message for error in errors]


def mistakes(operation, wanted, answer, content):
    """What is not as the document says."""
    if answer.status != wanted:
        return [f"status {answer.status}, not {wanted}: {content!r}"]
    if str(wanted) not in operation["responses"]:
        return [f"status {wanted} is not in the document"]
    response = resolve(operation["responses"][str(wanted)])
    found = []
    for name, field in response.get("headers", {}).items():
        field, value = resolve(field), answer.getheader(name)
        if value is None and field.get("required"):
            found.append(f"no {name}")
        if value is not None:
            found += validate(field["schema"], value)
    kind = answer.getheader("Content-Type", "").split(";")[0]
    if kind not in response["content"]:
        return found + [f"content is {kind}"]
    schema = response["content"][kind].get("schema")
    if schema and kind.endswith("json"):
        value = json.loads(content)
        found += validate(schema, value)
        if kind == "application/problem+json" and value["status"] != wanted:
            found.append(f"a problem of status {value['status']}")
    return found


def check(name, wanted, parts=None, query="", body=None, fields=None):
    """Performs an operation and says how it went; returns its answer."""
    global failures
    method, path, operation = operations[name]
    seen.add(name)
    for part, value in (parts or {}).items():
        path = path.replace("{" + part + "}", value)
    answer, content = send(method, path + query, body, fields)
    found = mistakes(operation, wanted, answer, content)
    if body is not None and not isinstance(body, bytes) and wanted not in (400, 413, 415):
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        found += ["request: " + text for text in validate(schema, body)]
    title = f"openapi: {name} answers {wanted}"
    failures += bool(found)
    print(f"not ok {title}: {'; '.join(found)}" if found else f"ok {title}")
    return json.loads(content) if answer.getheader("Content-Type", "").endswith("json") else content


def problem(name, parts=None, **how):
    check(name, 400, parts, **how)


# The comparison itself must be able to fail.
claimed = {"$ref": "#/components/schemas/Claimed"}
if not validate(claimed, {"outcome": "claimed"}) or not validate(claimed, {"surprise": 1}):
    failures += 1
    print("not ok openapi: an answer that is not as it should be is noticed")

meta = "?meta=true"
known = {"fence", "version", "lease_left_ms", "retain_left_ms", "mine", "taken_over", "changed"}


def everything(name, wanted, parts, **how):
    """The same with all that is known, and all of it is there."""
    answer = check(name, wanted, parts, query=meta, **how)
    missing = known - set(answer)
    if missing:
        global failures
        failures += 1
        print(f"not ok openapi: {name} with meta=true, {wanted}: no {sorted(missing)}")
    return answer


seen = set()
raw = {"Content-Type": "application/octet-stream"}
here = {"scope": "openapi", "key": "k%2F1"}
other = {"scope": "openapi", "key": "other"}

check("peek", 404, here)
token = check("claim", 201, here, body={"lease_ms": 60000, "retain_ms": 60000, "fingerprint": "a"},
              fields={"Idempotency-Key": "once-1"})["token"]
again = check("claim", 201, here, body={"fingerprint": "a"}, fields={"Idempotency-Key": "once-1"})
if again["token"] != token:
    failures += 1
    print("not ok openapi: the same Idempotency-Key gets the same token")
check("claim", 409, here, body={"wait_ms": 0, "fingerprint": "a"})
check("claim", 503, here, body={"wait_ms": 1, "fingerprint": "a"})
check("claim", 422, here, body={"fingerprint": {"base64": "AA=="}})
check("peek", 409, here)
check("renew", 200, here, body={"token": token, "lease_ms": 60000})
check("renew", 409, here, body={"token": "0" * 32})
check("forget", 409, here)
check("release", 409, here, query="?token=" + "0" * 32)
check("publish", 200, here, body={"token": token, "value": "an answer"})
check("publish", 409, here, body={"token": "0" * 32, "value": "another"})
check("claim", 200, here, body={"fingerprint": "a"})
check("claim", 200, here, body={"fingerprint": "a"}, fields={"Accept": "application/octet-stream"})
check("peek", 200, here)
check("peek", 200, here, fields={"Accept": "application/octet-stream"})
check("peek", 406, here, fields={"Accept": "text/html"})
check("forget", 200, here, body={})
check("forget", 404, here)

token = check("claim", 201, other)["token"]
check("release", 200, other, fields={"Once-Token": token})
token = check("claim", 201, other)["token"]
check("publish", 200, other, query="?token=" + token, body=b"\xff\x00", fields=raw)
check("peek", 200, other)
check("forget", 200, other)
token = check("claim", 201, other)["token"]
check("publish", 200, other, body={"token": token, "value": None})
check("claim", 409, other)

own = {"scope": "openapi", "key": "own"}
token = "000102030405060708090a0b0c0d0e0f"
version = everything("peek", 404, own)["version"]
everything("claim", 201, own, body={"token": token})
check("peek", 409, own, query="?seen=" + version)
version = everything("peek", 409, own, fields={"Once-Token": token})["version"]
check("peek", 409, own, query="?seen=" + version, fields={"Prefer": "wait=0"})
everything("claim", 409, own, body={"wait_ms": 0})
everything("claim", 422, own, body={"fingerprint": "other"})
everything("renew", 200, own, body={"token": token})
everything("release", 409, own, fields={"Once-Token": "0" * 32})
everything("release", 200, own, fields={"Once-Token": token})
everything("claim", 201, own, body={"token": token})
everything("publish", 200, own, body={"token": token, "value": "v"})
everything("publish", 200, own, body=b"v", fields=dict(raw, **{"Once-Token": token}))
everything("claim", 200, own)
check("peek", 200, own, query=meta + "&seen=" + version)
everything("forget", 200, own)
problem("claim", own, body={"token": token}, fields={"Idempotency-Key": "a"})
problem("peek", own, query="?seen=x")
problem("peek", own, query="?meta=yes")

page = check("list", 200, query="?scope=openapi&limit=1")
check("claim", 201, here)
page = check("list", 200, query="?scope=openapi&limit=1")
check("list", 200, query="?scope=openapi&cursor=" + page["cursor"])
check("list", 200)

# ---- runs ----

task, queue, env = {"task": "openapi"}, {"queue": "openapi"}, {"Once-Env": "openapi"}
nobody = {"id": "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"}
one = {"payload": {"a": [1]}, "options": {"idempotencyKey": "k", "idempotencyKeyTTL": "1h", "tags": ["x"],
                                          "metadata": {"n": 1}, "orderingKey": "o", "maxAttempts": 2}}
run = {"id": check("trigger", 200, task, body=one, fields=env)["id"]}
check("trigger", 200, task, body=one, fields=env)
check("trigger", 422, task, body={"payload": 2, "options": {"idempotencyKey": "k"}}, fields=env)
late = {"id": check("trigger", 200, task, body={"options": {"delay": "1h", "queue": "late"}}, fields=env)["id"]}
check("batch", 200, task, body={"items": [{"payload": 1, "options": {"idempotencyKey": "b"}}, {},
                                          {"payload": 2, "options": {"idempotencyKey": "b"}}]}, fields=env)
page = check("runs", 200, query="?limit=1&task=openapi", fields=env)
check("runs", 200, query="?status=QUEUED,DELAYED&cursor=" + page["cursor"], fields=env)
check("runs", 200)
check("run", 200, run, fields=env)
check("run", 404, run)
check("tags", 200, run, body={"tags": ["y"]}, fields=env)
check("tags", 422, run, body={"tags": [str(n) for n in range(10)]}, fields=env)
check("tags", 404, nobody, body={"tags": ["y"]}, fields=env)
check("metadata", 200, run, body={"operations": [{"type": "increment", "key": "n", "value": 1}]}, fields=env)
check("metadata", 200, run, body={"metadata": {"n": "text"}}, fields=env)
check("metadata", 409, run, body={"metadata": {}, "version": 0}, fields=env)
check("metadata", 422, run, body={"operations": [{"type": "increment", "key": "n", "value": 1}]}, fields=env)
check("reschedule", 200, late, body={"delay": 60000}, fields=env)
check("reschedule", 422, run, body={"delay": "2m"}, fields=env)
check("cancel", 200, late, body={"reason": "why not"}, fields=env)
check("cancel", 404, nobody)
check("replay", 200, run, fields=env)
check("replay", 404, nobody, body={})
check("reset", 200, dict(task, key="k"), fields=env)
check("reset", 404, dict(task, key="k"), fields=env)
leased = check("lease", 200, queue, body={"count": 2, "lease_ms": "1m", "wait_ms": 0}, fields=env)["runs"]
check("lease", 200, {"queue": "nothing"}, fields=env)
mine = {"id": leased[0]["id"]}
check("heartbeat", 200, mine, body={"token": leased[0]["token"], "lease_ms": 60000}, fields=env)
check("heartbeat", 409, mine, body={"token": "0" * 32}, fields=env)
check("fail", 409, mine, body={"token": "0" * 32, "error": "no"}, fields=env)
check("fail", 200, mine, body={"token": leased[0]["token"], "error": {"m": 1}, "retry_in_ms": 0}, fields=env)
check("complete", 409, mine, body={"token": "0" * 32}, fields=env)
check("complete", 200, {"id": leased[1]["id"]}, body={"token": leased[1]["token"], "output": None}, fields=env)
problem("trigger", task, body={"options": {"delay": "soon"}})
problem("trigger", task, fields={"Once-Env": "no env"})
problem("batch", task, body={"items": []})
problem("runs", query="?status=done")
problem("metadata", run, body={})
problem("complete", run, body={})
check("trigger", 413, task, body={"options": {"tags": [str(n) for n in range(11)]}})
check("trigger", 415, task, body={}, fields={"Content-Type": "text/plain"})

# ---- mutations ----

who = {"user_id": "user-1", "request_id": "r-1"}
env = {"Once-Env": "openapi"}
token = check("mutation_begin", 201, body=dict(who, method="UseItem", lease_ms=60000), fields=env)["token"]
check("mutation_begin", 201, body=who)
check("mutation_begin", 409, body=dict(who, method="UseItem"), fields=env)
check("mutation_begin", 503, body=dict(who, method="UseItem", wait_ms=1), fields=env)
check("mutation_begin", 422, body=dict(who, method="SellItem"), fields=env)
check("mutation_complete", 409, body=dict(who, token="0" * 31 + "1", response="no"), fields=env)
check("mutation_complete", 200, body=dict(who, token=token, response="done", epoch="e1", retain_ms=60000), fields=env)
check("mutation_begin", 200, body=dict(who, method="UseItem", epoch="e1"), fields=env)
token = check("mutation_begin", 201, body=dict(who, method="UseItem", epoch="e2"), fields=env)["token"]
check("mutation_abort", 200, body=dict(who, token=token), fields=env)
check("mutation_abort", 409, body=dict(who, token=token), fields=env)
check("mutation_abort", 200, body=dict(who, token=""), fields=env)
token = check("mutation_begin", 201, body=dict(who, request_id="r-2"), fields=env)["token"]
check("mutation_complete", 200, body=dict(who, request_id="r-2", token=token, response={"base64": "/w=="}), fields=env)
check("mutation_begin", 200, body=dict(who, request_id="r-2"), fields=env)
token = check("mutation_begin", 201, body=dict(who, request_id="r-3"), fields=env)["token"]
check("mutation_complete", 200, body=dict(who, request_id="r-3", token=token, response=None), fields=env)
check("mutation_begin", 409, body=dict(who, request_id="r-3"), fields=env)
problem("mutation_begin", body={"user_id": "user-1"})
problem("mutation_begin", body=dict(who, request_id=""))
problem("mutation_begin", body=dict(who, response="x"))
problem("mutation_complete", body=dict(who, response="x"))
check("mutation_begin", 413, body=dict(who, user_id="x" * 257))

for name in operations:
    if name in ("livez", "readyz", "version", "openapi", "metrics"):
        check(name, 200)

problem("claim", here, body={"lease": 1})
problem("claim", here, body={"lease_ms": -1})
problem("renew", here, body={})
problem("publish", here, body={"token": token, "value": {"a": 1}})
problem("release", here)
problem("list", query="?limit=0")
check("claim", 415, here, body={}, fields={"Content-Type": "text/plain"})
check("publish", 413, here, body=b"x" * 1100000, fields=dict(raw, **{"Once-Token": token}))

missing = sorted(set(operations) - seen)
failures += bool(missing)
title = "openapi: every operation is performed"
print(f"not ok {title}: {missing}" if missing else f"ok {title}")
sys.exit(failures > 0)
