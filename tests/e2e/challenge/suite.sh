#!/usr/bin/env bash
# suite.sh BUILD_DIR fleet|embedded - the challenges on one set of planes, for challenge.sh. Prints TAP.
#
# An env has a gate of its own: every scenario has an env of its own, so its gate is cold. A scenario is
# one line, whatever it asks. Nothing sleeps to let something happen: what is waited for is asked for, up
# to a limit. What takes the time of a lease (30 s) is begun first and looked at last.
# shellcheck disable=SC2034,SC2086
# shellcheck source=tests/e2e/shared/daemon.bash
. "$(dirname "$0")/../shared/daemon.bash" "challenge: $2" "$1"
planes=$2
# shellcheck source=tests/e2e/shared/still.bash
. "$here/../shared/still.bash"
# shellcheck source=tests/e2e/challenge/planes.bash
. "$here/planes.bash"
for part in words crash buffered parity draining split away; do
    # shellcheck source=/dev/null
    . "$here/$part.bash"
done
limit=60
lease_s=30
env=default
wrong=()

buffer_plane=$([ $planes = fleet ] && echo coord || echo buffer)
[ $planes = embedded ] || late_begin
crash_begin
shows "a drainer and a claimant can be killed while they are at the ledger"
crash_go_on
room main
pair --drainer off
for scenario in baseline reads mutations collision counted before_the_drain replay listing increments reset waiting \
    stale_hint haunted cross_store expired failed mismatch own_id parity; do $scenario; done
drain_begin
for scenario in drain_round_trip reburst reset_while_draining backlog; do $scenario; done
all_envs
split
room rough
pair --drainer off
poison
crash_end
room rough
if [ $planes = fleet ]; then
    late_end
    room rough
    missing_table
    ledger_outage
    frozen
    room stores
    pair --drainer off
    store_crash
    flushed
else
    down a TERM
    pair --drainer off
    store_crash
    two_processes
fi
down_all
shows "every daemon ends as it was told"
over
