#!/usr/bin/env bash
# runs_cli.sh BUILD_DIR - trigger, runs and work: real commands, signals and crashes. Prints TAP.
#
# As in cli.sh, nothing sleeps to let something happen: commands say through a fifo that they have
# started and wait on another one to go on. Where a lease has to lapse, the next worker waits for it.
# shellcheck disable=SC2016,SC2094
set -u -m # -m: background jobs keep SIGINT, and each has a process group
export LC_ALL=C

once=$(realpath "$1")/once
[ -x "$once" ] || { echo "Bail out! there is no $once"; exit 1; }
work=$(mktemp -d)
limit=30 # seconds; far more than anything takes
count=0 failures=0
cleanup() {
    exec 3>&- 4>&-
    rm -rf "$work"
}
trap cleanup EXIT
cd "$work" || exit 1
unset ONCE_LEDGER ONCE_COORD ONCE_URL NO_COLOR XDG_STATE_HOME TMPDIR
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
await_text() { # FILE TEXT
    local until=$((SECONDS + limit))
    until grep -qF -- "$2" "$1"; do [ $SECONDS -lt $until ] || return 1; done
}
trigger() { # ARG...: prints the id
    "$once" trigger "$@" 2>err
}
field() { # ID NAME: a member of the run, as JSON
    "$once" runs show "$1" --json | python3 -c '
import json, sys
print(json.dumps(json.load(sys.stdin)[sys.argv[1]], separators=(",", ":")))' "$2"
}
status_of() { field "$1" status | tr -d '"'; }
becomes() { # ID STATUS: waits for it
    local until=$((SECONDS + limit))
    until [ "$(status_of "$1")" = "$2" ]; do
        [ $SECONDS -lt $until ] || return 1
    done
}

mkfifo started go
exec 3<>started 4<>go # both ends: opening never blocks
await_start() { read -r -t $limit _ <&3 || echo "# the command did not start"; }
go_on() { echo go >&4; }
# Says that it runs, waits to be told to end.
cat >worker <<'EOS'
#!/bin/sh
echo "$ONCE_RUN_ID $ONCE_RUN_ATTEMPT $ONCE_RUN_FENCE" >>ran
echo started >started
read -r _ <go
echo '"ended"'
EOS
chmod +x worker

# ---- trigger -----------------------------------------------------------------------------------

ends "trigger" 0 trigger greet '{"name": "Ada"}' --key ada
id=$(cat out)
is "trigger: prints an id" "$(echo "$id" | grep -cE '^run_[0-9A-HJKMNP-TV-Z]{26}$')" 1
ends "trigger: again" 0 trigger greet '{"name": "Ada"}' --key ada
is "trigger: the same run" "$(cat out)" "$id"
ends "trigger: as JSON" 0 trigger greet '{"name": "Ada"}' --key ada --json
has "trigger: says that it is cached" out '"isCached":true'
has "trigger: and where it is" out '"source":"ledger"'
ends "trigger: another key" 0 trigger greet '{"name": "Ada"}' --key bob --json
has "trigger: is another run" out '"isCached":false'
ends "trigger: another task" 0 trigger other '{"name": "Ada"}' --key ada
is "trigger: another task is another run" "$([ "$(cat out)" != "$id" ] && echo yes)" yes
ends "trigger: another env" 0 trigger greet '{"name": "Ada"}' --key ada --env staging
elsewhere=$(cat out)
is "trigger: another env is another run" "$([ "$elsewhere" != "$id" ] && echo yes)" yes
ends "trigger: another payload is refused" 3 trigger greet '{"name": "Eve"}' --key ada
has "trigger: and says what to do" err "--on-mismatch return"
ends "trigger: or returned" 0 trigger greet '{"name": "Eve"}' --key ada --on-mismatch return
is "trigger: returned is the run that is there" "$(cat out)" "$id"
own=run_01HZZZZZZZZZZZZZZZZZZZZZZZ
ends "trigger: an id of our own" 0 trigger greet 1 --id $own
is "trigger: is taken" "$(cat out)" $own
ends "trigger: may be repeated" 0 trigger greet 1 --id $own
is "trigger: and is the same run" "$(cat out)" $own
ends "trigger: no payload" 0 trigger greet
is "trigger: has none" "$(field "$(cat out)" payload)" null
ends "trigger: tags" 0 trigger tagged 1 --tag a --tag b --tag a
is "trigger: each once" "$(field "$(cat out)" tags)" '["a","b"]'
ends "trigger: metadata, queue, attempts" 0 trigger rich 1 --metadata '{"n": 1}' --queue fast \
    --ordering-key o --max-attempts 7
rich=$(cat out)
is "trigger: metadata" "$(field "$rich" metadata)" '{"n":1}'
is "trigger: queue" "$(field "$rich" queue)" '"fast"'
is "trigger: ordering key" "$(field "$rich" orderingKey)" '"o"'
is "trigger: attempts" "$(field "$rich" maxAttempts)" 7
is "trigger: a delay" "$(status_of "$(trigger later 1 --delay 1h)")" DELAYED
ends "trigger: not JSON" 2 trigger greet '{"name'
ends "trigger: a task that is none" 2 trigger 'a b' 1
ends "trigger: an id that is none" 2 trigger greet 1 --id run_x
ends "trigger: eleven tags" 2 trigger greet 1 --tag 1 --tag 2 --tag 3 --tag 4 --tag 5 --tag 6 --tag 7 \
    --tag 8 --tag 9 --tag 10 --tag 11
for option in key ordering-key; do # a variable that was not set must not make a run of its own, each time
    ends "trigger: an empty --$option" 2 trigger unset 1 --$option "${unset_-}"
    has "trigger: an empty --$option: says so" err "the ${option/-/ } is empty"
done
is "trigger: and made no run" "$("$once" runs ls --task unset -q | grep -c run_)" 0
ends "trigger: no task" 2 trigger
ends "trigger: no attempt at all" 2 trigger greet 1 --max-attempts 0
ends "trigger: no ledger" 70 --ledger none trigger greet 1
ends "trigger: unavailable" 69 --ledger postgres://127.0.0.1:1/none trigger greet 1
head -c 1100000 /dev/zero | tr '\0' 1 >large
"$once" trigger greet - <large >out 2>err
status=$?
is "trigger: a payload over the limit" "$status" 2

# A burst of processes on one key.
for i in 1 2 3 4 5 6 7 8; do "$once" trigger burst '{}' --key b >"burst.$i" 2>&1 & done
wait
is "trigger: eight at once make one run" "$(cat burst.? | sort -u | wc -l)" 1

# ---- runs --------------------------------------------------------------------------------------

ends "runs: ls" 0 runs ls --task greet
has "runs: ls has it" out "$id"
lacks "runs: ls of a task has no other" out "$rich"
is "runs: ls, the newest first" "$(tail -n 1 out | cut -d ' ' -f 1)" $own
ends "runs: ls as JSON" 0 runs ls --json --limit 3
is "runs: ls, an object per line" "$(python3 -c 'import json; print(len([json.loads(l)["id"] for l in open("out")]))')" 3
ends "runs: ls by tag" 0 runs ls --tag b --json
is "runs: ls by tag has one" "$(wc -l <out)" 1
ends "runs: ls by status" 0 runs ls --status delayed --json
is "runs: ls of DELAYED has one" "$(wc -l <out)" 1
call runs ls --status queued --json --limit 100
lacks "runs: ls of QUEUED has no DELAYED" out '"status":"DELAYED"'
ends "runs: ls of another env" 0 runs ls --env staging --json
is "runs: has its own" "$(grep -c "$elsewhere" out) $(wc -l <out)" "1 1"
ends "runs: ls of an empty env" 0 runs ls --env nobody
has "runs: says so" err "no runs"
ends "runs: a status that is none" 2 runs ls --status runing
ends "runs: show" 0 runs show "$id"
has "runs: show has the payload" out '{"name": "Ada"}'
ends "runs: show of another env" 6 runs show "$id" --env staging
ends "runs: show of none" 6 runs show run_01HYYYYYYYYYYYYYYYYYYYYYYY
ends "runs: show of what is no id" 2 runs show 17
ends "runs: show needs an id" 2 runs show
ends "runs: an unknown word" 2 runs list
has "runs: says which there are" err "ls, show, cancel, replay or tail"
ends "runs: cancel" 0 runs cancel "$rich" --reason 'not "needed"'
is "runs: is canceled" "$(status_of "$rich")" CANCELED
is "runs: the reason is kept" "$(field "$rich" error)" '"not \"needed\""'
ends "runs: cancel again" 0 runs cancel "$rich"
ends "runs: work finds no canceled one" 0 work fast --drain -- touch never
is "runs: it was not run" "$(ls never 2>/dev/null)" ""
ends "runs: replay" 0 runs replay "$id"
copy=$(cat out)
is "runs: a replay is a new run" "$([ "$copy" != "$id" ] && echo yes)" yes
is "runs: with the payload" "$(field "$copy" payload)" '{"name":"Ada"}'
is "runs: without the key" "$(field "$copy" idempotencyKey)" null

# tail writes into a fifo; each line is awaited.
mkfifo lines
"$once" runs tail --task followed --json >lines 2>tail.err &
tail=$!
exec 5<lines
followed=$(trigger followed 1)
line=
read -r -t $limit line <&5
is "runs: tail tells of a new one" "$(echo "$line" | grep -c "\"$followed\",\"status\":\"QUEUED\"")" 1
"$once" work followed --drain -q -- true
until echo "$line" | grep -q COMPLETED; do read -r -t $limit line <&5 || break; done
is "runs: tail tells of its end" "$(echo "$line" | grep -c "\"$followed\",\"status\":\"COMPLETED\"")" 1
kill $tail
wait $tail 2>/dev/null
exec 5<&-

# ---- work --------------------------------------------------------------------------------------

# Every byte of a payload, spaces and line breaks too.
printf '  {"a" :\n\t"\\u00e9 \303\251", "n": 1.50, "big": 123456789012345678901234567890}\n ' >payload
"$once" trigger exact - <payload >out
id=$(cat out)
ends "work: one run" 0 work exact --drain -- sh -c 'cat >got; echo "$ONCE_RUN_ID $ONCE_RUN_TASK $ONCE_RUN_ENV $ONCE_RUN_ATTEMPT ${ONCE_RUN_FENCE:+fence}" >env; echo "{\"ok\":  true}"'
cmp -s payload got
report $? "work: the payload is byte for byte on stdin"
is "work: its environment" "$(cat env)" "$id exact default 1 fence"
is "work: it is COMPLETED" "$(status_of "$id")" COMPLETED
is "work: its output is JSON" "$(field "$id" output)" '{"ok":true}'
has "work: sums up" err "1 done, 0 failed"
id=$(trigger plain 1)
ends "work: --json" 0 work plain --drain --json -- echo hello
has "work: an object for each" out "{\"event\":\"completed\",\"id\":\"$id\""
is "work: other output is a string" "$(field "$id" output)" '"hello\n"'
id=$(trigger silent 1)
call work silent --drain -- true
is "work: no output is none" "$(field "$id" output)" null
id=$(trigger much 1)
call work much --drain --max-output 1k -- head -c 2000 /dev/zero
is "work: too much output is not kept" "$(status_of "$id") $(field "$id" output)" "COMPLETED null"
has "work: and it is said" err "was not kept"
{ printf '"'; head -c 900000 /dev/zero | tr '\0' x; printf '"'; } >large
"$once" trigger ignores - <large >out
id=$(cat out)
call work ignores --drain -- true
is "work: a command need not read its payload" "$(status_of "$id")" COMPLETED
call work ignores --drain -- sh -c 'echo nothing is due >&2'
is "work: nothing is due" "$(cat out err)" "once: 0 done, 0 failed"
ends "work: no command" 2 work queue
ends "work: a queue that is none" 2 work 'a b' --drain -- true
ends "work: too many at a time" 2 work q --concurrency 1000 -- true
ends "work: no lease at all" 2 work q --lease 0 -- true
trigger nocommand 1 >/dev/null
ends "work: no such command" 127 work nocommand --drain -- ./no-such-command
ends "work: not executable" 126 work nocommand --drain -- ./payload
is "work: the run was given back" "$("$once" runs ls --task nocommand --json | grep -c '"status":"QUEUED".*"attempts":0')" 1
ends "work: by another command" 0 work nocommand --drain -- true
is "work: it is done" "$("$once" runs ls --task nocommand --status completed --json | wc -l)" 1

for i in 1 2 3 4 5; do trigger one "$i" >/dev/null; done
ends "work: --once" 0 work one --once -- cat
is "work: works on one" "$("$once" runs ls --task one --status completed --json | wc -l)" 1
ends "work: --drain works on the rest" 0 work one --drain --concurrency 3 -- cat
is "work: all are done" "$("$once" runs ls --task one --status completed --json | wc -l)" 5

# Three at a time: all three have started before one may go on.
for i in 1 2 3; do trigger wide "$i" >/dev/null; done
background wide work wide --drain --concurrency 3 -- ./worker
await_start && await_start && await_start
is "work: three run at a time" "$("$once" runs ls --task wide --status executing --json | wc -l)" 3
go_on && go_on && go_on
ended $pid
is "work: and end" "$status" 0
is "work: all three are COMPLETED" "$("$once" runs ls --task wide --status completed --json | wc -l)" 3

# One ordering key: one at a time, in order.
for i in 1 2 3; do trigger ordered "$i" --ordering-key k >/dev/null; done
ends "work: an ordering key" 0 work ordered --drain --concurrency 3 -- sh -c 'cat >>order'
is "work: in order" "$(cat order)" 123

# ---- work: failures ----------------------------------------------------------------------------

id=$(trigger flaky 1)
background flaky work flaky -- sh -c '[ "$ONCE_RUN_ATTEMPT" = 2 ] || { echo "no luck" >&2; exit 9; }'
becomes "$id" COMPLETED
report $? "work: a failed attempt is tried again"
kill $pid
ended $pid
is "work: stops when told" "$status" 0
is "work: in two attempts" "$(field "$id" attempts)" 2
is "work: the error of the first is kept" "$(field "$id" error)" '{"exit":9,"stderr":"no luck\n"}'
has "work: stderr is passed on" flaky.err "no luck"
has "work: and the failure is told" flaky.err "failed: exit 9, attempt 1 of 3"
id=$(trigger hopeless 1 --max-attempts 1 --key h)
ends "work: the last attempt" 0 work hopeless --drain -- sh -c 'head -c 10000 /dev/zero | tr "\0" x >&2; echo end >&2; kill -9 $$'
is "work: is FAILED" "$(status_of "$id")" FAILED
is "work: by a signal" "$(field "$id" error | head -c 11)" '{"exit":137'
is "work: the last 4 KiB of stderr" "$(field "$id" error | python3 -c '
import json, sys
e = json.load(sys.stdin)["stderr"]
print(len(e), e[-5:].strip())')" "4096 xend"
again=$(trigger hopeless 1 --key h)
is "work: its key makes a new run" "$([ "$again" != "$id" ] && echo yes)" yes

# ---- work: signals, crashes, cancels -----------------------------------------------------------

id=$(trigger graceful 1)
rest=$(trigger graceful 2)
background graceful work graceful -- ./worker
await_start
kill -TERM $pid
await_text graceful.err "finishing what runs"
go_on
ended $pid
is "work: SIGTERM lets it finish" "$status $(status_of "$id")" "0 COMPLETED"
is "work: and leases no more" "$(status_of "$rest")" QUEUED
call runs cancel "$rest"

# ctrl-C goes to the whole process group of a terminal: commands have one of their own.
id=$(trigger group 1)
background group work group -- ./worker
await_start
kill -INT -- -$pid
await_text group.err "finishing what runs"
is "work: SIGINT does not reach the command" "$(status_of "$id")" EXECUTING
go_on
ended $pid
is "work: it finishes" "$status $(status_of "$id")" "0 COMPLETED"

id=$(trigger twice 1)
rm -f ran
background twice work twice -- ./worker
await_start
kill -TERM $pid
await_text twice.err "finishing what runs"
kill -TERM $pid
ended $pid
is "work: the second signal ends it" "$status" 143
is "work: the run is given back" "$(status_of "$id") $(field "$id" attempts)" "QUEUED 0"
background twice work twice --drain -- ./worker
await_start
go_on
ended $pid
is "work: and is done by the next" "$(status_of "$id") $(wc -l <ran)" "COMPLETED 2"

id=$(trigger crash 1)
rm -f ran
background crash work crash --lease 1s -- ./worker
await_start
crashed=$pid
kill -KILL $crashed
ended $crashed
background crash work crash --once --lease 1s -- ./worker
await_start
is "work: another worker takes over after kill -9" "$(wc -l <ran)" 2
go_on
ended $pid
is "work: and completes it" "$status $(status_of "$id")" "0 COMPLETED"
is "work: it was a stall, not an attempt" "$(field "$id" attempts) $(field "$id" stalls)" "1 1"
is "work: with a higher fence" "$(awk '{ print $3 }' ran | sort -n | tail -n 1)" "$(tail -n 1 ran | awk '{ print $3 }')"

# Longer than its lease: heartbeats keep it. A run that is due after three leases is the clock: when
# the other worker has it, it could have had the first one, too.
id=$(trigger long 1)
rm -f ran
background long work long --once --lease 300ms -- ./worker
long=$pid
await_start
trigger long 2 --delay 1s >/dev/null
background other work long --once --lease 300ms -- ./worker
await_start
is "work: heartbeats keep the lease" "$(grep -c "$id" ran) $(wc -l <ran) $(field "$id" stalls)" "1 2 0"
go_on && go_on
ended $long
is "work: and it completes" "$status $(status_of "$id")" "0 COMPLETED"
ended $pid

id=$(trigger unwanted 1)
background unwanted work unwanted --once --lease 300ms -- ./worker
await_start
call runs cancel "$id"
ended $pid
is "work: a canceled run ends its command" "$status $(status_of "$id")" "0 CANCELED"
has "work: and it is told" unwanted.err "$id is lost"

# ---- completion --------------------------------------------------------------------------------

ends "completion: bash" 0 completion bash
complete_bash() { # WORD...: what bash would offer for the last one
    bash -c 'source ./out; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _once; echo "${COMPREPLY[@]}"' _ "$@"
}
is "completion: trigger" "$(complete_bash once tri)" trigger
is "completion: what to do with runs" "$(complete_bash once runs re)" replay
is "completion: choices of trigger" "$(complete_bash once trigger --on-mismatch r)" return
is "completion: options of work" "$(complete_bash once work --conc)" --concurrency

echo "1..$count"
[ $failures -eq 0 ]
