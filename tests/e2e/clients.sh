#!/usr/bin/env bash
# clients.sh BUILD_DIR - the RESP door with clients that others wrote: hiredis and ioredis (redis-cli is
# in serve.sh). Prints TAP.
#
# ioredis comes from the npm registry, at the version and with the checksums of
# clients/package-lock.json; it is fetched once per build directory.
# shellcheck disable=SC2317
# shellcheck source=tests/e2e/shared/daemon.bash
. "$(dirname "$0")/shared/daemon.bash" clients "$1"
here=$here/clients

same_lines() { # NAME WANT GOT: one result per line
    local n=0 want got
    while IFS= read -r want; do
        n=$((n + 1))
        got=$(sed -n "${n}p" "$3")
        [ "$got" = "$want" ]
        report $? "$1: $want"
        [ "$got" = "$want" ] || printf '# got: %q\n' "$got"
    done <"$2"
}
start() { # ADDRESS
    daemon_start --listen off --resp "$1"
    port=$resp_port
}

start 127.0.0.1:0

# ---- hiredis -------------------------------------------------------------------------------------

# shellcheck disable=SC2046
${CC:-cc} -std=gnu11 -Wall -Wextra -Werror "$here/hiredis.c" -o hiredis $(pkg-config --cflags --libs hiredis) >cc.log 2>&1
report $? "hiredis: the program is built"
sed 's/^/# /' cc.log
timeout $limit ./hiredis "$port" >got 2>&1
cat >want <<'END'
claim: claimed, a token of 32
publish: OK
claim again: cached, byte for byte
another fingerprint: an error
pipeline: 1000 of 1000 as asked
META: outcome cached
BOUND: claimed
who waited: claimed
END
same_lines hiredis want got

# ---- ioredis -------------------------------------------------------------------------------------

# A copy, so that packages never lie in the source tree.
install_ioredis() {
    mkdir -p "$build/clients" && cp "$here"/*.json "$here"/*.mjs "$build/clients/" || return 1
    cmp -s "$build/clients/package-lock.json" "$build/clients/node_modules/.from" && return 0
    (cd "$build/clients" && timeout 120 npm ci --ignore-scripts --no-audit --no-fund) || return 1
    cp "$build/clients/package-lock.json" "$build/clients/node_modules/.from"
}
install_ioredis >npm.log 2>&1
installed=$?
report $installed "ioredis: npm installs it; this needs the npm registry, or a mirror of it"
if [ $installed -ne 0 ]; then
    tail -n 5 npm.log | sed 's/^/# /'
    echo "1..$count"
    exit 1
fi

mkfifo control
timeout $limit node "$build/clients/ioredis.mjs" "$port" "$work/control" >got 2>&1 &
client=$!
asked=''
read -r -t $limit asked <control
if [ "$asked" = kill ]; then
    stop KILL 2>/dev/null
    start "127.0.0.1:$port"
fi
wait "$client"
report $? "ioredis: it ends well"
cat >want <<'END'
claim: claimed a token of 32
meanwhile: in_progress
publish: OK
who waited: cached byte for byte
another fingerprint: MISMATCH
pipeline: 1000 of 1000 as asked
META: outcome cached durable 1
trigger: created 30 QUEUED ledger
trigger again: cached true
pull: true 1
ack: OK
run: COMPLETED true
who waited for work: 1
after a restart: claimed
and its answers: cached
END
same_lines ioredis want got
stop TERM

echo "1..$count"
exit $((failures > 0))
