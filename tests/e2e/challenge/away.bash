# away.bash - stores that are away, hang, crash or forget, and entries that nobody can read. To be sourced by
# suite.sh.
# shellcheck shell=bash disable=SC2034,SC2154,SC2086,SC2046,SC2206,SC2119,SC2120,SC2317

poison() {
    local first
    env=poison
    trip
    trigger a '{"idempotencyKey":"k"}' "\"$(printf %020000d 0)\"" # not so short that it is kept with what is known of it
    first=$id
    true_ "it is there to be spoilt" spoil "$first"
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

# A restore, or another database behind the pooler: what is wrong is not wrong with any run.
missing_table() {
    local missed_ms
    env=missing
    down d TERM
    jq -nc '{items: [range(1000) | {payload: ., options: {idempotencyKey: "m\(.)"}}]}' >many
    ask a POST /v1/tasks/t/batch @many
    ids body >out.ids
    sql 'ALTER TABLE runs RENAME TO runs_away'
    up d --drainer on
    true_ "it cannot be drained" within at_least d once_drain_retries_total 1
    missed_ms=$(now_ms)
    true_ "and says why" until_said 'event=drain_away.* does not exist'
    true_ "for three seconds" within since_ms "$missed_ms" 3000
    is_ "no attempt is used up" "$(metric d once_drain_failures_total)" 0
    sql 'ALTER TABLE runs_away RENAME TO runs'
    true_ "it goes on" within buffer_empty d
    at[b]=${at[d]}
    listed >found
    is_ "every one is there, once" "$(sort found | md5sum)" "$(sort out.ids | md5sum)"
    is_ "none has failed for it" "$(listed status=FAILED | wc -l) $(metric d once_drain_parked_total)" "0 0"
    shows "a table that is missing for three seconds while 1,000 are drained fails none of them"
}

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
    trigger a '{"idempotencyKey":"new"}' # known to be diverted, which cannot be now
    is_ "a new one" "$code $(member degraded) $(member source)" "200 true ledger"
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

list_all() { listed >found; }

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
    true_ "the other daemon is connected again, too" within list_all
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
