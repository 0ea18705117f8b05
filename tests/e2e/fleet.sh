#!/usr/bin/env bash
# fleet.sh BUILD_DIR - the command on real servers: Redis, a Redis Cluster, PostgreSQL, PgBouncer.
# Every command once on the fleet, doctor and migrate, and the race of race.sh on three combinations
# of planes. Prints TAP. Wants the servers of tests/servers (tests/with-servers tests/e2e/fleet.sh ...).
set -u
export LC_ALL=C
: "${ONCE_TEST_REDIS:?see tests/with-servers}" "${ONCE_TEST_POSTGRES:?}" "${ONCE_TEST_PGBOUNCER:?}"
build=$(realpath "$1")
once=$build/once
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d)
cd "$work" || exit 1
name=e2e$$
chmod 711 "$work" # a server runs as somebody else
trap 'rm -rf "$work"' EXIT
unset ONCE_LEDGER ONCE_COORD ONCE_DATA
export HOME=$work

count=0 failures=0
report() { # STATUS NAME
    count=$((count + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $count - $2"
    else
        failures=$((failures + 1))
        echo "not ok $count - $2"
        cat out err 2>/dev/null | head -n 20 | sed 's/^/# /'
    fi
}
call() { # STATUS NAME ARG...: runs once and compares its exit status
    local want=$1 text=$2
    shift 2
    timeout 30 "$once" "$@" >out 2>err
    [ $? -eq "$want" ]
    report $? "$text"
}
has() { # NAME FILE TEXT
    grep -qF -- "$3" "$2"
    report $? "$1"
}

# ---- the commands, on each combination ----------------------------------------------------------

life() { # NAME LEDGER COORD
    export ONCE_LEDGER=$2 ONCE_COORD=$3
    local token
    call 0 "$1: claim" claim s k --json
    token=$(sed -n 's/.*"token":"\([0-9a-f]*\)".*/\1/p' out)
    call 4 "$1: in progress for another" claim s k --wait 0
    call 0 "$1: renew" renew s k "$token"
    call 0 "$1: publish" publish s k "$token" 'the answer'
    call 0 "$1: cached" claim s k
    has "$1: the answer" out 'the answer'
    call 0 "$1: peek" peek s k
    call 0 "$1: ls" ls s
    has "$1: ls shows it" out 'done'
    call 3 "$1: another fingerprint" claim s k --fingerprint other
    call 0 "$1: run" run --key r -- sh -c 'echo ran >>effects; echo "$$"'
    cp out first
    call 0 "$1: run again" run --key r -- sh -c 'echo ran >>effects; echo "$$"'
    cmp -s out first
    report $? "$1: the same bytes"
    [ "$(wc -l <effects)" -eq 1 ]
    report $? "$1: one effect"
    rm -f effects
    call 0 "$1: forget" forget s k
    call 6 "$1: it is gone" peek s k
    call 0 "$1: stats" stats
    call 0 "$1: sweep" sweep
    call 0 "$1: doctor" doctor
}

pg() { echo "$1?schema=$name$2"; }
life "redis+postgres" "$(pg "$ONCE_TEST_POSTGRES" a)" "$ONCE_TEST_REDIS?prefix=${name}a"
has "doctor knows the Redis" out 'coord server'
has "doctor knows the database" out 'ledger server'
life "cluster+pgbouncer" "$(pg "$ONCE_TEST_PGBOUNCER" b)" "$ONCE_TEST_REDIS_CLUSTER?prefix=${name}b"
life "postgres alone" "$(pg "$ONCE_TEST_POSTGRES" c)" none
life "redis alone" none "$ONCE_TEST_REDIS?prefix=${name}d"
life "redis socket alone" none "$ONCE_TEST_REDIS_SOCKET?prefix=${name}e"

# ---- planes that are not there -------------------------------------------------------------------

export ONCE_LEDGER ONCE_COORD
ONCE_LEDGER=$(pg "$ONCE_TEST_POSTGRES" a) ONCE_COORD=redis://127.0.0.1:1
call 0 "without Redis the ledger answers" claim s without --json
has "and says that it was alone" out '"degraded":true'
ONCE_LEDGER=postgres://127.0.0.1:1/none ONCE_COORD=none
call 69 "without the ledger nothing is claimed" claim s k
ONCE_LEDGER=none ONCE_COORD=redis://127.0.0.1:1
call 69 "nor without Redis where it is all there is" claim s k
ONCE_LEDGER='postgres://once:hunter2@127.0.0.1:1/none' ONCE_COORD=none
call 69 "an error" claim s k
! grep -q hunter2 out err
report $? "does not show the password"
ONCE_LEDGER=none ONCE_COORD='redis://u:hunter2@127.0.0.1:1'
call 69 "an error of Redis" claim s k
! grep -q hunter2 out err
report $? "does not show it either"

# Whatever is wrong with a URL, and whoever says so.
hushed() { # NAME ARG...: on these planes
    local text=$1
    shift
    timeout 10 "$once" "$@" >out 2>err
    [ -s out ] || [ -s err ] || return 1
    ! grep -q hunter2 out err
    report $? "no password: $text"
}
for url in 'redis://:hunter2@127.0.0.1:1' 'redis:/:hunter2@127.0.0.1' 'postgres:host=127.0.0.1 port=1 password=hunter2' \
    'host=127.0.0.1 port=1 password=hunter2' 'postgres://127.0.0.1:1/x?password=hunter2' 'redis://u:hunter2@127.0.0.1:x' \
    'mysql://u:hunter2@h/d' 'postgres://u:hunter2@127.0.0.1:x/d'; do
    export ONCE_LEDGER=$url ONCE_COORD=none
    for command in "claim s k" "doctor --json" "doctor" "config show" "config show --json" "serve --listen off" "migrate"; do
        # shellcheck disable=SC2086
        hushed "$command with the ledger $url" $command
    done
    export ONCE_LEDGER=sqlite:hushed.db ONCE_COORD=$url
    for command in "doctor" "config show" "--verbose claim s k"; do
        # shellcheck disable=SC2086
        hushed "$command with the coord $url" $command
    done
    hushed "serve with the buffer $url" --coord none serve --listen off --buffer "$url"
done
export ONCE_LEDGER='redis://:hunter2@127.0.0.1:1' ONCE_COORD=none
call 2 "a ledger that forgets is refused" claim s k
has "by its name" err '"redis://127.0.0.1:1" is lost in a restart'
unset ONCE_COORD
export ONCE_LEDGER ONCE_COORD

# ---- doctor --------------------------------------------------------------------------------------

# A user of the Redis that all share, who may not ask for its configuration; and a Redis of our own.
redis_at=${ONCE_TEST_REDIS#redis://}
admin() { redis-cli -h "${redis_at%%:*}" -p "${redis_at##*:}" "$@" >/dev/null; }
admin acl setuser "$name" on '>right' '~*' '&*' +@all -config
ONCE_REDIS_SETTINGS='maxmemory 50mb
maxmemory-policy allkeys-lru' "$here/../servers" start --for $$ "$work/evicting" redis
evicting=$(sed -n 's/.*ONCE_TEST_REDIS=//p' "$work/evicting/env")

export ONCE_LEDGER=sqlite:$work/doctor.db
for state in "before the first use" "later"; do
    export ONCE_COORD=redis://127.0.0.1:1
    call 1 "doctor $state: Redis is not there" doctor
    has "doctor $state: and says why" out "Connection refused"
    export ONCE_COORD="redis://$name:wrong@$redis_at"
    call 1 "doctor $state: a wrong password" doctor
    has "doctor $state: and says so" out "AUTH: WRONGPASS"
    call 1 "doctor $state: as JSON" doctor --json
    has "doctor $state: the check has a name" out '"coord reached"'
    export ONCE_COORD="redis://$name:right@$redis_at"
    call 0 "doctor $state: who may not ask for the configuration" doctor
    has "doctor $state: is not told" out "not told (CONFIG GET is refused)"
    ! grep -q "a restart forgets everything" out
    report $? "doctor $state: and nothing is made up"
    export ONCE_COORD=$evicting
    call 0 "doctor $state: a Redis that evicts" doctor
    has "doctor $state: is warned of" out "warn  coord eviction"
    [ "$state" = later ] || { [ ! -e "$work/doctor.db" ]; report $? "doctor $state: creates nothing"; }
    call 0 "doctor $state: and the first use" --coord none claim s k --wait 0 --lease 1ms
done
export ONCE_COORD=redis://127.0.0.1:1 ONCE_LEDGER=postgres://127.0.0.1:1/none
call 1 "doctor: neither is there" doctor
has "doctor: coord is not" out "coord reached"
admin acl deluser "$name"
"$here/../servers" stop "$work/evicting"

# ---- migrate -------------------------------------------------------------------------------------

ONCE_LEDGER=$(pg "$ONCE_TEST_POSTGRES" m) ONCE_COORD=none
call 70 "a schema that is not there is refused if it must not be made" --ledger "$ONCE_LEDGER&migrate=no" claim s k
has "and the way out is said" err 'once migrate'
call 0 "migrate" migrate
call 0 "migrate again" migrate
call 0 "and now it opens" --ledger "$ONCE_LEDGER&migrate=no" claim s k
call 0 "migrate --print" migrate --print
has "prints SQL" out 'CREATE TABLE'

# ---- the race ------------------------------------------------------------------------------------

race() { # NAME LEDGER COORD: its lines are counted on
    "$here/race.sh" "$build" "$2" "$3" >race.out 2>&1
    local status=$?
    grep '^# RACE_SEED' race.out
    ! grep '^not ok' race.out >out && [ $status -eq 0 ]
    report $? "$1: the race of race.sh ($(grep -c '^ok' race.out) checks)"
    [ $status -eq 0 ] || { echo "# status $status"; grep -v 'No such process' race.out | tail -n 30 | sed 's/^/# /'; }
}
# Patient: eighty processes on a slow machine are not what this is about.
race "redis+postgres" "$(pg "$ONCE_TEST_POSTGRES" r)&timeout_ms=30s" "$ONCE_TEST_REDIS?prefix=${name}r"
race "cluster+pgbouncer" "$(pg "$ONCE_TEST_PGBOUNCER" s)&timeout_ms=30s" "$ONCE_TEST_REDIS_CLUSTER?prefix=${name}s"
race "redis alone" none "$ONCE_TEST_REDIS?prefix=${name}t&timeout_ms=5000"

for room in a b c m r s; do psql -q "$ONCE_TEST_POSTGRES" -c "DROP SCHEMA IF EXISTS $name$room CASCADE" 2>>noise; done
echo "1..$count"
[ $failures -eq 0 ]
