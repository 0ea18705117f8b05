#!/usr/bin/env bash
# spool.sh BUILD_DIR - buffer = spool, against a real Redis that forgets: flushed; killed and restarted
# empty, together with the daemon. Whatever was acknowledged is in the ledger afterwards, once, as it was
# sent, and its key leads to it. Prints TAP.
#
# Has servers of its own: they are killed and flushed. That Redis keeps nothing on a disk. Nothing sleeps
# to let something happen: what is waited for is asked for, up to a limit.
# shellcheck source=tests/e2e/shared/daemon.bash
. "$(dirname "$0")/shared/daemon.bash" spool "$1"
limit=60
servers=$(mktemp -d "${TMPDIR:-/tmp}/once-spool-XXXXXX")
chmod 711 "$servers" # they run as somebody else
end() {
    "$here/../servers" stop "$servers/dir"
    rm -rf "$servers"
    cleanup
}
trap end EXIT
trap 'exit 130' INT TERM
unset ONCE_TEST_REDIS ONCE_TEST_POSTGRES
if ! "$here/../servers" start --for $$ "$servers/dir" redis postgres; then
    report 1 "the servers"
    over
    exit 1
fi
# shellcheck disable=SC1091
. "$servers/dir/env"
where=(--ledger "$ONCE_TEST_POSTGRES?schema=spool&timeout_ms=60000" \
    --coord "$ONCE_TEST_REDIS?prefix=spool&timeout_ms=5000") # a slow machine is not what this is about

within() { # COMMAND...: until it succeeds
    local end=$((SECONDS + limit))
    until "$@"; do [ $SECONDS -lt $end ] || return 1; done
}
metric() { curl -sS -m $limit "http://$http/metrics" 2>>noise | sed -n "s/^$1 //p"; }
metric_is() { [ "$(metric "$1")" = "$2" ]; }
up() { # ARG...: a daemon with a spool, for which everything after the first trigger is a burst
    daemon_start --listen 127.0.0.1:0 --resp off --buffer spool --gate-threshold 1 --gate-window 1m \
        --gate-hold 1m "${where[@]}" "$@"
}

# Triggers with the keys FROM..TO, one after the other, until nobody answers; a line for each that was
# acknowledged: id, key, where it is.
cat >triggers.py <<'EOF'
import http.client, json, sys
env, first, last = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
c = http.client.HTTPConnection(sys.argv[1], timeout=60)
for n in range(first, last):
    body = '{"payload":{"n":%d,"same":[ 1,  2.50 ]},"options":{"idempotencyKey":"k%d"}}' % (n, n)
    try:
        c.request("POST", "/v1/tasks/t/trigger", body, {"Once-Env": env, "Content-Type": "application/json"})
        answer = json.loads(c.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        break
    if "id" in answer:
        print(answer["id"], "k%d" % n, answer["source"], answer["isCached"], flush=True)
EOF
triggers() { python3 triggers.py "$http" "$@"; } # ENV FROM TO

sql() { psql -XqAt "$ONCE_TEST_POSTGRES" -c "SET search_path = spool" -c "$1"; }
# in_ledger ENV: id, key and payload of every run there.
in_ledger() {
    sql "SELECT convert_from(id, 'UTF8') || ' ' || convert_from(key, 'UTF8') || ' ' || convert_from(payload, 'UTF8')
         FROM runs WHERE env = convert_to('$1', 'UTF8')" | sort
}
wanted() { # FILE: the same, of what was acknowledged
    awk '{ n = substr($2, 2); printf "%s %s {\"n\":%d,\"same\":[ 1,  2.50 ]}\n", $1, $2, n }' "$1" | sort
}
missing() { # ENV FILE: what was acknowledged and is not there as it was
    comm -13 <(in_ledger "$1") <(wanted "$2") | wc -l
}
twice() { # ENV: ids or keys that are there more than once
    { in_ledger "$1" | cut -d' ' -f1 && in_ledger "$1" | cut -d' ' -f2; } | sort | uniq -d | wc -l
}

# ---- what it is refused for ----------------------------------------------------------------------

refused() { # NAME TEXT ARG...
    local name=$1 text=$2
    shift 2
    timeout $limit "$once" serve --listen 127.0.0.1:0 --resp off --buffer spool "$@" >out 2>said
    is "$name" "$?" 2
    grep -qF -- "$text" said
    report $? "$name: it says why"
}
refused "a buffer that is a file needs none" "a synced file already" --data "$work/files"
refused "without a ledger" "needs both planes" --ledger none --coord "$ONCE_TEST_REDIS"
refused "without coord" "needs both planes" --coord none

# ---- Redis is flushed ----------------------------------------------------------------------------

up --drainer off
is "it listens" "$([ -n "$http" ] && echo yes)" yes
until_said 'event=fact plane=coord name=spool'
report $? "it says so when it starts"
is "and when it is asked" "$(curl -sS "http://$http/readyz" | jq -c '[.checks[] | select(.name == "spool") | .level]')" '["ok"]'
timeout $limit "$once" serve --listen 127.0.0.1:0 --resp off --buffer spool "${where[@]}" >out 2>said
is "a second daemon on the same spool" $? 69
grep -qF "a --data of its own" said
report $? "is told what to do"

triggers a 0 201 >a.ids
is "all are acknowledged" "$(wc -l <a.ids)" 201
is "all but the first by the buffer" "$(grep -c ' buffer False$' a.ids)" 200
within metric_is once_spool_entries 200
report $? "they are in the spool"
redis-cli -h 127.0.0.1 -p "${ONCE_TEST_REDIS##*:}" flushall >>noise
within metric_is once_spool_reaccepted_total 200
report $? "after a FLUSHALL they are accepted again"
until_said 'event=spool .*what="accepted again"'
report $? "and that is said"
triggers a 0 201 >again.ids
is "their keys lead to them" "$(cut -d' ' -f1,2,4 again.ids)" "$(sed 's/ [a-z]* False$/ True/' a.ids)"
timeout $limit "$once" drain "${where[@]}" >out 2>said
is "they are drained" "$(cat out)" "200 moved"
is "every one is in the ledger, as it was sent" "$(missing a a.ids)" 0
is "and only once" "$(twice a) $(in_ledger a | wc -l)" "0 201"
within metric_is once_spool_entries 0
report $? "the spool is empty"
is "nothing was accepted once more" "$(metric once_spool_reaccepted_total)" 200

# ---- Redis and the daemon are killed, while they work --------------------------------------------

: >b.ids
triggers b 0 100000 >b.ids 2>>noise &
client=$!
many() { [ "$(wc -l <b.ids)" -ge 300 ]; }
within many
report $? "they are acknowledged, one after the other"
kill -KILL "$ONCE_TEST_REDIS_PID" "$daemon"
wait "$daemon" "$client" 2>/dev/null
within sh -c "! kill -0 $ONCE_TEST_REDIS_PID 2>/dev/null"
"$here/../servers" restart "$servers/dir" redis >>noise 2>&1
# shellcheck disable=SC1091
. "$servers/dir/env"
is "Redis is empty" "$(redis-cli -h 127.0.0.1 -p "${ONCE_TEST_REDIS##*:}" dbsize)" 0
acknowledged=$(wc -l <b.ids)
buffered=$(grep -c ' buffer False$' b.ids)
up --drainer on
is "the daemon is there again" "$([ -n "$http" ] && echo yes)" yes
empty() { [ "$(metric once_spool_entries)" = 0 ] && [ "$(metric once_spool_reaccepted_total)" -ge "$buffered" ]; }
within empty
report $? "it finds its spool, and empties it into the ledger"
echo "# $acknowledged were acknowledged, $buffered by the buffer; $(metric once_spool_reaccepted_total) accepted again"
is "every one is in the ledger, as it was sent" "$(missing b b.ids)" 0
is "nothing is there twice" "$(twice b)" 0
triggers b 0 20 >again.ids
is "their keys lead to them" "$(cut -d' ' -f1,2,4 again.ids)" "$(head -n 20 b.ids | awk '{ print $1, $2, "True" }')"
stop
is "it ends well" $status 0

# ---- the disk is full ----------------------------------------------------------------------------

# No file may be longer than 256 KiB. What the spool cannot take, the ledger does.
full() {
    ulimit -f 256
    trap '' XFSZ
    exec "$once" serve --drain 100ms --listen 127.0.0.1:0 --resp off --buffer spool --gate-threshold 1 \
        --gate-window 1m --gate-hold 1m --drainer off "${where[@]}" --data "$work/full"
}
rm -f listening
mkfifo listening
full >listening 2>>err &
daemon=$!
read -r -t $limit listening <listening
http=$(sed -n 's/.* http \([^ ]*\).*/\1/p' <<<"$listening")
triggers c 0 300 >c.ids
is "all are acknowledged" "$(wc -l <c.ids)" 300
like "some by the buffer" "$(grep -c ' buffer False$' c.ids)" '[1-9]*'
like "and by the ledger, when there is no more room" "$(tail -n 1 c.ids)" '* ledger False'
redis-cli -h 127.0.0.1 -p "${ONCE_TEST_REDIS##*:}" flushall >>noise
stop
daemon_start --listen 127.0.0.1:0 --resp off --buffer spool "${where[@]}" --data "$work/full"
within metric_is once_spool_entries 0
report $? "with room again, the spool is emptied"
within metric_is 'once_buffer_entries{state="queued"}' 0
is "nothing is lost" "$(missing c c.ids)" 0
is "nor there twice" "$(twice c)" 0
stop
is "it ends well" $status 0
over
