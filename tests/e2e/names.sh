#!/usr/bin/env bash
# names.sh BUILD_DIR - servers that have a name, and a resolver that hangs: nobody waits for it but who
# needs it. Prints TAP. Wants the Redis of tests/servers.
#
# The resolver hangs until a file is there, so nothing depends on how long it does.
# shellcheck source=tests/e2e/shared/daemon.bash
. "$(dirname "$0")/shared/daemon.bash" names "$1"
: "${ONCE_TEST_REDIS:?see tests/with-servers}"
redis_port=${ONCE_TEST_REDIS##*:}
user=names$$ # whose connections are cut, and nobody else's
redis-cli -p "$redis_port" ACL SETUSER $user on '>pw' '~*' '&*' +@all >acl
coord="redis://$user:pw@localhost:$redis_port?prefix=$user"
prompt=5 # seconds, for what takes some milliseconds

${CC:-cc} -std=gnu11 -Wall -Wextra -Werror -shared -fPIC "$here/names/hang.c" -o hang.so -ldl >cc.log 2>&1
is "a resolver that hangs is built" "$(cat cc.log)" ""
printf '#!/bin/sh\nLD_PRELOAD=%s/hang.so exec %s "$@"\n' "$work" "$once" >once
chmod +x once
once=$work/once
touch resolver

start() { daemon_start --listen 127.0.0.1:0 --resp 127.0.0.1:0 --coord "$coord"; }
claim() { # KEY: the status; what is said is in the file "body"
    curl -sS -m $prompt -o body -w '%{http_code}' -X POST "http://$http/v1/claims/s/$1"
}
degraded() { jq -r .degraded body; }
until_healthy() { # KEY: until a claim of KEY0, KEY1, ... is not degraded
    local end=$((SECONDS + limit)) n=0
    until [ "$(claim "$1$n")" = 201 ] && [ "$(degraded)" = false ]; do
        [ $SECONDS -lt $end ] || return 1
        n=$((n + 1))
    done
}
remote() { # the exit status of a claim through the daemon, by its name
    timeout $limit "$once" --url "once://localhost:$resp_port?timeout_ms=500" claim s far >out 2>&1
    echo $?
}

# ---- it works ----

start
until_healthy plain
report $? "redis://localhost"
is "once://localhost" "$(remote)" 0
stop
is "it ends" $status 0

# ---- it hangs ----

rm resolver
start
like "a daemon starts" "$listening" "listening *"
is "a claim is answered" "$(claim first)" 201
is "by the ledger" "$(degraded)" true
is "and the next one" "$(claim second)" 201
is "it says that it lives" "$(curl -sS -m $prompt -o /dev/null -w '%{http_code}' "http://$http/livez")" 200
kill -TERM "$daemon"
timeout $prompt tail --pid="$daemon" -s 0.02 -f /dev/null
report $? "SIGTERM ends it"
stop KILL 2>/dev/null
is "as usual" $status 0

# ---- it comes back, and hangs again ----

start
is "a claim without Redis" "$(claim before)" 201
is "says so" "$(degraded)" true
touch resolver
until_healthy after
report $? "Redis is found when its name resolves"
rm resolver
redis-cli -p "$redis_port" CLIENT KILL USER $user >killed
until_healthy known
report $? "and found again by what was said last"
is "a command that needs a name has an end" "$(remote)" 69
stop
redis-cli -p "$redis_port" ACL DELUSER $user >acl
over
