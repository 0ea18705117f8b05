#!/usr/bin/env bash
# mutations.sh BUILD_DIR - the replay cache of mutations through the HTTP and the RESP door, with the real
# curl and redis-cli: the three-way contract, epochs, two doors on one cache, and who may ask. Prints TAP.
#
# Nothing sleeps to let something happen: who waits is answered, a lease that lapses is waited for.
# shellcheck disable=SC2016,SC2015
# shellcheck source=tests/e2e/shared/daemon.bash
. "$(dirname "$0")/shared/daemon.bash" mutations "$1"

start() {
    rm -f err
    daemon_start --listen 127.0.0.1:0 --resp 127.0.0.1:0
    url=http://$http
}
# ask STEP BODY [ARG...]: the status in $code, the body in the file "body".
ask() {
    code=$(curl -sS -m $limit -D fields -o body -w '%{http_code}' -H 'Content-Type: application/json' \
        -d "$2" "${@:3}" "$url/v1/mutations/$1")
}
member() { jq -rc ".$1" body; }
resp() { redis-cli -p "$resp_port" "${@:1}" | xargs; }
who='"user_id":"user-1","request_id":"req-9","method":"UseItem"'

start

# ---- HTTP ----------------------------------------------------------------------------------------

ask begin "{$who}"
is "begin" "$code $(member outcome) $(member degraded)" "201 claimed false"
token=$(member token)
ask begin "{$who}"
is "somebody is on it" "$code $(member code) $(member retryable) $(grep -ic '^retry-after' fields)" "409 in_progress true 1"
ask begin '{"user_id":"user-1","request_id":"req-9","method":"SellItem"}'
is "another method" "$code $(member code) $(member retryable)" "422 mismatch false"
ask complete "{$who,\"token\":\"$token\",\"response\":\"{\\\"left\\\":2}\",\"epoch\":\"1-a\"}"
is "complete" "$code $(member outcome)" "200 ok"
ask begin "{$who,\"epoch\":\"1-a\"}"
is "the retry gets the response" "$code $(member outcome) $(member response) $(grep -ic '^once-replayed: true' fields)" \
    '200 cached {"left":2} 1'
ask begin "{$who,\"epoch\":\"2-a\"}"
is "after a failover it does not" "$code $(member outcome)" "201 claimed"
ask abort "{$who,\"token\":\"$(member token)\"}"
is "abort" "$code $(member outcome)" "200 ok"
ask complete "{$who,\"token\":\"$token\",\"response\":\"late\"}"
is "who comes late has lost it" "$code $(member code)" "409 lost"
ask begin "{$who}"
token=$(member token)
curl -sS -m $limit -o /dev/null -w "%{http_code}" -H "Content-Type: application/json" -d "{$who,\"wait_ms\":15000}" \
    "$url/v1/mutations/begin" >waited &
waiter=$!
ask complete "{$who,\"token\":\"$token\",\"response\":null}"
wait $waiter
is "who waits is told" "$(cat waited)" 409
ask begin "{$who}"
is "done, and nothing was kept" "$code $(member code) $(member retryable)" "409 already_done false"
ask begin '{"user_id":"user-1","request_id":"req-9","method":"UseItem"}' -H 'Once-Env: other'
is "another env" "$code" 201
ask begin '{"user_id":"u","request_id":"short","lease_ms":50}'
ask begin '{"user_id":"u","request_id":"short","wait_ms":15000}'
is "a lease that lapses is taken over" "$code $(member outcome)" "201 claimed"
ask begin '{"user_id":"u"}'
is "a request without an id" "$code $(member detail)" "400 request_id is missing"

# ---- RESP, on the same cache ---------------------------------------------------------------------

ask begin '{"user_id":"u","request_id":"both","method":"m"}'
token=$(member token)
like "RESP: somebody is on it" "$(resp ONCE.MUTATION.BEGIN u both METHOD m)" "in_progress *"
like "RESP: another method" "$(resp ONCE.MUTATION.BEGIN u both METHOD n)" "MISMATCH *"
is "RESP: complete" "$(resp ONCE.MUTATION.COMPLETE u both "$token" done EPOCH e RETAIN 1h)" "OK"
is "RESP: the response" "$(resp ONCE.MUTATION.BEGIN u both METHOD m)" "cached done"
ask begin '{"user_id":"u","request_id":"both","method":"m"}'
is "HTTP: the same" "$code $(member response)" "200 done"
token=$(redis-cli -p "$resp_port" ONCE.MUTATION.BEGIN u r2 | sed -n 2p)
is "RESP: abort" "$(resp ONCE.MUTATION.ABORT u r2 "$token") $(resp ONCE.MUTATION.ABORT u r2 "$token")" "OK lost"
like "RESP: nothing but the words that there are" "$(resp ONCE.MUTATION.BEGIN u r2 RETAIN 1)" "ERR syntax error*"
is "metrics" "$(curl -sS "$url/metrics" | grep -c '^once_mutations_total{outcome="mismatch"} 2$')" 1

# ---- who may ask ---------------------------------------------------------------------------------

stop
"$once" token create --quiet --name shop --verb mutate --scope shop >shop
"$once" token create --quiet --name reader --verb read --scope '*' >reader
start
ask begin "{$who}" -H "Authorization: Bearer $(cat shop)"
is "a token for one env means that env" "$code $(member outcome)" "201 claimed"
ask begin "{$who}" -H "Authorization: Bearer $(cat shop)" -H 'Once-Env: default'
is "and no other" "$code $(member code)" "403 forbidden"
ask begin "{$who}" -H "Authorization: Bearer $(cat reader)"
is "who may only look" "$code $(member code)" "403 forbidden"
ask begin "{$who}"
is "a stranger" "$code $(member code)" "401 unauthorized"
export REDISCLI_AUTH
REDISCLI_AUTH=$(cat shop)
like "RESP: in its env" "$(resp ONCE.MUTATION.BEGIN u r ENV shop)" "claimed *"
like "RESP: elsewhere" "$(resp ONCE.MUTATION.BEGIN u r)" "NOPERM *"
over
