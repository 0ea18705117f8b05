# parity.bash - the same questions about a run in the ledger and one in the buffer. To be sourced by suite.sh.
# shellcheck shell=bash disable=SC2034,SC2154,SC2086,SC2046,SC2206,SC2119,SC2120,SC2317

question() { # a line of JSON
    ask "$@"
    printf '{"asked":"%s %s","code":%s,"body":%s}\n' "$2" "$3" "$code" "$([ -s body ] && cat body || echo null)"
}
normal() { # ids, times and names are each run's own; where it is, is what `source` is for
    jq -Sc 'del(.body.waited_ms?, .body.source?) | walk(if type == "string" then
        gsub("run_[0-9A-Z]{26}"; "run") | gsub("parity-[a-z]+"; "env") | sub("keys/[a-z]+"; "keys/key")
        | if test("^[0-9]{4}-[0-9-]+T[0-9:.]+Z$") then "time" elif test("^(ledger|buffer)$") then "key" else . end
        else . end)' "$1"
}
interview() { # KEY: everything that can be asked about a delayed run that has it
    local token=00000000000000000000000000000000
    question a POST /v1/tasks/t/trigger "{\"payload\":{\"p\":1},\"options\":{\"idempotencyKey\":\"$1\"}}"
    question b POST /v1/tasks/t/trigger "{\"payload\":2,\"options\":{\"idempotencyKey\":\"$1\"}}"
    question a GET "/v1/runs/$id"
    question b POST "/v1/runs/$id/tags" '{"tags":["a","b","a"]}'
    question b POST "/v1/runs/$id/tags" '{"tags":["b","c"]}'
    question b POST "/v1/runs/$id/tags" '{"tags":["1","2","3","4","5","6","7","8"]}'
    question b POST "/v1/runs/$id/tags" '{"tags":"a"}'
    question b POST "/v1/runs/$id/tags"
    question a PUT "/v1/runs/$id/metadata" '{"metadata":{"a":1}}'
    question a PUT "/v1/runs/$id/metadata" '{"metadata":{"a":2},"version":1}'
    question a PUT "/v1/runs/$id/metadata" '{"metadata":[1]}'
    question a PUT "/v1/runs/$id/metadata" '{"operations":[]}'
    question a PUT "/v1/runs/$id/metadata" '{"operations":[{"type":"increment","key":"a","value":1},{"type":"append","key":"l","value":[]}]}'
    question a PUT "/v1/runs/$id/metadata" '{"operations":[{"type":"increment","key":"l","value":1}]}'
    question a PUT "/v1/runs/$id/metadata" '{"operations":[{"type":"remove","key":"a"},{"type":"remove","key":"none"}]}'
    jq -nc '{metadata: {x: ("y" * 262144)}}' >large
    question a PUT "/v1/runs/$id/metadata" @large
    question b POST "/v1/runs/$id/reschedule" '{"delay":"30m"}'
    question b POST "/v1/runs/$id/reschedule" '{"delay":"soon"}'
    question b POST "/v1/runs/$id/heartbeat" "{\"token\":\"$token\"}"
    question b POST "/v1/runs/$id/complete" "{\"token\":\"$token\"}"
    question b POST "/v1/runs/$id/fail" "{\"token\":\"$token\",\"error\":1}"
    question a GET "/v1/runs?tag=c"
    question a POST "/v1/runs/$id/replay"
    question a POST "/v1/runs/$id/cancel" '{"reason":{"why":[]}}'
    question b POST "/v1/runs/$id/cancel"
    question b POST "/v1/runs/$id/reschedule" '{"delay":"30m"}'
    question b POST "/v1/runs/$id/tags" '{"tags":["late"]}'
    question b PUT "/v1/runs/$id/metadata" '{"operations":[{"type":"set","key":"late","value":true}]}'
    question a POST "/v1/tasks/t/keys/$1/reset"
    question a POST "/v1/tasks/t/keys/$1/reset"
    question a DELETE "/v1/runs/$id"
    question a GET "/v1/runs/$id"
}
parity() {
    local store
    for store in ledger buffer; do
        env=parity-$store
        [ $store = ledger ] || trip
        trigger a "{\"idempotencyKey\":\"$store\",\"delay\":\"1h\",\"metadata\":{}}" '{"p":1}'
        is_ "it is in the $store" "$(member source)" $store
        interview $store >$store.said
        normal $store.said >$store.norm
    done
    is_ "as many answers" "$(wc -l <buffer.norm)" 32
    diff ledger.norm buffer.norm >differs || wrong+=("$(head -c 2000 differs)")
    shows "parity: 32 questions about a run in the ledger and one in the buffer: the same codes and bodies"
}
