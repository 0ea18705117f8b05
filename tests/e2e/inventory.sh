#!/usr/bin/env bash
# inventory.sh BUILD_DIR - examples/inventory, built against the installed library: an item that is used
# twice without markers, and once with them. The story that its driver tells, on SQLite and on
# PostgreSQL with a Redis that is killed; then the program by itself: a cache that is there, one that
# was started again, one that hangs; many at once. What is in the tables is read by psql and sqlite3.
# Prints TAP. Wants the servers of tests/servers (tests/with-servers ...), kills one of its own.
# shellcheck disable=SC2317
# shellcheck source=tests/e2e/shared/daemon.bash
. "$(dirname "$0")/shared/daemon.bash" inventory "$1"
: "${ONCE_TEST_POSTGRES:?see tests/with-servers}"
source=$here/../..
example=$source/examples/inventory
db=inventory_$$
servers=$(mktemp -d "${TMPDIR:-/tmp}/once-servers-XXXXXX") || exit 1
at_end() {
    psql -qX "$ONCE_TEST_POSTGRES" -c "DROP DATABASE IF EXISTS $db WITH (FORCE)" >/dev/null 2>&1
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

psql -qX "$ONCE_TEST_POSTGRES" -c "CREATE DATABASE $db" >>err 2>&1
postgres=${ONCE_TEST_POSTGRES%/*}/$db
sqlite=sqlite:$work/game.db
"$source/tests/servers" start --for $$ "$servers" redis >>err 2>&1
report $? "a redis of its own"
redis_env() {
    # shellcheck disable=SC1091
    . "$servers/env"
    redis=$ONCE_TEST_REDIS redis_pid=$ONCE_TEST_REDIS_PID
}
redis_env

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
    redis_env
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

over
