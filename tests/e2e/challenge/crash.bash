# crash.bash - what crashes or stands still: begun first, looked at when leases have lapsed. To be sourced by
# suite.sh.
# shellcheck shell=bash disable=SC2034,SC2154,SC2086,SC2046,SC2206,SC2119,SC2120,SC2317

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
    up d --drainer on --drainer-rate 300
    up x --drainer off
    true_ "it drains" within at_least d once_drained_total 1
    hold
    claims x killed x.out
    true_ "so is the drainer" within at_least d 'once_plane_pending_ops{plane="ledger"}' 1
    leased >leased.ids
    true_ "which has some" [ -s leased.ids ]
    [ $planes = embedded ] || held_up # what dies with it may be in the ledger a moment later
    down x KILL
    down d KILL
    let_go
    env=claims
    wait_for killed
    unpublished_begin
    stalled_begin
}
claims() { # DAEMON KEY FILE: one that triggers; it has its claim, and is at the ledger, which is held
    "$here/burst.py" -H 'Once-Env: claims' -H 'Prefer: wait=50' 1 POST /v1/tasks/t/trigger "$(keyed "$2")" "${at[$1]}" >"$3" 2>>noise &
    asker=$!
    true_ "the trigger of $2 has its claim" within at_least "$1" once_trigger_claims_total 1
    true_ "and is at the ledger" within at_least "$1" 'once_plane_pending_ops{plane="ledger"}' 1
}
declare -A waiters
wait_for() { # KEY: five who trigger it, elsewhere, and are ready to wait; told in KEY.out
    "$here/burst.py" -H 'Once-Env: claims' -H 'Prefer: wait=50' 5 POST /v1/tasks/t/trigger "$(keyed "$1")" "${at[b]}" >"$1.out" 2>>noise &
    waiters[$1]=$!
}

# A drainer that stands still for longer than its lease, with what it was about to write.
late_begin() {
    local i
    room late
    env=late
    up late --drainer off
    : >late.ids
    for i in 1 2; do
        jq -nc --arg i "$i" '{items: [range(1000) | {payload: ., options: {idempotencyKey: "l\($i)-\(.)"}}]}' >many
        ask late POST /v1/tasks/t/batch @many
        ids body >>late.ids
    done
    hold
    up stopped --drainer on
    true_ "a drainer has most of it" within at_least late 'once_buffer_entries{state="leased"}' 1000
    kill -STOP "${pid[stopped]}"
    await_stop "${pid[stopped]}"
    late_ms=$(now_ms)
    let_go # what is on its way to the ledger is there in a moment, and in time
    shows "a drainer can be stopped while it is at the ledger"
}

# What was canceled when its lease had lapsed stays so, whatever it writes when it goes on.
late_end() {
    local one others=("${at[b]}" "${at[d]}") wanted='200 CANCELED'
    room late
    env=late
    at[b]=${at[late]}
    true_ "its lease has lapsed" within since_ms $late_ms $((lease_s * 1000 + 500))
    sql "SELECT convert_from(id, 'UTF8') FROM runs" >late.written
    grep -vxFf late.written late.ids | head -n 200 >late.canceled
    true_ "some are in the buffer" [ -s late.canceled ]
    while read -r one; do
        ask late POST "/v1/runs/$one/cancel"
        is_ "it is canceled" "$code $(member status)" "$wanted"
    done <late.canceled
    kill -CONT "${pid[stopped]}"
    : >late.leased
    true_ "the rest is drained" within late_work
    is_ "no worker had one of them" "$(grep -cxFf late.canceled late.leased)" 0
    is_ "all others were worked on" "$(cat late.leased late.canceled | sort -u | wc -l)" 2000
    is_ "they are canceled in the ledger" "$(listed status=CANCELED | sort | md5sum)" "$(sort late.canceled | md5sum)"
    at[b]=${others[0]} at[d]=${others[1]}
    shows "a drainer that stands still past its lease writes nothing that was canceled since"
}
late_work() {
    ask late POST /v1/queues/t/lease '{"count": 1000, "lease_ms": 600000}'
    ids body >>late.leased
    buffer_empty late && [ "$(ids body | wc -l)" = 0 ]
}

# A claimant that dies when its run is in the ledger, and nobody was told of it: what it says to coord does
# not arrive, and then it says no more.
unpublished_begin() {
    alone w --drainer off
    hold
    claims w unpublished w.out
    sever w mute
    let_go
    true_ "its run is in the ledger" within has_row unpublished
    down w KILL
    heal w
    inserted=$(in_table unpublished)
    ask b GET "/v1/runs/$inserted"
    is_ "where it is found" "$code $(member id)" "200 $inserted"
    trigger b '{"idempotencyKey":"unpublished"}' 1 -H 'Prefer: wait=0'
    is_ "its key is claimed, and not published" "$code $(member code)" "503 timed_out"
    wait_for unpublished
}
has_row() { [ -n "$(in_table "$1")" ]; }

# A claimant that stands still for longer than its lease, before the ledger was asked for anything. A file is
# asked by the process that stands still, a server goes on without it.
stalled_begin() {
    up y --drainer off
    local servers
    if [ $planes = fleet ]; then
        servers="$ONCE_TEST_POSTGRES_PID $(pgrep -P "$ONCE_TEST_POSTGRES_PID")"
        kill -STOP $servers
    else
        hold
    fi
    claims y stalled y.out
    stalled=$asker
    if [ $planes = fleet ]; then
        kill -STOP "${pid[y]}"
        await_stop "${pid[y]}"
        kill -CONT $servers
    else
        # The ledger is held by somebody else.
        true_ "it stands still, without a lock" still "${pid[y]}" "$data/once.db-buffer"
        let_go
    fi
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

dead_claim() { # the claim of a daemon that is dead
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
    dead_claim
    [ $planes = fleet ] || held_up
    up d --drainer on
    crash_at=(${at[b]} ${at[d]} ${at[y]})
}

buffer_empty() { # DAEMON
    [ "$(metric "$1" 'once_buffer_entries{state="queued"}')" = 0 ] &&
        [ "$(metric "$1" 'once_buffer_entries{state="leased"}')" = 0 ]
}

handed_over() { # KEY: five who waited were told of one run, within the lease of whoever died and 2 s
    wait ${waiters[$1]}
    is_ "one id" "$(told $1.out | cut -d' ' -f1,2)" "5 1"
    true_ "within lease and 2 s" is_ms "$(cut -f2 $1.out | sort -n | tail -n 1)" 0 $(((lease_s + 2) * 1000))
    ask b GET "/v1/runs/$(the_id $1.out)"
    is_ "one run" "$(listed | grep -c "$(the_id $1.out)") $code" "1 200"
}

crash_end() {
    local others=("${at[b]}" "${at[d]}")
    at[b]=${crash_at[0]} at[d]=${crash_at[1]} at[y]=${crash_at[2]}
    env=claims
    handed_over killed
    true_ "made by one at most" [ "$(told killed.out | cut -d' ' -f3)" -le 1 ]
    shows "16: a claimant killed on its way to the ledger: those who wait get one id, within its lease and 2 s"
    handed_over unpublished
    is_ "the one that was in the ledger" "$(the_id unpublished.out)" "$inserted"
    is_ "and nobody else has made it" "$(told unpublished.out)" "5 1 0"
    true_ "which at most its claimant was told" [ "$(grep -c '"isCached":false' w.out)" -le 1 ]
    shows "a claimant killed between its insert and its publish: those who wait get its run, and make none"
    wait $successor
    is_ "who waits takes over" "$(told stalled.out)" "1 1 1"
    wait $stalled
    is_ "who was late gets the same" "$(told y.out) $(the_id y.out)" "1 1 0 $(the_id stalled.out)"
    is_ "three keys, three runs" "$(listed | wc -l)" 3
    shows "a claimant that stands still past its lease makes no second run when it wakes up"
    is_ "who has lost its claim" "$(metric y once_trigger_ownership_lost_total)" 1
    is_ "who was told to come again" "$(metric b once_trigger_timeouts_total)" 2
    shows "triggers that lose their claim, and those whose time is up, are counted"
    env=crash
    true_ "the buffer is empty" within buffer_empty d
    listed >found
    is_ "every one is there, once" "$(sort found | md5sum)" "$(sort crash.ids | md5sum)"
    is_ "each key has one" "$(listed_keys | sort | uniq -d | wc -l) $(listed_keys | sort -u | wc -l)" "0 2000"
    is_ "none failed" "$(page=1000 listed 'status=FAILED,CANCELED' | wc -l)" 0
    at[b]=${others[0]} at[d]=${others[1]}
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
