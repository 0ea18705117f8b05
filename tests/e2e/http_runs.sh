#!/usr/bin/env bash
# http_runs.sh BUILD_DIR - runs through the HTTP door of the daemon, on the ledger that it has by itself,
# with the real curl. Prints TAP.
#
# Nothing sleeps to let something happen: a lease waits for what is due, jobs are waited for.
# shellcheck disable=SC2016,SC2015
# shellcheck source=tests/e2e/shared/daemon.bash
. "$(dirname "$0")/shared/daemon.bash" http_runs "$1"

start() {
    rm -f err
    daemon_start --listen 127.0.0.1:0 --resp off
    url=http://$http
}
# ask METHOD PATH [BODY [ARG...]]: the status in $code, the body in the file "body".
ask() {
    local method=$1 path=$2 content=${3-}
    shift $(($# < 3 ? $# : 3))
    [ -z "$content" ] || set -- -H 'Content-Type: application/json' -d "$content" "$@"
    code=$(curl -sS -m $limit -X "$method" -D fields -o body -w '%{http_code}' "$@" "$url$path")
}
member() { jq -rc ".$1" body; }
trigger() { ask POST "/v1/tasks/$1/trigger" "${@:2}"; } # TASK [BODY [ARG...]]
lease() { # QUEUE [BODY]
    ask POST "/v1/queues/$1/lease" "${2-}"
    id=$(member 'runs[0].id') token=$(member 'runs[0].token')
}

# until_read N: the daemon has read so many requests, those that ask for the number apart.
until_read() {
    local looks=0 end=$((SECONDS + limit)) read
    while [ $SECONDS -lt $end ]; do
        looks=$((looks + 1))
        read=$(curl -sS -m $limit "$url/metrics" | sed -n 's/^once_requests_total{door="http"} //p')
        [ "$((read - looks))" -ge "$1" ] && return 0
    done
    return 1
}

start

# ---- triggers ------------------------------------------------------------------------------------

payload='{ "to":"a@example.com",  "n":1.50 }'
trigger mail "{\"payload\":$payload,\"options\":{\"idempotencyKey\":\"welcome-1\",\"tags\":[\"a\"],\"metadata\":{\"n\":1}}}"
is "a trigger" "$code $(member isCached) $(member status) $(member source)" "200 false QUEUED ledger"
first=$(member id)
like "its id" "$first" "run_0*"
trigger mail "{\"payload\":$payload}" -H 'Idempotency-Key: welcome-1'
is "the same key" "$code $(member isCached) $(member id)" "200 true $first"
trigger mail '{"payload":2,"options":{"idempotencyKey":"welcome-1"}}'
is "for something else" "$code $(member code) $(member retryable)" "422 mismatch false"
trigger mail '{"payload":2,"options":{"idempotencyKey":"welcome-1","onMismatch":"return"}}'
is "which may be wanted" "$code $(member isCached) $(member id)" "200 true $first"
trigger mail '{"payload":2,"options":{"idempotency_key":"x"}}'
is "a misspelt option" "$code $(member detail)" '400 there is no option "idempotency_key" here; did you mean "idempotencyKey"?'
for option in idempotencyKey orderingKey queue; do
    trigger mail "{\"options\":{\"$option\":\"\"}}"
    is "an empty $option" "$code $(member detail)" "400 $option wants text, and not none"
done
trigger mail '{}' -H 'Idempotency-Key;'
is "an empty Idempotency-Key" "$code $(member detail)" "400 Idempotency-Key is empty"
ask POST /v1/queues/mail/lease '{"lease_ms":0}'
is "a lease of no time" "$code $(member code)" "400 invalid"
ask GET "/v1/runs/$first"
is "get" "$code $(member task) $(member queue) $(member status) $(member attempts)" "200 mail mail QUEUED 0"
grep -qF "\"payload\":$payload," body
report $? "the payload is as it came"
ask GET "/v1/runs/$first" '' -H 'Once-Env: other'
is "not in another env" "$code $(member code)" "404 absent"
own=run_01ARZ3NDEKTSV4RRFFQ69G5FAV
trigger mail "{\"options\":{\"id\":\"$own\",\"queue\":\"own\"}}"
trigger mail "{\"options\":{\"id\":\"$own\",\"queue\":\"own\"}}"
is "an id of one's own, twice" "$code $(member id)" "200 $own"

# One makes it, whoever comes at once gets the same.
for i in {1..20}; do
    curl -sS -m $limit -X POST -H 'Content-Type: application/json' -o "burst$i" \
        -d '{"payload":7,"options":{"idempotencyKey":"burst"}}' "$url/v1/tasks/burst/trigger" &
    pids[i]=$!
done
wait "${pids[@]}"
is "a burst on one key makes one run" \
    "$(jq -r .id burst* | sort -u | wc -l) $(jq -r .isCached burst* | grep -c false)" "1 1"

# ---- batches -------------------------------------------------------------------------------------

ask POST /v1/tasks/bulk/batch '{"items":[{"payload":1,"options":{"idempotencyKey":"b"}},{"payload":2},
    {"payload":1,"options":{"idempotencyKey":"b"}},{"payload":3,"options":{"idempotencyKey":"b"}}]}'
is "a batch, in order" "$code $(jq -c '[.results[] | if .error then .error.code else .isCached end]' body)" '200 [false,false,true,"mismatch"]'
is "the first has the key" "$(member 'results[0].id')" "$(member 'results[2].id')"
ask POST /v1/tasks/bulk/batch '{"items":[{"payload":9},{"payload":9,"options":{"delay":"soon"}}]}'
is "one wrong item" "$code $(member detail | cut -d: -f1)" "400 items[1]"
ask GET '/v1/runs?task=bulk'
is "and none of them was made" "$(jq '.runs | length' body)" 2
jq -nc '{items: [range(1000) | {payload: {n: .}, options: {idempotencyKey: "m\(.)"}}]}' >many
ask POST /v1/tasks/many/batch @many
is "a thousand" "$code $(jq '[.results[].id] | unique | length' body)" "200 1000"
ask POST /v1/tasks/many/batch @many
is "the same thousand" "$code $(jq -c '[.results[].isCached] | unique' body)" "200 [true]"

# ---- lists ---------------------------------------------------------------------------------------

cursor='' pages=0
: >seen
until [ "$cursor" = null ]; do
    ask GET "/v1/runs?task=many&limit=300${cursor:+&cursor=$cursor}"
    jq -r '.runs[].id' body >>seen
    cursor=$(member cursor) pages=$((pages + 1))
done
is "pages have every run once" "$pages $(wc -l <seen) $(sort -u seen | wc -l)" "4 1000 1000"
sort -rc seen 2>/dev/null
report $? "the newest first"
trigger later '{"options":{"delay":"1h","tags":["x y"]}}'
late=$(member id)
ask GET '/v1/runs?status=DELAYED&tag=x%20y&queue=later'
is "by status, tag and queue" "$(jq -c '[.runs[].id]' body)" "[\"$late\"]"
ask GET '/v1/runs?task=later&status=QUEUED,FAILED'
is "a delayed run is not queued" "$(member 'runs|length')" 0

# ---- changes -------------------------------------------------------------------------------------

ask POST "/v1/runs/$first/tags" '{"tags":["b","a","c"]}'
is "tags are a set" "$code $(member tags)" '200 ["a","b","c"]'
ask POST "/v1/runs/$first/tags" '{"tags":["1","2","3","4","5","6","7","8"]}'
is "of ten" "$code $(member code)" "422 refused"
ask PUT "/v1/runs/$first/metadata" '{"operations":[{"type":"increment","key":"n","value":2},
    {"type":"append","key":"log","value":"x"},{"type":"set","key":"s","value":{}}]}'
is "operations on metadata" "$code $(member metadata)" '200 {"n":3,"log":["x"],"s":{}}'
version=$(member metadataVersion)
ask PUT "/v1/runs/$first/metadata" "{\"metadata\":{\"m\":1},\"version\":$version}"
is "compare and set" "$code $(member metadata)" '200 {"m":1}'
ask PUT "/v1/runs/$first/metadata" "{\"metadata\":{\"m\":2},\"version\":$version}"
is "which is too late now" "$code $(member code) $(member run.metadata)" '409 conflict {"m":1}'
for i in {1..20}; do
    curl -sS -m $limit -X PUT -H 'Content-Type: application/json' -o /dev/null \
        -d '{"operations":[{"type":"increment","key":"n","value":1}]}' "$url/v1/runs/$first/metadata" &
    pids[i]=$!
done
wait "${pids[@]}"
ask GET "/v1/runs/$first"
is "twenty increments at once all count" "$(member metadata.n)" 20
ask POST "/v1/runs/$late/reschedule" '{"delay":"2099-01-01T00:00:00+01:00"}'
is "too far off" "$code" 400
ask POST "/v1/runs/$late/reschedule" '{"delay":"2h"}'
is "reschedule" "$code $(member status)" "200 DELAYED"
ask POST "/v1/runs/$first/reschedule" '{"delay":"2h"}'
is "only what is delayed" "$code $(member code)" "422 refused"
ask POST "/v1/runs/$late/cancel" '{"reason":"not any more"}'
is "cancel" "$code $(member status) $(member error)" "200 CANCELED not any more"
ask POST "/v1/runs/$late/cancel"
is "again" "$code $(member status)" "200 CANCELED"
ask POST "/v1/runs/$first/replay"
is "replay" "$code $(member isCached)" "200 false"
[ "$(member id)" != "$first" ]
report $? "is another run"
ask GET "/v1/runs/$(member id)"
is "like the first, without its key" "$(grep -cF "\"payload\":$payload,\"idempotencyKey\":null," body)" 1
ask POST /v1/tasks/mail/keys/welcome-1/reset
is "reset" "$code $(member cleared)" "200 true"
ask POST /v1/tasks/mail/keys/welcome-1/reset
is "nobody has it any more" "$code $(member code)" "404 absent"
trigger mail "{\"payload\":$payload,\"options\":{\"idempotencyKey\":\"welcome-1\"}}"
is "the key makes a new run" "$code $(member isCached)" "200 false"

# ---- workers -------------------------------------------------------------------------------------

trigger work '{"payload":{"job":1},"options":{"maxAttempts":2}}'
run=$(member id)
lease work
is "a lease" "$code $id $(member 'runs[0].attempts') $(member 'runs[0].leaseMs')" "200 $run 1 30000"
ask POST "/v1/runs/$run/heartbeat" "{\"token\":\"$token\",\"lease_ms\":\"1m\"}"
is "a heartbeat" "$code $(member status)" "200 EXECUTING"
ask POST "/v1/runs/$run/complete" '{"token":"00000000000000000000000000000000"}'
is "somebody else" "$code $(member code) $(member run.status)" "409 lost EXECUTING"
ask POST "/v1/runs/$run/fail" "{\"token\":\"$token\",\"error\":{\"message\":\"try again\"},\"retry_in_ms\":1}"
is "an attempt that failed" "$code $(member status) $(member error.message)" "200 QUEUED try again"
lease work '{"wait_ms":10000}'
is "is leased again when it is due" "$code $id $(member 'runs[0].attempts')" "200 $run 2"
ask POST "/v1/runs/$run/complete" "{\"token\":\"$token\",\"output\":[true, null]}"
is "complete" "$code $(member status) $(member output)" "200 COMPLETED [true,null]"
grep -qF '"output":[true, null],' body
report $? "the output is as it came"
lease work '{"wait_ms":1}'
is "nothing is due" "$code $(member runs)" "200 []"

trigger work '{"options":{"maxAttempts":1,"idempotencyKey":"f"}}'
run=$(member id)
lease work
ask POST "/v1/runs/$run/fail" "{\"token\":\"$token\",\"error\":\"no\"}"
is "no attempt is left" "$code $(member status)" "200 FAILED"
trigger work '{"options":{"maxAttempts":1,"idempotencyKey":"f"}}'
is "the key of a run that failed makes a new one" "$code $(member isCached)" "200 false"

curl -sS -m $limit -X POST -H 'Content-Type: application/json' -o leased -d '{"wait_ms":20000}' \
    "$url/v1/queues/wait/lease" &
worker=$!
trigger wait '{"payload":"wake up"}'
wait $worker
is "a worker that waits is woken" "$(jq -r '.runs[0].payload' leased)" "wake up"

for i in 1 2 3; do trigger order "{\"payload\":$i,\"options\":{\"orderingKey\":\"o\"}}"; done
lease order '{"count":3}'
is "one at a time of an orderingKey" "$(jq -c '[.runs[].payload]' body)" "[1]"
ask POST "/v1/runs/$id/complete" "{\"token\":\"$token\"}"
lease order '{"count":3}'
is "in their order" "$(jq -c '[.runs[].payload]' body)" "[2]"

# ---- limits and ends -----------------------------------------------------------------------------

head -c 1048577 /dev/zero | tr '\0' 7 | sed 's/.*/{"payload":&}/' >large
trigger mail @large
is "a payload that is too large" "$code $(member code)" "413 limit"
printf '{"payload":%s1%s}' "$(printf '[%.0s' {1..100})" "$(printf ']%.0s' {1..100})" >deep
trigger mail @deep
is "or too deep" "$code $(member code)" "400 invalid"
stop KILL 2>/dev/null
start
ask GET "/v1/runs/$first"
is "kill -9, and the run is still there" "$code $(member metadata.n)" "200 20"
curl -sS -m $limit -X POST -H 'Content-Type: application/json' -o leased -d '{"wait_ms":20000}' \
    -w '%{http_code}' "$url/v1/queues/nothing/lease" >leased_code &
worker=$!
until_read 2
stop TERM
wait $worker
is "SIGTERM ends it well" "$status" 0
is "who waits for work is sent elsewhere" "$(cat leased_code) $(jq -r .retryable leased)" "503 true"

over
