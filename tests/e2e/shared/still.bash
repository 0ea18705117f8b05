# still.bash - a process that stands still, as far as others are concerned. To be sourced.
#
#   await_stop PID         SIGSTOP is sent before it is obeyed: until each of its threads stands still
#   still PID FILE...      stops it where it has no lock on any of these databases; fails if it cannot
#   send SIGNAL PID        how it is told; another one may be put in its place
#
# Whoever is stopped inside a transaction stops everybody: nobody's fault, and not the question of those
# who stop somebody. So it is continued until others can lock the database, and then stopped again.
# shellcheck shell=bash

send() { kill "-$1" "$2"; }
await_stop() { # PID
    local stat line end=$((SECONDS + 20))
    for stat in "/proc/$1/task/"*/stat; do
        while read -r line <"$stat"; do
            case ${line##*) } in [TtZX]*) break ;; esac
            [ $SECONDS -lt $end ] || return 1
        done
    done
}
can_lock() { # MS FILE...: which are there, and are not made by asking
    local file
    for file in "${@:2}"; do
        sqlite3 -cmd ".timeout $1" "file:$file?mode=rw" 'BEGIN IMMEDIATE; COMMIT' >sqlite.log 2>&1 || return 1
    done
}
still() { # PID FILE...
    local end=$((SECONDS + 20))
    send STOP "$1"
    await_stop "$1"
    until can_lock 500 "${@:2}"; do
        send CONT "$1"
        [ $SECONDS -lt $end ] || return 1
        can_lock 2000 "${@:2}"
        send STOP "$1"
        await_stop "$1"
    done
}
