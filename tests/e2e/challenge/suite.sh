#!/usr/bin/env bash
# suite.sh BUILD_DIR fleet|embedded - the challenges on one set of planes, for challenge.sh. Prints TAP.
#
# An env has a gate of its own: every scenario has an env of its own, so its gate is cold. A scenario is
# one line, whatever it asks. Nothing sleeps to let something happen: what is waited for is asked for, up
# to a limit. What takes the time of a lease (30 s) is begun first and looked at last.
# shellcheck source=tests/e2e/shared/daemon.bash
. "$(dirname "$0")/../shared/daemon.bash" "challenge: $2" "$1"
planes=$2
# shellcheck source=tests/e2e/challenge/planes.bash
. "$here/planes.bash"
limit=60
lease_s=30
env=default
wrong=()

# ---- words ---------------------------------------------------------------------------------------

# ask DAEMON METHOD PATH [BODY [ARG...]]: the status in $code, the body in the file "body".
ask() {
    local to=$1 method=$2 path=$3 content=${4-}
    shift $(($# < 4 ? $# : 4))
    [ -z "$content" ] || set -- -H 'Content-Type: application/json' -d "$content" "$@"
    code=$(curl -sS -m $limit -X "$method" -H "Once-Env: $env" -o body -w '%{http_code}' "$@" "http://${at[$to]}$path" 2>>noise)
}
# member NAME: of the body. What stands in front of everything that callers have put in needs no jq.
member() {
    case $1 in
    id | code | source | status | isCached | degraded | retryable) pick "$1" ;;
    *) jq -rc ".$1" body ;;
    esac
}
pick() {
    local all
    all=$(<body)
    if [[ $all =~ \"$1\":(\"([^\"]*)\"|[a-z0-9]+) ]]; then
        echo "${BASH_REMATCH[2]:-${BASH_REMATCH[1]}}"
    else
        echo null
    fi
}
trigger() { # DAEMON OPTIONS [PAYLOAD [ARG...]]: of the task t; $id, $code
    ask "$1" POST /v1/tasks/t/trigger "{\"payload\":${3-1},\"options\":$2}" "${@:4}"
    id=$(member id)
}
burst() { # FILE N METHOD PATH BODY: over both daemons
    "$here/burst.py" -H "Once-Env: $env" "${@:2}" "${at[a]}" "${at[b]}" >"$1" 2>>noise
}
keyed() { echo "{\"payload\":1,\"options\":{\"idempotencyKey\":\"$1\"}}"; }
same_key() { burst "$1" "$2" POST /v1/tasks/t/trigger "$(keyed "$3")"; } # FILE N KEY
# told FILE: how many were answered with 200, how many ids there are, how many are new
told() {
    echo "$(grep -c ^200 "$1") $(the_id "$1" | wc -l) $(grep -c '"isCached":false' "$1")"
}
ids() { grep -o '"id":"run_[0-9A-Z]*"' "$1" | cut -d'"' -f4; }
the_id() { ids "$1" | sort -u; }
trip() { # the gate of this env is closed from now on, for ten seconds
    ask a POST /v1/tasks/fill/batch '{"items":[{},{},{},{}]}'
    is_ "the gate is closed" "$(member 'results[3].source')" buffer
}
listed() { # [QUERY]: every id of this env, by pages
    local cursor=''
    until [ "$cursor" = null ]; do
        ask b GET "/v1/runs?limit=${page:-1000}&${1-}${cursor:+&cursor=$cursor}"
        [ "$code" = 200 ] || return 1
        ids body
        [[ $(tail -c 200 body) =~ \"cursor\":\"?([^\"}]*) ]] && cursor=${BASH_REMATCH[1]}
    done
}
metric() { curl -sS -m $limit "http://${at[$1]}/metrics" 2>>noise | grep -F "$2" | sed -n 's/^once_[^ ]* //p' | head -n 1; }
within() { # COMMAND...: until it succeeds
    local end=$((SECONDS + limit))
    until "$@" >>noise 2>&1; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.02
    done
}
is_ms() { [ "$1" -ge "$2" ] && [ "$1" -le "$3" ]; }
at_least() { # DAEMON METRIC N
    local value
    value=$(metric "$1" "$2")
    value=${value:-0}
    [ "${value%.*}" -ge "$3" ]
}
now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }
is_() { [ "$2" = "$3" ] || wrong+=("$1: got $(printf %q "$2"), want $(printf %q "$3")"); } # WHAT GOT WANT
true_() { "${@:2}" || wrong+=("$1"); } # WHAT COMMAND...
shows() { # NAME: the end of a scenario
    [ ${#wrong[@]} -eq 0 ]
    report $? "$1"
    [ ${#wrong[@]} -eq 0 ] || printf '# %s\n' "${wrong[@]}"
    wrong=()
    [ -z "${TIMES-}" ] || echo "# $SECONDS s"
}

# ---- what crashes: begun first --------------------------------------------------------------------

crash_begin() {
    local i
    room crash
    env=crash
    pair --drainer off
    : >crash.ids
    for i in 1 2; do
        jq -nc --arg i "$i" '{items: [range(1000) | {payload: ., options: {idempotencyKey: "c\($i)-\(.)"}}]}' >many
        ask a POST /v1/tasks/t/batch @many
        ids body >>crash.ids
    done
    is_ "as many as were asked for" "$(sort -u crash.ids | wc -l)" 2000
    if [ $planes = fleet ]; then
        up d --drainer on --drainer-rate 300
        up x --drainer off
    else
        down a TERM
        pair --drainer on --drainer-rate 300
        at[d]=${at[a]} at[x]=${at[a]}
    fi
    true_ "it drains" within at_least d once_drained_total 1
    hold
    "$here/burst.py" -H 'Once-Env: claims' 1 POST /v1/tasks/t/trigger "$(keyed killed)" "${at[x]}" >x.out 2>>noise &
    true_ "a trigger has its claim" within at_least x once_trigger_claims_total 1
    true_ "and is at the ledger" within at_least x 'once_plane_pending_ops{plane="ledger"}' 1
    true_ "so is the drainer" within at_least d 'once_plane_pending_ops{plane="ledger"}' 1
    leased >leased.ids
    true_ "which has some" [ -s leased.ids ]
    [ $planes = embedded ] || held_up # what dies with it may be in the ledger a moment later
    [ $planes = embedded ] || down x KILL
    killed_ms=$(now_ms)
    if [ $planes = fleet ]; then down d KILL; else down a KILL; fi
    let_go
    if [ $planes = fleet ]; then stalled_begin; else pair --drainer off; fi
    env=claims
    "$here/burst.py" -H "Once-Env: claims" -H 'Prefer: wait=50' 5 POST /v1/tasks/t/trigger "$(keyed killed)" "${at[b]}" >killed.out 2>>noise &
    waiters=$!
}

# A claimant that stands still for longer than its lease, before it asks the ledger for anything.
stalled_begin() {
    up y --drainer off
    kill -STOP "$ONCE_TEST_POSTGRES_PID" $(pgrep -P "$ONCE_TEST_POSTGRES_PID")
    "$here/burst.py" -H 'Once-Env: claims' -H 'Prefer: wait=50' 1 POST /v1/tasks/t/trigger "$(keyed stalled)" "${at[y]}" >y.out 2>>noise &
    stalled=$!
    true_ "it has the claim" within at_least y once_trigger_claims_total 1
    kill -STOP "${pid[y]}"
    kill -CONT "$ONCE_TEST_POSTGRES_PID" $(pgrep -P "$ONCE_TEST_POSTGRES_PID")
    "$here/burst.py" -H 'Once-Env: claims' -H 'Prefer: wait=50' 1 POST /v1/tasks/t/trigger "$(keyed stalled)" "${at[b]}" >stalled.out 2>>noise &
    successor=$!
    { within [ -s stalled.out ] && kill -CONT "${pid[y]}"; } &
}

held_up() { # what is asked of a run that a drainer has
    local one key began
    env=crash
    one=$(head -n 1 leased.ids)
    ask b GET "/v1/runs/$one"
    is_ "it can be read" "$code $(member id)" "200 $one"
    key=$(member idempotencyKey)
    began=$(now_ms)
    curl -sS -m $limit -X POST -H "Once-Env: $env" -o reset.body -w '%{http_code}' "http://${at[b]}/v1/tasks/t/keys/$key/reset" >reset.code 2>>noise &
    local reset=$!
    ask b POST "/v1/runs/$one/tags" '{"tags":["x"]}'
    is_ "a change is told to come again" "$code $(member code) $(member retryable)" "503 timed_out true"
    true_ "after two seconds" is_ms $(($(now_ms) - began)) 1900 10000
    wait $reset
    is_ "so is a reset" "$(cat reset.code) $(jq -r .code reset.body)" "503 timed_out"
    shows "15: changes to a run that a drainer has wait two seconds for it, and are told to come again"
}

dead_claim() { # fleet: the claim of a daemon that is dead
    local began
    env=claims
    began=$(now_ms)
    trigger b '{"idempotencyKey":"killed"}' 1 -H 'Prefer: wait=1'
    is_ "who waits for less is told" "$code $(member code) $(member retryable)" "503 timed_out true"
    true_ "in time" is_ms $(($(now_ms) - began)) 900 9000
    shows "18: a trigger that waits for a claim is told to come again when its time is up"
    began=$(now_ms)
    trigger b '{"idempotencyKey":"killed"}' 2 -H 'Prefer: wait=20'
    is_ "who asks for something else" "$code $(member code)" "422 mismatch"
    true_ "does not wait" is_ms $(($(now_ms) - began)) 0 9000
    shows "another payload under a key that is being claimed is refused without waiting"
}

crash_go_on() {
    room crash
    if [ $planes = fleet ]; then
        dead_claim
        up d --drainer on
        crash_at=(${at[b]} ${at[d]})
    else
        held_up
        wait $waiters
        down a TERM
        up crash --drainer on
        at[d]=${at[crash]} at[b]=${at[crash]}
        crash_at=(${at[b]} ${at[d]})
    fi
}

buffer_empty() { # DAEMON
    [ "$(metric "$1" 'once_buffer_entries{state="queued"}')" = 0 ] &&
        [ "$(metric "$1" 'once_buffer_entries{state="leased"}')" = 0 ]
}

crash_end() {
    local allowed=$(((lease_s + 2) * 1000))
    at[b]=${crash_at[0]} at[d]=${crash_at[1]}
    env=claims
    [ $planes = embedded ] || wait $waiters
    is_ "one id" "$(told killed.out | cut -d' ' -f1,2)" "5 1"
    true_ "made by one at most" [ "$(told killed.out | cut -d' ' -f3)" -le 1 ]
    true_ "within lease and 2 s" is_ms "$(cut -f2 killed.out | sort -n | tail -n 1)" 0 $allowed
    is_ "one run" "$(listed | grep -c "$(the_id killed.out)") $(ask b GET "/v1/runs/$(the_id killed.out)"; echo "$code")" "1 200"
    shows "16: a claimant killed on its way to the ledger: those who wait get one id, within its lease and 2 s"
    if [ $planes = fleet ]; then
        wait $successor
        is_ "who waits takes over" "$(told stalled.out)" "1 1 1"
        wait $stalled
        is_ "who was late gets the same" "$(told y.out) $(the_id y.out)" "1 1 0 $(the_id stalled.out)"
        is_ "two keys, two runs" "$(listed | wc -l)" 2
        shows "a claimant that stands still past its lease makes no second run when it wakes up"
    fi
    env=crash
    true_ "the buffer is empty" within buffer_empty d
    listed >found
    is_ "every one is there, once" "$(sort found | md5sum)" "$(sort crash.ids | md5sum)"
    is_ "each key has one" "$(listed_keys | sort | uniq -d | wc -l) $(listed_keys | sort -u | wc -l)" "0 2000"
    is_ "none failed" "$(page=1000 listed 'status=FAILED,CANCELED' | wc -l)" 0
    shows "a drainer killed in the middle of 2,000: another one ends it, nothing is lost or there twice"
}
listed_keys() {
    local cursor=''
    until [ "$cursor" = null ]; do
        ask b GET "/v1/runs?limit=1000${cursor:+&cursor=$cursor}"
        jq -r '.runs[].idempotencyKey' body
        cursor=$(member cursor)
    done
}

# ---- with the drainer off -------------------------------------------------------------------------

baseline() {
    env=e01
    trigger a '{"delay":"1h"}'
    is_ "before the burst" "$code $(member source) $(member status)" "200 ledger DELAYED"
    burst out 30 POST /v1/tasks/t/trigger '{"payload":{i}}'
    is_ "all are taken" "$(told out)" "30 30 30"
    local buffered
    buffered=$(cut -f3 out | jq -r 'select(.source == "buffer").id')
    true_ "what is too much is buffered" [ "$(wc -l <<<"$buffered")" -ge 28 ]
    for id in $(head -n 3 <<<"$buffered"); do
        ask b GET "/v1/runs/$id"
        is_ "and found" "$code $(member id) $(member status)" "200 $id QUEUED"
    done
    shows "01: of a burst at a cold gate what is too much is buffered, and found at once"
}

reads() {
    env=e02
    trip
    trigger a '{"idempotencyKey":"k","tags":["one"],"metadata":{"m":1},"delay":"1h","maxAttempts":7,"orderingKey":"o","queue":"q"}' '{"p":[1]}'
    is_ "buffered" "$(member source)" buffer
    ask b GET "/v1/runs/$id"
    is_ "get" "$code $(jq -c '[.id, .env, .task, .queue, .status, .payload, .idempotencyKey, .tags, .metadata, .metadataVersion,
        .orderingKey, .attempts, .maxAttempts, .stalls, .output, .error, .startedAt, .finishedAt]' body)" \
        "200 [\"$id\",\"e02\",\"t\",\"q\",\"DELAYED\",{\"p\":[1]},\"k\",[\"one\"],{\"m\":1},1,\"o\",0,7,0,null,null,null,null]"
    for query in tag=one status=DELAYED queue=q "task=t&status=DELAYED&tag=one"; do is_ "by $query" "$(listed "$query")" "$id"; done
    is_ "not by another status" "$(listed 'status=COMPLETED,FAILED,CANCELED,EXECUTING')" ""
    ask b GET /v1/runs/run_01ARZ3NDEKTSV4RRFFQ69G5FAV
    is_ "one that is not there" "$code $(member code)" "404 absent"
    env=e02b
    ask b GET "/v1/runs/$id"
    is_ "of another env" "$code $(member code)" "404 absent"
    for path in tags cancel reschedule replay; do
        ask b POST "/v1/runs/$id/$path" "$(case $path in tags) echo '{"tags":["x"]}' ;; reschedule) echo '{"delay":"1h"}' ;; esac)"
        is_ "$path from another env" "$code $(member code)" "404 absent"
    done
    is_ "nor listed there" "$(listed)" ""
    shows "02: a buffered run is read as any other, and is not there for another env"
}

mutations() {
    env=e03
    trip
    trigger a '{"delay":"1h"}'
    is_ "buffered" "$(member source)" buffer
    ask a POST "/v1/runs/$id/tags" '{"tags":["x","y"]}'
    ask b POST "/v1/runs/$id/tags" '{"tags":["y","z"]}'
    is_ "tags" "$code $(member tags)" '200 ["x","y","z"]'
    ask a PUT "/v1/runs/$id/metadata" '{"metadata":{"step":"one"}}'
    ask b GET "/v1/runs/$id"
    is_ "metadata" "$(member metadata)" '{"step":"one"}'
    ask b PUT "/v1/runs/$id/metadata" '{"operations":[{"type":"increment","key":"n","value":5}]}'
    ask a PUT "/v1/runs/$id/metadata" '{"operations":[{"type":"increment","key":"n","value":3}]}'
    is_ "increments" "$code $(member metadata.n)" "200 8"
    local before
    before=$(member delayUntil)
    ask a POST "/v1/runs/$id/reschedule" '{"delay":"10m"}'
    is_ "reschedule" "$code $(member status)" "200 DELAYED"
    true_ "is sooner" [ "$(member delayUntil)" \< "$before" ]
    ask b POST "/v1/runs/$id/tags" '{"tags":["1","2","3","4","5","6","7","8"]}'
    is_ "too many tags" "$code $(member code) $(member run.tags)" '422 refused ["x","y","z"]'
    shows "03: tags, metadata, increments and a new time reach a buffered run"
}

collision() {
    local n
    for n in 30 1000; do
        env=e04-$n
        same_key out $n k
        is_ "$n at once" "$(told out)" "$n 1 1"
        for to in a b; do
            trigger $to '{"idempotencyKey":"k"}'
            is_ "later, at $to" "$code $(member isCached) $id" "200 true $(the_id out)"
        done
        is_ "one run" "$(listed)" "$(the_id out)"
        shows "04: $n triggers of one key at a cold gate are one run, made once; a later one gets it"
    done
    env=e04-ten
    burst out 300 POST /v1/tasks/t/trigger "$(keyed 'k{d}')"
    is_ "ten keys" "$(told out)" "300 10 10"
    is_ "ten runs" "$(listed | wc -l)" 10
    is_ "in both stores" "$(cut -f3 out | jq -r 'select(.isCached == false).source' | sort | uniq -c | xargs)" "8 buffer 2 ledger"
    shows "300 triggers of ten keys at a cold gate, across both stores, are ten runs"
}

counted() { # what became of the bursts above
    true_ "claims" at_least a once_trigger_claims_total 1
    true_ "those who waited for them" at_least a once_trigger_waits_total 1
    true_ "what passed" at_least a 'once_gate_decisions_total{decision="pass"}' 1
    true_ "what was diverted" at_least a 'once_gate_decisions_total{decision="divert"}' 1
    true_ "runs that were made" at_least a 'once_triggers_total{outcome="created"}' 1
    true_ "triggers that found one" at_least a 'once_triggers_total{outcome="cached"}' 100
    shows "claims, waits, and what the gate has decided are counted"
}

all_envs() { # a gate of its own for each, and one for all of them
    local usual=("${gate[@]}")
    room together
    gate=(--gate-threshold 100 --gate-all-threshold 3 --gate-window 10s --gate-hold 10s)
    pair --drainer off
    "$here/burst.py" -H 'Once-Env: g{i}' 40 POST /v1/tasks/t/trigger '{}' "${at[a]}" "${at[b]}" >out 2>>noise
    is_ "all are taken" "$(told out)" "40 40 40"
    is_ "three pass, of all envs and daemons" "$(grep -c '"source":"ledger"' out) $(grep -c '"source":"buffer"' out)" "3 37"
    gate=("${usual[@]}")
    shows "a gate of all envs together bounds what reaches the ledger, however many envs there are"
}

# What drain_round_trip() will look at.
before_the_drain() {
    env=e05
    trip
    trigger a '{"idempotencyKey":"k"}'
    kept=$id
    ask b POST "/v1/runs/$id/tags" '{"tags":["kept"]}'
    ask a PUT "/v1/runs/$id/metadata" '{"metadata":{"kept":true}}'
    env=e06
    trip
    trigger b '{"idempotencyKey":"k","queue":"canceled"}'
    canceled=$id
    ask a POST "/v1/runs/$id/cancel" '{"reason":"first"}'
    is_ "canceled" "$code $(member status) $(member error)" "200 CANCELED first"
    ask b POST "/v1/runs/$id/cancel" '{"reason":"second"}'
    is_ "twice" "$code $(member status) $(member error)" "200 CANCELED first"
    trigger b '{"idempotencyKey":"k","queue":"canceled"}'
    is_ "it has its key" "$(member isCached) $id" "true $canceled"
    env=bytes
    trip
    trigger a '{"metadata":{"e":[],"o":{},"n":12345678901234567890}}' "$exact"
    bytes=$id
    ask b POST "/v1/runs/$id/tags" '{"tags":["x"]}'
    ask a PUT "/v1/runs/$id/metadata" '{"operations":[{"type":"set","key":"s","value":[]},{"type":"increment","key":"c","value":9007199254740993}]}'
    ask b GET "/v1/runs/$id"
    true_ "the payload is as it came" grep -qF "\"payload\":$exact," body
    true_ "what operations did not touch, too" grep -qF '"metadata":{"e":[],"o":{},"n":12345678901234567890,"s":[],"c":9007199254740993}' body
    shows "empty arrays, large integers and the order of keys survive every change to a buffered run"
}
exact='{"b":[],"a":{},"n":9007199254740993,"big":123456789012345678901234567890,"f":1.50,  "deep":[[[]],[{}]],"e":1E5}'

replay() {
    local state
    env=e07
    trip
    trigger a '{"idempotencyKey":"k","tags":["x"],"metadata":{"m":[]}}' '{"p":[]}'
    ask b POST "/v1/runs/$id/replay"
    is_ "replayed" "$code $(member isCached) $(member source)" "200 false buffer"
    local new
    new=$(member id)
    true_ "is another" [ "$new" != "$id" ]
    ask a GET "/v1/runs/$new"
    is_ "like it, without its key" "$code $(jq -c '[.task, .payload, .tags, .metadata, .idempotencyKey]' body)" '200 ["t",{"p":[]},["x"],{"m":[]},null]'
    ask a GET "/v1/runs/$id"
    is_ "the first is as it was" "$code $(member idempotencyKey)" "200 k"
    shows "07: a replay of a buffered run is a new one"
    env=e12
    trigger a '{"maxAttempts":1,"queue":"w"}'
    state=$(fails w)
    ask b POST "/v1/runs/$id/replay"
    is_ "of a failed one" "$state $code $(member isCached)" "FAILED 200 false"
    true_ "is another" [ "$(member id)" != "$id" ]
    ask b GET "/v1/runs/$id"
    is_ "which is still there" "$code $(member status)" "200 FAILED"
    shows "12: a replay of a failed run is a new one, and the failed one stays"
}
fails() { # QUEUE: a worker takes one run, and fails; prints what it is then
    ask a POST "/v1/queues/$1/lease" '{"wait_ms":5000}'
    ask a POST "/v1/runs/$(member 'runs[0].id')/fail" "{\"token\":\"$(member 'runs[0].token')\",\"error\":\"no\"}"
    member status
}

listing() {
    env=e08
    burst out 30 POST /v1/tasks/t/trigger '{"payload":{i}}'
    is_ "in both" "$(cut -f3 out | jq -r .source | sort -u | xargs)" "buffer ledger"
    page=7 listed >found
    is_ "every one once" "$(sort found | xargs)" "$(ids out | sort | xargs)"
    true_ "the newest first" sort -rc found
    trigger b '{}'
    is_ "and a new one in front" "$(listed | head -n 1)" "$id"
    shows "08: a list has both stores in one order, and pages without gap or repeat"
}

increments() {
    env=e09
    trip
    trigger a '{}'
    is_ "buffered" "$(member source)" buffer
    burst out 50 PUT "/v1/runs/$id/metadata" '{"operations":[{"type":"increment","key":"n","value":1}]}'
    is_ "all are told" "$(cut -f1 out | grep -c 200)" 50
    ask b GET "/v1/runs/$id"
    is_ "all count" "$(member metadata.n) $(member metadataVersion)" "50 50"
    shows "09: fifty increments at once of a buffered run all count"
}

reset() {
    local first
    env=e10
    trip
    trigger a '{"idempotencyKey":"k / 1"}'
    first=$id
    is_ "buffered" "$(member source)" buffer
    ask b POST /v1/tasks/t/keys/k%20%2F%201/reset
    is_ "reset" "$code $(member cleared)" "200 true"
    ask a POST /v1/tasks/t/keys/k%20%2F%201/reset
    is_ "again" "$code $(member code)" "404 absent"
    same_key out 20 'k / 1'
    is_ "a burst makes a new one" "$(told out)" "20 1 1"
    true_ "another" [ "$(the_id out)" != "$first" ]
    ask b GET "/v1/runs/$first"
    is_ "the first is there, and has it no more" "$code $(member idempotencyKeyExpiresAt)" "200 null"
    shows "10: a key that was reset while its run was buffered makes one new run"
}

waiting() {
    env=e13
    trip
    trigger a '{"idempotencyKey":"k"}'
    local first=$id
    trigger b '{"idempotencyKey":"k"}' 1 -H 'Prefer: wait=30'
    is_ "who is ready to wait" "$code $(member isCached) $id" "200 true $first"
    ask b POST /v1/tasks/t/batch "{\"items\":[$(keyed k),$(keyed k)]}"
    is_ "a batch" "$(jq -c '[.results[] | .id, .isCached] | unique' body)" "[true,\"$first\"]"
    shows "13: no trigger is an exception: one that waits, or of a batch, gets the run that is buffered"
}

stale_hint() {
    env=e17
    trigger a '{"idempotencyKey":"k"}'
    local ghost=$id
    unwrite "$ghost"
    trigger b '{"idempotencyKey":"k"}'
    is_ "a new one" "$code $(member isCached)" "200 false"
    true_ "not the ghost" [ "$id" != "$ghost" ]
    ask a GET "/v1/runs/$id"
    is_ "that is there" "$code $(member idempotencyKey)" "200 k"
    env=e17b
    trigger a '{"idempotencyKey":"k"}'
    unwrite "$id"
    same_key out 30 k
    is_ "a burst on a ghost" "$(told out)" "30 1 1"
    shows "17: what coord remembers of a run that is not there leads to one new run"
}

cross_store() {
    local first
    env=x1
    trigger a '{"idempotencyKey":"k"}'
    first=$id
    is_ "made in the ledger" "$(member source)" ledger
    trip
    same_key out 20 k
    is_ "found by who would be buffered" "$(told out) $(the_id out)" "20 1 0 $first"
    shows "who comes when the gate is closed finds the run that passed it"
    env=x2
    trip
    trigger a '{"idempotencyKey":"k"}'
    first=$id
    is_ "made in the buffer" "$(member source)" buffer
    up c --drainer off --gate off
    trigger c '{"idempotencyKey":"k"}'
    is_ "found by who would go to the ledger" "$code $(member isCached) $id" "200 true $first"
    trigger c '{"idempotencyKey":"other"}'
    is_ "which the gate does not keep" "$(member source)" ledger
    down c TERM
    shows "who goes to the ledger finds the run that is buffered"
    env=x3
    trip
    trigger a '{"idempotencyKey":"k"}'
    first=$id
    ask a POST /v1/tasks/u/trigger "$(keyed k)"
    is_ "another task" "$(member isCached)" false
    env=x4
    trigger a '{"idempotencyKey":"k"}'
    is_ "another env" "$(member isCached)" false
    true_ "other runs" [ "$id" != "$first" ]
    code=$(curl -sS -X POST -H 'Content-Type: application/json' -d "$(keyed nobody)" -o body "http://${at[a]}/v1/tasks/t/trigger")
    first=$(member id)
    env=default
    trigger b '{"idempotencyKey":"nobody"}'
    is_ "no env is the env default" "$(member isCached) $id" "true $first"
    shows "the same key in another task or env is another run, and no env is the env default"
}

expired() {
    local first old=()
    env=x5
    trigger a '{"idempotencyKey":"k","idempotencyKeyTTL":"1s"}'
    old+=("$id")
    env=x5b
    trip
    trigger a '{"idempotencyKey":"k","idempotencyKeyTTL":"1s"}'
    old+=("$id")
    is_ "buffered" "$(member source)" buffer
    for first in "${old[@]}"; do
        [ "$first" = "${old[0]}" ] && env=x5 || env=x5b
        ask b GET "/v1/runs/$first"
        over=$(member idempotencyKeyExpiresAt)
        true_ "it expires" within passed
        same_key out 30 k
        is_ "of a burst one is made" "$(told out)" "30 1 1"
        true_ "another one" [ "$(the_id out)" != "$first" ]
        ask a GET "/v1/runs/$first"
        is_ "the first is still there" "$code" 200
    done
    shows "a burst on a key that has expired makes one run, in the ledger as in the buffer"
}
passed() { [[ $(date -u +%FT%T.%3NZ) > $over ]]; }

failed() {
    env=x6
    trigger a '{"idempotencyKey":"k","maxAttempts":1,"queue":"w"}'
    local first=$id
    is_ "it fails" "$(fails w)" FAILED
    same_key out 30 k
    is_ "of a burst one is made" "$(told out)" "30 1 1"
    true_ "another one" [ "$(the_id out)" != "$first" ]
    shows "a burst on a key whose run has failed makes one run"
}

mismatch() {
    env=x7
    trigger a '{"idempotencyKey":"ledger"}' '{"a":1}'
    local in_ledger=$id
    trip
    trigger a '{"idempotencyKey":"buffer"}' '{"a":1}'
    local in_buffer=$id key
    for key in ledger buffer; do
        trigger b "{\"idempotencyKey\":\"$key\"}" '{"a":2}'
        is_ "$key" "$code $(member code) $(member retryable) $(member id)" "422 mismatch false null"
        trigger b "{\"idempotencyKey\":\"$key\",\"onMismatch\":\"return\"}" '{"a":2}'
        is_ "$key, if that is wanted" "$code $(member isCached) $id" "200 true $([ $key = ledger ] && echo "$in_ledger" || echo "$in_buffer")"
    done
    shows "the same key with another payload is refused, or answered with what is there if that is wanted"
}

own_id() {
    local i id_
    env=x8
    for i in 1 2; do
        id_=run_01HZZZZZZZZZZZZZZZZZZZZZZ$i
        "$here/burst.py" -H "Once-Env: $env" --hang-up 1 POST /v1/tasks/t/trigger "{\"payload\":1,\"options\":{\"id\":\"$id_\"}}" "${at[a]}" 2>>noise
        burst out 20 POST /v1/tasks/t/trigger "{\"payload\":1,\"options\":{\"id\":\"$id_\"}}"
        is_ "asked again" "$(told out | cut -d' ' -f1,2) $(the_id out)" "20 1 $id_"
        true_ "made once" [ "$(told out | cut -d' ' -f3)" -le 1 ]
        is_ "one run" "$(listed | grep -c "$id_")" 1
        trigger b "{\"id\":\"$id_\"}" 2
        is_ "for something else" "$code $(member code)" "422 mismatch"
        trip
    done
    shows "a trigger whose answer was lost is asked again with its id: one run, without a key, in both stores"
}

# ---- parity: the same questions about a run in the ledger and one in the buffer ---------------------

question() { # a line of JSON
    ask "$@"
    printf '{"asked":"%s %s","code":%s,"body":%s}\n' "$2" "$3" "$code" "$([ -s body ] && cat body || echo null)"
}
normal() { # ids, times and names are each run's own; where it is, is what `source` is for
    jq -Sc 'del(.body.waited_ms?, .body.source?) | walk(if type == "string" then
        gsub("run_[0-9A-Z]{26}"; "run") | gsub("parity-[a-z]+"; "env") | sub("keys/[a-z]+"; "keys/key")
        | if test("^[0-9]{4}-[0-9-]+T[0-9:.]+Z$") then "time" elif test("^(ledger|buffer)$") then "key" else . end
        else . end)' "$1"
}
interview() { # KEY: everything that can be asked about a delayed run that has it
    local token=00000000000000000000000000000000
    question a POST /v1/tasks/t/trigger "{\"payload\":{\"p\":1},\"options\":{\"idempotencyKey\":\"$1\"}}"
    question b POST /v1/tasks/t/trigger "{\"payload\":2,\"options\":{\"idempotencyKey\":\"$1\"}}"
    question a GET "/v1/runs/$id"
    question b POST "/v1/runs/$id/tags" '{"tags":["a","b","a"]}'
    question b POST "/v1/runs/$id/tags" '{"tags":["b","c"]}'
    question b POST "/v1/runs/$id/tags" '{"tags":["1","2","3","4","5","6","7","8"]}'
    question b POST "/v1/runs/$id/tags" '{"tags":"a"}'
    question b POST "/v1/runs/$id/tags"
    question a PUT "/v1/runs/$id/metadata" '{"metadata":{"a":1}}'
    question a PUT "/v1/runs/$id/metadata" '{"metadata":{"a":2},"version":1}'
    question a PUT "/v1/runs/$id/metadata" '{"metadata":[1]}'
    question a PUT "/v1/runs/$id/metadata" '{"operations":[]}'
    question a PUT "/v1/runs/$id/metadata" '{"operations":[{"type":"increment","key":"a","value":1},{"type":"append","key":"l","value":[]}]}'
    question a PUT "/v1/runs/$id/metadata" '{"operations":[{"type":"increment","key":"l","value":1}]}'
    question a PUT "/v1/runs/$id/metadata" '{"operations":[{"type":"remove","key":"a"},{"type":"remove","key":"none"}]}'
    jq -nc '{metadata: {x: ("y" * 262144)}}' >large
    question a PUT "/v1/runs/$id/metadata" @large
    question b POST "/v1/runs/$id/reschedule" '{"delay":"30m"}'
    question b POST "/v1/runs/$id/reschedule" '{"delay":"soon"}'
    question b POST "/v1/runs/$id/heartbeat" "{\"token\":\"$token\"}"
    question b POST "/v1/runs/$id/complete" "{\"token\":\"$token\"}"
    question b POST "/v1/runs/$id/fail" "{\"token\":\"$token\",\"error\":1}"
    question a GET "/v1/runs?tag=c"
    question a POST "/v1/runs/$id/replay"
    question a POST "/v1/runs/$id/cancel" '{"reason":{"why":[]}}'
    question b POST "/v1/runs/$id/cancel"
    question b POST "/v1/runs/$id/reschedule" '{"delay":"30m"}'
    question b POST "/v1/runs/$id/tags" '{"tags":["late"]}'
    question b PUT "/v1/runs/$id/metadata" '{"operations":[{"type":"set","key":"late","value":true}]}'
    question a POST "/v1/tasks/t/keys/$1/reset"
    question a POST "/v1/tasks/t/keys/$1/reset"
    question a DELETE "/v1/runs/$id"
    question a GET "/v1/runs/$id"
}
parity() {
    local store
    for store in ledger buffer; do
        env=parity-$store
        [ $store = ledger ] || trip
        trigger a "{\"idempotencyKey\":\"$store\",\"delay\":\"1h\",\"metadata\":{}}" '{"p":1}'
        is_ "it is in the $store" "$(member source)" $store
        interview $store >$store.said
        normal $store.said >$store.norm
    done
    is_ "as many answers" "$(wc -l <buffer.norm)" 32
    diff ledger.norm buffer.norm >differs || wrong+=("$(head -c 2000 differs)")
    shows "parity: 32 questions about a run in the ledger and one in the buffer: the same codes and bodies"
}

# ---- draining -------------------------------------------------------------------------------------

drain_begin() { # the drainer `d` of this room, which may be the only daemon
    if [ $planes = fleet ]; then
        up d --drainer on
    else
        down a TERM
        pair --drainer on
        at[d]=${at[a]} pid[d]=${pid[a]}
    fi
}

drain_round_trip() {
    local one missing=0
    true_ "the buffer is empty" within buffer_empty d
    true_ "and was not" at_least d once_drained_total 50
    env=e05
    ask a GET "/v1/runs/$kept"
    is_ "what was done to it is in it" "$code $(jq -c '[.id, .tags, .metadata]' body)" "200 [\"$kept\",[\"kept\"],{\"kept\":true}]"
    trigger b '{"idempotencyKey":"k"}'
    is_ "it is in the ledger, with its key" "$(member isCached) $(member source) $id" "true ledger $kept"
    ask a POST "/v1/runs/$kept/tags" '{"tags":["more"]}'
    is_ "and takes more" "$code $(member tags)" '200 ["kept","more"]'
    shows "05: tags and metadata of a buffered run are in the ledger when it is drained"
    env=e06
    ask a GET "/v1/runs/$canceled"
    is_ "canceled" "$code $(member status) $(member error) $(jq '.finishedAt != null' body)" "200 CANCELED first true"
    ask b POST "/v1/runs/$canceled/cancel"
    is_ "once more" "$code $(member status)" "200 CANCELED"
    ask a POST /v1/queues/canceled/lease
    is_ "no worker gets it" "$(member 'runs|length')" 0
    shows "06: a run that was canceled while it was buffered lands canceled, and no worker gets it"
    env=bytes
    ask b GET "/v1/runs/$bytes"
    true_ "the payload" grep -qF "\"payload\":$exact," body
    true_ "the metadata" grep -qF '"metadata":{"e":[],"o":{},"n":12345678901234567890,"s":[],"c":9007199254740993}' body
    ask a POST /v1/queues/t/lease
    true_ "for its worker, too" grep -qF "\"payload\":$exact," body
    shows "and its bytes are in the ledger, and for its worker, as they came"
    env=e04-ten
    is_ "ten keys are ten runs" "$(listed | wc -l) $(listed | sort -u | wc -l)" "10 10"
    env=e08
    page=7 listed >found
    is_ "and a list is as it was" "$(wc -l <found) $(sort -u found | wc -l)" "31 31"
    is_ "nothing had two ids" "$(metric d once_aliases_total) $(metric d once_drain_parked_total)" "0 0"
    shows "after the drain every run is there once, and none had become two"
}

reburst() {
    local first
    env=e19
    trip
    same_key out 20 k
    is_ "one" "$(told out)" "20 1 1"
    first=$(the_id out)
    true_ "it is drained" within in_ledger k
    same_key out 20 k
    is_ "the same for all" "$(told out) $(the_id out)" "20 1 0 $first"
    shows "19: a burst, its drain and a second burst are one run"
}
in_ledger() { # KEY
    trigger b "{\"idempotencyKey\":\"$1\"}"
    [ "$(member source)" = ledger ]
}

reset_while_draining() {
    local first asked
    env=x9
    trip
    true_ "all is drained" within buffer_empty d
    hold
    trigger a '{"idempotencyKey":"k"}'
    first=$id
    is_ "buffered" "$(member source)" buffer
    true_ "the drainer has it" within has_leased "$first"
    curl -sS -m $limit -X POST -H "Once-Env: $env" -o reset.body -w '%{http_code}' "http://${at[b]}/v1/tasks/t/keys/k/reset" >reset.code 2>>noise &
    asked=$!
    true_ "the reset is asked for" within at_least b 'once_plane_ops_total{plane="'$buffer_plane'",verb="entry_get"}' 1
    let_go
    wait $asked
    is_ "it is reset" "$(cat reset.code) $(jq -c .cleared reset.body)" "200 true"
    ask a GET "/v1/runs/$first"
    is_ "on the row, too" "$code $(member idempotencyKeyExpiresAt)" "200 null"
    same_key out 20 k
    is_ "and one is made" "$(told out)" "20 1 1"
    true_ "another one" [ "$(the_id out)" != "$first" ]
    shows "a key that is reset while its run is being drained is reset on the row, too"
}
has_leased() { leased | grep -qx "$1"; }

backlog() {
    local first began age newest
    env=deep
    trip
    true_ "all is drained" within buffer_empty d
    hold
    trigger a '{}'
    began=$(now_ms)
    true_ "the first has waited for a second" within at_least d once_buffer_oldest_age_seconds 1
    jq -nc '{items: [range(1000) | {payload: .}]}' >many
    newest=$(now_ms)
    ask a POST /v1/tasks/t/batch @many
    ask b POST /v1/tasks/t/batch @many
    true_ "the backlog is counted" within deep_enough
    age=$(metric d once_buffer_oldest_age_seconds)
    true_ "the oldest, not one of the newest" is_ms "$(jq -n "$age * 1000 | round")" $((newest - began)) $(($(now_ms) - began + 1000))
    true_ "who does not drain tells it, too" within at_least a once_buffer_oldest_age_seconds 1
    let_go
    true_ "and it is drained" within buffer_empty d
    is_ "the age is of nobody" "$(metric d once_buffer_oldest_age_seconds)" 0
    shows "behind a backlog of 2,000 the age that is told is that of the oldest"
}
deep_enough() {
    local queued leased
    queued=$(metric d 'once_buffer_entries{state="queued"}') leased=$(metric d 'once_buffer_entries{state="leased"}')
    [ $((queued + leased)) -ge 2001 ]
}

# ---- what is away -----------------------------------------------------------------------------------

poison() {
    local first
    env=poison
    trip
    trigger a '{"idempotencyKey":"k"}'
    first=$id
    spoil "$first"
    trigger a '{}'
    drain_begin
    true_ "it is parked" within at_least d once_drain_parked_total 1
    ask d GET "/v1/runs/$first"
    is_ "it is a failed run with a reason" "$code $(member status) $(jq '.error != null' body)" "200 FAILED true"
    true_ "who came behind it is drained" within buffer_empty d
    ask d GET "/v1/runs/$id"
    is_ "as ever" "$code $(member status)" "200 QUEUED"
    shows "an entry that cannot be read becomes a failed run, and holds up nobody"
}

ledger_outage() {
    local i
    env=outage
    down d TERM
    : >out.ids
    for i in 1 2; do
        jq -nc --arg i "$i" '{items: [range(1000) | {payload: ., options: {idempotencyKey: "o\($i)-\(.)"}}]}' >many
        ask a POST /v1/tasks/t/batch @many
        ids body >>out.ids
    done
    up d --drainer on --drainer-rate 1000
    true_ "it drains" within at_least d once_drained_total 1
    kill -QUIT "$ONCE_TEST_POSTGRES_PID"
    true_ "it cannot any more" within at_least d once_drain_retries_total 1
    local failed_ms
    failed_ms=$(now_ms)
    true_ "for three seconds" within since_ms "$failed_ms" 3000
    ask a GET "/v1/runs/$(tail -n 1 out.ids)"
    is_ "nobody says that a run is not there" "$code" 503
    "$here/../../servers" restart "$servers" postgres >>noise 2>&1
    . "$servers/env"
    true_ "it goes on" within buffer_empty d
    at[b]=${at[d]}
    listed >found
    is_ "every one is there, once" "$(sort found | md5sum)" "$(sort out.ids | md5sum)"
    is_ "none has failed for it" "$(listed status=FAILED | wc -l) $(metric d once_drain_parked_total)" "0 0"
    shows "PostgreSQL away for three seconds while 2,000 are drained: nothing is lost, and no attempt is used up"
}
since_ms() { [ $(($(now_ms) - $1)) -ge "$2" ]; }

frozen() {
    local i began worst=0 ms first
    room frozen # with the deadlines that Redis has by default
    where=(--ledger "$ONCE_TEST_POSTGRES?schema=$schema" --coord "$ONCE_TEST_REDIS?prefix=frozen")
    pair --drainer off
    env=f
    trip
    trigger a '{"idempotencyKey":"before"}'
    first=$id
    is_ "buffered" "$(member source)" buffer
    kill -STOP "$ONCE_TEST_REDIS_PID"
    for i in 1 2 3 4 5 6 7 8; do
        began=$(now_ms)
        trigger "$([ $((i % 2)) = 0 ] && echo a || echo b)" '{"idempotencyKey":"k"}'
        ms=$(($(now_ms) - began))
        [ $ms -le $worst ] || worst=$ms
        is_ "trigger $i" "$code $(member degraded) $(member source)" "200 true ledger"
        [ $i = 1 ] && first=$id
        is_ "one id" "$id" "$first"
    done
    true_ "quickly: $worst ms" is_ms $worst 0 3000
    same_key out 30 burst
    is_ "a burst, too" "$(told out)" "30 1 1"
    ask a GET "/v1/runs/run_01ARZ3NDEKTSV4RRFFQ69G5FAV"
    is_ "what may be in the buffer is not said to be absent" "$code" 503
    kill -CONT "$ONCE_TEST_REDIS_PID"
    true_ "and then it is as before" within undegraded
    shows "a Redis that hangs: triggers are answered by the ledger, quickly, and say so; one run per key"
}
undegraded() {
    trigger a '{"idempotencyKey":"k"}'
    [ "$(member degraded)" = false ]
}

store_crash() { # what was acknowledged is there after a kill -9 of whoever keeps it
    local one missing=0
    env=crashed
    trip
    burst out 100 POST /v1/tasks/t/trigger "$(keyed 'k{i}')"
    is_ "all are taken" "$(told out)" "100 100 100"
    is_ "by the buffer" "$(cut -f3 out | jq -r .source | sort -u)" buffer
    if [ $planes = fleet ]; then
        kill -KILL "$ONCE_TEST_REDIS_PID"
        "$here/../../servers" restart "$servers" redis >>noise 2>&1
        . "$servers/env"
        true_ "it is back" within undegraded
    else
        down a KILL
        pair --drainer off
    fi
    listed >found
    for one in $(ids out); do grep -qx "$one" found || missing=$((missing + 1)); done
    is_ "nothing is missing" $missing 0
    burst again 100 POST /v1/tasks/t/trigger "$(keyed 'k{i}')"
    is_ "nor made again" "$(told again) $(ids again | md5sum)" "100 100 0 $(ids out | md5sum)"
    shows "what the buffer has acknowledged is there after a kill -9 of $([ $planes = fleet ] && echo Redis || echo the daemon)"
}

flushed() {
    env=flushed
    trip
    trigger a '{"idempotencyKey":"k"}'
    local lost=$id before
    is_ "buffered" "$(member source)" buffer
    before=$(metric a once_plane_amnesia_total)
    redis flushall >>noise
    ask a GET "/v1/runs/$lost"
    is_ "what was only there is gone" "$code" 404
    trigger a '{"idempotencyKey":"k"}'
    is_ "the key makes a new one" "$code $(member isCached)" "200 false"
    true_ "it is counted" at_least a once_plane_amnesia_total $((before + 1)) # runs and records, each by its epoch
    true_ "and told" until_said 'event=amnesia'
    shows "a Redis that was flushed is told of, counted, and leads nobody to a run that is gone"
}

# ---- all of it --------------------------------------------------------------------------------------

buffer_plane=$([ $planes = fleet ] && echo coord || echo buffer)
crash_begin
shows "a drainer and a claimant can be killed while they are at the ledger"
crash_go_on
room main
pair --drainer off
for scenario in baseline reads mutations collision counted before_the_drain replay listing increments reset waiting \
    stale_hint cross_store expired failed mismatch own_id parity; do $scenario; done
drain_begin
for scenario in drain_round_trip reburst reset_while_draining backlog; do $scenario; done
crash_end
all_envs
room rough
pair --drainer off
poison
if [ $planes = fleet ]; then
    ledger_outage
    frozen
    store_crash
    flushed
else
    down a TERM
    pair --drainer off
    store_crash
fi
down_all
shows "every daemon ends as it was told"
over
