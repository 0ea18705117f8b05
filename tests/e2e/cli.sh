#!/usr/bin/env bash
# cli.sh BUILD_DIR - every command, every exit status, bad input, signals, crashes. Prints TAP.
#
# Nothing here sleeps to let something happen: the commands that once runs say through a fifo that
# they have started, and wait on another one to go on. Every wait has a limit, so that a bug is a
# failure and not a hang.
# shellcheck disable=SC2016,SC2094
set -u -m # -m: background jobs keep SIGINT, and each has a process group
export LC_ALL=C

once=$(realpath "$1")/once
man=$(realpath "$(dirname "$0")/../../docs/once.1")
[ -x "$once" ] || { echo "Bail out! there is no $once"; exit 1; }
# shellcheck source=tests/e2e/shared/still.bash
. "$(dirname "$0")/shared/still.bash"
work=$(mktemp -d)
limit=30 # seconds; far more than anything takes
count=0 failures=0
cleanup() {
    exec 3>&- 4>&-
    rm -rf "$work"
}
trap cleanup EXIT
cd "$work" || exit 1
unset ONCE_LEDGER ONCE_COORD NO_COLOR XDG_STATE_HOME TMPDIR
export HOME=$work/home ONCE_DATA=$work/data

# ---- helpers -----------------------------------------------------------------------------------

report() { # STATUS NAME
    count=$((count + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $count - $2"
    else
        failures=$((failures + 1))
        echo "not ok $count - $2"
        echo "# status ${status:-}; stdout and stderr of the last call:"
        head -c 1000 out err 2>/dev/null | cat -v | sed 's/^/# /'
    fi
}
is() { # NAME GOT WANT
    [ "$2" = "$3" ]
    local same=$?
    report $same "$1"
    [ $same -eq 0 ] || printf '# got:  %q\n# want: %q\n' "$2" "$3"
}
has() { # NAME FILE TEXT
    grep -qF -- "$3" "$2"
    report $? "$1"
}
lacks() { # NAME FILE TEXT
    ! grep -qF -- "$3" "$2"
    report $? "$1"
}
same() { # NAME FILE FILE
    cmp -s "$2" "$3"
    report $? "$1"
}
call() { # ARG...: runs once; leaves status, out, err
    timeout $limit "$once" "$@" >out 2>err
    status=$?
}
ends() { # NAME WANT ARG...: calls and compares the exit status
    local name=$1 want=$2
    shift 2
    call "$@"
    is "$name" "$status" "$want"
}

mkfifo started go
exec 3<>started 4<>go # both ends: opening never blocks
await_start() { read -r -t $limit _ <&3 || echo "# the command did not start"; }
go_on() { echo go >&4; }
# What commands do to take part: say that they run, wait to be told to end.
cat >worker <<'EOF'
#!/bin/sh
echo run >>"$1.ran"
echo "out of $1"
echo "err of $1" >&2
echo started >started
read -r _ <go
echo "end of $1"
EOF
chmod +x worker
background() { # NAME ARG...: once in the background, its outputs in NAME.out and NAME.err
    local name=$1
    shift
    "$once" "$@" >"$name.out" 2>"$name.err" &
    pid=$!
}
over() { # PID: waits until it runs no more, also where nobody reaps it; fails at the limit
    local state until=$((SECONDS + limit))
    while read -r _ _ state _ 2>/dev/null <"/proc/$1/stat" && [ "$state" != Z ]; do
        [ $SECONDS -lt $until ] || return 1
    done
}
ended() { # PID: waits for a job of ours; leaves status
    over "$1" || kill -KILL "$1"
    wait "$1"
    status=$?
}

# ---- run: the first call and the others --------------------------------------------------------

ends "run: a command" 0 run --key date -- sh -c 'date +%N; echo note >&2'
cp out first.out && cp err first.err
ends "run: again" 0 run --key date -- sh -c 'date +%N; echo note >&2'
same "run: the same stdout" out first.out
same "run: the same stderr" err first.err
ends "run: -- is not needed" 0 run --key dashes echo -n a -- b
is "run: the command's own dashes are left alone" "$(cat out)" "a -- b"
ends "run: empty output" 0 run --key empty -- true
ends "run: empty output, replayed" 0 run --key empty -- true
is "run: nothing printed" "$(cat out err)" ""
ends "run: --mark" 0 run --key marked --mark -- echo hello
has "run: --mark says that it ran" err "once: ran marked: exit 0"
call run --key marked --mark -- echo hello
has "run: --mark says that it was replayed" err "once: replayed marked: exit 0"
is "run: --mark leaves stdout alone" "$(cat out)" hello
call run --key marked --json -- echo hello
has "run: --json marks on stderr" err '{"event":"replayed","scope":"run","key":"marked"'
is "run: --json leaves stdout alone" "$(cat out)" hello
echo "from stdin" | "$once" run --key stdin -- cat >out 2>err
is "run: stdin is the command's" "$(cat out)" "from stdin"
echo "other" | "$once" run --key stdin -- cat >out 2>err
is "run: a replay does not read stdin" "$(cat out)" "from stdin"
ends "run: the command's environment" 0 run --scope s --key env -- \
    sh -c 'echo "$ONCE_RUN_SCOPE $ONCE_RUN_KEY ${ONCE_RUN_FENCE:+fence} ${ONCE_RUN_TOKEN:-}"'
is "run: scope, key and fence, but no token" "$(cat out)" "s env fence "
"$once" run --key binary -- sh -c 'head -c 1000 /dev/zero; printf "\377\376\0\n"' >first.out
"$once" run --key binary -- sh -c 'head -c 1000 /dev/zero; printf "\377\376\0\n"' >out
same "run: NUL and other bytes" out first.out
is "run: all of them" "$(wc -c <out)" 1004

# Both outputs go to one file; the command waits for each line to arrive before it writes the next.
cat >turns <<'EOF'
#!/bin/sh
seen() { until grep -q "$1" both 2>/dev/null; do :; done; }
echo 1out; seen 1out; echo 2err >&2; seen 2err; echo 3out; seen 3out; echo 4err >&2
EOF
chmod +x turns
"$once" run --key turns -- ./turns >both 2>&1
"$once" run --key turns -- ./turns >again 2>&1
same "run: a replay keeps the order of stdout and stderr" both again
is "run: which was the command's" "$(tr '\n' ' ' <again)" "1out 2err 3out 4err "

# ---- run: mismatch, fingerprint, scope ---------------------------------------------------------

ends "run: another command line is a mismatch" 3 run --key date -- date
has "run: and is told so" err "used with another command line"
ends "run: words are framed" 0 run --key framed -- echo "a b"
ends "run: so that a space is not a word" 3 run --key framed -- echo a b
ends "run: --fingerprint" 0 run --key fp --fingerprint v1 -- echo one
ends "run: the same fingerprint, another command" 0 run --key fp --fingerprint v1 -- echo two
is "run: is a replay" "$(cat out)" one
ends "run: another fingerprint" 3 run --key fp --fingerprint v2 -- echo one
long=$(printf 'x%.0s' {1..100})
ends "run: a long fingerprint" 0 run --key fplong --fingerprint "$long" -- echo one
ends "run: all of it counts" 3 run --key fplong --fingerprint "${long}y" -- echo one
ends "run: another scope never meets" 0 run --scope other --key date -- echo mine
is "run: and runs" "$(cat out)" mine

# ---- run: failures -----------------------------------------------------------------------------

ends "run: the command's exit status" 42 run --key fails -- sh -c 'echo x >>fails.ran; exit 42'
ends "run: a failure is released" 42 run --key fails -- sh -c 'echo x >>fails.ran; exit 42'
is "run: so that a retry runs" "$(wc -l <fails.ran)" 2
stored=(run --key stored --on-failure store -- sh -c 'echo x >>stored.ran; echo bad >&2; exit 9')
ends "run: --on-failure store" 9 "${stored[@]}"
ends "run: replays the failure" 9 "${stored[@]}"
is "run: with its stderr" "$(cat err)" bad
is "run: without running it" "$(wc -l <stored.ran)" 1
ends "run: death by a signal" 143 run --key died -- sh -c 'kill -TERM $$'
ends "run: stored, too" 137 run --key died9 --on-failure store -- sh -c 'kill -KILL $$'
ends "run: and replayed" 137 run --key died9 --on-failure store -- sh -c 'kill -KILL $$'
ends "run: not found" 127 run --key nothere -- ./no-such-command
has "run: says that nothing ran" err "nothing ran, the key is released"
: >not-executable
ends "run: not executable" 126 run --key nothere -- ./not-executable
ends "run: and the key is free" 6 peek run nothere
call run --json --key nothere -- ./no-such-command
has "run: as JSON, too" err '"exit_status":127'

# ---- run: sizes --------------------------------------------------------------------------------

most=$((1048576 - 27)) # of the 1 MiB, the frame of one chunk takes 27 bytes
ends "run: as much output as can be kept" 0 run --key most -- head -c $most /dev/zero
ends "run: is kept" 0 run --key most -- head -c $most /dev/zero
is "run: whole" "$(wc -c <out)" $most
ends "run: one byte more" 0 run --key more -- head -c $((most + 1)) /dev/zero
is "run: is printed" "$(wc -c <out)" $((most + 1))
has "run: but not kept" err "was not kept"
ends "run: others are told" 7 run --key more -- head -c $((most + 1)) /dev/zero
has "run: not to retry" err "do not retry"
ends "run: --quiet does not warn" 0 run --quiet --key more2 -- head -c 3000000 /dev/zero
is "run: not at all" "$(cat err)" ""
is "run: the owner's output is whole" "$(wc -c <out)" 3000000
ends "run: --max-output" 0 run --max-output 4m --key more3 -- head -c 3000000 /dev/zero
ends "run: keeps more" 0 run --key more3 -- head -c 3000000 /dev/zero
is "run: for everybody" "$(wc -c <out)" 3000000

# ---- run: readers that leave or stop -----------------------------------------------------------

"$once" run --key epipe -- sh -c 'echo line; read -r _ <go; seq 20000; echo over' 2>err |
    { head -n 1; go_on; } >head.out
is "run: a reader that leaves gets what it read" "$(cat head.out)" line
ends "run: the output is recorded all the same" 0 run --key epipe -- \
    sh -c 'echo line; read -r _ <go; seq 20000; echo over'
is "run: whole" "$(wc -l <out)" 20002

mkfifo slow
exec 5<>slow # a reader that has stopped: the pipe fills up
"$once" run --key slow --lease 2s -- sh -c 'echo started >started; head -c 500000 /dev/zero' >slow &
pid=$!
await_start
ends "run: a stopped reader does not stop the renewal" 4 run --key slow --wait 3s -- \
    sh -c 'echo started >started; head -c 500000 /dev/zero'
head -c 500000 <&5 >slow.out &
reader=$!
ended $pid
is "run: it goes on with its reader" "$status" 0
wait $reader
exec 5>&-

# ---- run: waiting ------------------------------------------------------------------------------

background owner run --key held -- ./worker held
owner=$pid
await_start
ends "run: --wait 0 does not wait" 4 run --key held --wait 0 -- ./worker held
has "run: and says in_progress" err in_progress
ends "run: --wait gives up" 4 run --key held --wait 50ms -- ./worker held
has "run: and says timed_out" err timed_out
call run --json --key held --wait 0 -- ./worker held
has "run: as JSON, too" err '"outcome":"in_progress"'
ends "run: mismatch beats in progress" 3 run --key held -- ./worker other
is "run: output streams while it runs" "$(cat owner.out)" "out of held"
waiters=()
for i in 1 2 3 4; do
    background waiter$i run --key held -- ./worker held
    waiters+=("$pid")
done
go_on
ended $owner
is "run: the owner ends" "$status" 0
for i in 1 2 3 4; do
    ended "${waiters[i - 1]}"
    [ "$status" = 0 ] && cmp -s owner.out waiter$i.out && cmp -s owner.err waiter$i.err
    report $? "run: waiter $i got the same"
done
is "run: the command ran once" "$(wc -l <held.ran)" 1

# ---- run: signals ------------------------------------------------------------------------------

for signal in INT TERM HUP QUIT; do
    background "$signal" run --key "$signal" -- ./worker "$signal"
    await_start
    kill -$signal "$pid"
    ended "$pid"
    is "run: SIG$signal ends it" "$status" $((128 + $(kill -l $signal)))
    ends "run: SIG$signal releases the key" 6 peek run "$signal"
done

# A shell that has a trap looks for signals between two commands: one that comes just before a
# read begins is seen after it, so these reads end by themselves.
cat >traps <<'EOF'
#!/usr/bin/env bash
trap 'echo cleaned up; exit 0' TERM
echo started >started
while :; do read -r -t 0.1 _ <go; done
EOF
chmod +x traps
background traps run --key traps -- ./traps
await_start
kill -TERM "$pid"
ended "$pid"
is "run: an interrupted run is interrupted, whatever the command says" "$status" 143
is "run: it could clean up" "$(cat traps.out)" "cleaned up"
ends "run: and is not recorded" 6 peek run traps

background owner run --key waitsig -- ./worker waitsig
owner=$pid
await_start
background waiter run --key waitsig -- ./worker waitsig
# The waiter is known to wait once it has opened the ledger: its signalfd is older than that.
until grep -q . <(find /proc/"$pid"/fd -lname '*/once.db' 2>/dev/null); do :; done
kill -TERM "$pid"
ended "$pid"
is "run: a signal while waiting" "$status" 143
go_on
ended $owner
is "run: does not touch the owner" "$status" 0
is "run: nor run the command" "$(wc -l <waitsig.ran)" 1

if command -v script >/dev/null; then
    cat >counts <<'EOF'
#!/usr/bin/env bash
trap 'echo int >>ints; echo interrupted >started' INT
echo started >started
until read -r -t 0.1 _ <go; do :; done
EOF
    chmod +x counts
    mkfifo keys
    exec 6<>keys
    timeout $limit script -qec "'$once' run --key tty -- ./counts" /dev/null <&6 >tty.out 2>&1 &
    pid=$!
    await_start
    printf '\003' >&6
    await_start
    go_on
    wait $pid
    status=$?
    is "run: Ctrl-C on a terminal" "$status" 130
    is "run: reaches the command once" "$(wc -l <ints)" 1
    exec 6>&-
fi

# ---- run: crashes ------------------------------------------------------------------------------

# The shell's own child must go, too: it writes its number before it says that it has started.
cat >family <<'EOF'
#!/bin/sh
sh -c 'echo $$ >grandchild; exec ./worker "$1"' _ "$1"
echo "child of $1 ended"
EOF
chmod +x family
background owner run --key crash --lease 500ms -- ./family crash
owner=$pid
await_start
read -r grandchild <grandchild
background waiter run --key crash --lease 500ms -- ./family crash
waiter=$pid
kill -KILL $owner
wait $owner 2>/dev/null
over "$grandchild"
report $? "run: a killed owner takes everything below its command with it"
await_start
go_on
ended $waiter
is "run: a waiter takes over" "$status" 0
is "run: runs it once more" "$(wc -l <crash.ran)" 2
is "run: to its end" "$(tail -n 1 waiter.out)" "child of crash ended"

background owner run --key orphan -- ./worker orphan
owner=$pid
await_start
read -r warden </proc/$owner/task/$owner/children
read -r command </proc/"$warden"/task/"$warden"/children
kill -KILL "$warden"
ended $owner
is "run: killing the process between is killing the command" "$status" 137
over "$command"
report $? "run: which does not go on"
ends "run: and the key is free" 6 peek run orphan

background owner run --key stopped --lease 300ms -- ./worker stopped
owner=$pid
await_start
still $owner "$ONCE_DATA"/once.db
report $? "run: an owner can be stopped"
background taker run --key stopped --lease 10s -- ./worker stopped
taker=$pid
await_start
kill -CONT $owner
ended $owner
is "run: an owner that slept through its lease has lost" "$status" 5
has "run: and says where the answer is" owner.err "once peek run 'stopped'"
lacks "run: its command was ended" owner.out "end of"
go_on
ended $taker
is "run: the one that took over publishes" "$status" 0
ends "run: and its answer is the one" 0 run --key stopped -- ./worker stopped
same "run: byte for byte" out taker.out

cat >stubborn <<'EOF'
#!/bin/sh
trap '' TERM
echo run >>stubborn.ran
echo started >started
[ "$(wc -l <stubborn.ran)" -gt 1 ] || while :; do read -r _ <never; done
EOF
chmod +x stubborn
mkfifo never
background owner run --key stubborn --lease 300ms -- ./stubborn
owner=$pid
await_start
still $owner "$ONCE_DATA"/once.db
report $? "run: an owner can be stopped"
ends "run: over from an owner that sleeps" 0 run --key stubborn -- ./stubborn
await_start
kill -CONT $owner
ended $owner
is "run: a command that will not end is killed when the key is lost" "$status" 5

# ---- claim, publish, release, renew ------------------------------------------------------------

field() { sed -n "s/^$1 //p" out; }
ends "claim" 0 claim orders o-1
is "claim: says claimed first" "$(head -n 1 out)" claimed
token=$(field token)
is "claim: a token of 32 digits" "${#token}" 32
is "claim: the lease" "$(field lease)" 30s
fence=$(field fence)
ends "claim: somebody has it" 4 claim orders o-1 --wait 0
ends "claim: still, after a wait" 4 claim orders o-1 --wait 30ms
ends "claim: another fingerprint" 3 claim orders o-1 --fingerprint f
ends "peek: in progress" 4 peek orders o-1
ends "forget: not from a live owner" 4 forget orders o-1
ends "renew" 0 renew orders o-1 "$token" --lease 1h
ends "renew: as granted" 0 renew orders o-1 "$token"
ends "publish: the wrong token" 5 publish orders o-1 0123456789abcdef0123456789abcdef x
ends "publish: not a token" 2 publish orders o-1 nonsense x
ends "publish: no value" 2 publish orders o-1 "$token"
ends "publish" 0 publish orders o-1 "$token" "the answer"
is "publish: prints nothing" "$(cat out)" ""
ends "publish: again, the same" 0 publish orders o-1 "$token" "the answer"
ends "publish: again, another" 5 publish orders o-1 "$token" "another answer"
is "publish: prints the canonical answer" "$(cat out)" "the answer"
ends "release: too late" 5 release orders o-1 "$token"
ends "renew: too late" 5 renew orders o-1 "$token"
ends "claim: cached" 0 claim orders o-1
is "claim: the answer follows the outcome" "$(tr '\n' ' ' <out)" "cached the answer"
ends "peek: the answer" 0 peek orders o-1
is "peek: byte for byte" "$(cat out)" "the answer"
ends "forget" 0 forget orders o-1
ends "forget: there is none" 6 forget orders o-1
ends "peek: there is none" 6 peek orders o-1

ends "claim: options before operands, = and letters" 0 claim -l 5m --wait=0 orders o-2
token=$(field token)
[ "$(field fence)" -gt "$fence" ]
report $? "claim: the fence grows, also across keys that were forgotten"
ends "release" 0 release orders o-2 "$token"
ends "claim: free again" 0 claim orders o-2 --lease 0
ends "claim: a lease of zero has lapsed" 0 claim orders o-2
token=$(field token)
head -c 1048576 /dev/urandom >value
"$once" publish orders o-2 "$token" - <value >out 2>err
is "publish: 1 MiB from stdin" $? 0
"$once" peek orders o-2 >out
same "peek: as it came" out value
call claim orders o-3
token=$(field token)
head -c 1048577 /dev/zero | "$once" publish orders o-3 "$token" - >out 2>err
is "publish: one byte more is refused" $? 2
ends "publish: --omit-value" 0 publish orders o-3 "$token" --omit-value
ends "claim: already done" 7 claim orders o-3
ends "peek: already done" 7 peek orders o-3
call claim orders o-4 --retain 0
ends "publish: a value that looks like an option" 0 publish orders o-4 "$(field token)" -- --json
ends "peek: a retention of zero is over" 6 peek orders o-4
call claim orders o-5
ends "publish: an empty value" 0 publish orders o-5 "$(field token)" ""
ends "peek: is a value" 0 peek orders o-5

odd=$'a\xe2\x80\xaeb\\'
call claim odd "$odd"
ends "run: a value that is no result" 0 publish odd "$odd" "$(field token)" junk
ends "run: is not taken for one" 70 run --scope odd --fingerprint "" \
    --key "$odd" -- true

# ---- JSON --------------------------------------------------------------------------------------

if command -v jq >/dev/null; then
    parse() { jq -e . >/dev/null; }
elif command -v python3 >/dev/null; then
    parse() { python3 -c 'import json,sys; [json.loads(l) for l in sys.stdin]'; }
else
    parse() { grep -q '^{.*}$'; }
fi
json() { # NAME WANT-STATUS TEXT ARG...
    local name=$1 want=$2 text=$3
    shift 3
    call --json "$@"
    [ "$status" = "$want" ] && parse <out && grep -qF -- "$text" out
    report $? "$name"
}
json "json: claim" 0 '"outcome":"claimed"' claim js j-1
token=$(sed -n 's/.*"token":"\([0-9a-f]*\)".*/\1/p' out)
has "json: fence" out '"fence":'
has "json: lease" out '"lease_ms":30000'
has "json: degraded" out '"degraded":false'
json "json: in progress" 4 '"outcome":"in_progress"' claim js j-1 --wait 0
json "json: timed out" 4 '"outcome":"timed_out"' claim js j-1 --wait 1
json "json: mismatch" 3 '"outcome":"mismatch"' claim js j-1 --fingerprint x
json "json: renew" 0 '"outcome":"ok"' renew js j-1 "$token"
json "json: publish" 0 '"outcome":"ok"' publish js j-1 "$token" 'say "hi"'
json "json: peek" 0 '"value":"say \"hi\""' peek js j-1
json "json: cached" 0 '"outcome":"cached"' claim js j-1
json "json: lost" 5 '"outcome":"lost"' release js j-1 "$token"
json "json: forget" 0 '"outcome":"ok"' forget js j-1
json "json: absent" 6 '"outcome":"absent"' peek js j-1
json "json: what is not UTF-8" 0 '"outcome":"claimed"' claim js j-2
token=$(sed -n 's/.*"token":"\([0-9a-f]*\)".*/\1/p' out)
printf '\377\0' | "$once" publish js j-2 "$token" - 2>err
json "json: is base64" 0 '"value":{"base64":"/wA="}' peek js j-2
json "json: an error" 2 '"error":"invalid"' claim 'bad scope' k
json "json: ls" 0 '"scope":"js","key":"j-2","state":"done"' ls js
json "json: stats" 0 '"done":' stats
json "json: sweep" 0 '"removed":' sweep
json "json: doctor" 0 '"checks":[' doctor
json "json: version" 0 '"version":"' version

# ---- ls, sweep, stats --------------------------------------------------------------------------

ends "ls" 0 ls
has "ls: a header" out "STATE"
has "ls: done" out "run  date"
has "ls: direction marks are escaped" out 'odd  a\xe2\x80\xaeb\\'
lacks "ls: no colours in a file" out $'\033'
ends "ls: one scope" 0 ls orders
lacks "ls: only that" out "run  date"
ends "ls: an empty scope" 0 ls nothing-here
is "ls: prints nothing" "$(cat out)" ""
call claim lapsed l-1 --lease 0
call ls lapsed
has "ls: a claim whose owner is gone" out "lapsed"
call claim gone g-1 --retain 0
call publish gone g-1 "$(field token)" x
call --json stats
gone=$(sed -n 's/.*"gone":\([0-9]*\).*/\1/p' out)
[ "$gone" -ge 1 ]
report $? "stats: counts what is past retention"
ends "sweep" 0 sweep
is "sweep: removes it" "$(cat out)" "$gone removed"
ends "sweep: again" 0 sweep
is "sweep: nothing left" "$(cat out)" "0 removed"
ends "sweep --markers: there are none" 70 sweep --markers
ends "migrate --mutations: into the default ledger" 0 migrate --mutations --ttl 2h
has "migrate --mutations: says so" out "each counts for 7200 s"
ends "migrate --mutations: again" 0 migrate --mutations
has "migrate --mutations: nothing to do" out "nothing to do"
ends "migrate: --ttl is of markers" 2 migrate --ttl 2h
ends "sweep --markers" 0 sweep --markers
is "sweep --markers: none has expired" "$(cat out)" "0 removed"
ends "stats" 0 stats
has "stats: lapsed" out "lapsed            1"
ends "migrate" 0 migrate
has "migrate: a file sees to itself" out "up to date"
ends "migrate: twice" 0 migrate
ends "migrate --print: of a ledger without SQL" 70 migrate --print
ends "migrate --print: needs no server" 0 --ledger "postgres:schema=jobs" migrate --print
has "migrate --print: in the schema asked for" out "CREATE SCHEMA IF NOT EXISTS jobs;"
json "json: migrate" 0 '"said":' migrate

# ---- configuration -----------------------------------------------------------------------------

printf '# the daemon\nledger = postgres://u:hunter2@h/db?password=hunter3\ndrain = 2s\n' >conf
ends "config show" 0 config show --config conf
has "config show: from the file" out "= 2s                               # conf:3"
has "config show: no passwords" out "= postgres://h/db  "
lacks "config show: none at all" out hunter
ONCE_DRAIN=3s "$once" config show --config conf >out 2>err
has "config show: the environment is stronger" out "= 3s                               # ONCE_DRAIN"
ONCE_DRAIN=3s "$once" config show --config conf --drain 4s >out 2>err
has "config show: the command line is strongest" out "= 4s                               # --drain"
ends "config show: --data is stronger than a ledger in the file" 0 config show --config conf --data d
lacks "config show: so there is no such ledger" out postgres
json "json: config show" 0 '"origin":"conf:3"' config show --config conf
ends "config check" 0 config check --config conf
ends "config reference" 0 config reference
has "config reference: names the variable" out "ONCE_DRAIN; default: 5s"
echo "drian = 1s" >>conf
ends "config check: an unknown name" 2 config check --config conf
has "config check: a suggestion" err "conf:4: there is no setting 'drian'; did you mean 'drain'?"
ends "serve: refuses it, too" 2 serve --config conf
ends "config check: no such file" 2 config check --config nowhere
ends "config: no such part" 2 config shwo
ONCE_DRAIN=soon "$once" config check >out 2>err
is "config check: a variable" $? 2
has "config check: which" err "ONCE_DRAIN: 'soon' is not a duration"

# ---- bad input ---------------------------------------------------------------------------------

ends "no command" 2
has "no command: shows the help" err "Commands:"
ends "unknown command" 2 rnu
has "unknown command: a suggestion" err "did you mean 'run'?"
ends "unknown option" 2 run --kye a -- true
has "unknown option: a suggestion" err "did you mean --key?"
ends "unknown option before the command" 2 --jsn ls
ends "no key" 2 run -- true
has "no key: says so" err "--key KEY is required"
ends "no command to run" 2 run --key a
ends "an empty key" 2 run --key= -- true
has "an empty key: says so" err "the key is empty"
ends "an empty key, of a variable" 2 run --key "${unset_-}" -- true
ends "an empty key of a claim" 2 claim orders ""
has "an empty key of a claim: says so" err "the key is empty"
ends "a key with a control character" 2 run --key $'a\nb' -- true
ends "a key that is not UTF-8" 2 run --key $'\xff' -- true
ends "a key that is too long" 2 run --key "$(head -c 513 /dev/zero | tr '\0' k)" -- true
ends "a scope with a space" 2 run --scope 'a b' --key k -- true
ends "a lease that is none" 2 run --key a --lease soon -- true
ends "a negative wait" 2 claim a b --wait -1
ends "a choice that is none" 2 run --key a --on-failure stor -- true
has "a choice: a suggestion" err "did you mean store?"
ends "a value missing" 2 run --key
ends "an operand missing" 2 claim a
ends "an operand too many" 2 peek a b c
ends "a token too short" 2 release a b abc
ends "bad input changed nothing" 6 peek run a

# ---- settings ----------------------------------------------------------------------------------

is "data: the directory is the owner's" "$(stat -c %a data)" 700
is "data: the ledger, too" "$(stat -c %a data/once.db)" 600
unset ONCE_DATA
ends "data: HOME" 0 run --key home -- true
[ -f home/.local/state/once/once.db ]
report $? "data: below .local/state"
XDG_STATE_HOME=$work/xdg "$once" run --key xdg -- true
[ -f xdg/once/once.db ]
report $? "data: XDG_STATE_HOME"
XDG_STATE_HOME=relative "$once" run --key xdg -- true
[ ! -e relative ]
report $? "data: a relative XDG_STATE_HOME is ignored"
ONCE_DATA=$work/by-env "$once" run --key env -- true
[ -f by-env/once.db ]
report $? "data: ONCE_DATA"
ONCE_DATA=$work/by-env "$once" --data by-flag run --key flag -- true
[ -f by-flag/once.db ]
report $? "data: --data is stronger"
ONCE_LEDGER=sqlite:$work/ledger.db "$once" run --key env -- true
[ -f ledger.db ]
report $? "ledger: ONCE_LEDGER"
ONCE_LEDGER=sqlite:$work/ledger2.db "$once" run --data by-flag2 --key env -- true
[ ! -e ledger2.db ] && [ -f by-flag2/once.db ]
report $? "ledger: --data is stronger than ONCE_LEDGER"
ends "ledger: --ledger after the command" 0 run --ledger "sqlite:$work/ledger.db" --key env -- true
env -u HOME "$once" run --key nohome -- true >out 2>err
is "data: no HOME" $? 2
has "data: says what to do" err "--data DIR"
env -u HOME "$once" version >out 2>err
is "data: version needs none" $? 0
export ONCE_DATA=$work/data

ends "unavailable: the data directory cannot be" 69 --data /dev/null/x run --key a -- true
has "unavailable: says which" err "/dev/null/x"
ends "unavailable: as JSON on stdout" 69 --json --data /dev/null/x peek a b
has "unavailable: retryable" out '"retryable":true'
ends "ledger: an unknown scheme" 2 --ledger nosuch:thing peek a b
echo "this is not a database, but it is long enough to be looked at as one" >garbage
ends "ledger: not a database" 70 --ledger "sqlite:$work/garbage" peek a b
ends "verbose" 0 -v run --key loud-key -- true
has "verbose: events as logfmt" err "event="
lacks "verbose: hashes, not keys" err "loud-key"
"$once" version >/dev/full 2>err
is "stdout that cannot be written" $? 70
"$once" run --key full -- echo text >/dev/full 2>err
is "run: stdout that cannot be written" $? 70
ends "run: was recorded" 0 run --key full -- echo text
is "run: and can be seen" "$(cat out)" text
"$once" run --key closed -- sh -c 'echo a; echo b >&2' >&- 2>&-
is "run: closed outputs" $? 0
ends "run: are recorded, too" 0 run --key closed -- sh -c 'echo a; echo b >&2'
is "run: and nothing was written elsewhere" "$(cat out err | tr -d '\n')" ab

# ---- token -------------------------------------------------------------------------------------

ends "token: needs to be told what" 2 token
ends "token: an unknown word" 2 token creat
ends "token: create needs a name" 2 token create
ends "token: a verb that is none" 2 token create --name me --verb claims
ends "token: a scope that is none" 2 token create --name me --scope 'a b'
ends "token: revoke needs an id" 2 token revoke
ends "token: create" 0 token create --name me --scope orders --scope 'tmp:*' --verb write
token=$(cat out)
is "token: its length" "${#token}" 73
has "token: is said to be shown once" err "only time"
id=${token:5:8} secret=${token:14}
is "token: the file is its owner's" "$(stat -c %a "$ONCE_DATA/tokens")" 600
lacks "token: the file has no secret" "$ONCE_DATA/tokens" "$secret"
ends "token: list" 0 token list
has "token: list has it" out "$id  me "
has "token: list has scopes and verbs" out "orders,tmp:*  claim,publish,renew,release"
lacks "token: list has no secret" out "$secret"
ends "token: list as JSON" 0 token list --json
has "token: list as JSON has it" out '"scopes":["orders","tmp:*"]'
ends "token: create as JSON" 0 token create --name other --expires 1h --json
has "token: JSON has the token" out '"token":"once_'
has "token: all scopes unless told" out '"scopes":["*"]'
ends "token: revoke" 0 token revoke "$id"
ends "token: revoke again" 6 token revoke "$id"
ends "token: list without it" 0 token list
lacks "token: is gone" out "$id"
ends "token: another file" 0 token create --tokens elsewhere --name me
[ -f elsewhere ]
report $? "token: is there"
echo nonsense >elsewhere
ends "token: a file that is none" 70 token list --tokens elsewhere
has "token: which line" err "line 1"

# ---- doctor, bench, completion, help, version --------------------------------------------------

ends "doctor" 0 doctor
has "doctor: what to do about a lapsed claim" out "see once ls"
ends "doctor: before the first use" 0 --data not-yet doctor
[ ! -e not-yet ]
report $? "doctor: creates nothing"
chmod 644 data/once.db
call doctor
has "doctor: others may read" out "chmod 600"
chmod 600 data/once.db
ends "doctor: a broken ledger" 1 --ledger "sqlite:$work/garbage" doctor
has "doctor: says so" out "fail"
ends "doctor: no such directory" 1 --ledger sqlite:/no/such/dir/once.db doctor
mkdir bench-dir
ends "bench" 0 bench --time 20ms --dir bench-dir
has "bench: durable claims" out "durable claims, 256 in flight"
is "bench: leaves nothing behind" "$(ls -A bench-dir)" ""
json "bench: json" 0 '"durable_256":' bench --time 20ms --dir bench-dir
ends "bench: too long" 2 bench --time 1h
ends "bench: no such directory" 69 bench --dir /no/such/dir

ends "completion: bash" 0 completion bash
complete_bash() { # WORD...: what bash would offer for the last one
    bash -c 'source ./out; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _once; echo "${COMPREPLY[@]}"' _ "$@"
}
is "completion: commands" "$(complete_bash once pe)" peek
is "completion: options" "$(complete_bash once run --on)" --on-failure
is "completion: global options" "$(complete_bash once --led)" --ledger
is "completion: choices" "$(complete_bash once run --on-failure s)" store
is "completion: commands after a global option" "$(complete_bash once --data x swe)" sweep
is "completion: help" "$(complete_bash once help ver)" version
is "completion: shells" "$(complete_bash once completion z)" zsh
is "completion: what to do with tokens" "$(complete_bash once token r)" revoke
is "completion: directories" "$(complete_bash once --data bench-d)" bench-dir
complete_bash once run --key a -- sh | grep -qw sh
report $? "completion: a command to run"
ends "completion: zsh" 0 completion zsh
has "completion: zsh options" out "--on-failure="
if command -v zsh >/dev/null; then
    zsh -n out 2>err
    report $? "completion: zsh syntax"
fi
ends "completion: another shell" 2 completion fish

ends "help" 0 help
for command in $(sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' out); do
    call help "$command"
    cp out help.out
    call "$command" --help
    [ $status = 0 ] && cmp -s out help.out && grep -q "^Usage: once $command" out
    report $? "help: $command"
done
ends "help: an unknown command" 2 help runn
has "help: a suggestion" err "did you mean run"
call help run
has "help: what happens to failures" out "its key is released, so that a retry runs it again"
has "help: exit statuses" out "69   unavailable"
ends "help: --help" 0 --help
ends "version" 0 version
is "version: --version is the same" "$("$once" --version)" "$(cat out)"


# ---- the manual --------------------------------------------------------------------------------

if command -v mandoc >/dev/null; then
    mandoc -Tlint -Wwarning "$man" >out 2>err
    report $? "manual: mandoc has nothing to say"
fi
for command in $("$once" help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    grep -q "^\.Cm $command" "$man"
    report $? "manual: $command is in it"
done
for option in $("$once" run --help | sed -n 's/^ .*--\([a-z-]*\) .*/\1/p'); do
    grep -q -- "Fl [a-z ,]*-*$option" "$man"
    report $? "manual: --$option is in it"
done
grep '^\$ ' "$man" | sed 's/^\$ //' >examples
is "manual: there are examples" "$(($(wc -l <examples) > 5))" 1
ONCE_DATA=$work/manual PATH=$(dirname "$once"):$PATH bash -e examples >out 2>err
report $? "manual: its examples work"
is "manual: and do what it says" "$(sed -n 1p out)" "$(sed -n 2p out)"

echo "1..$count"
[ $failures -eq 0 ]
