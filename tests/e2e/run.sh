#!/usr/bin/env bash
# run.sh BUILD_DIR - the daemon that `make run` leaves behind: started, replaced, ended. Prints TAP.
#
# The usual ports may be somebody else's on this machine: then it takes others, or leaves it at that
# if a once daemon is there. Both are fine here.
# shellcheck source=tests/e2e/shared/daemon.bash
. "$(dirname "$0")/shared/daemon.bash" run "$1"
tool=$(realpath "$here/../../tools/daemon")

started() { # NAME: what it says; its process, or nothing if another daemon is there
    "$tool" start "$once" "$work/run" >said 2>err </dev/null
    report $? "$1: it starts"
    pid=$(cut -d' ' -f1 run/pid 2>/dev/null)
    address=$(sed -n 's/.*curl -X POST http:..\([^/]*\).*/\1/p' said)
    like "$1: what it says can be typed" "$(curl -sS -m $limit "http://$address/livez")" '*"ok"*'
}
started first
first=$pid
started again
if [ -n "$pid" ]; then
    [ "$pid" != "$first" ] && ! kill -0 "$first" 2>/dev/null
    report $? "again: the one before has ended"
fi
"$tool" stop "$work/run"
report $? "stop"
[ -z "$pid" ] || ! kill -0 "$pid" 2>/dev/null
report $? "stop: it has ended"
"$tool" stop "$work/run"
report $? "stop: twice"
over
