#!/usr/bin/env bash
# auth.sh BUILD_DIR - tokens and TLS, with the real redis-cli, curl and openssl. Prints TAP.
#
# Nothing sleeps to let something happen: that a signal was acted on is read off the log, that a
# token has expired by asking with it. Every wait has a limit.
# shellcheck disable=SC2015
# shellcheck source=tests/e2e/shared/daemon.bash
. "$(dirname "$0")/shared/daemon.bash" auth "$1"
secrets=()

# start ARG...: a daemon with both doors, and their ports; its log goes on.
start() {
    daemon_start --listen 127.0.0.1:0 --resp 127.0.0.1:0 --log-level debug "$@"
    resp=$resp_port http=$http_port
}
# hup PATTERN: SIGHUP, until the daemon has written one more such line.
hup() {
    local before end=$((SECONDS + limit))
    before=$(grep -c "$1" err)
    kill -HUP "$daemon"
    until [ "$(grep -c "$1" err)" -gt "$before" ]; do [ $SECONDS -lt $end ] || return 1; done
}
# make_token ARG...: creates one; its text in $token.
make_token() {
    token=$("$once" token create --quiet "$@")
    secrets+=("${token:14}")
}
id_of() { printf '%s' "${1:5:8}"; }
make_pair() { # NAME
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -keyout "$1.key" \
        -out "$1.cert" -subj "/CN=$1" -addext subjectAltName=DNS:localhost,IP:127.0.0.1 2>/dev/null
}
refuse() { # NAME TEXT ARG...
    local name=$1 text=$2
    shift 2
    timeout $limit "$once" serve --listen off "$@" >refused 2>&1
    is "$name" $? 2
    like "$name: why" "$(cat refused)" "*$text*"
}

# ---- where it may listen -----------------------------------------------------------------------

make_pair first
make_pair second
make_pair cacert
refuse "another machine without tokens" "token create" --resp 0.0.0.0:0
refuse "an IPv6 address of everybody" "token create" --resp '[::]:0'
refuse "a tokens file that is not there" "No such file" --resp 127.0.0.1:0 --tokens nowhere
refuse "a certificate without a key" "--tls-key" --resp 127.0.0.1:0 --tls-cert first.cert
refuse "a key of another certificate" "is not that of" --resp 127.0.0.1:0 --tls-cert first.cert --tls-key second.key
chmod 644 cacert.key
refuse "a key that others can read" "chmod 600" --resp 127.0.0.1:0 --tls-cert cacert.cert --tls-key cacert.key
make_token --name past --expires 1h
sed -i -E 's/ 2[0-9]{3}-[^ ]* past$/ 2020-01-01T00:00:00Z past/' "$ONCE_DATA/tokens"
refuse "another machine with expired tokens only" "token create" --resp 0.0.0.0:0
make_token --name operator --verb all
operator=$token
refuse "another machine in the clear" "in the clear" --resp 0.0.0.0:0
refuse "HTTP for another machine in the clear" "in the clear" --resp off --listen 0.0.0.0:0
start --resp 0.0.0.0:0 --insecure
like "another machine in the clear, if told so" "$listening" "*resp 0.0.0.0:*"
stop
start --resp 0.0.0.0:0 --tls-cert first.cert --tls-key first.key
like "another machine over TLS" "$listening" "*resp 0.0.0.0:*"
stop
start --resp "unix:$work/socket"
is "a socket is its owner's alone" "$(stat -c %a socket)" 600
is "also there a token is needed" "$(redis-cli -s socket PING 2>&1)" "NOAUTH Authentication required."
stop

# ---- RESP --------------------------------------------------------------------------------------

make_token --name worker --scope orders --scope 'tmp:*' --verb write
worker=$token
make_token --name reader --scope orders --verb read
reader=$token
start --tls-cert first.cert --tls-key first.key
r() { # TOKEN ARG...: on a connection of its own
    local as=$1
    shift
    REDISCLI_AUTH=$as timeout $limit redis-cli --no-auth-warning --tls --cacert first.cert -h localhost -p "$resp" "$@" 2>&1 |
        paste -sd' ' | sed 's/ $//'
}
nobody() {
    timeout $limit redis-cli --tls --cacert first.cert -h localhost -p "$resp" "$@" 2>&1 | paste -sd' ' | sed 's/ $//'
}
noauth="NOAUTH Authentication required."
is "RESP: PING by nobody" "$(nobody PING)" "$noauth"
is "RESP: a claim by nobody" "$(nobody ONCE.CLAIM orders k)" "$noauth"
is "RESP: INFO by nobody" "$(nobody INFO)" "$noauth"
like "RESP: HELLO by nobody" "$(nobody HELLO 3)" "NOAUTH HELLO must be called*"
like "RESP: HELLO with a token" "$(nobody HELLO 3 AUTH default "$worker")" "server once*"
like "RESP: HELLO with a wrong one" "$(nobody HELLO 3 AUTH default wrong)" "WRONGPASS*not a token*"
is "RESP: AUTH" "$(nobody AUTH "$worker")" "OK"
is "RESP: AUTH with a name" "$(nobody AUTH worker "$worker")" "OK"
like "RESP: AUTH with a typo" "$(nobody AUTH "${worker%?}!")" "WRONGPASS*typo*"
like "RESP: AUTH with another secret" "$(nobody AUTH "$(make_token --name x --tokens other; echo "$token")")" "WRONGPASS*not known*"
is "RESP: PING" "$(r "$worker" PING)" "PONG"
got=$(r "$worker" ONCE.CLAIM orders o-1)
like "RESP: a claim in its scope" "$got" "claimed *"
owner=$(cut -d' ' -f2 <<<"$got")
like "RESP: a claim in a scope by its prefix" "$(r "$worker" ONCE.CLAIM tmp:1 k)" "claimed *"
noperm="NOPERM this token has no permissions to run"
is "RESP: a claim elsewhere" "$(r "$worker" ONCE.CLAIM others k)" "$noperm ONCE.CLAIM in this scope"
is "RESP: a claim in the prefix without more" "$(r "$worker" ONCE.CLAIM tmp k)" "$noperm ONCE.CLAIM in this scope"
is "RESP: a verb that it has not" "$(r "$worker" ONCE.PEEK orders o-1)" "$noperm ONCE.PEEK in this scope"
is "RESP: forget is in neither group" "$(r "$reader" ONCE.FORGET orders o-1)" "$noperm ONCE.FORGET in this scope"
like "RESP: publish" "$(r "$worker" ONCE.PUBLISH orders o-1 "$owner" paid)" "OK"
is "RESP: peek" "$(r "$reader" ONCE.PEEK orders o-1)" "cached paid"
is "RESP: to read is not to claim" "$(r "$reader" ONCE.CLAIM orders o-2)" "$noperm ONCE.CLAIM in this scope"
like "RESP: scan of its scope" "$(r "$reader" ONCE.SCAN 0 SCOPE orders)" "0 scope orders key o-1 *"
is "RESP: scan of everything" "$(r "$reader" ONCE.SCAN 0)" "$noperm ONCE.SCAN in this scope"
like "RESP: scan of everything by the operator" "$(r "$operator" ONCE.SCAN 0)" "0 scope orders*scope tmp:1*"
cursor=$(r "$operator" ONCE.SCAN 0 SCOPE tmp:1 COUNT 1 | cut -d' ' -f1)
r "$operator" ONCE.CLAIM secret k >/dev/null
is "RESP: foreign and unknown are the same" "$(r "$reader" ONCE.PEEK secret k)" "$(r "$reader" ONCE.PEEK secret nothing)"

# Five wrong tokens end the connection; what is behind them is not answered.
{
    for _ in 1 2 3 4 5 6 7; do printf 'AUTH wrong\r\n'; done
    printf 'AUTH %s\r\nPING\r\n' "$worker"
} >guesses
got=$(timeout $limit openssl s_client -quiet -connect "localhost:$resp" <guesses 2>/dev/null | grep -c WRONGPASS)
is "RESP: five wrong tokens end it" "$got" 5

# A stranger may not send much.
got=$(printf '*2\r\n$4\r\nECHO\r\n$100000\r\n' | timeout $limit openssl s_client -quiet -connect "localhost:$resp" 2>/dev/null)
like "RESP: a stranger's long argument" "$got" "-ERR Protocol error*"
head -c 100000 /dev/zero | tr '\0' x >long
is "RESP: a friend's is fine" "$(r "$worker" -x ECHO <long | wc -c)" 100001

# ---- HTTP --------------------------------------------------------------------------------------

h() { # TOKEN PATH ARG...: status and body
    local as=$1 path=$2
    shift 2
    timeout $limit curl -s --cacert first.cert -w '%{http_code} ' -o body -H "Authorization: Bearer $as" \
        "https://localhost:$http$path" "$@"
    cat body
}
code() { h "$@" | head -n 1 | cut -d' ' -f1; }
timeout $limit curl -s --cacert first.cert -D headers -o body "https://localhost:$http/v1/claims/orders/o-1"
like "HTTP: nobody" "$(head -n 1 headers)" "HTTP/1.1 401*"
like "HTTP: what would be asked of them" "$(grep -i '^www-authenticate' headers)" "*Bearer*"
is "HTTP: a wrong token" "$(code wrong /v1/claims/orders/o-1)" 401
like "HTTP: peek" "$(h "$reader" /v1/claims/orders/o-1)" "200 *paid*"
is "HTTP: another scope" "$(code "$reader" /v1/claims/secret/k)" 403
is "HTTP: another verb" "$(code "$reader" /v1/claims/orders/o-9 -X POST)" 403
is "HTTP: claim" "$(code "$worker" /v1/claims/orders/o-9 -X POST)" 201
got=$(h "$worker" /v1/claims/orders/o-10 -X POST) http_owner=${got#*'"token":"'} http_owner=${http_owner%%'"'*}
is "HTTP: release" "$(code "$worker" "/v1/claims/orders/o-10?token=$http_owner" -X DELETE)" 200
h "$reader" /v1/claims/secret/k >foreign
h "$reader" /v1/claims/secret/nothing >unknown
same() { sed -E 's/"(request_id|instance)": ?"[^"]*"//g' "$1"; }
is "HTTP: foreign and unknown are the same" "$(same foreign)" "$(same unknown)"
is "HTTP: a list of its scope" "$(code "$reader" '/v1/claims?scope=orders')" 200
is "HTTP: a list of another" "$(code "$reader" '/v1/claims?scope=secret')" 403
is "HTTP: a list of everything" "$(code "$reader" /v1/claims)" 403
got=$(h "$reader" '/v1/claims?scope=orders&scope=secret')
[[ $got != *'"secret"'* ]]
report $? "HTTP: two scopes are not a way in"
got=$(h "$reader" "/v1/claims?scope=orders&cursor=$cursor")
[[ $got != *tmp:1* ]]
report $? "HTTP: nor is a cursor of another scope"
got=$(h "$reader" '/v1/claims/orders%2F..%2Fsecret/k')
is "HTTP: nor is a path" "${got%% *}" 403
is "HTTP: the health of the daemon" "$(code wrong /livez)" 200
is "HTTP: metrics" "$(code "$reader" /metrics)" 403
is "HTTP: metrics for those who may" "$(code "$operator" /metrics)" 200

# ---- TLS ---------------------------------------------------------------------------------------

tls() { timeout $limit openssl s_client -connect "localhost:${port:-$resp}" -CAfile first.cert "$@" </dev/null 2>&1; }
like "TLS 1.3" "$(tls -tls1_3)" "*TLSv1.3*Verify return code: 0*"
like "TLS 1.2" "$(tls -tls1_2)" "*TLSv1.2*Verify return code: 0*"
like "TLS 1.1 is refused" "$(tls -tls1_1 -cipher DEFAULT@SECLEVEL=0)" "*alert protocol version*"
like "without forward secrecy it is refused" "$(tls -tls1_2 -cipher AES128-SHA)" "*handshake failure*"
like "no compression" "$(tls)" "*Compression: NONE*"
like "HTTP says so in the handshake" "$(port=$http tls -alpn h2,http/1.1)" "*ALPN protocol: http/1.1*"
like "HTTP does not speak h2" "$(port=$http tls -alpn h2)" "*no application protocol*"
exec 5<>"/dev/tcp/127.0.0.1/$resp"
(trap '' PIPE && printf 'PING\r\n' >&5) 2>/dev/null
timeout $limit cat <&5 2>/dev/null | grep -qa PONG
[ $? -ne 0 ]
report $? "plain RESP is not answered"
exec 5>&-
timeout $limit curl -s "http://localhost:$http/livez" -o body
[ $? -ne 0 ]
report $? "plain HTTP is not answered"
is "and the daemon goes on" "$(r "$worker" PING)" "PONG"

# ---- once itself, through the daemon -----------------------------------------------------------

via() { # URL ARG...
    local url=$1
    shift
    ONCE_URL=$url timeout $limit "$once" "$@" 2>&1 | paste -sd' '
}
trusting="localhost:$resp?ca=$work/first.cert"
is "once by TLS" "$(via "onces://$worker@$trusting" run --scope orders --key by-tls -- echo done)" "done"
is "once by TLS: again" "$(via "onces://$worker@$trusting" run --scope orders --key by-tls -- echo done)" "done"
is "once by TLS: an address" "$(via "onces://$worker@127.0.0.1:${trusting#*:}" run --scope orders --key by-tls -- echo done)" "done"
like "once by TLS: nobody" "$(via "onces://$trusting" peek orders by-tls)" "*NOAUTH*"
like "once by TLS: another scope" "$(via "onces://$worker@$trusting" claim secret k --wait 0)" "*NOPERM*"
like "once by TLS: not by whom the system trusts" "$(via "onces://$worker@localhost:$resp" claim orders x)" "*self-signed*"
like "once by TLS: another host" "$(via "onces://$worker@127.1:${trusting#*:}" claim orders x)" "*mismatch*"
like "once in the clear" "$(via "once://$worker@localhost:$resp" claim orders x)" "*closed the connection*"
head -c 500000 /dev/urandom >value
owner=$(via "onces://$worker@$trusting" claim orders large --json | sed 's/.*"token": *"\([^"]*\)".*/\1/')
ONCE_URL="onces://$worker@$trusting" timeout $limit "$once" publish --quiet orders large "$owner" - <value
ONCE_URL="onces://$operator@$trusting" timeout $limit "$once" peek --raw orders large | cmp -s - value
report $? "once by TLS: a large answer both ways"

# ---- while connected ---------------------------------------------------------------------------

# ask LINE: on the connection that is kept.
ask() {
    printf '%s\n' "$1" >&"${kept[1]}"
    local answer
    IFS= read -r -t $limit answer <&"${kept[0]}"
    printf '%s' "$answer"
}
keep() { # TOKEN: a connection as somebody, for `ask`
    coproc kept { REDISCLI_AUTH=$1 exec redis-cli --no-auth-warning --tls --cacert first.cert -h localhost -p "$resp" 2>&1; }
}
leave() {
    local pid=$kept_PID
    eval "exec ${kept[1]}>&-"
    wait "$pid" 2>/dev/null
}
keep "$reader"
is "kept: may ask" "$(ask 'ONCE.PEEK orders o-1')" "cached"
IFS= read -r -t $limit _ <&"${kept[0]}" # the value
"$once" token revoke --quiet "$(id_of "$reader")"
hup reload
is "kept: revoked, the next command is refused" "$(ask 'ONCE.PEEK orders o-1')" "$noauth"
leave
like "revoked: no more" "$(r "$reader" PING)" "*WRONGPASS*"
is "revoked: no more over HTTP" "$(code "$reader" /v1/claims/orders/o-1)" 401
is "others go on" "$(r "$worker" PING)" "PONG"

make_token --name brief --expires 1s
hup reload
keep "$token"
end=$((SECONDS + limit))
while answer=$(ask PING) && [ "$answer" = PONG ] && [ $SECONDS -lt $end ]; do :; done
is "kept: expired, it is refused" "$answer" "$noauth"
leave
like "expired: no more" "$(r "$token" PING)" "*WRONGPASS*expired*"

# ---- reloading ---------------------------------------------------------------------------------

cp "$ONCE_DATA/tokens" good
echo nonsense >"$ONCE_DATA/tokens"
hup reload
is "a broken tokens file changes nothing" "$(r "$worker" PING)" "PONG"
like "and is told" "$(cat err)" "*line 1*"
rm "$ONCE_DATA/tokens"
hup reload
is "a missing one opens no door" "$(nobody PING)" "$noauth"
install -m 600 good "$ONCE_DATA/tokens"
cp second.cert first.cert.new
subject() { tls | sed -n 's/^subject=//p'; }
like "the certificate" "$(subject)" "CN*first"
mv first.cert first.kept && mv first.cert.new first.cert
hup reload
like "a certificate without its key changes nothing" "$(subject)" "CN*first"
like "and is told, too" "$(cat err)" "*is not that of the certificate*"
cp first.key first.key.kept && cat second.key >first.key
hup reload
like "both: for those who come" "$(subject)" "CN*second"
is "and trusted by who trusts it" "$(r "$worker" PING)" "PONG"
stop

# ---- nothing leaks -----------------------------------------------------------------------------

for secret in "${secrets[@]}"; do
    grep -qF "$secret" err "$ONCE_DATA/tokens" && break
done
[ $? -ne 0 ]
report $? "no secret in logs and files"
! grep -qF -e "$owner" -e "$http_owner" err
report $? "no owner token in logs"
grep -qF "$(sed -n '3s/^[^ ]* \([^ ]*\).*/\1/p' "$ONCE_DATA/tokens")" err
[ $? -ne 0 ]
report $? "no hash of one in logs"

over
