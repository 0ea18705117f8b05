# draining.bash - what becomes of buffered runs when somebody drains. To be sourced by suite.sh.
# shellcheck shell=bash disable=SC2034,SC2154,SC2086,SC2046,SC2206,SC2119,SC2120,SC2317

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
    is_ "how long each was in the buffer is counted" "$(metric d once_drain_lag_seconds_count)" "$(metric d once_drained_total)"
    true_ "also that of the first" at_least d once_drain_lag_seconds_sum 1
    shows "behind a backlog of 2,000 the age that is told is that of the oldest"
}
deep_enough() {
    local queued leased
    queued=$(metric d 'once_buffer_entries{state="queued"}') leased=$(metric d 'once_buffer_entries{state="leased"}')
    [ $((queued + leased)) -ge 2001 ]
}

# Gates are each one's own there: what one diverts another passes. Claims are in the file that both have.
two_processes() {
    local try
    room shared
    pair --drainer off
    up c --drainer off --gate off
    for try in {1..5}; do
        env=two-$try
        trip
        "$here/burst.py" -H "Once-Env: $env" 20 POST /v1/tasks/t/trigger "$(keyed k)" "${at[a]}" "${at[c]}" >out 2>>noise
        is_ "all are told" "$(grep -c ^200 out)" 20
        is_ "one id" "$(the_id out | wc -l)" 1
        is_ "made once" "$(grep -c '"isCached":false' out)" 1
    done
    id=$(the_id out)
    ask a POST "/v1/runs/$id/tags" '{"tags":["x"]}'
    is_ "it takes a tag" "$code" 200
    down c TERM
    drain_begin
    true_ "the buffer is empty" within buffer_empty d
    ask a GET "/v1/runs/$id"
    is_ "and keeps it" "$code $(jq -c .tags body)" '200 ["x"]'
    is_ "one run" "$(listed task=t | wc -l)" 1
    shows "two daemons on one directory, one of them diverts: a burst on one key is one run"
}
