# daemon.bash NAME BUILD_DIR - what the scripts about the daemon share: a place of their own, TAP, a
# daemon. To be sourced; NAME stands in front of every result.
#
# Whatever is started in the background is killed at the end, however that comes. Every wait has a
# limit, so that a bug is a failure and not a hang.
# shellcheck shell=bash disable=SC2034
set -u
export LC_ALL=C
suite=$1
build=$(realpath "$2")
once=$build/once
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
cd "$work" || exit 1
unset ONCE_LEDGER ONCE_COORD ONCE_URL ONCE_TOKEN ONCE_TOKENS NO_COLOR XDG_STATE_HOME REDISCLI_AUTH \
    http_proxy HTTP_PROXY all_proxy ALL_PROXY
export HOME=$work ONCE_DATA=$work/data
limit=20 # seconds; far more than anything takes
cleanup() {
    local pid
    for pid in $(jobs -p); do kill -9 "$pid" 2>/dev/null; done
    rm -rf "$work"
}
trap cleanup EXIT

# ---- results ----

count=0 failures=0
report() { # STATUS NAME
    count=$((count + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $count - $suite: $2"
    else
        failures=$((failures + 1))
        echo "not ok $count - $suite: $2"
        tail -n 5 err 2>/dev/null | sed 's/^/# /'
    fi
}
is() { # NAME GOT WANT
    [ "$2" = "$3" ]
    local same=$?
    report $same "$1"
    [ $same -eq 0 ] || printf '# got:  %q\n# want: %q\n' "$2" "$3"
}
like() { # NAME GOT PATTERN
    # shellcheck disable=SC2053
    [[ $2 == $3 ]]
    local same=$?
    report $same "$1"
    [ $same -eq 0 ] || printf '# got:  %q\n# want: %q\n' "$2" "$3"
}
over() { # the last line of a script
    echo "1..$count"
    [ $failures -eq 0 ]
}

# ---- a daemon ----

# daemon_start ARG...: in the background, its log behind what is in "err"; it listens when this returns:
# `listening` is its line, `http` and `resp` are addresses or empty, `http_port` and `resp_port` ports.
daemon_start() {
    rm -f listening
    mkfifo listening
    "$once" serve --drain 100ms "$@" >listening 2>>err &
    daemon=$!
    listening=''
    read -r -t $limit listening <listening
    rm -f listening
    http=$(sed -n 's/.* http \([^ ]*\).*/\1/p' <<<"$listening")
    resp=$(sed -n 's/.* resp \([^ ]*\).*/\1/p' <<<"$listening")
    http_port=${http##*:} resp_port=${resp##*:}
}
stop() { # [SIGNAL]: its exit status in $status
    kill "-${1:-TERM}" "$daemon"
    timeout $limit tail --pid="$daemon" -s 0.02 -f /dev/null
    wait "$daemon" 2>/dev/null
    status=$?
    daemon=''
}
until_said() { # PATTERN: until the daemon has written it
    local end=$((SECONDS + limit))
    until grep -q "$1" err; do [ $SECONDS -lt $end ] || return 1; done
}
