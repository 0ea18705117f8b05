#!/usr/bin/env bash
# race.sh BUILD_DIR [LEDGER COORD] - many real processes race `once run` while owners are killed and
# stopped, on one SQLite file or on the given planes. Prints TAP. RACE_SEED=n repeats the choices.
#
# Every execution appends its own id to the file of its key (the side effect), reports to this
# script, and prints its id and random bytes once it is let go. The script decides what happens to
# the owner at that moment, and writes it down before it does it:
#
#   run    let it go
#   kill   SIGKILL before it is let go: an effect without an answer, exactly
#   stop   SIGSTOP, then let it go: it cannot publish; when somebody has taken over it is continued
#          and finds that it lost, or is killed
#   snap   let it go, SIGKILL at once: it may have published, or not
#
# So nothing depends on timing: whatever the machine does, an execution that is not the answer
# must be one whose owner was dealt with, and there is exactly one that is the answer.
#
# A machine that stands still for longer than a lease stops every owner without our knowing. That is
# noticed, and a race that failed in such a moment is run again, twice at most.
set -u
export LC_ALL=C

watch_the_clock() { # FILE: notes every moment in which nothing ran for two seconds
    local last=${EPOCHREALTIME/./} now
    while sleep 0.2; do
        now=${EPOCHREALTIME/./}
        [ $((now - last)) -lt 2000000 ] || echo "# nothing ran for $(((now - last) / 1000)) ms" >>"$1"
        last=$now
    done
}

if [ -z "${RACE_TRY:-}" ]; then
    notes=$(mktemp -d)
    trap 'kill "$watcher"; rm -rf "$notes"' EXIT
    watch_the_clock "$notes/pauses" &
    watcher=$!
    for RACE_TRY in 1 2 3; do
        : >"$notes/pauses"
        RACE_TRY=$RACE_TRY "$0" "$@" >"$notes/out" 2>&1
        status=$?
        [ $status -ne 0 ] && [ -s "$notes/pauses" ] && [ "$RACE_TRY" -lt 3 ] || break
        sed 's/^\(not \)\{0,1\}ok/# try: &/' "$notes/out"
        cat "$notes/pauses"
    done
    cat "$notes/out"
    exit $status
fi

once=$(realpath "$1")/once
# shellcheck source=tests/e2e/shared/still.bash
. "$(dirname "$0")/shared/still.bash"
[ -x "$once" ] || { echo "Bail out! there is no $once"; exit 1; }
work=$(mktemp -d)
cd "$work" || exit 1
finished= ticker=
finish() { # whoever ends before it is finished says why, and leaves no racers behind
    [ -z "$ticker" ] || kill "$ticker"
    if [ -z "$finished" ]; then
        for pid in "${pid_of[@]}"; do is_ours "$pid" && kill -KILL "$pid"; done
        cat noise >&3
    fi
    rm -rf "$work"
}
trap finish EXIT
exec 3>&2 2>noise # what the shell says of every job that is killed
unset ONCE_COORD ONCE_DATA
file=$work/once.db # "": the ledger is elsewhere
export ONCE_LEDGER="sqlite:$file?busy_ms=20s" HOME=$work # patient: this is not about load
if [ $# -ge 3 ]; then export ONCE_LEDGER=$2 ONCE_COORD=$3 file=; fi

keys=10 racers=8
limit=55          # seconds for everything
lease=4s          # far longer than a healthy owner is ever kept from renewing it
kills_max=2 stops_max=1 # per key: enough racers are left to take over
seed=${RACE_SEED:-$((RANDOM * 32768 + RANDOM))}
RANDOM=$seed
echo "# RACE_SEED=$seed"

count=0 failures=0
report() { # STATUS NAME
    count=$((count + 1))
    [ "$1" -eq 0 ] || failures=$((failures + 1))
    [ "$1" -eq 0 ] && echo "ok $count - $2" || echo "not ok $count - $2"
}

# ---- the command -------------------------------------------------------------------------------

cat >effect <<'COMMAND'
#!/usr/bin/env bash
id=$1.$OWNER.$ONCE_RUN_FENCE
mkfifo "go.$id" && exec 7<>"go.$id"
echo "$id" >>"effects.$1"
echo "$1 $OWNER $id" >events
read -r _ <&7
echo "$id"
head -c 300 /dev/urandom
COMMAND
chmod +x effect

# The shell becomes once: its pid is the owner's.
race() { # KEY
    # shellcheck disable=SC2016
    exec sh -c 'OWNER=$$ exec "$@"' race "$once" run --key "key-$1" --lease $lease -- ./effect "$1"
}

# ---- racing ------------------------------------------------------------------------------------

declare -A pid_of dealt exact       # racer -> pid; pid -> what was done; id -> cannot be the answer
declare -A kills stops stopped      # per key
acted=0

mkfifo events
exec 8<>events
# They are read without a time limit: bash reads a pipe byte by byte, and when the time of read -t is up
# in the middle of a line, part of that line is lost. A tick says that time has passed. Whoever ticks
# ends with the last reader.
tick() { while sleep 0.5 && echo tick; do :; done >events; }
tick 8<&- &
ticker=$!

# Everything that runs holds this lock, also what a killed owner may leave behind.
exec 9>alive
flock -s 9
for ((i = 0; i < racers; i++)); do
    for ((k = 0; k < keys; k++)); do
        kills[$k]=0 stops[$k]=0 stopped[$k]=
        race "$k" >"out.$k.$i" 2>"err.$k.$i" 8<&- &
        pid_of[$k.$i]=$!
    done
done
exec 9>&-

let_go() { # ID
    echo go 7<>"go.$1" >&7
}
is_ours() { # PID: a racer that still runs, and not whoever got its number after it
    local stat
    read -r stat <"/proc/$1/stat" || return 1
    stat=${stat##*) }
    [ "$(cut -d' ' -f2 <<<"$stat")" = $$ ]
}
signal() { # SIGNAL PID
    dealt[$2]=${dealt[$2]:-}$1
    is_ours "$2" && kill "-$1" "$2"
}

send() { signal "$@"; } # so that what still() does is written down, too

choose() { # KEY: sets choice
    local n=$((RANDOM % 6))
    choice="run"
    [ $n -lt 2 ] && [ "${kills[$1]}" -lt $kills_max ] && choice="kill"
    [ $n -eq 2 ] && [ "${kills[$1]}" -lt $kills_max ] && choice=snap
    [ $n -eq 3 ] && [ "${stops[$1]}" -lt $stops_max ] && choice=stop
    # Whatever the seed: one of each on the first keys.
    if [ "${kills[$1]}${stops[$1]}" = 00 ]; then
        case $1 in 0) choice="kill" ;; 1) choice=stop ;; 2) choice=snap ;; esac
    fi
}

# Somebody has taken over from the stopped owner of this key.
resolve_stopped() { # KEY
    [ -n "${stopped[$1]}" ] || return
    if [ $((RANDOM % 2)) -eq 0 ]; then signal CONT "${stopped[$1]}"; else signal KILL "${stopped[$1]}"; fi
    stopped[$1]=
}

on_effect() { # KEY PID ID
    resolve_stopped "$1"
    choose "$1"
    case $choice in
    run) let_go "$3" ;;
    kill)
        kills[$1]=$((kills[$1] + 1)) exact[$3]=$1
        signal KILL "$2"
        ;;
    snap)
        kills[$1]=$((kills[$1] + 1))
        let_go "$3"
        signal KILL "$2"
        ;;
    stop)
        stops[$1]=$((stops[$1] + 1)) exact[$3]=$1 stopped[$1]=$2
        still "$2" ${file:+"$file"}
        let_go "$3"
        ;;
    esac
    [ "$choice" = run ] || acted=$((acted + 1))
}

running() { # does any racer still run?
    local pid
    for pid in "${pid_of[@]}"; do is_ours "$pid" && return 0; done
    return 1
}

# A waiter of each key dies, too; if it happens to be the owner, that is one more of those.
for ((k = 0; k < keys; k++)); do
    signal KILL "${pid_of[$k.$((RANDOM % racers))]}"
done
while [ $SECONDS -lt $limit ]; do
    read -r key pid id <&8
    if [ "$key" != tick ]; then
        on_effect "$key" "$pid" "$id"
    elif ! running && ! read -r -t 0 <&8; then
        break
    fi
done
running
report $((!$?)) "all $((keys * racers)) processes have ended"
for pid in "${pid_of[@]}"; do is_ours "$pid" && kill -KILL "$pid"; done # only if that failed

# ---- what is left ------------------------------------------------------------------------------

unexplained=0
for racer in "${!pid_of[@]}"; do
    pid=${pid_of[$racer]}
    wait "$pid"
    status=$?
    echo "$status" >"status.$racer"
    case $status.${dealt[$pid]:-} in
    0.*) ;;
    137.*KILL*) ;;
    5.*STOP*CONT*) ;;
    *)
        unexplained=$((unexplained + 1))
        echo "# racer $racer ended with $status, dealt with: ${dealt[$pid]:-not at all}"
        sed 's/^/# /' "err.$racer"
        ;;
    esac
done
report $((unexplained > 0)) "every ending is explained ($acted owners killed or stopped)"
flock -w 10 alive true
report $? "no process is left behind"
if [ -n "$file" ]; then
    [ "$(sqlite3 once.db 'PRAGMA integrity_check')" = ok ]
    report $? "the database is in order"
fi

check_effects() { # KEY WINNER
    local id owner wrong=0 winners=0
    while read -r id; do
        owner=${id#*.} owner=${owner%.*}
        if [ "$id" = "$2" ]; then
            winners=$((winners + 1))
            [ -z "${exact[$id]:-}" ] || wrong=1 # it cannot have published
        elif [ -z "${dealt[$owner]:-}" ]; then
            wrong=1
            echo "# $id ran although nothing happened to the owner of $2"
        fi
    done <"effects.$1"
    [ $wrong -eq 0 ] && [ $winners -eq 1 ]
}

check_survivors() { # KEY
    local i same=0 survivors=0
    for ((i = 0; i < racers; i++)); do
        [ "$(cat "status.$1.$i")" = 0 ] || continue
        survivors=$((survivors + 1))
        cmp -s "out.$1.$i" "answer.$1" || same=1
    done
    [ $survivors -gt 0 ] && [ $same -eq 0 ]
}

for ((k = 0; k < keys; k++)); do
    before=$(wc -l <"effects.$k")
    OWNER=0 timeout 20 "$once" run --key "key-$k" --wait 0 -- ./effect "$k" >"answer.$k" 2>"err.$k"
    replayed=$?
    winner=$(head -n 1 "answer.$k" | tr -d '\0')
    [ $replayed -eq 0 ] && [ "$(wc -l <"effects.$k")" = "$before" ]
    report $? "key $k: is answered without running again"
    check_effects "$k" "$winner"
    report $? "key $k: $before effects, one of them the answer, the others of owners killed or stopped"
    check_survivors "$k"
    report $? "key $k: all survivors printed the same bytes"
done
[ $failures -eq 0 ] || cat noise >&3
finished=yes
echo "1..$count"
[ $failures -eq 0 ]
