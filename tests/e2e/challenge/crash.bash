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
    if [ $planes = fleet ]; then down d KILL; else down a KILL; fi
    let_go
    if [ $planes = fleet ]; then stalled_begin; else pair --drainer off; fi
    env=claims
    "$here/burst.py" -H "Once-Env: claims" -H 'Prefer: wait=50' 5 POST /v1/tasks/t/trigger "$(keyed killed)" "${at[b]}" >killed.out 2>>noise &
    waiters=$!
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
    local allowed=$(((lease_s + 2) * 1000)) others=("${at[b]}" "${at[d]}")
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
