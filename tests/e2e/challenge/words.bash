# words.bash - how the challenges ask and judge. To be sourced by suite.sh.
# shellcheck shell=bash disable=SC2034,SC2154,SC2086,SC2046,SC2206,SC2119,SC2120,SC2317

# ask DAEMON METHOD PATH [BODY [ARG...]]: the status in $code, the body in the file "body".
ask() {
    local to=$1 method=$2 path=$3 content=${4-}
    shift $(($# < 4 ? $# : 4))
    [ -z "$content" ] || set -- -H 'Content-Type: application/json' -d "$content" "$@"
    code=$(curl -sS -m $limit -X "$method" -H "Once-Env: $env" -o body -w '%{http_code}' "$@" "http://${at[$to]}$path" 2>>noise)
}
# member NAME: of the body. What stands in front of everything that callers have put in needs no jq.
member() {
    case $1 in
    id | code | source | status | isCached | degraded | retryable) pick "$1" ;;
    *) jq -rc ".$1" body ;;
    esac
}
pick() {
    local all
    all=$(<body)
    if [[ $all =~ \"$1\":(\"([^\"]*)\"|[a-z0-9]+) ]]; then
        echo "${BASH_REMATCH[2]:-${BASH_REMATCH[1]}}"
    else
        echo null
    fi
}
trigger() { # DAEMON OPTIONS [PAYLOAD [ARG...]]: of the task t; $id, $code
    ask "$1" POST /v1/tasks/t/trigger "{\"payload\":${3-1},\"options\":$2}" "${@:4}"
    id=$(member id)
}
burst() { # FILE N METHOD PATH BODY: over both daemons
    "$here/burst.py" -H "Once-Env: $env" "${@:2}" "${at[a]}" "${at[b]}" >"$1" 2>>noise
}
keyed() { echo "{\"payload\":1,\"options\":{\"idempotencyKey\":\"$1\"}}"; }
same_key() { burst "$1" "$2" POST /v1/tasks/t/trigger "$(keyed "$3")"; } # FILE N KEY
# told FILE: how many were answered with 200, how many ids there are, how many are new
told() {
    echo "$(grep -c ^200 "$1") $(the_id "$1" | wc -l) $(grep -c '"isCached":false' "$1")"
}
ids() { grep -o '"id":"run_[0-9A-Z]*"' "$1" | cut -d'"' -f4; }
the_id() { ids "$1" | sort -u; }
trip() { # the gate of this env is closed from now on, for ten seconds
    ask a POST /v1/tasks/fill/batch '{"items":[{},{},{},{}]}'
    is_ "the gate is closed" "$(member 'results[3].source')" buffer
}
listed() { # [QUERY]: every id of this env, by pages
    local cursor=''
    until [ "$cursor" = null ]; do
        ask b GET "/v1/runs?limit=${page:-1000}&${1-}${cursor:+&cursor=$cursor}"
        [ "$code" = 200 ] || return 1
        ids body
        [[ $(tail -c 200 body) =~ \"cursor\":\"?([^\"}]*) ]] && cursor=${BASH_REMATCH[1]}
    done
}
metric() { curl -sS -m $limit "http://${at[$1]}/metrics" 2>>noise | grep -F "$2" | sed -n 's/^once_[^ ]* //p' | head -n 1; }
within() { # COMMAND...: until it succeeds
    local end=$((SECONDS + limit))
    until "$@" >>noise 2>&1; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.02
    done
}
is_ms() { [ "$1" -ge "$2" ] && [ "$1" -le "$3" ]; }
at_least() { # DAEMON METRIC N
    local value
    value=$(metric "$1" "$2")
    value=${value:-0}
    [ "${value%.*}" -ge "$3" ]
}
now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }
is_() { [ "$2" = "$3" ] || wrong+=("$1: got $(printf %q "$2"), want $(printf %q "$3")"); } # WHAT GOT WANT
true_() { "${@:2}" || wrong+=("$1"); } # WHAT COMMAND...
shows() { # NAME: the end of a scenario
    [ ${#wrong[@]} -eq 0 ]
    report $? "$1"
    [ ${#wrong[@]} -eq 0 ] || printf '# %s\n' "${wrong[@]}"
    wrong=()
    [ -z "${TIMES-}" ] || echo "# $SECONDS s"
}
