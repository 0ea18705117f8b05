#!/usr/bin/env bash
# http.sh BUILD_DIR - the daemon and its HTTP door, with the real curl. Prints TAP.
#
# Nothing sleeps to let something happen: that a client waits is read off /metrics, that a process has
# ended is waited for. Every wait has a limit, so that a bug is a failure and not a hang.
# shellcheck disable=SC2016,SC2015
# shellcheck source=tests/e2e/shared/daemon.bash
. "$(dirname "$0")/shared/daemon.bash" http "$1"
waiters=()

# start ARG...: a daemon with an HTTP door, and its address; its log is new.
start() {
    rm -f err
    daemon_start --listen 127.0.0.1:0 --resp off "$@"
    address=$http
    url=http://$address
}
# ask METHOD PATH ARG...: the status in $code, the body in $body, fields in the file "fields".
ask() {
    local method=$1 path=$2
    shift 2
    code=$(curl -sS -m $limit -X "$method" -D fields -o body -w '%{http_code}' "$@" "$url$path")
    body=$(cat body)
}
json() { # METHOD PATH BODY ARG...
    local method=$1 path=$2 content=$3
    shift 3
    ask "$method" "$path" -H 'Content-Type: application/json' -d "$content" "$@"
}
member() { jq -r ".$1" body; }
field() { tr -d '\r' <fields | sed -n "s/^$1: //Ip"; }
metric() { curl -sS -m $limit "$url/metrics" | sed -n "s/^$1 //p"; }
until_metric() { # NAME VALUE
    local end=$((SECONDS + limit))
    until [ "$(metric "$1")" = "$2" ]; do [ $SECONDS -lt $end ] || return 1; done
}
# raw NAME WANT BYTES: sends, and reads until the daemon closes; the status lines.
raw() {
    local got
    exec 5<>"/dev/tcp/${address%:*}/${address##*:}"
    (trap '' PIPE && printf '%b' "$3" >&5) 2>/dev/null # it may be closed before all is sent
    got=$(timeout $limit cat <&5 2>/dev/null | tr -d '\r' | sed -n 's/^HTTP\/1.1 \([0-9]*\).*/\1/p' | paste -sd' ')
    exec 5>&-
    is "$1" "$got" "$2"
}

# ---- starting ----------------------------------------------------------------------------------

start
like "says where it listens" "$listening" "listening http 127.0.0.1:[1-9]*"

# ---- every verb --------------------------------------------------------------------------------

ask POST /v1/claims/orders/o%2F17
is "a claim" "$code $(member outcome) $(member lease_ms)" "201 claimed 30000"
is "where it is" "$(field location)" "/v1/claims/orders/o%2F17"
token=$(member token)
ask POST /v1/claims/orders/o%2F17 -H 'Prefer: wait=0'
is "in progress" "$code $(member code) $(member retryable) $(field content-type)" \
    "409 in_progress true application/problem+json"
is "when to come back" "$(field retry-after)" 1
json POST /v1/claims/orders/o%2F17/renew "{\"token\":\"$token\",\"lease_ms\":60000}"
is "renew" "$code $(member outcome)" "200 ok"
json PUT /v1/claims/orders/o%2F17 "{\"token\":\"$token\",\"value\":\"caf\\u00e9 \\\"7\\\"\"}"
is "publish" "$code $(member outcome)" "200 ok"
ask POST /v1/claims/orders/o%2F17
is "the answer" "$code $(member value) $(field once-replayed)" "200 café \"7\" true"
ask GET /v1/claims/orders/o%2F17 -H 'Accept: application/octet-stream'
is "the answer as it is" "$code $body" '200 café "7"'
json PUT /v1/claims/orders/o%2F17 '{"token":"00000000000000000000000000000000","value":"x"}'
is "lost, and what is known" "$code $(member code) $(member value)" '409 lost café "7"'
json POST /v1/claims/orders/o%2F17 '{"fingerprint":"other"}'
is "mismatch" "$code $(member code)" "422 mismatch"
ask POST /v1/claims/orders/o%2F17/forget
is "forget" "$code $(member outcome)" "200 ok"
ask GET /v1/claims/orders/o%2F17
is "absent" "$code $(member code)" "404 absent"

ask POST /v1/claims/files/f
token=$(member token)
head -c 500000 /dev/urandom >value
ask PUT "/v1/claims/files/f" -H "Once-Token: $token" -H 'Content-Type: application/octet-stream' \
    -H 'Transfer-Encoding: chunked' -H 'Expect: 100-continue' --data-binary @value
is "half a megabyte of noise, in chunks, after 100 Continue" "$code" 200
is "which was said" "$(grep -c '^HTTP/1.1 100 ' fields)" 1
curl -sS -m $limit -X POST -H 'Accept: application/octet-stream' -o back "$url/v1/claims/files/f"
cmp value back >/dev/null
report $? "it comes back as it was"
curl -sS -m $limit "$url/v1/claims/files/f" | jq -r .value.base64 | base64 -d | cmp - value
report $? "and as base64"
ask POST /v1/claims/files/g
ask DELETE "/v1/claims/files/g?token=$(member token)"
is "release" "$code $(member outcome)" "200 ok"
json POST /v1/claims/files/g '{"wait_ms":0}'
json PUT /v1/claims/files/g "{\"token\":\"$(member token)\",\"value\":null}"
ask POST /v1/claims/files/g
is "done without an answer" "$code $(member code) $(member retryable)" "409 already_done false"
ask GET '/v1/claims?scope=files&limit=1'
first=$(member 'claims[0].key')
ask GET "/v1/claims?scope=files&cursor=$(member cursor)"
is "pages" "$first $(member 'claims[0].key') $(member cursor)" "f g null"

# ---- waiting -----------------------------------------------------------------------------------

ask POST /v1/claims/wait/k
token=$(member token)
for i in 1 2; do
    curl -sS -m $limit -X POST -H 'Prefer: wait=60' "$url/v1/claims/wait/k" >"waiter$i" &
    waiters+=($!)
done
until_metric once_waiters 2
report $? "two wait"
json PUT /v1/claims/wait/k "{\"token\":\"$token\",\"value\":\"woken\"}"
wait "${waiters[@]}"
waiters=()
is "both are woken by the publish" "$(jq -r .value waiter1 waiter2 | paste -sd' ')" "woken woken"
ask POST /v1/claims/wait/l
curl -sS -m $limit -X POST -H 'Prefer: wait=60' "$url/v1/claims/wait/l" >waiter &
waiters=($!)
until_metric once_waiters 1
kill -9 "${waiters[0]}"
wait "${waiters[0]}" 2>/dev/null
waiters=()
until_metric once_waiters 0
report $? "who hangs up waits no more"
json POST /v1/claims/wait/l '{"wait_ms":30}'
is "timed out" "$code $(member code)" "503 timed_out"
own=0123456789abcdef0123456789abcdef
json POST '/v1/claims/wait/m?meta=true' "{\"token\":\"$own\"}"
is "a token of the caller's own" "$code $(member token) $(member mine)" "201 $own true"
seen=$(member version)
curl -sS -m $limit -H 'Prefer: wait=60' "$url/v1/claims/wait/m?seen=$seen" >poll &
waiters=($!)
json POST /v1/claims/wait/m "{\"token\":\"$own\"}"
is "asked for again" "$code $(member token)" "201 $own"
json PUT /v1/claims/wait/m "{\"token\":\"$own\",\"value\":\"polled\"}"
wait "${waiters[@]}"
waiters=()
is "a long poll is told of the publish" "$(jq -r .value poll)" polled

# ---- the protocol ------------------------------------------------------------------------------

request() { # PATH FIELD...: as bytes for raw; a page could not say this Host
    printf 'GET %s HTTP/1.1\\r\\nHost: localhost\\r\\n' "$1"
    shift
    printf '%s\\r\\n' "$@" ''
}
raw "pipelining" "200 200 404" "$(request /livez)$(request /version)$(request /x 'Connection: close')"
raw "HTTP/1.0" "200" 'GET /livez HTTP/1.0\r\n\r\n'
raw "two lengths" "400" 'POST /v1/claims/s/k HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nContent-Length: 9\r\n\r\nGET /livez HTTP/1.1\r\n\r\n'
raw "a Redis client" "400" '*1\r\n$4\r\nPING\r\n'
ask GET /livez -H 'X-Request-Id: my-id'
is "request ids" "$code $(field x-request-id)" "200 my-id"
ask OPTIONS /v1/claims/s/k
is "OPTIONS" "$code $(field allow)" "204 GET, HEAD, POST, PUT, DELETE, OPTIONS"
is "HEAD" "$(curl -sS -m $limit -I -o fields -w '%{http_code} %{size_download}' "$url/livez")" "200 0"
ask POST /v1/claims/s/k -H 'Origin: http://evil.example'
is "a page in a browser" "$code $(member code)" "403 browser"
ask GET /v1/claims -H 'Host: evil.example'
is "a page whose name leads here" "$code $(member code)" "403 browser"
ask GET /readyz
is "ready" "$code $(member status)" "200 ready"
ask GET /version
is "version" "$code $(member version)" "200 $("$once" version | cut -d' ' -f2)"

# ---- the document ------------------------------------------------------------------------------

"$here/openapi.py" "$address" >checked 2>&1
report $? "every answer is as the OpenAPI document says"
while read -r line; do
    case $line in
    "ok "*) report 0 "${line#ok }" ;;
    *) report 1 "${line#not ok }" ;;
    esac
done <checked

# ---- ends --------------------------------------------------------------------------------------

ask POST /v1/claims/crash/k
json PUT /v1/claims/crash/k "{\"token\":\"$(member token)\",\"value\":\"kept\"}"
stop KILL 2>/dev/null
start
ask POST /v1/claims/crash/k
is "kill -9, and the answer is still there" "$code $(member value)" "200 kept"
ask POST /v1/claims/term/k
curl -sS -m $limit -X POST -H 'Prefer: wait=60' -D waiter_fields "$url/v1/claims/term/k" >waiter &
waiters=($!)
until_metric once_waiters 1
stop TERM
wait "${waiters[0]}"
waiters=()
is "SIGTERM ends it well" "$status" 0
is "who waits is sent elsewhere" "$(jq -r '.status, .retryable' waiter | paste -sd' ')" "503 true"
like "and told that it ends" "$(tr -d '\r' <waiter_fields | paste -sd' ')" "*Connection: close*"

start --log-level debug
ask POST /v1/claims/secret-scope/secret-key -H 'X-Request-Id: my-id' \
    -H 'traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
stop TERM
like "the log says which request it was" "$(grep event=request err)" \
    "*level=debug event=request door=http id=my-id trace=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 method=POST route=/v1/claims/{scope}/{key} status=201 ms=*"
is "and no key" "$(grep -c secret err)" 0

start --listen "unix:$work/s"
is "a socket in the file system" "$listening" "listening http unix:$work/s"
is "curl on it" "$(curl -sS -m $limit --unix-socket "$work/s" http://once/livez)" '{"status":"ok"}'
stop INT
is "SIGINT ends it well" "$status" 0

over
