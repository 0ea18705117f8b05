# buffered.bash - bursts at a cold gate, and runs that stay in the buffer because nobody drains. To be sourced
# by suite.sh.
# shellcheck shell=bash disable=SC2034,SC2154,SC2086,SC2046,SC2206,SC2119,SC2120,SC2317

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
    trigger a '{"idempotencyKey":"k","tags":["one"],"metadata":{"m":1},"delay":"1h","maxAttempts":7,"queue":"q"}' '{"p":[1]}'
    is_ "buffered" "$(member source)" buffer
    ask b GET "/v1/runs/$id"
    is_ "get" "$code $(jq -c '[.id, .env, .task, .queue, .status, .payload, .idempotencyKey, .tags, .metadata, .metadataVersion,
        .orderingKey, .attempts, .maxAttempts, .stalls, .output, .error, .startedAt, .finishedAt]' body)" \
        "200 [\"$id\",\"e02\",\"t\",\"q\",\"DELAYED\",{\"p\":[1]},\"k\",[\"one\"],{\"m\":1},1,null,0,7,0,null,null,null,null]"
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

# A hint that leads nowhere, and is there again whenever it was dropped. Whoever puts it back into Redis may
# be kept from it by a busy machine: then a run is made, as it should be, and another key is tried.
haunted() {
    local before ghost try
    for try in 1 2 3 4 5 6; do
        env=e17c$try
        trigger a '{"idempotencyKey":"k"}'
        ghost=$id
        unwrite "$ghost"
        haunt "$ghost"
        before=$(metric b once_trigger_timeouts_total)
        trigger b '{"idempotencyKey":"k"}' 1 -H 'Prefer: wait=30'
        [ "$code $(member isCached)" = "200 false" ] && [ "$id" != "$ghost" ] && [ $try -lt 6 ] || break
        rest
    done
    is_ "after five it is told to come again" "$code $(member code) $(member retryable)" "503 timed_out true"
    is_ "which is counted" "$(metric b once_trigger_timeouts_total)" $((before + 1))
    is_ "no run was made meanwhile" "$(listed)" ""
    rest
    same_key out 30 k
    is_ "then one is" "$(told out)" "30 1 1"
    true_ "not the ghost" [ "$(the_id out)" != "$ghost" ]
    shows "claims that come to nothing five times are told to come again, and make no run"
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
        ask b POST /v1/tasks/t/keys/k/reset
        is_ "nobody has it" "$code $(member code)" "404 absent"
    done
    shows "a key that has expired is not there to be reset, in the ledger as in the buffer"
    for first in "${old[@]}"; do
        [ "$first" = "${old[0]}" ] && env=x5 || env=x5b
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
