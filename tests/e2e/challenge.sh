#!/usr/bin/env bash
# challenge.sh BUILD_DIR - every challenge to the burst buffer that this follows, and those that it lacks:
# against real daemons, over HTTP, on two sets of planes: two daemons on Redis and PostgreSQL of their own,
# and one on files; more of them where some are to be killed, stopped or cut off. Each from a cold gate.
# Prints TAP. docs/lineage.md says which is which.
#
# The two sets are played at the same time: most of what they do is waiting. challenge/suite.sh has the
# scenarios.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath "$1")
dir=$(mktemp -d "${TMPDIR:-/tmp}/once-challenge-XXXXXX") || exit 1
chmod 711 "$dir" # the servers run as somebody else
ulimit -Sn "$(ulimit -Hn)" # a thousand connections, on both sides of each
suites=()
finish() {
    local pid
    for pid in "${suites[@]}"; do kill "$pid" 2>/dev/null; done
    [ ! -e "$dir/servers" ] || "$here/../servers" stop "$dir/servers"
    rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM

"$here/challenge/suite.sh" "$build" embedded >"$dir/embedded" 2>&1 &
suites+=($!)
# Servers of their own: they are killed, stopped and flushed. Redis keeps what it says it has.
if ONCE_REDIS_SETTINGS=$'appendonly yes\nappendfsync always' \
    "$here/../servers" start --for $$ "$dir/servers" redis postgres; then
    # shellcheck disable=SC1091
    . "$dir/servers/env"
    servers=$dir/servers "$here/challenge/suite.sh" "$build" fleet >"$dir/fleet" 2>&1 &
    suites+=($!)
else
    echo "not ok - challenge: fleet: the servers" >"$dir/fleet"
fi
status=0
for pid in "${suites[@]}"; do wait "$pid" || status=1; done
suites=()
[ -s "$dir/fleet" ] && [ -s "$dir/embedded" ] || status=1
# One plan for both.
cat "$dir/fleet" "$dir/embedded" | awk '
    /^1\.\./ { next }
    /^ok /     { sub(/^ok [0-9]*/, "ok " ++n) }
    /^not ok / { sub(/^not ok [0-9]*/, "not ok " ++n) }
    { print }
    END { print "1.." n + 0 }'
exit $status
