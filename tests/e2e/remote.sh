#!/usr/bin/env bash
# remote.sh BUILD_DIR - every command through a daemon: --url and ONCE_URL. Prints TAP.
#
# The daemon is reached by TCP, with TLS and by a socket in the file system; it is killed and started again
# under a command that runs. Nothing sleeps to let something happen; every wait has a limit.
# shellcheck disable=SC2016,SC2015
# shellcheck source=tests/e2e/shared/daemon.bash
. "$(dirname "$0")/shared/daemon.bash" remote "$1"
unset ONCE_DATA
export HOME=$work/home

start() { # ADDRESS ARG...
    daemon_start --listen off --resp "$@"
}
o() { timeout $limit "$once" "$@" 2>err; }
says() { # WHAT...: what it prints, and how it ends
    local out status
    out=$(o "$@")
    status=$?
    echo "$out $status"
}

# ---- every command, by TCP and by a socket -------------------------------------------------------

commands() { # NAME
    local token
    token=$(o --json claim s k | sed -n 's/.*"token":"\([0-9a-f]*\)".*/\1/p')
    like "$1: claim" "$token" "????????????????????????????????"
    like "$1: claim of what somebody is on" "$(says --json claim s k --wait 0)" '*"in_progress"* 4'
    like "$1: an answer is as durable as the daemon's" "$(o --json claim s other)" '*"durable":true*'
    is "$1: renew" "$(says --quiet renew s k "$token")" " 0"
    is "$1: publish" "$(says --quiet publish s k "$token" answer)" " 0"
    is "$1: claim of what is done" "$(says --quiet claim s k)" $'cached\nanswer 0'
    is "$1: peek" "$(says --quiet peek s k)" "answer 0"
    is "$1: a late publish" "$(says --quiet publish s k 000102030405060708090a0b0c0d0e0f other)" "answer 5"
    token=$(o --json claim s gone | sed -n 's/.*"token":"\([0-9a-f]*\)".*/\1/p')
    is "$1: release" "$(says --quiet release s gone "$token")" " 0"
    is "$1: peek of what was released" "$(says --quiet peek s gone)" " 6"
    is "$1: another fingerprint" "$(says --quiet claim s k --fingerprint x)" " 3"
    like "$1: ls" "$(o ls s | tr -s ' ')" "*done*k*"
    is "$1: forget" "$(says --quiet forget s k)" " 0"
    is "$1: run" "$(says --quiet run --key r -- echo ran)" "ran 0"
    is "$1: run again" "$(says --quiet run --key r -- echo ran)" "ran 0"
    is "$1: run in one scope" "$(o --json ls run | grep -c '"key":"r"')" "1"
    is "$1: sweep" "$(says --quiet sweep)" "0 removed 0"
    like "$1: stats" "$(o stats | head -n 1)" "pending*1*"
    like "$1: doctor" "$(says doctor)" "*the daemon answers*claim and release*0"
    token=$(o --json claim s big | sed -n 's/.*"token":"\([0-9a-f]*\)".*/\1/p')
    head -c 1048576 /dev/urandom >big
    is "$1: publish of a mebibyte" "$(says --quiet publish s big "$token" - <big)" " 0"
    is "$1: which comes back as it was" "$(o --quiet peek s big | cmp - big && echo same)" same
    runs "$1"
}
runs() { # NAME
    local id
    id=$(o trigger mail '{"to": 1}' --key k)
    like "$1: trigger" "$id" "run_??????????????????????????"
    is "$1: trigger again" "$(says trigger mail '{"to": 1}' --key k)" "$id 0"
    is "$1: trigger of something else" "$(says trigger mail '{"to": 2}' --key k)" " 3"
    like "$1: runs ls" "$(o runs ls | tail -n 1 | tr -s ' ')" "$id QUEUED * mail k"
    like "$1: runs show" "$(o runs show "$id")" '*payload*{"to": 1}*'
    like "$1: work" "$(says --quiet work mail --once -- cat)" "* 0"
    like "$1: a run that was carried out" "$(o runs show "$id")" '*COMPLETED*output*{"to": 1}*'
    like "$1: cancel" "$(says --quiet runs cancel "$(o trigger later 1 --delay 1h)")" "*0"
}

start 127.0.0.1:0 --data tcp
port=${listening##*:}
export ONCE_URL=once://127.0.0.1:$port
commands TCP
is "a name instead of an address" "$(says --quiet --url "once://localhost:$port" run --key r -- echo ran)" "ran 0"
unset ONCE_URL
is "without it, the ledger of this directory" "$(says --quiet --data own run --key r -- echo own)" "own 0"
export ONCE_URL=once://127.0.0.1:$port

# ---- what contradicts itself ---------------------------------------------------------------------

like "a daemon and a ledger" "$(says --url "$ONCE_URL" --ledger none claim s k; cat err)" "*2*--url is a daemon*"
like "both by the environment" "$(ONCE_LEDGER=none says claim s k; cat err)" "*2*both set*"
is "a ledger on the command line is stronger" "$(says --quiet --data own run --key r -- echo own)" "own 0"
like "a daemon for a daemon" "$("$once" --url "$ONCE_URL" serve 2>&1)" "*asks no daemon*"
like "what is no daemon" "$(says --url redis://localhost claim s k; cat err)" "*2*once://host:port*"
like "TLS by a socket" "$(says --url onces:///run/s claim s k; cat err)" "*2*needs no TLS*"
like "TLS with a file that is none" "$(says --url 'onces://localhost?ca=none.pem' claim s k; cat err)" "*2*ca=*"
like "a daemon as the ledger" "$(says --ledger "$ONCE_URL" claim s k; cat err)" "*2*give it as the url*"
like "nobody is there" "$(says --url once://127.0.0.1:1 claim s k; cat err)" "*69*127.0.0.1:1: Connection refused*"
like "doctor, if nobody is there" "$(says --url once://127.0.0.1:1 doctor)" "*fail*daemon*once serve*1"

# ---- two who wait for each other, and an owner that is renewed ------------------------------------

mkfifo go
"$once" --quiet run --key slow --lease 300ms --fingerprint f -- sh -c 'echo once >>ran; read -r x <go; echo slow' >first 2>err &
client=$!
end=$((SECONDS + limit))
until [ -s ran ] || [ $SECONDS -ge $end ]; do :; done
"$once" --quiet run --key slow --lease 300ms --fingerprint f -- sh -c 'echo once >>ran; read -r x <go; echo slow' >second 2>>err &
second=$!
like "the lease is renewed through the daemon" \
    "$(says --json claim run slow --wait 1s --fingerprint f)" '*"timed_out"* 4' # three leases
echo >go
wait "$client" "$second"
is "who waited gets the answer of the one that ran" "$(cat first second ran | paste -sd' ')" "slow slow once"

# ---- the daemon is killed under a command ---------------------------------------------------------

rm -f ran
"$once" --quiet run --key killed -- sh -c 'echo once >>ran; read -r x <go; echo survived' >first 2>err &
client=$!
end=$((SECONDS + limit))
until [ -s ran ] || [ $SECONDS -ge $end ]; do :; done
stop KILL
start "127.0.0.1:$port" --data tcp
echo >go
wait "$client"
is "the daemon was killed and came back: the command ends well" $? 0
is "it has its output" "$(cat first)" survived
is "the same command gets it, too" \
    "$(says --quiet run --key killed -- sh -c 'echo once >>ran; read -r x <go; echo survived')" "survived 0"
is "it ran once" "$(cat ran)" once
stop TERM

# ---- TLS, and a token ----------------------------------------------------------------------------

certificate() { # NAME ALTERNATIVES
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=$1" \
        -addext "subjectAltName=$2" -keyout "$1.key" -out "$1.pem" >/dev/null 2>&1
}
certificate ours DNS:localhost,IP:127.0.0.1 && certificate other DNS:other.example
token=$("$once" token create --tokens tokens.txt --verb all --name test 2>err)
start 127.0.0.1:0 --data tls --tls-cert ours.pem --tls-key ours.key --tokens tokens.txt
port=${listening##*:}
export ONCE_URL="onces://$token@localhost:$port?ca=ours.pem"
commands TLS
is "TLS: by an address" "$(ONCE_URL="onces://$token@127.0.0.1:$port?ca=ours.pem" says --quiet run --key r -- echo ran)" "ran 0"
like "TLS: a certificate that nobody vouches for" \
    "$(ONCE_URL="onces://$token@localhost:$port" says claim s k; cat err)" "*69*certificate*self-signed*"
like "TLS: without a token" "$(ONCE_URL="onces://localhost:$port?ca=ours.pem" says claim s k; cat err)" "*69*NOAUTH*"
like "TLS: with another token" \
    "$(ONCE_URL="onces://nonsense@localhost:$port?ca=ours.pem" says claim s k; cat err)" "*69*WRONGPASS*"
like "TLS: asked without" "$(ONCE_URL="once://$token@localhost:$port" says claim s k; cat err)" "*69*"
stop TERM
start 127.0.0.1:0 --data tls --tls-cert other.pem --tls-key other.key --tokens tokens.txt
port=${listening##*:}
like "TLS: the certificate of somebody else" \
    "$(ONCE_URL="onces://$token@localhost:$port?ca=other.pem" says claim s k; cat err)" "*69*certificate*mismatch*"
stop TERM

start "unix:$work/once.sock" --data path
export ONCE_URL=once://$work/once.sock
commands "socket"
stop TERM
like "a socket without a daemon" "$(says claim s k; cat err)" "*69*No such file*"

echo "1..$count"
exit $((failures > 0))
