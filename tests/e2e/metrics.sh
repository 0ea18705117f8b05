#!/usr/bin/env bash
# metrics.sh BUILD_DIR - what the daemon counts and says: /metrics, logs, once top, and what
# packaging/ makes of them. Prints TAP.
#
# Counts are exact: the script knows what it asked. Nothing sleeps to let something happen: that a
# client waits or a breaker opened is read off /metrics. Every wait has a limit.
# shellcheck disable=SC2015,SC2094
# shellcheck source=tests/e2e/shared/daemon.bash
. "$(dirname "$0")/shared/daemon.bash" metrics "$1"
root=$(cd "$here/../.." && pwd)

# start ARG...: a daemon with both doors, and their ports; its log is new.
start() {
    rm -f err
    daemon_start --listen 127.0.0.1:0 --resp 127.0.0.1:0 "$@"
    resp=$resp_port http=$http_port
}
r() { timeout $limit redis-cli -p "$resp" "$@" | paste -sd' '; }
token() { cut -d' ' -f2; }
get() { timeout $limit curl -sS "${@:2}" "http://127.0.0.1:$http$1"; }
# value SERIES: of the last page that was read.
value() { awk -v series="$1" '$1 == series { print $2 }' page; }
look() { get /metrics >page; }
until_value() { # SERIES VALUE
    local end=$((SECONDS + limit))
    until look && [ "$(value "$1")" = "$2" ]; do [ $SECONDS -lt $end ] || return 1; done
}

# strict PAGE: what a parser that forgives nothing has against it.
strict() {
    awk '
        function complain(why) { print FNR ": " why ": " $0 }
        /^# HELP / {
            name = $3; type = ""
            if (name in helped) complain("twice")
            helped[name] = 1
            if (NF < 4) complain("no help")
            next
        }
        /^# TYPE / {
            if ($3 != name) complain("not below its HELP")
            type = $4
            if ((type == "counter") != ($3 ~ /_total$/)) complain("_total is for counters")
            next
        }
        !/^[a-z_]+(\{([a-z_]+="[^"\\]*",?)+\})? [0-9]+(\.[0-9]+)?$/ { complain("not a sample"); next }
        {
            base = $1; sub(/\{.*/, "", base)
            if (type == "histogram") sub(/_(bucket|sum|count)$/, "", base)
            if (base != name) complain("not of its family")
            if ($1 in seen) complain("twice")
            seen[$1] = 1
        }' "$1"
}
# shrunk BEFORE NOW: counters that went down.
shrunk() {
    awk '
        /^# TYPE / { grows = $4 != "gauge"; next }
        /^#/ || !grows { next }
        FNR == NR { was[$1] = $2; next }
        ($1 in was) && $2 + 0 < was[$1] + 0' "$1" "$2"
}

# ---- everything that is asked is counted -------------------------------------------------------

start
look
cp page first
is "a page that a strict parser takes" "$(strict page)" ""
is "nothing was claimed yet" "$(value 'once_claims_total{outcome="claimed"}')" 0

owner=$(r ONCE.CLAIM s k WAIT 0 | token)
for _ in 1 2 3; do r ONCE.CLAIM s k WAIT 0 >/dev/null; done # in progress
r ONCE.PUBLISH s k "$owner" answer >/dev/null
for _ in 1 2 3 4; do r ONCE.CLAIM s k >/dev/null; done # cached
get /v1/claims/s/k -X POST >/dev/null                  # by the other door
r ONCE.CLAIM s fp WAIT 0 FP one LEASE 1h >/dev/null
r ONCE.CLAIM s fp WAIT 0 FP two >/dev/null # mismatch
r ONCE.CLAIM s lapsed WAIT 0 LEASE 0 >/dev/null
r ONCE.CLAIM s lapsed WAIT 0 LEASE 1h >/dev/null # taken over
r ONCE.RELEASE s lapsed 0123456789abcdef0123456789abcdef >/dev/null # lost
owner=$(r ONCE.CLAIM s wait WAIT 0 | token)
timeout $limit redis-cli -p "$resp" ONCE.CLAIM s wait WAIT 60s >waited &
client=$!
until_value once_waiters 1
report $? "a caller that waits is seen"
r ONCE.PUBLISH s wait "$owner" late >/dev/null
wait "$client"
like "and gets its answer" "$(paste -sd' ' waited)" "cached late"
look
is "claimed" "$(value 'once_claims_total{outcome="claimed"}')" 5
is "in progress" "$(value 'once_claims_total{outcome="in_progress"}')" 3
is "cached, by both doors and after waiting" "$(value 'once_claims_total{outcome="cached"}')" 6
is "mismatch" "$(value 'once_claims_total{outcome="mismatch"}')" 1
is "timed out" "$(value 'once_claims_total{outcome="timed_out"}')" 0
is "takeovers" "$(value once_takeovers_total)" 1
is "lost" "$(value once_lost_total)" 1
is "degraded" "$(value once_degraded_answers_total)" 0
is "nobody waits any more" "$(value once_waiters)" 0
is "one has waited" "$(value once_wait_duration_seconds_count)" 1
is "the others have not" "$(value 'once_call_duration_seconds_count{verb="claim"}')" 14
is "publishes are measured" "$(value 'once_call_duration_seconds_count{verb="publish"}')" 2
is "the ledger has published" "$(value 'once_plane_ops_total{plane="ledger",verb="publish"}')" 2
is "and so has coord" "$(value 'once_plane_ops_total{plane="coord",verb="publish"}')" 2
is "commands by RESP" "$(value 'once_requests_total{door="resp"}')" 17
until_value 'once_connections_closed_total{door="resp",reason="ended"}' 17
report $? "connections that are closed"
is "batches of the ledger are whole ops" \
    "$(value 'once_plane_batch_ops_bucket{plane="ledger",le="+Inf"}')" \
    "$(value 'once_plane_batch_ops_count{plane="ledger"}')"
is "still a page that a strict parser takes" "$(strict page)" ""
is "counters only grow" "$(shrunk first page)" ""
like "INFO has the same" "$(r INFO)" "*claims_cached:6*"

like "once top shows it" "$("$once" top --once --url "http://127.0.0.1:$http")" "*claims/s*claimed*plane*ledger*up*"
is "once top --json has every sample" "$("$once" top --json --url "http://127.0.0.1:$http" | jq '."once_takeovers_total"')" 1
"$once" top --once --url http://127.0.0.1:1 >top 2>&1
is "once top without a daemon" $? 69

# The same on a terminal, which is what script(1) makes, until somebody types q.
mkfifo keys
exec 7<>keys
timeout $limit script -qefc "'$once' top --interval 50ms --url http://127.0.0.1:$http" /dev/null <keys >screen 2>&1 &
client=$!
end=$((SECONDS + limit))
until [ "$(grep -c 'q quits' screen)" -ge 3 ] || [ $SECONDS -ge $end ]; do :; done
printf q >&7
wait "$client"
is "once top on a terminal draws until q" $? 0
exec 7>&-
like "and gives the screen back" "$(tail -c 8 screen)" $'*\e[?1049l'

# ---- what packaging makes of it ----------------------------------------------------------------

# unknown: the metrics on stdin that the page does not have.
unknown() {
    grep -oE '\b(once|process)_[a-z_]+' | sed -E 's/_(bucket|sum|count)$//' | sort -u |
        while read -r name; do grep -q "^# TYPE $name " page || echo "$name"; done
}
jq -r '.panels[].targets[]?.expr' "$root/packaging/grafana/once.json" >expressions
is "the dashboard has panels with expressions" "$(grep -c once_ expressions | awk '{ print ($1 > 30) }')" 1
is "every metric of the dashboard is there" "$(unknown <expressions)" ""
grep -v '^ *#' "$root/packaging/prometheus/alerts.yml" | awk '/expr:/ { on = 1 } /(for|labels):/ { on = 0 } on' >rules
is "every metric of the alerts is there" "$(unknown <rules)" ""
is "every alert says what to do" "$(grep -c 'alert:' "$root/packaging/prometheus/alerts.yml")" \
    "$(grep -c 'description:' "$root/packaging/prometheus/alerts.yml")"
is "a metric that is not there is noticed" "$(echo 'rate(once_nothing_total[5m])' | unknown)" once_nothing_total
stop
is "it says how it ended" "$(tail -n 1 err | cut -d' ' -f3-)" "event=server state=done"

start # counts its records first thing, and then seldom
until_value 'once_records{state="pending"}' 2
report $? "records are counted: fp and lapsed are pending"
is "and two are done" "$(value 'once_records{state="done"}')" 2
stop

# ---- logs: no key, no value, no token ----------------------------------------------------------

start --log-level debug --log-format json
owner=$(r ONCE.CLAIM hush very-secret-key WAIT 0 | token)
r ONCE.PUBLISH hush very-secret-key "$owner" very-secret-value >/dev/null
r ONCE.CLAIM hush very-secret-key >/dev/null
get /v1/claims/hush/very-secret-key -X POST >/dev/null
stop
is "no key, scope, value or token is in the log" "$(grep -cE "very-secret|hush|$owner" err)" 0
jq -e . err >parsed
report $? "every line is JSON"
hash=$(jq -r 'select(.event == "op" and .op == "publish") | .key' err | sort -u)
like "the key is a hash" "$hash" "[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]"
like "the one that the command shows" "$("$once" --verbose peek hush very-secret-key 2>&1)" "*key=$hash*"

start --log-level error
r ONCE.CLAIM s quiet >/dev/null
stop
is "the level error says nothing of a good life" "$(cat err)" ""

# ---- tokens ------------------------------------------------------------------------------------

reader=$("$once" token create --name reader --verb read --quiet)
watcher=$("$once" token create --name watcher --verb metrics --quiet)
status() { get "$1" -o /dev/null -w '%{http_code}' "${@:2}"; }
start
is "where tokens are needed, metrics need one" "$(status /metrics)" 401
is "not any" "$(status /metrics -H "Authorization: Bearer $reader")" 403
is "but one for metrics" "$(status /metrics -H "Authorization: Bearer $watcher")" 200
is "which is good for nothing else" "$(status /v1/claims/s/k -H "Authorization: Bearer $watcher")" 403
# No token ends with a u.
is "nor is one that nobody made" "$(status /metrics -H "Authorization: Bearer ${watcher%?}u")" 401
get /metrics -H "Authorization: Bearer $watcher" >page
is "who was not known is counted" "$(value once_login_failures_total)" 1
is "and told" "$(grep -c 'level=warn event=login_failed failures=1' err)" 1
is "who was let in is counted" "$(value once_logins_total)" 4
is "and who was not allowed" "$(value once_denied_total)" 2
like "once top takes it from ONCE_TOKEN" "$(ONCE_TOKEN=$watcher "$once" top --once --url "http://127.0.0.1:$http")" "once *"
"$once" top --once --url "http://127.0.0.1:$http" >top 2>&1
like "and says that it wants one" "$(cat top)" "*ONCE_TOKEN*"
stop
is "no token is in the log" "$(grep -cF -e "$reader" -e "$watcher" err)" 0
rm "$ONCE_DATA/tokens"

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -keyout key -out cert \
    -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 2>/dev/null
start --tls-cert cert --tls-key key
like "once top over TLS" "$(SSL_CERT_FILE=cert "$once" top --once --url "https://127.0.0.1:$http")" "once *"
"$once" top --once --url "https://localhost:$http" >top 2>&1
is "not with a certificate that nobody vouches for" $? 69
like "and says so" "$(cat top)" "*certificate*"
"$once" top --once --url "http://127.0.0.1:$http" >top 2>&1
is "nor in the clear" $? 69
stop

# ---- coord is away -----------------------------------------------------------------------------

redis-server --port 0 --unixsocket "$work/redis.sock" --save '' --daemonize no >redis.log 2>&1 &
redis=$!
end=$((SECONDS + limit))
until redis-cli -s "$work/redis.sock" PING >/dev/null 2>&1 || [ $SECONDS -ge $end ]; do :; done
away() { # LEDGER...
    start --coord "redis://$work/redis.sock?timeout_ms=1500" "${@:2}" # a busy machine is not a hung Redis
    r ONCE.CLAIM s "before$1" WAIT 0 >/dev/null
    until_value 'once_plane_up{plane="coord"}' 1
    is "$1: with coord nothing is degraded" "$(value once_degraded_answers_total)" 0
    is "$1: it has asked Redis" "$(value 'once_plane_ops_total{plane="coord",verb="claim"}')" 1
    kill -STOP "$redis"
    like "$1: a hung coord does not stop a claim" "$(r ONCE.CLAIM s "hung$1" WAIT 0)" "claimed*"
    look
    is "$1: the breaker is open" "$(value 'once_plane_breaker_open{plane="coord"}')" 1
    is "$1: once" "$(value 'once_plane_breaker_opened_total{plane="coord"}')" 1
    is "$1: because one was late" "$(value 'once_plane_late_ops_total{plane="coord"}')" 1
    is "$1: the ledger is up" "$(value 'once_plane_up{plane="ledger"}')" 1
    is "$1: one answer was degraded" "$(value once_degraded_answers_total)" 1
    r ONCE.CLAIM s "hung$1" WAIT 0 >/dev/null
    look
    is "$1: and the next" "$(value once_degraded_answers_total)" 2
    is "$1: the log says so, once" "$(grep -c 'level=warn event=breaker state=open' err)" 1
    like "$1: once top, too" "$("$once" top --once --url "http://127.0.0.1:$http")" "*coord*breaker*"
    kill -CONT "$redis"
    until_value 'once_plane_breaker_open{plane="coord"}' 0
    report $? "$1: it closes when coord is back"
    is "$1: and so says the log" "$(grep -c 'level=warn event=breaker state=closed' err)" 1
    redis-cli -s "$work/redis.sock" FLUSHALL >/dev/null
    r ONCE.CLAIM s "flushed$1" WAIT 0 >/dev/null
    look
    is "$1: what coord has forgotten is noticed" "$(value 'once_plane_amnesia_total{plane="coord"}')" 1
    is "$1: a page that a strict parser takes" "$(strict page)" ""
    stop
}
away sqlite
if [ -n "${ONCE_TEST_POSTGRES-}" ]; then
    away postgres --ledger "$ONCE_TEST_POSTGRES?schema=metrics$$"
    start --ledger "$ONCE_TEST_POSTGRES?schema=metrics$$"
    look
    [ "$(value 'once_plane_connects_total{plane="ledger"}')" -ge 1 ]
    report $? "postgres: connections are counted"
    stop
    psql -q "$ONCE_TEST_POSTGRES" -c "DROP SCHEMA metrics$$ CASCADE" >/dev/null 2>&1
fi

over
