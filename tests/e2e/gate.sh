#!/usr/bin/env bash
# gate.sh BUILD_DIR - bursts as operators meet them: once gate beside a daemon that runs, once drain
# where none does. Prints TAP.
#
# Nothing sleeps to let something happen: a daemon is asked until it has taken up what was set. Its
# own gate is off where that matters, so that nothing but what was set can divert.
# shellcheck source=tests/e2e/shared/daemon.bash
. "$(dirname "$0")/shared/daemon.bash" gate "$1"

call() { # ARG...: runs once; leaves status, out and the file "said"
    timeout $limit "$once" "$@" >out 2>said
    status=$?
    out=$(cat out)
}
ends() { # NAME WANT ARG...: calls and compares the exit status
    local name=$1 want=$2
    shift 2
    call "$@"
    is "$name" "$status" "$want"
}
says() { # NAME TEXT: the last call did, on stderr
    grep -qF -- "$2" said
    report $? "$1"
}
# burst ENV: three triggers at once, which make three runs; prints where they went, "ledger buffer buffer".
burst() {
    curl -sS -m $limit -X POST -H "Once-Env: $1" -H 'Content-Type: application/json' \
        -d '{"items":[{"payload":1},{"payload":2},{"payload":3}]}' "http://$http/v1/tasks/t/batch" |
        jq -r '[.results[].source] | join(" ")'
}
until_burst() { # ENV WANT: bursts until one goes where it should
    local end=$((SECONDS + limit))
    until [ "$(burst "$1")" = "$2" ]; do [ $SECONDS -lt $end ] || return 1; done
}
metric() { curl -sS -m $limit "http://$http/metrics" | sed -n "s/^$1 //p"; }

# ---- drain ---------------------------------------------------------------------------------------

# A daemon that does not drain, and takes more than one trigger for a burst.
daemon_start --listen 127.0.0.1:0 --resp 127.0.0.1:0 --drainer off --gate-threshold 1 --gate-window 1m --gate-hold 1m
is "what is too much goes into the buffer" "$(burst default)" "ledger buffer buffer"
is "and what comes after it" "$(burst default)" "buffer buffer buffer"
ends "drain: not through a daemon" 2 --url "once://$resp" drain
says "drain: which does it by itself" "by itself"
says "drain: and what to say instead" "--ledger and --coord"
stop KILL
ends "drain: runs are found in the buffer" 0 runs ls --json
is "drain: all six" "$(wc -l <out)" 6
ends "drain: they are QUEUED like any other" 0 runs ls --status queued --json
is "drain: all of them" "$(wc -l <out)" 6

# The ledger is away: somebody else has locked it.
mkfifo locked
python3 -c '
import sqlite3, sys
c = sqlite3.connect(sys.argv[1], isolation_level=None)
c.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()' "$ONCE_DATA/once.db" <locked >lock 2>>err &
locker=$!
exec 6>locked
end=$((SECONDS + limit))
until grep -q locked lock; do [ $SECONDS -lt $end ] || break; done
ends "drain: the ledger is away" 69 --ledger "sqlite:$ONCE_DATA/once.db?busy_ms=50" drain
is "drain: nothing was moved" "$out" ""
says "drain: says why" "another process holds the lock"
exec 6>&-
wait $locker

# A drainer that was killed: two are leased, for three seconds more.
python3 -c '
import sqlite3, sys, time
c = sqlite3.connect(sys.argv[1])
now = int(time.time() * 1000)
c.execute("UPDATE entries SET state = 2, token = zeroblob(16), leased_at_ms = ?, lease_until_ms = ?"
          " WHERE seq IN (SELECT seq FROM entries WHERE state = 1 LIMIT 2)", (now, now + 3000))
c.execute("UPDATE buffer SET queued = queued - 2, leased = leased + 2")
c.commit()' "$ONCE_DATA/once.db-buffer"
ends "drain: what another drainer has is not moved" 69 drain --wait 100ms
is "drain: and is not said to be" "$out" ""
says "drain: but how much is left" "2 left in the buffer"
says "drain: and why" "another drainer has them"
ends "drain: until its lease has lapsed" 0 drain
is "drain: which is waited for" "$out" "2 moved"
ends "drain: again" 0 drain --json
is "drain: nothing is left" "$out" '{"moved":0}'
ends "drain: they are all there" 0 runs ls --json
is "drain: once each" "$(jq -r .id out | sort -u | wc -l)" 6
ends "drain: workers get them" 0 work t --drain -q -- true
ends "drain: and are done with them" 0 runs ls --status completed --json
is "drain: all six are done" "$(wc -l <out)" 6
ends "drain: no operands" 2 drain now
ends "drain: there is no buffer without a ledger" 70 --ledger none drain

# A worker that stays moves the buffer by itself.
daemon_start --listen 127.0.0.1:0 --resp off --drainer off --gate-threshold 1 --gate-window 1m --gate-hold 1m
is "drain: into the buffer again" "$(burst default)" "ledger buffer buffer"
stop KILL
"$once" work t -q --json -- true >worked 2>>err &
worker=$!
end=$((SECONDS + limit))
until [ "$(wc -l <worked)" = 3 ]; do [ $SECONDS -lt $end ] || break; done
is "drain: a worker does it, too" "$(jq -r .event worked | sort | uniq -c | tr -s ' ')" " 3 completed"
kill $worker
wait $worker

# ---- gate: what can be said ----------------------------------------------------------------------

ends "gate: nothing is set" 0 gate show
says "gate: says so" "no env has a gate of its own"
ends "gate: nothing is set, as JSON" 0 gate show --json
is "gate: prints nothing" "$out" ""
ends "gate: an env that has none" 6 gate show x
ends "gate: set" 0 gate set x --threshold 5
is "gate: set prints it" "$(tail -n 1 out | tr -s ' ')" "on 5 200ms 500ms 1 x"
ends "gate: what is not said stays" 0 gate set x --mode shadow --hold 2s --json
is "gate: as it was set" "$out" '{"env":"x","mode":"shadow","threshold":5,"window_ms":200,"hold_ms":2000,"weight":1}'
ends "gate: another env" 0 gate set y --mode off -q
ends "gate: show" 0 gate show
is "gate: shows both" "$(tail -n 2 out | tr -s ' ')" "shadow 5 200ms 2s 1 x
off 100 200ms 500ms 1 y"
ends "gate: show one as JSON" 0 gate show y --json
is "gate: it is the one" "$(jq -r '.env + " " + .mode' out)" "y off"
ends "gate: is an answer like any other" 0 peek once/gate x
is "gate: in words" "$out" "shadow 5 200 2000 1"
ends "gate: a weight" 0 gate set x --weight 7 --json
is "gate: beside what was set" "$(jq -c '[.mode, .weight]' out)" '["shadow",7]'
ends "gate: no such weight" 2 gate set x --weight 101
says "gate: says what a weight can be" "--weight: from 1 to 100"
ends "gate: reset" 0 gate reset y
ends "gate: it is gone" 6 gate show y
ends "gate: reset of none" 6 gate reset y
ends "gate: reset of the other" 0 gate reset x

ends "gate: too low" 2 gate set x --threshold 0
ends "gate: too high" 2 gate set x --threshold 100001
says "gate: says what can be" "--threshold: from 1 to 100000"
ends "gate: no window" 2 gate set x --window 0
says "gate: says what a window can be" "--window: from 1ms to 1h"
ends "gate: too long a hold" 2 gate set x --hold 2h
says "gate: says what a hold can be" "--hold: from 1ms to 1h"
ends "gate: no such mode" 2 gate set x --mode maybe
ends "gate: no such env" 2 gate set 'a b' --mode on
says "gate: says what an env is" "an env is"
ends "gate: nothing to set" 2 gate set x
says "gate: says what to say" "say what"
ends "gate: whose" 2 gate set --mode on
ends "gate: reset whose" 2 gate reset
ends "gate: show takes no options" 2 gate show x --mode on
ends "gate: an unknown word" 2 gate open x
says "gate: says which there are" "show, set or reset"
ends "gate: nothing of that was set" 6 gate show x

# Many at once: one of them is what is set.
for i in 1 2 3 4; do
    "$once" gate set crowded --threshold $i -q >/dev/null 2>>err &
    crowd[i]=$!
done
ok=0
for i in 1 2 3 4; do
    wait "${crowd[$i]}"
    case $? in 0 | 4) ok=$((ok + 1)) ;; esac
done
is "gate: four at once are told" "$ok" 4
ends "gate: and one of them is set" 0 gate show crowded --json
like "gate: as a whole" "$(jq -r .threshold out)" "[1-4]"

# ---- gate: a daemon that runs --------------------------------------------------------------------

daemon_start --listen 127.0.0.1:0 --resp 127.0.0.1:0 --gate off
is "taken up: nothing is set for it" "$(burst z)" "ledger ledger ledger"
ends "taken up: set through the daemon" 0 --url "once://$resp" gate set z --threshold 1 --window 10s --hold 100ms
until_burst z "buffer buffer buffer"
report $? "taken up: bursts are buffered"
is "taken up: those of other envs are not" "$(burst other)" "ledger ledger ledger"
end=$((SECONDS + limit))
until [ "$(metric once_drained_total)" -ge 3 ]; do [ $SECONDS -lt $end ] || break; done
[ "$(metric once_drained_total)" -ge 3 ]
report $? "taken up: and the daemon drains them"
stop
daemon_start --listen 127.0.0.1:0 --resp 127.0.0.1:0 --gate off --drainer off
until_burst z "buffer buffer buffer"
report $? "taken up: by another daemon, which does not drain"
ends "taken up: reset through the daemon" 0 --url "once://$resp" gate reset z
until_burst z "ledger ledger ledger"
report $? "taken up: bursts are not buffered any more"
is "taken up: it stays so" "$(burst z)" "ledger ledger ledger"
stop
is "the daemon ends" "$status" 0

# ---- on a fleet ----------------------------------------------------------------------------------

# The buffer is in Redis, where every process finds it.
if [ -n "${ONCE_TEST_REDIS-}" ] && [ -n "${ONCE_TEST_POSTGRES-}" ]; then
    name=gate_$$
    coord="$ONCE_TEST_REDIS?prefix=$name"
    planes=(--ledger "$ONCE_TEST_POSTGRES?schema=$name" --coord "$coord")
    daemon_start "${planes[@]}" --listen 127.0.0.1:0 --resp off --drainer off --gate-threshold 1 --gate-window 1m --gate-hold 1m
    is "fleet: what is too much goes into the buffer" "$(burst default)" "ledger buffer buffer"
    ends "fleet: others find it there" 0 "${planes[@]}" runs ls --json
    is "fleet: all three" "$(wc -l <out)" 3
    ends "fleet: the ledger is away" 69 --ledger postgres://127.0.0.1:1/none --coord "$coord" drain
    ends "fleet: drain, beside the daemon" 0 "${planes[@]}" drain
    is "fleet: moves what the daemon has accepted" "$out" "2 moved"
    ends "fleet: once" 0 "${planes[@]}" drain --json
    is "fleet: and not again" "$out" '{"moved":0}'
    ends "fleet: set" 0 "${planes[@]}" gate set default --mode off
    until_burst default "ledger ledger ledger"
    report $? "fleet: the daemon takes it up"
    stop
else
    echo "# without Redis and PostgreSQL: see tests/with-servers"
fi

over
