#!/usr/bin/env bash
# inventory.sh BUILD_DIR - examples/inventory, built against the installed library: an item that is used
# twice without markers, and once with them. The story that its driver tells, on SQLite and on
# PostgreSQL with a Redis that is killed; then the program by itself: a cache that is there, one that
# was started again, one that hangs; many at once; a failover of PostgreSQL to a standby that lacks the
# last commit. What is in the tables is read by psql and sqlite3. Prints TAP. Its servers are its own.
# shellcheck disable=SC2317
# shellcheck source=tests/e2e/shared/daemon.bash
. "$(dirname "$0")/shared/daemon.bash" inventory "$1"
unset "${!ONCE_TEST_@}" # it kills servers: none but its own
source=$here/../..
example=$source/examples/inventory
servers=$(mktemp -d "${TMPDIR:-/tmp}/once-servers-XXXXXX") || exit 1
standby='' # its process
at_end() {
    [ -z "$standby" ] || { kill -QUIT "$standby" && wait "$standby"; } 2>/dev/null
    "$source/tests/servers" stop "$servers"
    rmdir "$servers" 2>/dev/null
    cleanup
}
trap at_end EXIT

# ---- built as a user would -----------------------------------------------------------------------

make --no-print-directory -C "$source" install BUILD="$build" PREFIX="$work/prefix" >err 2>&1
report $? "make install"
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
strict='-O2 -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wswitch-enum -Wformat=2 -Werror'
make -s -f "$example/Makefile" VPATH="$example" CFLAGS="$strict" >err 2>&1
report $? "the program is built"

# ---- the story -----------------------------------------------------------------------------------

tale() { # NAME ARGUMENT...
    local name=$1 said want n=0
    shift
    timeout 120 "$example/run" "$@" >tale 2>err
    report $? "$name: it ends as it must"
    mapfile -t said < <(grep . tale)
    while IFS= read -r want; do
        like "$name: ${want//\*/...}" "${said[n++]-}" "$want"
    done <<'TALE'
backstop off: *
*at first*potions 3,*version 42
*use-item req-1*ok: potions 2,*version 43
*the client is cut off before it hears
*kill -9 of * req-1 is forgotten
*use-item req-1 again*ok: potions 1,*version 44
*at last*potions 1,*version 44
*one request, 2 of the potions used
backstop on: *
*at first*potions 3,*version 42
*use-item req-1*ok: potions 2,*version 43
*the client is cut off before it hears
*kill -9 of * req-1 is forgotten
*use-item req-1 again*already_done: potions 2,*version 43
*at last*potions 2,*version 43
*one request, 1 of the potions used
TALE
}
tale "sqlite, the service killed"
tale "postgres, redis killed" --servers

# ---- the program by itself -----------------------------------------------------------------------

"$source/tests/servers" start --for $$ "$servers" redis postgres >>err 2>&1
report $? "a redis and a postgres of its own"
servers_env() {
    # shellcheck disable=SC1091
    . "$servers/env"
    redis=$ONCE_TEST_REDIS redis_pid=$ONCE_TEST_REDIS_PID postgres=$ONCE_TEST_POSTGRES
}
servers_env
sqlite=sqlite:$work/game.db

game() { # DATABASE CACHE BACKSTOP COMMAND...
    timeout $limit ./inventory --db "$1" --cache "$2" --backstop "$3" "${@:4}" 2>>err
}
settled() { # DATABASE CACHE BACKSTOP COMMAND...: as a client: in_progress is safe to ask again
    local reply=in_progress end=$((SECONDS + limit))
    while [ "$reply" = in_progress ] && [ $SECONDS -lt $end ]; do reply=$(game "$@"); done
    echo "$reply"
}
row() { # DATABASE USER: what is in the table
    local sql="SELECT potions, health, coins, version FROM players WHERE user_id = '$2'"
    case $1 in
    sqlite:*) sqlite3 "${1#sqlite:}" "$sql" ;;
    *) psql -qXAt "$1" -c "$sql" ;;
    esac
}
markers() { # DATABASE USER
    local sql="SELECT count(*) FROM once_mutations WHERE user_id = '$2'"
    case $1 in
    sqlite:*) sqlite3 "${1#sqlite:}" "$sql" ;;
    *) psql -qXAt "$1" -c "$sql" ;;
    esac
}

# What does not depend on a cache that forgets.
rules() { # NAME DATABASE CACHE
    local play="settled $2 $3 on" i kids=()
    is "$1: a new player" "$($play new-player ann 2)" "potions 2, health 40, coins 0, version 42"
    is "$1: without a request" "$($play use-item ann)" "no answer: a request id is missing"
    is "$1: sell-item" "$($play sell-item ann s1)" "ok: potions 1, health 40, coins 5, version 43"
    is "$1: its request for another method" "$($play use-item ann s1)" "mismatch"
    is "$1: the same request of another player" "$($play use-item eve s1)" "rolled back: there is no such player"
    is "$1: use-item" "$($play use-item ann u1)" "ok: potions 0, health 50, coins 5, version 44"
    is "$1: no more of them" "$($play use-item ann u2)" "rolled back: no potions left"
    is "$1: ... leaves no marker" "$(markers "$2" ann)" 2
    $play new-player ann 1 >/dev/null
    like "$1: ... and that request may come again" "$($play use-item ann u2)" "ok: potions 0,*"

    $play new-player many 100 >/dev/null
    for i in $(seq 20); do $play use-item many "r$i" >"many.$i" & kids+=($!); done
    wait "${kids[@]}"
    is "$1: twenty requests at once: all are carried out" "$(cat many.* | grep -c '^ok: ')" 20
    is "$1: ... none on top of another" "$(row "$2" many)" "80|240|0|62"
    $play new-player same 100 >/dev/null
    kids=()
    for i in $(seq 20); do $play use-item same r >"same.$i" & kids+=($!); done
    wait "${kids[@]}"
    is "$1: one request twenty times at once: one is carried out" "$(cat same.* | grep -c '^ok: ')" 1
    is "$1: ... the others are told what it did" "$(cat same.* | grep -c '^\(cached\|already_done\): potions 99, health 50, coins 0, version 43$')" 19
    is "$1: ... it was used once" "$(row "$2" same)" "99|50|0|43"
    rm -f many.* same.*
}
rules sqlite "$sqlite" memory:
rules postgres "$postgres" "$redis"

# A retry, after something has happened to the cache; how often it was used.
again() { # NAME BACKSTOP HAPPENS REPLY ROW
    local user="$3-$2"
    game "$postgres" "$redis" on new-player "$user" 3 >/dev/null
    like "$1, backstop $2: the first" "$(game "$postgres" "$redis" "$2" use-item "$user" r)" "ok: potions 2,*version 43"
    "$3"
    like "$1, backstop $2: the retry" "$(game "$postgres" "$redis" "$2" use-item "$user" r)" "$4"
    is "$1, backstop $2: the row" "$(row "$postgres" "$user")" "$5"
    [ "$3" != hangs ] || kill -CONT "$redis_pid"
}
nothing() { :; }
restarted() {
    kill -9 "$redis_pid"
    "$source/tests/servers" restart "$servers" redis >>err 2>&1
    servers_env
}
hangs() { kill -STOP "$redis_pid"; }
again "a cache that is there" off nothing "cached: potions 2,*" "2|50|0|43"
again "a cache that is there" on nothing "cached: potions 2,*" "2|50|0|43"
again "killed and started again" off restarted "ok: potions 1,*" "1|60|0|44"
again "killed and started again" on restarted "already_done: potions 2,*" "2|50|0|43"
again "a cache that hangs" off hangs "ok: potions 1,*" "1|60|0|44"
again "a cache that hangs" on hangs "already_done: potions 2,*" "2|50|0|43"

# In the memory of one process: there for as long as it is.
memory() { # BACKSTOP REPLY ROW
    game "$sqlite" memory: on new-player "mem-$1" 3 >/dev/null
    is "in one process, backstop $1: the retry" \
        "$(printf 'use-item mem-%s r\n' "$1" "$1" | game "$sqlite" memory: "$1" serve | sed -n 2p)" "cached: potions 2, health 50, coins 0, version 43"
    like "in the next one, backstop $1" "$(game "$sqlite" memory: "$1" use-item "mem-$1" r)" "$2"
    is "... the row" "$(row "$sqlite" "mem-$1")" "$3"
}
memory off "ok: potions 1,*" "1|60|0|44"
memory on "already_done: potions 2,*" "2|50|0|43"

# ---- a failover that loses the last commit -------------------------------------------------------

# The standby, of the same user as the primary; its files end with the others.
owner=$(stat -c %U "$ONCE_TEST_POSTGRES_DATA") as_owner=()
[ "$(id -un)" = "$owner" ] || as_owner=(setpriv --reuid "$owner" --regid "$(id -g "$owner")" --clear-groups)
pg_program() { find /usr/lib/postgresql -path "*/bin/$1" | sort -V | tail -n 1; }
query() { psql -qXAt "$1" -c "$2" 2>>err; } # URL SQL
until_so() { # URL SQL: until it says t
    local end=$((SECONDS + limit))
    until [ "$(query "$@")" = t ]; do [ $SECONDS -lt $end ] || return 1; done
}
standby_start() {
    local data=$servers/standby port try
    (cd "$servers" && "${as_owner[@]}" "$(pg_program pg_basebackup)" -d "$postgres" -D "$data" -R -X stream -c fast) >>err 2>&1 || return 1
    for try in 1 2 3; do
        port=$((10000 + (RANDOM * 32768 + RANDOM) % 22000))
        promoted=${postgres%:*}:$port/once
        (cd "$servers" && exec "${as_owner[@]}" "$(pg_program postgres)" -D "$data" -p $port -c unix_socket_directories="$data") >"standby.$try" 2>&1 &
        standby=$!
        until_so "$promoted" "SELECT pg_is_in_recovery()" && return 0
    done
    cat "standby.$try" >>err
    return 1
}

game "$postgres" "$redis?timeout_ms=5000" on new-player failover 3 >/dev/null
like "failover: before it" "$(game "$postgres" "$redis?timeout_ms=5000" on use-item failover r1)" "ok: potions 2,*"
standby_start
report $? "failover: a standby"
until_so "$postgres" "SELECT bool_and(replay_lsn = pg_current_wal_lsn()) FROM pg_stat_replication"
report $? "failover: ... that has everything"
query "$promoted" "ALTER SYSTEM SET primary_conninfo = ''"
query "$promoted" "SELECT pg_reload_conf()" >>err
until_so "$postgres" "SELECT count(*) = 0 FROM pg_stat_replication"
report $? "failover: ... and is cut off"
like "failover: a commit that it lacks" "$(game "$postgres" "$redis?timeout_ms=5000" on use-item failover r2)" "ok: potions 1,*version 44"
like "failover: ... is cached" "$(game "$postgres" "$redis?timeout_ms=5000" on use-item failover r2)" "cached: potions 1,*"
kill -9 "$ONCE_TEST_POSTGRES_PID"
is "failover: the standby is promoted" "$(query "$promoted" "SELECT pg_promote()")" t
is "failover: the commit is gone, and its marker" "$(row "$promoted" failover) $(markers "$promoted" failover)" "2|50|0|43 1"
like "failover: so the retry is carried out, whatever Redis has" "$(game "$promoted" "$redis?timeout_ms=5000" on use-item failover r2)" "ok: potions 1,*version 44"
like "failover: ... and cached" "$(game "$promoted" "$redis?timeout_ms=5000" on use-item failover r2)" "cached: potions 1,*"
like "failover: what was not lost is done" "$(game "$promoted" "$redis?timeout_ms=5000" on use-item failover r1)" "already_done: potions 2,*"
is "failover: each was carried out once" "$(row "$promoted" failover)" "1|60|0|44"

over
