# planes.bash - what the challenges stand on: "fleet", two daemons on Redis and PostgreSQL; "embedded", one
# on files of its own, or several on the same files. Both have the same words for it. To be sourced behind daemon.bash, with `planes` set.
#
#   room NAME         from now on daemons are started in this room: nothing of another one is seen there
#   up NAME ARG...    starts a daemon in it: pid[NAME], at[NAME] (HOST:PORT)
#   down NAME SIGNAL  ends it
#   pair ARG...       starts the daemons `a` and `b`, which are the same one where there is only one
#   hold, let_go      between them nobody else can write to the room's ledger; reading goes on
#   leased            ids of entries that a drainer has leased, whether it lives or not
#   alone NAME ARG... starts a daemon that sever() can part from what coord and buffer are made of
#   sever NAME HOW    "mute": what it says to them does not arrive; "gone": it cannot reach them
#   heal NAME         it can again
#   in_table KEY      the id of the run that has this key in the ledger's table, nothing if there is none
#   unwrite ID        the ledger loses a run
#   haunt ID          whatever coord remembers of this id it remembers again, however often it is told to
#                     forget; until rest()
#   spoil ID          nobody can read a buffered run any more
# shellcheck shell=bash disable=SC2034,SC2154

declare -A pid at
started=()
gate=(--gate-threshold 2 --gate-window 2s --gate-hold 10s)

up() {
    local name=$1
    shift
    daemon_start --listen 127.0.0.1:0 --resp off "${gate[@]}" "${where[@]}" "$@"
    pid[$name]=$daemon at[$name]=$http
    started+=("$daemon")
    [ -n "$http" ] || echo "# the daemon $name did not start"
}

down() { # NAME SIGNAL
    { # the shell says whom it has seen killed
        kill "-$2" "${pid[$1]}"
        timeout $limit tail --pid="${pid[$1]}" -s 0.02 -f /dev/null
        wait "${pid[$1]}"
        ended=$?
    } 2>>noise
    [ "$2" = KILL ] || is_ "the daemon $1 ends well" $ended 0
}

down_all() { # those that are left
    local pid
    for pid in "${started[@]}"; do ! kill -TERM "$pid" 2>>noise || wait "$pid" || wrong+=("status $?"); done
}

# ---- fleet ---------------------------------------------------------------------------------------

fleet_room() {
    schema=challenge_$1
    # Whoever waits for the lock of hold() waits for a fifth of the time.
    where=(--ledger "$ONCE_TEST_POSTGRES?schema=$schema&timeout_ms=60000" \
        --coord "$ONCE_TEST_REDIS?prefix=$1&timeout_ms=5000") # a slow machine is not what this is about
    prefix=$1
}
fleet_pair() { up a "$@" && up b "$@"; }
sql() { psql -XqAt "$ONCE_TEST_POSTGRES" -c "SET search_path = $schema" -c "$1"; }
redis() { redis-cli -h 127.0.0.1 -p "${ONCE_TEST_REDIS##*:}" "$@"; }
holder() { exec psql -XqAt "$ONCE_TEST_POSTGRES"; }
fleet_hold() {
    coproc HOLD { holder; }
    held=$HOLD_PID
    exec {hold_in}>&"${HOLD[1]}" {hold_out}<&"${HOLD[0]}"
    echo "BEGIN; LOCK TABLE $schema.runs IN EXCLUSIVE MODE; SELECT 'held';" >&"$hold_in"
    read -r -t $limit _ <&"$hold_out"
}
fleet_let_go() {
    echo "ROLLBACK;" >&"$hold_in"
    release_holder
}
release_holder() {
    eval "exec ${HOLD[1]}>&- ${HOLD[0]}<&-" 2>/dev/null
    exec {hold_in}>&- {hold_out}<&-
    wait "$held"
}
# Of the buffer of the room; what it is made of is in redis_chunk.lua.
in_buffer() { redis --raw eval "$1" 2 "$prefix:{0}:buffer" "$prefix:{0}:index" "${@:2}"; }
fleet_leased() {
    in_buffer "local ids = {}
        for _, member in ipairs(redis.call('ZRANGEBYLEX', KEYS[2], '[l', '(m')) do
            local names = redis.call('HGET', KEYS[1], 'n' .. member:sub(10, 17))
            local first, count = struct.unpack('>I2I2', member, 18)
            local bytes = 32 + names:byte(2)
            for i = first + 1, first + count do ids[#ids + 1] = names:sub(i * bytes - 29, i * bytes) end
        end
        return ids"
}
fleet_spoil() {
    [ "$(in_buffer "local name = 'h' .. string.char(#ARGV[1]) .. ARGV[1] .. ARGV[2]
        local chunk = redis.call('HGET', KEYS[1], name)
        local names, runs = unpack(redis.call('HMGET', KEYS[1], 'n' .. chunk, 'b' .. chunk))
        local i, ends = (names:find(name, 1, true) - 1) / #name, #names / #name * 4
        local from = ends + (i > 0 and struct.unpack('<I4', runs, 4 * i - 3) or 0)
        local to = ends + struct.unpack('<I4', runs, 4 * i + 1)
        redis.call('HSET', KEYS[1], 'b' .. chunk,
            runs:sub(1, from) .. ('?'):rep(to - from) .. runs:sub(to + 1))
        return 'spoilt'" "$env" "$1")" = spoilt ]
}
# A proxy in front of Redis for one daemon, as the storm has them.
declare -A proxy_in proxy_out
proxy_say() { # NAME COMMAND
    local answer
    echo "$2" >&"${proxy_in[$1]}"
    read -r -t $limit answer <&"${proxy_out[$1]}"
    is_ "the proxy of $1 takes $2" "$answer" ok
}
fleet_alone() {
    local name=$1 usual=("${where[@]}") port fd
    shift
    mkfifo "proxy.$name.in" "proxy.$name.out"
    "$build/tests/fault" proxy 0 "${ONCE_TEST_REDIS#redis://}" <"proxy.$name.in" >"proxy.$name.out" &
    disown # it ends with its input
    exec {fd}>"proxy.$name.in" && proxy_in[$name]=$fd
    exec {fd}<"proxy.$name.out" && proxy_out[$name]=$fd
    read -r -t $limit port <&"$fd"
    where=("${where[@]/$ONCE_TEST_REDIS/redis://127.0.0.1:$port}")
    up "$name" "$@"
    where=("${usual[@]}")
}
fleet_sever() { proxy_say "$1" "$([ "$2" = mute ] && echo drop || echo refuse)"; }
fleet_heal() { proxy_say "$1" pass; }
fleet_in_table() { sql "SELECT convert_from(id, 'UTF8') FROM runs WHERE key = convert_to('$1', 'UTF8') AND key_held"; }
fleet_haunt() {
    mkfifo haunt.out
    "$here/haunt.py" "${ONCE_TEST_REDIS#redis://}" "$prefix:{0}" "$1" >haunt.out 2>>noise &
    ghost_pid=$!
    read -r -t $limit _ <haunt.out
    rm haunt.out
}
fleet_rest() {
    kill $ghost_pid
    wait $ghost_pid 2>>noise
}
fleet_unwrite() { sql "DELETE FROM runs WHERE id = convert_to('$1', 'UTF8')"; }

# ---- embedded ------------------------------------------------------------------------------------

embedded_room() { data=$work/$1 where=(--data "$work/$1"); }
embedded_pair() { up a "$@" && pid[b]=${pid[a]} at[b]=${at[a]}; }
sqlite() { # FILE SQL: rows as lines
    python3 -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=20)
for row in db.execute(sys.argv[2]): print(*[x.decode() if isinstance(x, bytes) else x for x in row])
db.commit()' "$data/$1" "$2"
}
# alone: it uses the same files. Mute: nobody can write to the buffer's, where claims are, too. Gone: it is
# started anew with a buffer of its own.
embedded_alone() { up "$@"; }
embedded_sever() {
    local usual=("${where[@]}")
    if [ "$2" = mute ]; then
        mkfifo mute.in mute.out
        embedded_holder once.db-buffer <mute.in >mute.out &
        mute_pid=$!
        exec {mute_in}>mute.in
        read -r -t $limit _ <mute.out
        rm mute.in mute.out
    else
        down "$1" TERM
        where+=(--buffer "sqlite:$data/other-buffer")
        up "$1" --drainer off --gate off
        where=("${usual[@]}")
    fi
}
embedded_heal() {
    if [ -n "${mute_pid-}" ]; then
        exec {mute_in}>&-
        wait $mute_pid
        mute_pid=
    else
        down "$1" TERM
        up "$1" --drainer off --gate off
    fi
}
embedded_in_table() { sqlite once.db "SELECT id FROM runs WHERE key = CAST('$1' AS BLOB) AND key_held = 1"; }
embedded_haunt() {
    local columns
    columns=$(sqlite once.db-buffer "SELECT group_concat(name, ', ') FROM pragma_table_info('claims') WHERE name <> 'id'")
    sqlite once.db-buffer "CREATE TRIGGER ghost AFTER DELETE ON claims WHEN old.value = CAST('$1' AS BLOB) BEGIN
        INSERT INTO claims ($columns) VALUES (old.${columns//, /, old.}); END"
}
embedded_rest() { sqlite once.db-buffer 'DROP TRIGGER ghost'; }
embedded_holder() { # FILE
    exec python3 -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=20, isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
db.execute("ROLLBACK")' "$data/$1"
}
embedded_hold() {
    coproc HOLD { embedded_holder once.db; }
    held=$HOLD_PID
    exec {hold_in}>&"${HOLD[1]}" {hold_out}<&"${HOLD[0]}"
    read -r -t $limit _ <&"$hold_out"
}
embedded_let_go() {
    echo >&"$hold_in"
    release_holder
}
embedded_leased() { sqlite once.db-buffer 'SELECT id FROM entries WHERE state = 2'; }
embedded_spoil() { sqlite once.db-buffer "UPDATE entries SET run = x'00' WHERE id = CAST('$1' AS BLOB)"; }
embedded_unwrite() { sqlite once.db "DELETE FROM runs WHERE id = CAST('$1' AS BLOB)"; }

for word in room pair hold let_go leased alone sever heal in_table unwrite haunt rest spoil; do eval "$word() { ${planes}_$word \"\$@\"; }"; done
