# split.bash - half of a fleet has lost what the other half has: one key gets two ids, which are one run
# when all is well again. To be sourced by suite.sh.
# shellcheck shell=bash disable=SC2034,SC2154,SC2086,SC2046,SC2206,SC2119,SC2120,SC2317

split() {
    local to ours theirs
    room split
    pair --drainer off
    alone h --drainer off --gate off
    env=split
    trip
    trigger a '{"idempotencyKey":"k"}'
    ours=$id
    is_ "one half puts it into the buffer" "$code $(member isCached) $(member source)" "200 false buffer"
    sever h gone
    trigger h '{"idempotencyKey":"k"}'
    theirs=$id
    is_ "the other into the ledger" "$code $(member isCached) $(member source)" "200 false ledger"
    is_ "and says how" "$(member degraded)" "$([ $planes = fleet ] && echo true || echo false)"
    true_ "two ids for one key" [ "$ours" != "$theirs" ]
    # What is done to either, by whoever can. Each half can do it to what it has.
    done_to a $ours ours 2
    done_to h $theirs theirs 3
    ask h GET "/v1/runs/$ours"
    is_ "what it cannot see it does not deny" "$code" "$([ $planes = fleet ] && echo 503 || echo 404)"
    ask a GET "/v1/runs/$theirs"
    is_ "the ledger is there for both" "$code $(member id)" "200 $theirs"
    ask a POST "/v1/runs/$ours/cancel" '{"reason":"by its second id"}'
    is_ "it is canceled while it is buffered" "$code $(member status)" "200 CANCELED"
    heal h
    true_ "the halves are one again" within undegraded_at h
    up e --drainer on
    true_ "the buffer is empty" within buffer_empty e
    for to in a h e; do
        ask $to GET "/v1/runs/$theirs"
        is_ "the one that was in the ledger" "$code $(member id) $(member canonicalId)" "200 $theirs null"
        jq -c 'del(.canonicalId)' body >by_theirs
        ask $to GET "/v1/runs/$ours"
        is_ "is found by the other, at $to" "$code $(member id) $(member canonicalId)" "200 $theirs $theirs"
        is_ "as the same run" "$(jq -c 'del(.canonicalId)' body)" "$(cat by_theirs)"
        is_ "with what was done to either" \
            "$(jq -c '[.status, .error, (.tags | sort), .metadata.n, .metadata.list]' body)" \
            '["CANCELED","by its second id",["both","ours","theirs"],5,["theirs","ours"]]'
        trigger $to '{"idempotencyKey":"k"}'
        is_ "its key leads there" "$code $(member isCached) $id" "200 true $theirs"
    done
    ask h POST "/v1/runs/$ours/tags" '{"tags":["late"]}'
    ask a GET "/v1/runs/$theirs"
    is_ "what is done by an alias reaches the run" "$(jq -c '.tags | index("late") != null' body)" true
    is_ "a list has one" "$(listed task=t)" "$theirs"
    ask a POST /v1/queues/t/lease
    is_ "no worker gets it" "$(member 'runs|length')" 0
    is_ "one alias was made, and counted" "$(metric e once_aliases_total)" 1
    shows "half of a fleet is cut off and makes a second id: afterwards both are one run, with all that was done to either"
}
done_to() { # DAEMON ID WORD N: tags, an increment and an append
    ask $1 POST "/v1/runs/$2/tags" "{\"tags\":[\"$3\",\"both\"]}"
    is_ "tags of $3" "$code" 200
    ask $1 PUT "/v1/runs/$2/metadata" "{\"operations\":[{\"type\":\"increment\",\"key\":\"n\",\"value\":$4},{\"type\":\"append\",\"key\":\"list\",\"value\":\"$3\"}]}"
    is_ "metadata of $3" "$code $(member metadata.n)" "200 $4"
}
undegraded_at() { # DAEMON
    local env=another
    trigger $1 '{"idempotencyKey":"other"}'
    [ "$(member degraded)" = false ]
}
