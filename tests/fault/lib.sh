# lib.sh - what scripts that break things share: whom they may signal, and the proxies.
# shellcheck shell=bash
#
# Whoever reads it has set `dir`, a directory of its own in which its servers run, and `fault`, the
# program with the proxy.

declare -A say hear port fired expected

# Only what is ours is ever signalled: a child of this shell, or a server in our directory. A
# number alone may be somebody else's by now.
ours() { # PID
    local stat
    stat=$(cat "/proc/${1:-none}/stat" 2>/dev/null) || return 1
    # shellcheck disable=SC2086
    set -- "$1" ${stat##*) }
    [ "$2" != Z ] || return 1
    [ "$3" = "$BASHPID" ] || [[ $(readlink "/proc/$1/cwd") == "$dir"/* ]]
}
signal() { # SIGNAL PID...
    local pid
    for pid in "${@:2}"; do ! ours "$pid" || kill -"$1" "$pid" 2>/dev/null; done
}
within() { # SECONDS COMMAND...
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -le $end ] || return 1
        sleep 0.03
    done
}

# ---- proxies -------------------------------------------------------------------------------------

proxy() { # NAME COMMAND...: says it and waits until it is in force
    local name=$1 answer
    shift
    echo "$*" >&"${say[$name]}"
    read -r -t 10 answer <&"${hear[$name]}" && [ "$answer" = ok ] || echo "# proxy $name: $* was not taken"
}
proxies() { # PREFIX COMMAND...: all whose names begin so
    local name prefix=$1
    shift
    for name in "${!say[@]}"; do case $name in $prefix*) proxy "$name" "$@" ;; esac done
}
proxy_start() { # NAME SERVER
    mkfifo "$dir/$1.in" "$dir/$1.out"
    "$fault" proxy 0 "$2" <"$dir/$1.in" >"$dir/$1.out" &
    disown
    exec {fd}>"$dir/$1.in" && say[$1]=$fd
    exec {fd}<"$dir/$1.out" && hear[$1]=$fd
    read -r -t 10 "port[$1]" <&"$fd"
}

# What the proxies have really done, by command: a fault that did not happen shows nothing.
fired_add() { # adds what happened since they were asked last
    local name words word
    for name in "${!say[@]}"; do
        echo fired >&"${say[$name]}"
        read -r -t 10 -a words <&"${hear[$name]}" || continue
        for word in "${words[@]:1}"; do fired[${word%=*}]=$((${fired[${word%=*}]:-0} + ${word#*=})); done
    done
}
fired_reset() {
    fired_add
    fired=() expected=()
}
expect() { # COMMAND TIMES: more than so far
    expected[$1]=$((${expected[$1]:-0} + $2))
}
fired_text() { # "rst 3, drop-commit 12", or nothing
    local name text=
    for name in "${!fired[@]}"; do text="$text${text:+, }$name ${fired[$name]}"; done
    echo "$text"
}
fired_enough() { # says what was not
    local name bad=0
    for name in "${!expected[@]}"; do
        [ "${fired[$name]:-0}" -lt "${expected[$name]}" ] || continue
        echo "# $name happened ${fired[$name]:-0} times, expected ${expected[$name]}"
        bad=1
    done
    return $bad
}
