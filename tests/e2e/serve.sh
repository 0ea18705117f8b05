#!/usr/bin/env bash
# serve.sh BUILD_DIR - the daemon and its RESP door, with the real redis-cli. Prints TAP.
#
# Nothing sleeps to let something happen: that a client waits is read off INFO, that a process has
# ended is waited for. Every wait has a limit, so that a bug is a failure and not a hang.
# shellcheck disable=SC2016,SC2015
# shellcheck source=tests/e2e/shared/daemon.bash
. "$(dirname "$0")/shared/daemon.bash" serve "$1"

# start ARG...: a daemon with a RESP door, and its port; its log is new.
start() {
    rm -f err
    daemon_start --listen off --resp 127.0.0.1:0 "$@"
    port=$resp_port
}
r() { timeout $limit redis-cli -p "$port" "$@" | paste -sd' '; }
field() { r INFO | tr ' ' '\n' | tr -d '\r' | sed -n "s/^$1://p"; }
until_info() { # FIELD VALUE: until INFO says so
    local end=$((SECONDS + limit))
    until [ "$(field "$1")" = "$2" ]; do [ $SECONDS -lt $end ] || return 1; done
}
token() { cut -d' ' -f2; }

# raw NAME WANT BYTES: sends, and reads until the daemon closes.
raw() {
    local got
    exec 5<>"/dev/tcp/127.0.0.1/$port"
    (trap '' PIPE && printf '%b' "$3" >&5) 2>/dev/null # it may be closed before all is sent
    got=$(timeout $limit cat <&5 2>/dev/null | tr -d '\r' | paste -sd' ')
    exec 5>&-
    is "$1" "$got" "$2"
}

# ---- starting ----------------------------------------------------------------------------------

start
like "says where it listens" "$listening" "listening resp 127.0.0.1:[1-9]*"
like "the log says what it runs on" "$(cat err)" "*event=start*sqlite:$work/data/once.db, coord memory:*"
like "the log says what it guarantees" "$(cat err)" "*survives kill -9*"
like "the log says where it listens" "$(cat err)" "*event=listening door=resp address=127.0.0.1:$port*"

# A person gets a banner: the same on a terminal, which is what script(1) makes.
mkfifo screen
script -qefc "echo \$\$ >pid; exec '$once' serve --listen off --ledger none --resp 127.0.0.1:0" /dev/null </dev/null >screen 2>&1 &
terminal=$!
while read -r -t $limit line; do
    printf '%s\n' "$line"
    [[ $line != listening* ]] || break
done <screen >banner
kill -TERM "$(cat pid)"
wait $terminal 2>/dev/null
like "the banner says what it guarantees" "$(cat banner)" "*there is no ledger*"
like "the banner says what to try" "$(cat banner)" "*redis-cli -h 127.0.0.1 -p * ONCE.CLAIM*"
is "and is not a log" "$(grep -c event= banner)" 0
refuse() { # NAME STATUS TEXT ARG...
    local name=$1 want=$2 text=$3
    shift 3
    timeout $limit "$once" serve --listen off "$@" >refused 2>&1
    is "$name" $? "$want"
    like "$name: why" "$(cat refused)" "*$text*"
}
refuse "an address that is not loopback" 2 "token create" --resp 0.0.0.0:0
refuse "an address that is none" 2 "not an address" --resp nonsense
refuse "a port that is taken" 69 "address already in use" --ledger none --resp "127.0.0.1:$port"
refuse "planes that are none" 2 "nothing to stand on" --ledger none --coord none

# ---- what clients say --------------------------------------------------------------------------

is "PING" "$(r PING)" "PONG"
is "PING with a message" "$(r PING hello)" "hello"
is "ECHO" "$(r echo hello)" "hello"
is "SELECT 0" "$(r SELECT 0)" "OK"
like "SELECT 1" "$(r SELECT 1)" "ERR DB index*"
like "HELLO 3" "$(r HELLO 3)" "server once version * proto 3 id * mode standalone*"
like "HELLO 4" "$(r HELLO 4)" "NOPROTO*"
like "redis-cli -3" "$(r -3 PING)" "PONG"
like "HELLO with AUTH and SETNAME" "$(r HELLO 2 AUTH default x SETNAME me)" "server once*"
like "HELLO as somebody else" "$(r HELLO 2 AUTH eve x)" "WRONGPASS*"
is "AUTH as default" "$(r AUTH default x)" "OK"
like "AUTH without tokens" "$(r AUTH x)" "ERR AUTH*"
like "CLIENT ID" "$(r CLIENT ID)" "[1-9]*"
is "CLIENT SETINFO" "$(r CLIENT SETINFO LIB-NAME x)" "OK"
like "CLIENT with nonsense" "$(r CLIENT NONSENSE)" "ERR unknown subcommand*"
like "COMMAND COUNT" "$(r COMMAND COUNT)" "[1-9]*"
like "COMMAND" "$(r COMMAND)" "*once.claim*-3*write*"
like "COMMAND DOCS" "$(r COMMAND DOCS once.claim)" "once.claim summary*BOUND*"
like "INFO" "$(field once_version)" "[0-9]*.[0-9]*.[0-9]*"
like "an unknown command" "$(r NONSENSE a b)" "ERR unknown command 'NONSENSE', with args beginning with: 'a' 'b'*"
like "too few arguments" "$(r ONCE.CLAIM s)" "ERR wrong number of arguments*usage: ONCE.CLAIM scope key*"
like "too many arguments" "$(r ONCE.UNWATCH 1 x)" "ERR wrong number of arguments*"
raw "inline commands, quotes, QUIT" "+PONG \$3 a b +OK" 'PING\r\n\r\nECHO "a b"\r\nQUIT\r\nPING\r\n'
raw "a name, and RESET" "+OK \$2 me +RESET \$-1 +OK" \
    'CLIENT SETNAME me\nCLIENT GETNAME\nRESET\nCLIENT GETNAME\nQUIT\n'
raw "a malformed command ends the connection" "-ERR Protocol error: expected '\$', got ':'" '*1\r\n:1\r\n'
raw "HTTP is not answered" "" 'POST / HTTP/1.1\r\nHost: x\r\n\r\nPING\r\n'

# ---- claims ------------------------------------------------------------------------------------

got=$(r ONCE.CLAIM s k LEASE 30s)
like "claimed" "$got" "claimed ???????????????????????????????? [1-9]* 30000"
token=$(token <<<"$got")
like "in progress for another" "$(r ONCE.CLAIM s k WAIT 0)" "in_progress [1-9]*"
is "timed out" "$(r ONCE.CLAIM s k WAIT 20)" "timed_out"
like "peek at a claim" "$(r ONCE.PEEK s k)" "in_progress [1-9]*"
is "renew" "$(r ONCE.RENEW s k "$token" LEASE 60s)" "OK"
is "publish" "$(r ONCE.PUBLISH s k "$token" 'the answer')" "OK"
is "publish again" "$(r ONCE.PUBLISH s k "$token" 'the answer')" "OK"
is "another answer is lost" "$(r ONCE.PUBLISH s k "$token" 'another')" "lost the answer"
is "cached" "$(r once.claim s k)" "cached the answer"
is "peek at an answer" "$(r ONCE.PEEK s k)" "cached the answer"
like "another fingerprint" "$(r ONCE.CLAIM s k FP other)" "MISMATCH *"
is "forget" "$(r ONCE.FORGET s k)" "OK"
is "absent" "$(r ONCE.PEEK s k)" "absent"
token=$(r ONCE.CLAIM s k | token)
is "release" "$(r ONCE.RELEASE s k "$token")" "OK"
is "release again" "$(r ONCE.RELEASE s k "$token")" "lost"
like "a bad scope" "$(r ONCE.CLAIM 's s' k)" "ERR *scope*"
like "a bad duration" "$(r ONCE.CLAIM s k LEASE soon)" "ERR LEASE wants milliseconds*"
like "an option twice" "$(r ONCE.CLAIM s k WAIT 1 WAIT 2)" "ERR syntax error: WAIT was given twice*"
like "an option without a value" "$(r ONCE.CLAIM s k WAIT)" "ERR syntax error: WAIT wants a value*"
like "no such option" "$(r ONCE.CLAIM s k NX)" "ERR syntax error: there is no option 'NX'*"
like "a bad token" "$(r ONCE.RELEASE s k nonsense)" "ERR a token is 32 hexadecimal digits*"

# ---- runs --------------------------------------------------------------------------------------

like "trigger" "$(r ONCE.TRIGGER mail '{"to": 1}' KEY k TAG a)" "created run_* QUEUED ledger"
run=$(r ONCE.TRIGGER mail '{"to": 1}' KEY k)
like "the same key, the same run" "$run" "cached run_* QUEUED ledger"
run=$(cut -d' ' -f2 <<<"$run")
like "another payload under the key" "$(r ONCE.TRIGGER mail '{"to": 2}' KEY k)" "MISMATCH *"
like "a payload that is no JSON" "$(r ONCE.TRIGGER mail '{')" "ERR *"
like "a run" "$(r ONCE.RUN GET "$run")" "id $run status QUEUED env default task mail queue mail payload {\"to\": 1}*"
is "a run of another env" "$(r ONCE.RUN GET "$run" ENV other)" "absent"
like "a list" "$(r ONCE.RUN LIST TASK mail)" "0 id $run *"
is "tags" "$(r ONCE.RUN TAG "$run" b c)" "OK"
is "metadata" "$(r ONCE.RUN METADATA "$run" '{"n": 1}')" "1"
is "an operation" "$(r ONCE.RUN OPERATE "$run" '[{"type": "increment", "key": "n", "value": 1}]')" "2"
like "metadata of another version" "$(r ONCE.RUN METADATA "$run" '{}' VERSION 1)" "CONFLICT *"
like "too late to reschedule" "$(r ONCE.RUN RESCHEDULE "$run" 0)" "REFUSED *"
got=$(r ONCE.PULL mail LEASE 1m)
like "pull" "$got" "$run ???????????????????????????????? [1-9]* {\"to\": 1} 1 3 mail 60000"
token=$(cut -d' ' -f2 <<<"$got")
is "nothing more to pull" "$(r ONCE.PULL mail WAIT 0)" ""
is "beat" "$(r ONCE.BEAT "$run" "$token")" "OK"
is "nack" "$(r ONCE.NACK "$run" "$token" '"no"' RETRY 0)" "OK"
is "ack with a token that is void" "$(r ONCE.ACK "$run" "$token")" "lost"
token=$(r ONCE.PULL mail | cut -d' ' -f2)
is "ack" "$(r ONCE.ACK "$run" "$token" '{"sent": true}')" "OK"
like "a run that is done" "$(r ONCE.RUN GET "$run")" "id $run status COMPLETED *output {\"sent\": true}*"
is "cancel what is done" "$(r ONCE.RUN CANCEL "$run")" "OK"
like "replay" "$(r ONCE.RUN REPLAY "$run")" "created run_* QUEUED ledger"
is "reset" "$(r ONCE.RUN RESET mail k)" "OK"
is "reset again" "$(r ONCE.RUN RESET mail k)" "absent"
like "no such subcommand" "$(r ONCE.RUN WALK)" "ERR unknown subcommand of ONCE.RUN*"
like "COMMAND DOCS of runs" "$(r COMMAND DOCS once.trigger)" "once.trigger summary*ONMISMATCH*"

# ---- large, many -------------------------------------------------------------------------------

head -c 1048576 /dev/zero | tr '\0' x >largest
token=$(r ONCE.CLAIM large k | token)
is "the largest value" "$(r -x ONCE.PUBLISH large k "$token" <largest)" "OK"
timeout $limit redis-cli -p "$port" ONCE.CLAIM large k | tail -n 1 | tr -d '\n' | cmp -s - largest
report $? "and the same bytes back"
token=$(r ONCE.CLAIM large k2 | token)
like "a value that is too large" "$({ cat largest; echo x; } | r -x ONCE.PUBLISH large k2 "$token")" \
    "ERR the value has*at most 1048576 are kept*"
raw "one that is far too large" "-ERR Protocol error: invalid bulk length" \
    '*5\r\n$12\r\nONCE.PUBLISH\r\n$1\r\ns\r\n$1\r\nk\r\n$1\r\nt\r\n$999999999\r\n'
is "and the daemon lives" "$(r PING)" "PONG"
commands='' want=''
for i in $(seq 500); do
    commands+="ONCE.CLAIM many k$i WAIT 0\nECHO $i\n"
    want+="claimed $i "
done
exec 5<>"/dev/tcp/127.0.0.1/$port"
printf '%bQUIT\n' "$commands" >&5
got=$(timeout $limit cat <&5 | tr -d '\r' | awk '$0 == "claimed" { printf "claimed " } prev ~ /^\$[123]$/ && $0 ~ /^[0-9]+$/ { printf "%s ", $0 } { prev = $0 }')
exec 5>&-
is "a thousand commands in one go, answered in order" "$got" "$want"
cursor=0 keys=0 pages=0
while :; do
    timeout $limit redis-cli -p "$port" ONCE.SCAN "$cursor" SCOPE many COUNT 200 >page
    cursor=$(head -n 1 page) keys=$((keys + $(grep -c '^k[0-9]' page))) pages=$((pages + 1))
    [ "$cursor" != 0 ] && [ $pages -lt 9 ] || break
done
is "ONCE.SCAN walks through all of a scope" "$keys records, $pages pages" "500 records, 3 pages"
like "a cursor that was made up" "$(r ONCE.SCAN ff00)" "ERR invalid cursor*"

# ---- waiting -----------------------------------------------------------------------------------

token=$(r ONCE.CLAIM w k | token)
timeout $limit redis-cli -p "$port" ONCE.CLAIM w k WAIT 60s >first &
first=$!
timeout $limit redis-cli -p "$port" ONCE.CLAIM w k WAIT 60s >second &
second=$!
until_info blocked_clients 2
report $? "two clients wait, and others are answered meanwhile"
r ONCE.PUBLISH w k "$token" 'for all' >/dev/null
wait $first $second
is "both are woken by the publish" "$(cat first second | paste -sd' ')" "cached for all cached for all"

token=$(r ONCE.CLAIM w line | token)
exec 5<>"/dev/tcp/127.0.0.1/$port"
printf 'ONCE.CLAIM w line WAIT 60s\nONCE.CLAIM w behind WAIT 0\nPING\nNONSENSE\nQUIT\n' >&5
until_info blocked_clients 1
like "what is behind a claim that waits is done" "$(r ONCE.PEEK w behind)" "in_progress*"
r ONCE.RELEASE w line "$token" >/dev/null
got=$(timeout $limit cat <&5 | tr -d '\r' | paste -sd' ')
exec 5>&-
like "and answered in order" "$got" "*claimed*30000*claimed*30000 +PONG -ERR unknown command*+OK"

# client COMMAND...: a connection of its own, whose process can be killed; its first answer.
client() {
    rm -f in answers
    mkfifo in answers
    timeout $limit redis-cli -p "$port" <in >answers &
    client=$!
    exec 6>in 7<answers
    echo "$*" >&6
}
client_answers() { read -r -t $limit answer <&7; }
client_dies() {
    kill -9 "$(ps -o pid= --ppid "$client")"
    wait "$client" 2>/dev/null
    exec 6>&- 7<&-
}
token=$(r ONCE.CLAIM gone k | token)
client ONCE.CLAIM gone k WAIT 60s
until_info blocked_clients 1
report $? "a client waits"
client_dies
until_info blocked_clients 0
report $? "it is killed, and waits no more"
is "and the key goes to nobody who left" "$(r ONCE.RELEASE gone k "$token") $(r ONCE.PEEK gone k)" "OK absent"

client ONCE.CLAIM bound k BOUND
client_answers
is "a BOUND claim" "$answer" "claimed"
timeout $limit redis-cli -p "$port" ONCE.CLAIM bound k WAIT 60s >first &
first=$!
until_info blocked_clients 1
client_dies
wait $first
is "is released when its client is killed" "$(head -n 1 first)" "claimed"
is "and forgotten" "$(field bound_claims)" "0"
client ONCE.CLAIM bound published BOUND
client_answers
client_answers
r ONCE.PUBLISH bound published "$answer" kept >/dev/null
is "what is published is BOUND no more" "$(field bound_claims)" "0"
client_dies
is "and stays" "$(r ONCE.CLAIM bound published)" "cached kept"

# A peer that only closes its sending side still gets its answers; perl can do that, bash cannot.
half() { # BYTES
    # shellcheck disable=SC2016
    timeout $limit perl -MIO::Socket::INET -e '
        my $s = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$ARGV[0]") or die;
        print $s $ARGV[1]; $s->flush; shutdown($s, 1); print while <$s>' "$port" "$1" | tr -d '\r' | paste -sd' '
}
like "half closed: answered" "$(half $'ONCE.CLAIM half k WAIT 0\nPING\n')" "*claimed*30000 +PONG"
like "half closed: does not wait" "$(half $'PING\nONCE.CLAIM half k WAIT 60s\nPING\n')" "+PONG *NAVAILABLE*+PONG"

# ---- ends --------------------------------------------------------------------------------------

token=$(r ONCE.CLAIM crash k | token)
r ONCE.PUBLISH crash k "$token" 'still here' >/dev/null
stop KILL
start
is "published, killed, started: still there" "$(r ONCE.CLAIM crash k)" "cached still here"
is "the command and the daemon share a ledger" "$("$once" peek crash k --raw)" "still here"

token=$(r ONCE.CLAIM term k | token)
timeout $limit redis-cli -p "$port" ONCE.CLAIM term k WAIT 60s >first &
first=$!
until_info blocked_clients 1
client ONCE.CLAIM term bound BOUND
client_answers
stop TERM
is "SIGTERM ends it well" "$status" 0
wait $first
like "those who wait are told" "$(cat first)" "UNAVAILABLE nothing was done*"
exec 6>&- 7<&-
"$once" claim term bound --wait 0 >out 2>err
is "what was BOUND is released" "$(head -n 1 out)" "claimed"
rm -f out

start --resp "unix:$work/s"
is "a socket in the file system" "$listening" "listening resp unix:$work/s"
is "is the owner's alone" "$(stat -c %a s)" "600"
is "and answers" "$(timeout $limit redis-cli -s s PING)" "PONG"
refuse "one that is in use" 69 "listening on" --ledger none --resp "unix:$work/s"
stop KILL
[ -S s ]
report $? "killed, it stays behind"
start --resp "unix:$work/s"
is "and is replaced" "$(timeout $limit redis-cli -s s PING)" "PONG"
stop INT
is "SIGINT ends it well, too" "$status" 0
[ ! -e s ]
report $? "and takes the socket away"
echo precious >s
refuse "what is not a socket stays" 2 "not a socket" --ledger none --resp "unix:$work/s"
is "as it was" "$(cat s)" "precious"

start --ledger none --coord redis://127.0.0.1:1
until_said 'level=error event=fact plane=coord name=server .*Connection refused'
report $? "a plane that is away is told at the start"
like "and to those who ask" "$(r ONCE.CLAIM s k)" "UNAVAILABLE*"
stop TERM

start --ledger none
like "without a ledger it says so" "$(cat err)" "*there is no ledger*"
like "and claims are given" "$(r ONCE.CLAIM s k)" "claimed*"
stop TERM

# ---- settings ----------------------------------------------------------------------------------

printf 'log-level = warn\nvalue-max = 10\nconnections-max = 2\n' >conf
start --config conf
token=$(r ONCE.CLAIM small k | token)
like "value-max" "$(r ONCE.PUBLISH small k "$token" 12345678901)" "ERR*"
is "value-max: up to that" "$(r ONCE.PUBLISH small k "$token" 1234567890)" "OK"
exec 5<>"/dev/tcp/127.0.0.1/$port" 6<>"/dev/tcp/127.0.0.1/$port"
printf 'PING\r\n' >&5 && printf 'PING\r\n' >&6
read -r -t $limit first <&5 && read -r -t $limit second <&6
like "connections-max" "$(r PING 2>&1)" "*max number of clients*"
exec 5>&- 6>&-
is "log-level: nothing to say" "$(grep -c level=info err)" 0
sed -i 's/warn/info/' conf
kill -HUP "$daemon"
until_said 'level=info event=reloaded'
report $? "SIGHUP: the log level is that of the file"
echo "no-such-thing = 1" >>conf
kill -HUP "$daemon"
until_said "level=error event=reload_failed text=.*there is no setting 'no-such-thing'"
report $? "SIGHUP: what is wrong with the file"
is "SIGHUP: it goes on" "$(r PING)" "PONG"
stop TERM
is "and ends well" "$status" 0

# ---- a service manager -------------------------------------------------------------------------

# Every datagram as a line, until STOPPING.
python3 - "$work/notify" >manager <<'END' &
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
said = ""
while "STOPPING" not in said:
    said = s.recv(4096).decode()
    print(said.replace("\n", " "), flush=True)
END
manager=$!
until_heard() { # PATTERN TIMES
    local end=$((SECONDS + limit))
    until [ "$(grep -c "$1" manager)" -ge "$2" ]; do [ $SECONDS -lt $end ] || return 1; done
}
until [ -S notify ] || ! kill -0 $manager 2>/dev/null; do :; done
NOTIFY_SOCKET=$work/notify start
until_heard '^READY=1' 1
report $? "a service manager hears that it is ready"
kill -HUP "$daemon"
until_heard '^RELOADING=1 MONOTONIC_USEC=[0-9]' 1 && until_heard '^READY=1' 2
report $? "that it reloads, and is ready again"
stop TERM
timeout $limit tail --pid=$manager -s 0.02 -f /dev/null
like "and that it stops" "$(tail -n 1 manager)" "STOPPING=1*"

# ---- a fleet -----------------------------------------------------------------------------------

# Two daemons on one Redis and one PostgreSQL, where tests/run has them up.
if [ -n "${ONCE_TEST_REDIS-}" ] && [ -n "${ONCE_TEST_POSTGRES-}" ]; then
    name=serve$$
    planes=(--ledger "$ONCE_TEST_POSTGRES?schema=$name" --coord "$ONCE_TEST_REDIS?prefix=$name")
    start "${planes[@]}"
    is "fleet: it shows where the planes are, and no more" "$(grep -c 'schema=\|prefix=\|@' err)" 0
    until_said 'plane=coord name=persistence '
    report $? "fleet: it says what Redis keeps"
    until_said 'plane=coord name=eviction '
    report $? "fleet: and what Redis may throw away"
    until_said 'plane=ledger name=commit text="synchronous_commit is on'
    report $? "fleet: and what PostgreSQL promises"
    first_daemon=$daemon first_port=$port
    start "${planes[@]}"
    second_port=$port
    token=$(port=$first_port r ONCE.CLAIM s k | token)
    timeout $limit redis-cli -p "$second_port" ONCE.CLAIM s k WAIT 60s >first &
    first=$!
    until_info blocked_clients 1
    report $? "fleet: claimed at one daemon, waited for at the other"
    is "fleet: published" "$(port=$first_port r ONCE.PUBLISH s k "$token" 'for all')" "OK"
    wait $first
    is "fleet: and woken" "$(paste -sd' ' first)" "cached for all"
    stop TERM
    is "fleet: the second ends well" "$status" 0
    daemon=$first_daemon port=$first_port
    is "fleet: the first goes on" "$(r ONCE.CLAIM s k)" "cached for all"
    stop TERM
    is "fleet: and ends well" "$status" 0
    psql -q "$ONCE_TEST_POSTGRES" -c "DROP SCHEMA IF EXISTS $name CASCADE" 2>/dev/null
fi

over
