#!/usr/bin/env bash
# mutations_sql.sh BUILD_DIR - markers: the SQL door in a real PostgreSQL, directly and through PgBouncer
# in transaction mode, from psql, node (pg) and C (libpq); in SQLite from its shell; installing them,
# and the sweep. Prints TAP. Wants the servers of tests/servers (tests/with-servers ...).
#
# pg comes from the npm registry, at the version and with the checksums of mutations/package-lock.json;
# it is fetched once per build directory.
# shellcheck disable=SC2317
# shellcheck source=tests/e2e/shared/daemon.bash
. "$(dirname "$0")/shared/daemon.bash" mutations "$1"
: "${ONCE_TEST_POSTGRES:?see tests/with-servers}" "${ONCE_TEST_PGBOUNCER:?}"
source=$here/../..
here=$here/mutations
export PGCONNECT_TIMEOUT=$limit

# ---- databases of our own ------------------------------------------------------------------------

databases=()
database() { # NAME [HOW]: an empty one
    databases+=("$1")
    psql -qX "$ONCE_TEST_POSTGRES" -c "CREATE DATABASE $1 ${2-}" >>err 2>&1
}
at() { echo "${1%/*}/$2"; } # URL DATABASE
drop_databases() {
    local db
    for db in "${databases[@]}"; do
        psql -qX "$ONCE_TEST_POSTGRES" -c "DROP DATABASE IF EXISTS $db WITH (FORCE)" >/dev/null 2>&1
    done
}
trap 'drop_databases; cleanup' EXIT

query() { # URL SQL: what it returns, or its errors with their SQLSTATE
    timeout $limit psql -qXAt -v VERBOSITY=verbose "$1" -c "$2" 2>&1
}

# ---- sessions: psql that is told what to do, step by step ---------------------------------------

declare -A to=() from=() step=() client=()
session() { # NAME URL
    mkfifo "$1.in" "$1.out"
    stdbuf -oL psql -qXAt -v VERBOSITY=verbose "$2" <"$1.in" >"$1.out" 2>&1 &
    client[$1]=$!
    exec {to[$1]}>"$1.in" {from[$1]}<"$1.out"
}
tell() { # NAME SQL: without waiting for it
    step[$1]=$((${step[$1]:-0} + 1))
    printf '%s\n\\echo step %d\n' "$2" "${step[$1]}" >&"${to[$1]}"
}
heard() { # NAME: what it has said to what it was told last
    local line
    while IFS= read -r -t $limit line <&"${from[$1]}"; do
        [ "$line" != "step ${step[$1]}" ] || return 0
        echo "$line"
    done
    echo "no answer within $limit seconds"
}
ask() { # NAME SQL
    tell "$1" "$2"
    said=$(heard "$1")
}
end() { # NAME
    exec {to[$1]}>&- {from[$1]}<&-
    rm -f "$1.in" "$1.out"
}
until_so() { # SQL: asks until it is true
    local end=$((SECONDS + limit))
    until [ "$(query "$direct" "$1")" = t ]; do [ $SECONDS -lt $end ] || return 1; done
}
waiting="FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
undecided="FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())"

# ---- the functions -------------------------------------------------------------------------------

begin() { echo "SELECT once_mutation_begin($1);"; } # ARGUMENTS

answers() { # URL
    is "a new request" "$(query "$1" "BEGIN; $(begin "'u', 'a', 'm', '\x01'") COMMIT")" ""
    like "again: ON001" "$(query "$1" "$(begin "'u', 'a', 'm', '\x01'")")" "ERROR:  ON001: already_done:*HINT:*do not retry*"
    is "a duplicate writes nothing, and takes no transaction id" "$(query "$1" "BEGIN;
        DO 'BEGIN PERFORM once_mutation_begin(''u'', ''a'', ''m'', ''\x01''); EXCEPTION WHEN SQLSTATE ''ON001'' THEN NULL; END';
        SELECT pg_current_xact_id_if_assigned() IS NULL; COMMIT")" t
    like "another method: ON002" "$(query "$1" "$(begin "'u', 'a', 'n', '\x01'")")" "ERROR:  ON002: mismatch:*"
    like "no method: ON002" "$(query "$1" "$(begin "'u', 'a', NULL, '\x01'")")" "ERROR:  ON002:*"
    like "another fingerprint: ON002" "$(query "$1" "$(begin "'u', 'a', 'm', '\x02'")")" "ERROR:  ON002:*"
    is "the same request of another user" "$(query "$1" "$(begin "'v', 'a'")")" ""
    is "what is rolled back" "$(query "$1" "BEGIN; $(begin "'u', 'b'") ROLLBACK")" ""
    is "... leaves nothing" "$(query "$1" "$(begin "'u', 'b'")")" ""
    is "a savepoint rolled back" "$(query "$1" "BEGIN; SAVEPOINT s; $(begin "'u', 'c'") ROLLBACK TO s; $(begin "'u', 'c'") COMMIT")" ""
    is "an empty method and none are the same" "$(query "$1" "BEGIN; $(begin "'u', 'd', '', ''") COMMIT")" ""
    like "... so it is done" "$(query "$1" "$(begin "'u', 'd'")")" "ERROR:  ON001:*"
    like "... whichever comes again" "$(query "$1" "$(begin "'u', 'd', '', ''")")" "ERROR:  ON001:*"
    is "enter is begin, and says of which database it is, and how long the marker counts" \
        "$(query "$1" "BEGIN; SELECT e.epoch = once_mutation_epoch(), ttl_ms FROM once_mutation_enter('u', 'd2', 'm') AS e; COMMIT")" "t|3600000"
    is "... and which transaction it is" \
        "$(query "$1" "BEGIN; SELECT e.xid = pg_current_xact_id() FROM once_mutation_enter('u', 'd4') AS e; ROLLBACK")" t
    is "... no epoch if a crash may take the commit back" \
        "$(query "$1" "BEGIN; SET LOCAL synchronous_commit = off; SELECT e.epoch IS NULL FROM once_mutation_enter('u', 'd3') AS e; COMMIT")" t
    like "... ON001" "$(query "$1" "SELECT once_mutation_enter('u', 'd2', 'm')")" "ERROR:  ON001:*DETAIL:  It has left no outcome.*"
    like "... ON002" "$(query "$1" "SELECT once_mutation_enter('u', 'd2', 'n')")" "ERROR:  ON002:*"
    query "$1" "BEGIN; $(begin "'u', 'e'") SELECT once_mutation_finish('u', 'e', 'abc'); COMMIT" >/dev/null
    like "an outcome that was kept" "$(query "$1" "$(begin "'u', 'e'")")" 'ERROR:  ON001:*DETAIL:  outcome=\\x616263*'
    local mismatch
    mismatch=$(query "$1" "$(begin "'u', 'e', 'other'")")
    like "a mismatch" "$mismatch" "ERROR:  ON002:*"
    [[ $mismatch != *616263* ]]
    report $? "... does not show it"
    query "$1" "BEGIN; $(begin "'u', 'e2'") SAVEPOINT s; SELECT once_mutation_finish('u', 'e2', 'x'); SELECT once_mutation_finish('u', 'e2', 'y'); COMMIT" >/dev/null
    like "an outcome may be changed until the commit" "$(query "$1" "$(begin "'u', 'e2'")")" '*outcome=\\x79*'
}

misuse() { # URL
    local bad
    for bad in "'', 'r'" "'u', ''" "NULL, 'r'" "'u', NULL" "repeat('x', 257), 'r'" "'u', repeat('x', 257)" \
        "E'u\\n', 'r'" "'u', E'\\x7f'" "E'\\u0085', 'r'" "'u', 'r', E'\\u009f'" "'u', 'r', repeat('m', 129)" "'u', 'r', E'm\\t'" \
        "'u', 'r', NULL, decode(repeat('00', 65), 'hex')" "'u', 'r', NULL, NULL, -1" \
        "'u', 'r', NULL, NULL, 600001" "'u', 'r', NULL, NULL, NULL"; do
        like "begin($bad): ON004" "$(query "$1" "$(begin "$bad")")" "ERROR:  ON004:*HINT:*256 bytes*"
    done
    for bad in "NULL, 'r'" "'u', NULL" "'', 'r'" "'u', 'r', NULL" "'u', 'r', -1"; do
        like "look($bad): ON004" "$(query "$1" "SELECT * FROM once_mutation_look($bad)")" "ERROR:  ON004:*"
    done
    is "256 bytes each, spaces and other letters" "$(query "$1" "$(begin "repeat('ü', 128), ' ' || repeat('x', 255)")")" ""
    like "finish without begin: ON004" "$(query "$1" "SELECT once_mutation_finish('u', 'none', 'x')")" "ERROR:  ON004:*not begun*"
    query "$1" "$(begin "'u', 'f'")" >/dev/null
    like "finish of what another transaction has begun: ON004" \
        "$(query "$1" "SELECT once_mutation_finish('u', 'f', 'x')")" "ERROR:  ON004:*"
    like "an outcome that is too long: ON004" \
        "$(query "$1" "BEGIN; $(begin "'u', 'g'") SELECT once_mutation_finish('u', 'g', decode(repeat('00', 8193), 'hex'))")" "*ON004:*8193 bytes*"
    is "one that is not" \
        "$(query "$1" "BEGIN; $(begin "'u', 'g'") SELECT once_mutation_finish('u', 'g', decode(repeat('00', 8192), 'hex')); COMMIT")" ""
    like "begin twice in one transaction: ON004" \
        "$(query "$1" "BEGIN; $(begin "'u', 'h'") SAVEPOINT s; $(begin "'u', 'h'")")" "*ON004:*begun this request already*"
    is "a marker that is older than half of all transaction ids is nobody's" \
        "$(query "$1" "SELECT once_mutation_is_ours((((pg_current_xact_id()::text::bigint + 1000000) % 4294967296)::text)::xid)")" f
}

undecided() { # URL
    local now
    session A "$1"
    session B "$1"
    ask A "BEGIN; $(begin "'w', '1'")"
    tell B "BEGIN; $(begin "'w', '1', NULL, NULL, 60000")"
    until_so "SELECT count(*) = 1 $waiting"
    report $? "an undecided request is waited for"
    ask A "COMMIT;"
    like "its commit answers: ON001" "$(heard B)" "ERROR:  ON001:*"
    ask B "ROLLBACK;"

    ask A "BEGIN; $(begin "'w', '2'")"
    tell B "BEGIN; $(begin "'w', '2', NULL, NULL, 60000")"
    until_so "SELECT count(*) = 1 $waiting"
    ask A "ROLLBACK;"
    is "its rollback hands over" "$(heard B)" ""
    ask B "SHOW lock_timeout;"
    is "... lock_timeout is what it was" "$said" "0"
    ask A "BEGIN; SET LOCAL lock_timeout = 4321; $(begin "'w', '2b'") SHOW lock_timeout;"
    is "... also where nobody waits" "$said" $'\n4321ms'
    ask A "ROLLBACK;"
    tell A "BEGIN; $(begin "'w', '2', NULL, NULL, 60000")"
    until_so "SELECT count(*) = 1 $waiting"
    report $? "who was handed it is waited for in turn"
    ask B "COMMIT;"
    like "... ON001" "$(heard A)" "ERROR:  ON001:*"
    ask A "ROLLBACK;"

    ask A "BEGIN; $(begin "'w', '3'")"
    now=$(date +%s%N)
    ask B "BEGIN; $(begin "'w', '3', NULL, NULL, 200")"
    like "undecided after lock_ms: ON003" "$said" "ERROR:  ON003: in_progress:*HINT:*retry in a new transaction*"
    [ $((($(date +%s%N) - now) / 1000000)) -ge 200 ]
    report $? "... and not before"
    ask B "ROLLBACK; BEGIN; $(begin "'w', '3', NULL, NULL, 0")"
    like "lock_ms 0 does not wait: ON003" "$said" "*ERROR:  ON003:*"
    ask B "ROLLBACK; BEGIN; $(begin "'w2', '3', NULL, NULL, 0")"
    is "the same request of another user is not waited for" "$said" ""
    ask B "ROLLBACK; SELECT count(*) FROM once_mutation_look('w', '3', 200);"
    like "who looks waits, too: ON003" "$said" "*ERROR:  ON003:*"
    ask A "COMMIT;"
    ask B "SELECT count(*) FROM once_mutation_look('w', '3', 200);"
    is "... and then sees it" "$said" "1"
    end A
    end B
}

# in_time NAME SINCE: 1200 ms of waiting, which nobody does unasked, and not as long as the other
# transaction takes
in_time() {
    local took=$((($(date +%s%N) - $2) / 1000000))
    [ $took -ge 1200 ] && [ $took -lt $((limit * 500)) ]
    report $? "$1 ($took ms)"
}

# Those who hold no lock that has the name of the request are waited for no longer than anybody else.
nameless() { # URL
    local now
    session A "$1"
    session B "$1"
    query "$direct" "INSERT INTO once_mutations (user_id, request_id, created_at) VALUES ('k', '1', clock_timestamp() - interval '2 hours')"
    ask A "BEGIN; SELECT once_mutation_sweep(100000) > 0;"
    is "an undecided sweep" "$said" t
    now=$(date +%s%N)
    ask B "BEGIN; $(begin "'k', '1', NULL, NULL, 1200")"
    like "... of this marker, after lock_ms: ON003" "$said" "ERROR:  ON003:*"
    in_time "... and neither before nor long after" "$now"
    ask B "ROLLBACK; BEGIN; SET LOCAL lock_timeout = 1; $(begin "'k', '1', NULL, NULL, 200")"
    like "... whatever lock_timeout is: ON003" "$said" "*ERROR:  ON003:*"
    tell B "ROLLBACK; BEGIN; $(begin "'k', '1', NULL, NULL, 60000")"
    until_so "SELECT count(*) = 1 $undecided"
    report $? "... it is waited for"
    ask A "COMMIT;"
    is "... and then the marker is new" "$(heard B)" ""
    ask B "SHOW lock_timeout;"
    is "... lock_timeout is what it was" "$said" 0
    ask B "ROLLBACK;"

    ask A "BEGIN; SELECT count(*) FROM once_mutation_begin_many(ARRAY['k', 'k'], ARRAY['2', '3']);"
    now=$(date +%s%N)
    ask B "BEGIN; $(begin "'k', '2', NULL, NULL, 1200")"
    like "an undecided batch, after lock_ms: ON003" "$said" "ERROR:  ON003:*"
    in_time "... and neither before nor long after" "$now"
    ask B "ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ; $(begin "'k', '2', NULL, NULL, 200")"
    like "... at REPEATABLE READ: ON003" "$said" "*ERROR:  ON003:*"
    tell B "ROLLBACK; BEGIN; $(begin "'k', '2', NULL, NULL, 60000")"
    until_so "SELECT count(*) = 1 $undecided"
    ask A "ROLLBACK;"
    is "... its rollback hands over" "$(heard B)" ""
    ask B "COMMIT;"

    ask A "BEGIN; LOCK TABLE once_mutations;"
    now=$(date +%s%N)
    ask B "BEGIN; SELECT count(*) FROM once_mutation_look('k', '4', 1200);"
    like "the table is locked: who looks, after lock_ms: ON003" "$said" "ERROR:  ON003:*"
    in_time "... and neither before nor long after" "$now"
    ask B "ROLLBACK; BEGIN; $(begin "'k', '4', NULL, NULL, 200")"
    like "... and who begins" "$said" "*ERROR:  ON003:*"
    ask A "ROLLBACK;"
    ask B "ROLLBACK; BEGIN; SET LOCAL lock_timeout = 4321; SELECT count(*) FROM once_mutation_look('k', '4', 200); SHOW lock_timeout; COMMIT;"
    is "... lock_timeout is what it was" "$said" $'0\n4321ms'
    end A
    end B
}

# crossed NAME A1 B1 A2 B2: each of two has what the other one waits for; B finds that out
crossed() {
    ask A "BEGIN; SET LOCAL deadlock_timeout = '60s'; $2"
    ask B "BEGIN; SET LOCAL deadlock_timeout = 10; $3"
    tell A "$4"
    until_so "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())"
    ask B "$5"
    like "a deadlock, $1: ON003" "$said" "ERROR:  ON003:*"
    ask B "ROLLBACK;"
    heard A >/dev/null
    ask A "ROLLBACK;"
}
deadlocks() { # URL
    local many="SELECT count(*) FROM once_mutation_begin_many" patient="NULL, NULL, 60000"
    session A "$1"
    session B "$1"
    crossed "of two that begin" "$(begin "'c', '1'")" "$(begin "'c', '2'")" "$(begin "'c', '2', $patient")" "$(begin "'c', '1', $patient")"
    crossed "with a batch" "$many(ARRAY['c'], ARRAY['1']);" "$(begin "'c', '2'")" \
        "$many(ARRAY['c'], ARRAY['2'], lock_ms => 60000);" "$(begin "'c', '1', $patient")"
    crossed "of a batch" "$(begin "'c', '1'")" "$many(ARRAY['c'], ARRAY['2']);" \
        "$(begin "'c', '2', $patient")" "$many(ARRAY['c'], ARRAY['1'], lock_ms => 60000);"
    query "$direct" "INSERT INTO once_mutations (user_id, request_id, created_at) VALUES ('c', 'old', clock_timestamp() - interval '2 hours')"
    local row="FROM once_mutations WHERE user_id = 'c' FOR UPDATE;"
    crossed "about an expired one" "SELECT 1 $row" "$(begin "'c', '2'")" "$(begin "'c', '2', $patient")" "$(begin "'c', 'old', $patient")"
    ask A "BEGIN; SELECT 1 $row"
    ask B "BEGIN; $(begin "'c', 'old', NULL, NULL, 0")"
    like "an expired one that somebody has locked, after lock_ms: ON003" "$said" "ERROR:  ON003:*"
    tell B "ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ; $(begin "'c', 'old', $patient")"
    until_so "SELECT count(*) = 1 $undecided"
    ask A "UPDATE once_mutations SET method = 'm' WHERE user_id = 'c'; COMMIT;"
    like "... and has changed, which a snapshot cannot see: ON003" "$(heard B)" "*ERROR:  ON003:*"
    ask A "BEGIN; SELECT 1 $row"
    tell B "ROLLBACK; BEGIN; $(begin "'c', 'old', $patient")"
    until_so "SELECT count(*) = 1 $undecided"
    ask A "$many(ARRAY['c'], ARRAY['old']); COMMIT;"
    like "... and has taken over: ON001" "$(heard B)" "ERROR:  ON001:*"
    ask B "ROLLBACK;"
    end A
    end B
}

# killed NAME: the client, with its connection; nobody ends its transaction but the server
killed() {
    kill -KILL "${client[$1]}"
    wait "${client[$1]}" 2>/dev/null
    end "$1"
}
clients_killed() { # URL
    session A "$1"
    ask A "BEGIN; $(begin "'dead', '1'")"
    killed A
    is "kill -9 of the client before COMMIT hands over" "$(query "$1" "$(begin "'dead', '1', NULL, NULL, 60000")")" ""
    session A "$1"
    ask A "BEGIN; $(begin "'dead', '2'") COMMIT;"
    killed A
    like "kill -9 of the client after COMMIT: ON001" "$(query "$1" "$(begin "'dead', '2'")")" "ERROR:  ON001:*"
}

storm() { # URL
    local i clients=()
    session A "$1"
    ask A "BEGIN; $(begin "'s', '1'")"
    for i in $(seq 30); do
        query "$1" "$(begin "'s', '1', NULL, NULL, 60000")" >"storm.$i" &
        clients+=($!)
    done
    until_so "SELECT count(*) = 1 $waiting"
    report $? "a storm of 30 retries: one waits"
    local end=$((SECONDS + limit)) refused=0
    while [ $SECONDS -lt $end ] && [ "$refused" -lt 29 ]; do refused=$(cat storm.* | grep -c 'ON003:.*another one waits'); done
    is "... and 29 are told so at once" "$refused" 29
    is "... still one" "$(query "$direct" "SELECT count(*) $waiting")" 1
    ask A "ROLLBACK;"
    wait "${clients[@]}"
    is "... which gets it in the end" "$(query "$direct" "SELECT count(*) FROM once_mutations WHERE user_id = 's'")" 1
    end A
    rm storm.*
}

isolation() { # URL LEVEL
    session A "$1"
    ask A "BEGIN ISOLATION LEVEL $2; SELECT count(*) FROM once_mutations WHERE user_id = 'i';"
    query "$1" "$(begin "'i', '$2'")" >/dev/null
    ask A "$(begin "'i', '$2'")"
    like "$2: a marker that its snapshot cannot see: ON003" "$said" "ERROR:  ON003:*"
    ask A "ROLLBACK; BEGIN ISOLATION LEVEL $2; $(begin "'i', '$2'")"
    like "... a new transaction knows: ON001" "$said" "*ERROR:  ON001:*"
    ask A "ROLLBACK; BEGIN ISOLATION LEVEL $2; $(begin "'i', '$2 new'") COMMIT;"
    is "... a new request" "$said" ""
    session B "$1"
    ask A "BEGIN ISOLATION LEVEL $2; $(begin "'i', '$2 waits'")"
    tell B "BEGIN ISOLATION LEVEL $2; $(begin "'i', '$2 waits', NULL, NULL, 60000")"
    until_so "SELECT count(*) = 1 $waiting"
    ask A "COMMIT;"
    like "... waited for, and committed: ON003" "$(heard B)" "ERROR:  ON003:*"
    ask B "ROLLBACK;"
    ask A "BEGIN; $(begin "'i', '$2 is looked for'")"
    tell B "BEGIN ISOLATION LEVEL $2; SELECT count(*) FROM once_mutation_look('i', '$2 is looked for', 60000);"
    until_so "SELECT count(*) = 1 $waiting"
    ask A "COMMIT;"
    like "... who looks is not told that there is none: ON003" "$(heard B)" "ERROR:  ON003:*"
    ask B "ROLLBACK; BEGIN ISOLATION LEVEL $2; SELECT count(*) FROM once_mutation_look('i', '$2 is looked for');"
    is "... a new transaction sees it" "$said" "1"
    ask B "ROLLBACK; BEGIN ISOLATION LEVEL $2; SELECT count(*) FROM once_mutation_look('i', 'nobody has it'); COMMIT; SELECT count(*) FROM once_mutations WHERE request_id = 'nobody has it';"
    is "... and one that is not there, and is not left there" "$said" $'0\n0'
    query "$direct" "INSERT INTO once_mutations (user_id, request_id, created_at) VALUES ('i', 'swept', clock_timestamp() - interval '2 hours')"
    ask B "BEGIN ISOLATION LEVEL $2; SELECT 1;"
    query "$direct" "SELECT once_mutation_sweep(100)" >/dev/null
    ask B "SELECT once_mutation_sweep(100); COMMIT;"
    is "... a sweep leaves to others what they have had since" "$said" 0
    end A
    end B
}

expired() { # URL
    query "$1" "BEGIN; $(begin "'x', '1', 'old', '\x01', 1000, '\xaa'") SELECT once_mutation_finish('x', '1', 'old'); COMMIT" >/dev/null
    is "a marker has the time of the statement, not that of the transaction" \
        "$(query "$1" "BEGIN; $(begin "'x', '0'") SELECT created_at > now() FROM once_mutations WHERE user_id = 'x' AND request_id = '0'; ROLLBACK")" $'\nt'
    query "$direct" "UPDATE once_mutations SET created_at = created_at - interval '59 minutes' WHERE user_id = 'x'"
    like "a marker counts until its time is over" "$(query "$1" "$(begin "'x', '1', 'old', '\x01'")")" "ERROR:  ON001:*"
    query "$direct" "UPDATE once_mutations SET created_at = created_at - interval '1 minute' WHERE user_id = 'x'"
    is "expired, it counts for nothing before any sweep" "$(query "$1" "$(begin "'x', '1', 'new', '\x02', 1000, '\xbb'")")" ""
    is "... and is a new one" "$(query "$1" "SELECT method, fingerprint, attempt, outcome IS NULL, created_at > clock_timestamp() - interval '1 minute' FROM once_mutations WHERE user_id = 'x'")" 'new|\x02|\xbb|t|t'
    is "... that the statement judges, and not the transaction" \
        "$(query "$1" "BEGIN; UPDATE once_mutations SET created_at = now() - interval '1 hour' + interval '1 microsecond' WHERE user_id = 'x'; $(begin "'x', '1'") ROLLBACK")" ""
    query "$direct" "UPDATE once_mutations SET created_at = created_at - interval '2 hours' WHERE user_id = 'x'"
    is "... a rollback brings the expired one back" "$(query "$1" "BEGIN; $(begin "'x', '1', 'newer'") ROLLBACK; SELECT method FROM once_mutations WHERE user_id = 'x'")" $'\nnew'
    is "... lock_timeout is what it was" "$(query "$1" "BEGIN; SET LOCAL lock_timeout = 4321; $(begin "'x', '1', 'newer'") SHOW lock_timeout; ROLLBACK")" $'\n4321ms'
    is "... who looks does not see it" "$(query "$1" "SELECT count(*) FROM once_mutation_look('x', '1')")" 0
}

many() { # URL
    local new="SELECT string_agg(n::text, ' ' ORDER BY n) FROM once_mutation_begin_many"
    is "many: those that are new" "$(query "$1" "$new(ARRAY['m','m','n'], ARRAY['3','1','2']) AS n")" "1 2 3"
    is "... duplicates, inside and outside" "$(query "$1" "$new(ARRAY['m','m','m','m'], ARRAY['4','1','5','4']) AS n")" "1 3"
    is "... with methods and fingerprints" "$(query "$1" "$new(ARRAY['m'], ARRAY['6'], ARRAY['M'], ARRAY['\x01'::bytea]) AS n")" "1"
    like "... which are compared" "$(query "$1" "$(begin "'m', '6', 'N', '\x01'")")" "ERROR:  ON002:*"
    query "$direct" "UPDATE once_mutations SET created_at = created_at - interval '2 hours' WHERE user_id = 'm' AND request_id = '5'"
    is "... expired ones are new" "$(query "$1" "$new(ARRAY['m','m'], ARRAY['4','5']) AS n")" "2"
    query "$1" "BEGIN; $(begin "'m', '7', 'old', '\x01', 1000, '\xaa'") SELECT once_mutation_finish('m', '7', 'old'); COMMIT" >/dev/null
    query "$direct" "UPDATE once_mutations SET created_at = created_at - interval '2 hours' WHERE user_id = 'm' AND request_id = '7'"
    is "... which keep nothing of what they were" "$(query "$1" "$new(ARRAY['m'], ARRAY['7'], ARRAY['new'], ARRAY['\x02'::bytea]) AS n; SELECT method, fingerprint, attempt IS NULL, outcome IS NULL FROM once_mutations WHERE user_id = 'm' AND request_id = '7'")" $'1\nnew|\\x02|t|t'
    is "... none at all" "$(query "$1" "SELECT count(*) FROM once_mutation_begin_many('{}', '{}')")" 0
    like "... of different lengths: ON004" "$(query "$1" "$new(ARRAY['m'], ARRAY['1','2']) AS n")" "ERROR:  ON004:*lengths*"
    like "... with a null: ON004" "$(query "$1" "$new(ARRAY['m', NULL], ARRAY['1','2']) AS n")" "ERROR:  ON004:*"
    session A "$1"
    session B "$1"
    ask A "BEGIN; SELECT count(*) FROM once_mutation_begin_many(ARRAY['q','q'], ARRAY['1','2']);"
    tell B "SELECT count(*) FROM once_mutation_begin_many(ARRAY['q','q','q'], ARRAY['2','1','3'], lock_ms => 60000);"
    until_so "SELECT count(*) = 1 $undecided"
    report $? "... undecided ones are waited for"
    ask A "COMMIT;"
    is "... in one order, so without a deadlock" "$(heard B)" "1"
    ask A "BEGIN; $(begin "'q', '4'")"
    local now
    now=$(date +%s%N)
    ask B "BEGIN; SELECT count(*) FROM once_mutation_begin_many(ARRAY['q'], ARRAY['4'], lock_ms => 1200);"
    like "... no longer than lock_ms: ON003" "$said" "ERROR:  ON003:*"
    in_time "... and neither before nor long after" "$now"
    ask B "ROLLBACK; BEGIN; SELECT count(*) FROM once_mutation_begin_many(ARRAY['q'], ARRAY['4']);"
    like "... nor for ever if nothing is said: ON003" "$said" "*ERROR:  ON003:*"
    ask B "ROLLBACK; SELECT count(*) FROM once_mutation_begin_many(ARRAY['q'], ARRAY['5'], lock_ms => -1);"
    like "... lock_ms is from 0: ON004" "$said" "*ERROR:  ON004:*"
    ask B "BEGIN; SET LOCAL lock_timeout = 4321; SELECT count(*) FROM once_mutation_begin_many(ARRAY['q'], ARRAY['6'], lock_ms => 7); SHOW lock_timeout;"
    is "... lock_timeout is what it was" "$said" $'1\n4321ms'
    ask B "ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM once_mutations WHERE user_id = 'q';"
    ask A "COMMIT;"
    ask B "SELECT count(*) FROM once_mutation_begin_many(ARRAY['q'], ARRAY['4']);"
    like "... which a snapshot cannot see: ON003" "$said" "ERROR:  ON003:*"
    ask B "ROLLBACK; SELECT count(*) FROM once_mutation_begin_many(ARRAY['q'], ARRAY['4']);"
    is "... a new transaction knows" "$said" 0
    end A
    end B
}

# Of two that want the same ones the later waits for the first of them, with none of the others.
ordered() { # URL
    local many="SELECT count(*) FROM once_mutation_begin_many" those
    query "$1" "$(begin "'o', '0'")" >/dev/null
    session A "$1"
    session B "$1"
    session C "$1"
    for those in "ARRAY['o','o','o'], ARRAY['3','2','1']" "ARRAY['o','o','o','o'], ARRAY['3','2','1','0']"; do
        ask C "BEGIN; $(begin "'o', '2'")"
        tell A "BEGIN; $many(ARRAY['o','o','o'], ARRAY['1','2','3'], lock_ms => 60000);"
        until_so "SELECT count(*) = 1 $undecided"
        tell B "BEGIN; $many($those, lock_ms => 60000);"
        until_so "SELECT count(*) = 2 $undecided"
        ask C "ROLLBACK;"
        is "two batches that meet half-way, ${those##* }: the first goes on" "$(heard A)" 3
        ask A "ROLLBACK;"
        is "... and then the other" "$(heard B)" 3
        ask B "ROLLBACK;"
    done
    end A
    end B
    end C
}

sweeps() { # URL
    query "$direct" "DELETE FROM once_mutations; INSERT INTO once_mutations (user_id, request_id, created_at) SELECT 'old', i, clock_timestamp() - interval '1 hour' - i * interval '1 second' FROM generate_series(1, 3000) AS i; INSERT INTO once_mutations (user_id, request_id) VALUES ('new', '1')" >/dev/null
    like "a sweep of fewer than none: ON004" "$(query "$1" "SELECT once_mutation_sweep(-1)")" "ERROR:  ON004:*"
    like "... of who knows how many: ON004" "$(query "$1" "SELECT once_mutation_sweep(NULL)")" "ERROR:  ON004:*"
    is "how long the oldest has waited" "$(query "$1" "SELECT once_mutation_oldest() BETWEEN 2999 AND 3100")" t
    session A "$1"
    session B "$1"
    ask A "BEGIN; SELECT once_mutation_sweep(1000);"
    is "two sweeps at once: the first takes 1000" "$said" 1000
    ask A "SELECT once_mutation_oldest() BETWEEN 1999 AND 2100;"
    is "... the oldest" "$said" t
    ask B "BEGIN; SELECT once_mutation_sweep(1500);"
    is "... the other skips those, and takes 1500" "$said" 1500
    ask A "COMMIT;"
    ask B "COMMIT; SELECT once_mutation_sweep(1000);"
    is "... 500 are left" "$said" 500
    ask B "SELECT once_mutation_sweep(1000), once_mutation_oldest();"
    is "... then none" "$said" "0|0"
    is "what has not expired stays" "$(query "$1" "SELECT user_id FROM once_mutations")" new
    end A
    end B
}

door() { # NAME URL: all of it
    suite="mutations: $1"
    answers "$2"
    misuse "$2"
    undecided "$2"
    nameless "$2"
    deadlocks "$2"
    clients_killed "$2"
    storm "$2"
    isolation "$2" "REPEATABLE READ"
    isolation "$2" "SERIALIZABLE"
    expired "$2"
    many "$2"
    ordered "$2"
    sweeps "$2"
    suite=mutations
}

# ---- installing ----------------------------------------------------------------------------------

db=mutations_$$
database $db
direct=$(at "$ONCE_TEST_POSTGRES" $db)

for i in 1 2 3 4 5 6 7 8; do
    timeout $limit "$once" --ledger "$direct" migrate --mutations >"migrate.$i" 2>&1 &
    eight[i]=$!
done
failed=0
for i in 1 2 3 4 5 6 7 8; do wait "${eight[i]}" || failed=$((failed + 1)); done
is "eight install them at once" $failed 0
is "... and one table is there" "$(query "$direct" "SELECT count(*) FROM pg_class WHERE relname LIKE 'once_mutations' AND relkind = 'r'")" 1
like "again: nothing to do" "$(timeout $limit "$once" --ledger "$direct" migrate --mutations)" "*nothing to do"
query "$direct" "CREATE SCHEMA hides" >/dev/null
like "the script where it would hide those that are there: ON004" \
    "$(echo "SET search_path = hides, public;" | cat - "$source/src/store/markers/postgres.sql" | psql -qX -v VERBOSITY=verbose "$direct" 2>&1)" \
    "*ON004:*markers in schema public, which schema hides would hide*HINT:*SET search_path*"
echo "SET search_path = hides;" | cat - "$source/src/store/markers/postgres.sql" | psql -qX -v ON_ERROR_STOP=1 "$direct" >out 2>err
report $? "... beside them it may be"
session A "$direct"
ask A "BEGIN; SELECT hides.once_mutation_begin('u', '1');"
is "... and they do not wait for each other" "$(query "$direct" "BEGIN; SELECT once_mutation_begin('u', '1', NULL, NULL, 0); ROLLBACK")" ""
ask A "ROLLBACK;"
end A
query "$direct" "SET client_min_messages = warning; DROP SCHEMA hides CASCADE" >/dev/null
epoch=$(query "$direct" "SELECT once_mutation_epoch()")
is "when they were written is indexed" "$(query "$direct" "SELECT count(*) FROM pg_indexes WHERE tablename = 'once_mutations' AND indexdef LIKE '%(created_at)'")" 1
timeout $limit "$once" --ledger "$direct" migrate --mutations --ttl 2h >out 2>err
query "$direct" "COMMENT ON TABLE once_mutations IS 'markers of once, version 1'"
like "an older version is brought up to date" "$(timeout $limit "$once" --ledger "$direct" migrate --mutations)" "the markers had version 1*: version 3, *00 s"
psql -qX -v ON_ERROR_STOP=1 "$direct" -f "$source/src/store/markers/postgres.sql" >out 2>err
report $? "the script, as it stands, on top of it"
is "... says nothing" "$(cat out err)" ""
is "... and leaves the epoch" "$(query "$direct" "SELECT once_mutation_epoch()")" "$epoch"
is "... and how long they count" "$(query "$direct" "SELECT once_mutation_ttl()")" 02:00:00
timeout $limit "$once" --ledger "$direct" migrate --mutations --ttl 1h >out 2>err
timeout $limit "$once" --ledger "$direct" migrate --mutations --partitions 4 >out 2>err
report $((!$?)) "partitions of a table that is there are refused"
like "... with what to do" "$(cat err)" "*stays as it is*how to move its rows*"
timeout $limit "$once" --ledger "$direct" migrate --mutations --ttl 10ms >out 2>err
report $((!$?)) "a TTL of less than a second is refused"
timeout $limit "$once" --ledger "$direct" migrate --mutations --ttl 0 >out 2>err
report $((!$?)) "... and one of none at all"
timeout $limit "$once" --ledger "$direct" migrate --ttl 1h >out 2>err
report $((!$?)) "--ttl without --mutations is refused"

# ---- odd names, texts, sessions ------------------------------------------------------------------

script_into() { # SEARCH_PATH: the script, as psql does it
    echo "SET search_path = $1;" | cat - "$source/src/store/markers/postgres.sql" | psql -qX -v VERBOSITY=verbose -v ON_ERROR_STOP=1 "$direct" 2>&1
}
odd_schema='"My Sch'"'"'%ema"'
query "$direct" "CREATE SCHEMA $odd_schema; CREATE SCHEMA tenants; CREATE SCHEMA \"Tenants\"" >/dev/null
is "a schema with an odd name" "$(script_into "$odd_schema")" ""
is "... works" "$(query "$direct" "SELECT $odd_schema.once_mutation_begin('u', '1')")" ""
like "... and again: ON001" "$(query "$direct" "SELECT $odd_schema.once_mutation_begin('u', '1')")" "ERROR:  ON001:*"
is "a schema beside one whose name differs by a capital" "$(script_into tenants)" ""
like "... would hide it: ON004" "$(script_into '"Tenants", tenants')" "*ON004:*markers in schema tenants, which schema \"Tenants\" would hide*"
query "$direct" "SET client_min_messages = warning; DROP SCHEMA $odd_schema, tenants, \"Tenants\" CASCADE" >/dev/null

query "$direct" "CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
    CREATE TABLE asked (user_id text COLLATE \"en-x-icu\", request_id text COLLATE folded); INSERT INTO asked VALUES ('Ü', 'x')" >/dev/null
of_asked() { query "$direct" "$1 FROM asked"; }
is "texts of another collation" "$(of_asked "SELECT once_mutation_begin(user_id, request_id, user_id)")" ""
like "... again: ON001" "$(of_asked "SELECT once_mutation_begin(user_id, request_id, user_id)")" "ERROR:  ON001:*"
is "... in a batch" "$(query "$direct" "SELECT count(*) FROM asked, once_mutation_begin_many(ARRAY[user_id], ARRAY[request_id], ARRAY[user_id])")" 0
is "... are looked for" "$(of_asked "SELECT (once_mutation_look(user_id, request_id)).method")" Ü
is "... and finished" "$(of_asked "SELECT once_mutation_begin(request_id, user_id), once_mutation_finish(request_id, user_id, 'x')")" "|"
is "... as bytes: another case is another request" "$(query "$direct" "BEGIN; SELECT once_mutation_begin('ü', 'X'); ROLLBACK")" ""
query "$direct" "DROP TABLE asked; DROP COLLATION folded" >/dev/null

query "$direct" "BEGIN; $(begin "'u', 'kept'") SELECT once_mutation_finish('u', 'kept', 'abc'); COMMIT" >/dev/null
like "strings with backslashes: the outcome is told as ever" \
    "$(query "$direct" "SET escape_string_warning = off; SET standard_conforming_strings = off; SELECT once_mutation_begin('u', 'kept')")" '*DETAIL:  outcome=\\x616263*'
like "... and control characters are refused" \
    "$(query "$direct" "SET escape_string_warning = off; SET standard_conforming_strings = off; SELECT once_mutation_begin('u', E'\\u0085')")" "ERROR:  ON004:*"

query "$direct" "CREATE ROLE ${db}_blind; GRANT SELECT, INSERT, UPDATE ON once_mutations TO ${db}_blind; CREATE UNIQUE INDEX one_of_a_user ON once_mutations (user_id) WHERE user_id = 'single';
    ALTER TABLE once_mutations ENABLE ROW LEVEL SECURITY; CREATE POLICY others ON once_mutations USING (request_id <> 'hidden')" >/dev/null
query "$direct" "$(begin "'single', 'hidden'")" >/dev/null
now=$(date +%s%N)
like "what cannot be seen is not waited for for ever: ON003" "$(query "$direct" "SET ROLE ${db}_blind; SELECT once_mutation_begin('single', 'new', NULL, NULL, 1200)")" "ERROR:  ON003:*cannot be seen*"
in_time "... and neither before nor long after" "$now"
query "$direct" "DROP POLICY others ON once_mutations; ALTER TABLE once_mutations DISABLE ROW LEVEL SECURITY; DROP INDEX one_of_a_user; DROP OWNED BY ${db}_blind; DROP ROLE ${db}_blind; DELETE FROM once_mutations" >/dev/null

database ${db}_ascii "ENCODING SQL_ASCII LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
ascii=$(at "$ONCE_TEST_POSTGRES" ${db}_ascii)
timeout $limit "$once" --ledger "$ascii" migrate --mutations >out 2>err
report $? "a database that knows bytes only"
is "... takes all letters" "$(query "$ascii" "SELECT once_mutation_begin('Ü', '日')")" ""
like "... and no control characters: ON004" "$(query "$ascii" "SELECT once_mutation_begin('u', E'\\x7f')")" "ERROR:  ON004:*"

# ---- the door, directly, pooled, and on partitions -----------------------------------------------

door direct "$direct"
query "$direct" "DELETE FROM once_mutations" >/dev/null
door pgbouncer "$(at "$ONCE_TEST_PGBOUNCER" $db)"

parted=${db}_parted
database $parted
direct=$(at "$ONCE_TEST_POSTGRES" $parted)
printf "SET once.partitions = '8';\nSET once.ttl = '1 hour';\n" | cat - "$source/src/store/markers/postgres.sql" |
    psql -qX -v ON_ERROR_STOP=1 "$direct" >out 2>err
report $? "the script with partitions"
is "... eight of them" "$(query "$direct" "SELECT count(*) FROM pg_inherits WHERE inhparent = 'once_mutations'::regclass")" 8
like "migrate agrees" "$(timeout $limit "$once" --ledger "$direct" migrate --mutations --partitions 8)" "*nothing to do"
door partitions "$direct"
is "rows are in several partitions" "$(query "$direct" "SELECT count(once_mutation_begin('user ' || i, 'r')) FROM generate_series(1, 100) AS i; SELECT count(DISTINCT tableoid) > 4 FROM once_mutations")" $'100\nt'

# ---- somebody who may do no more than he needs ----------------------------------------------------

direct=$(at "$ONCE_TEST_POSTGRES" $db)
query "$direct" "CREATE ROLE ${db}_app; GRANT SELECT, INSERT, UPDATE ON once_mutations TO ${db}_app" >/dev/null
is "a role with SELECT, INSERT and UPDATE begins and finishes" \
    "$(query "$direct" "SET ROLE ${db}_app; BEGIN; $(begin "'role', '1'") SELECT once_mutation_finish('role', '1', 'x'); COMMIT")" ""
like "... and is told of duplicates" "$(query "$direct" "SET ROLE ${db}_app; $(begin "'role', '1'")")" "*ON001:*"
elsewhere="CREATE TEMP TABLE once_mutations (x integer); SET search_path = pg_temp; BEGIN"
is "another search_path does not matter" "$(query "$direct" "$elsewhere; SELECT public.once_mutation_begin('path', '1'); SELECT public.once_mutation_finish('path', '1', 'x'); COMMIT")" ""
is "... nor where more is asked" "$(query "$direct" "$elsewhere; SELECT (public.once_mutation_enter('path', '2')).epoch = public.once_mutation_epoch()")" t
query "$direct" "DROP OWNED BY ${db}_app; DROP ROLE ${db}_app" >/dev/null

# sweeper DATABASE: one with what docs/mutations.md says; what it sweeps
sweeper() {
    local url
    url=$(at "$ONCE_TEST_POSTGRES" "$1")
    psql -qXAt -v ON_ERROR_STOP=1 "$url" >/dev/null <<END
CREATE ROLE sweeper_$$;
GRANT USAGE ON SCHEMA public TO sweeper_$$;
GRANT SELECT, UPDATE, DELETE ON once_mutations TO sweeper_$$;
$(sed -n "/^SELECT format('GRANT/,/gexec$/p" "$source/docs/mutations.md" | sed "s/TO sweeper/TO sweeper_$$/; s/tenants\\.//")
INSERT INTO once_mutations (user_id, request_id, created_at) SELECT 'old ' || i, 'r', clock_timestamp() - interval '2 hours' FROM generate_series(1, 100) AS i;
END
    query "$url" "SET ROLE sweeper_$$; SELECT once_mutation_oldest() > 0, once_mutation_sweep(1000)"
    query "$url" "DROP OWNED BY sweeper_$$; DROP ROLE sweeper_$$" >/dev/null
}
query "$direct" "DELETE FROM once_mutations" >/dev/null
is "a role with SELECT, UPDATE and DELETE sweeps" "$(sweeper $db)" "t|100"
is "... partitions, with the same on each" "$(sweeper $parted)" "t|100"

# ---- from C and from node ------------------------------------------------------------------------

same_lines() { # NAME WANT GOT: one result per line
    local n=0 want got
    while IFS= read -r want; do
        n=$((n + 1))
        got=$(sed -n "${n}p" "$3")
        is "$1: $want" "$got" "$want"
    done <"$2"
}
query "$direct" "CREATE TABLE items (id integer PRIMARY KEY, used integer NOT NULL); INSERT INTO items VALUES (1, 0), (2, 0)" >/dev/null

# shellcheck disable=SC2046
${CC:-cc} -std=gnu11 -Wall -Wextra -Werror "$here/libpq.c" -o libpq $(pkg-config --cflags --libs libpq) >cc.log 2>&1
report $? "libpq: the program is built"
sed 's/^/# /' cc.log
timeout $limit ./libpq "$direct" >got 2>&1
cat >want <<'END'
first: done
again: ON001
another method: ON002
no request: ON004
used: 1
END
same_lines libpq want got

node -e '
const { readFileSync } = require("node:fs");
const [, shown] = readFileSync(process.argv[1], "utf8").match(/^```js\n([^]*?)^```/m);
process.exitCode = readFileSync(process.argv[2], "utf8").includes(shown) ? 0 : 1;
' "$source/docs/mutations.md" "$here/pg.mjs"
report $? "node: what docs/mutations.md shows is what runs here"
install_pg() { # a copy, so that packages never lie in the source tree
    mkdir -p "$build/mutations" && cp "$here"/*.json "$here"/*.mjs "$build/mutations/" || return 1
    cmp -s "$build/mutations/package-lock.json" "$build/mutations/node_modules/.from" && return 0
    (cd "$build/mutations" && timeout 120 npm ci --ignore-scripts --no-audit --no-fund) || return 1
    cp "$build/mutations/package-lock.json" "$build/mutations/node_modules/.from"
}
install_pg >npm.log 2>&1
installed=$?
report $installed "node: npm installs pg; this needs the npm registry, or a mirror of it"
[ $installed -eq 0 ] || tail -n 5 npm.log | sed 's/^/# /'
cat >want <<'END'
first: ok, used 1
again: already_done, used 1
another method: mismatch
one that fails: out of stock
its retry: ok, used 2
twenty at once: 1 ok, 19 already_done
END
for how in direct pgbouncer; do
    query "$direct" "UPDATE items SET used = 0; DELETE FROM once_mutations" >/dev/null
    url=$direct
    [ $how = direct ] || url=$(at "$ONCE_TEST_PGBOUNCER" $db)
    timeout $limit node "$build/mutations/pg.mjs" "$url" >got 2>&1
    report $? "node, $how: it ends well"
    same_lines "node, $how" want got
    is "node, $how: three uses" "$(query "$direct" "SELECT used FROM items WHERE id = 1")" 3
done

# ---- who sweeps, and what is said of it ----------------------------------------------------------

old() { query "$direct" "DELETE FROM once_mutations; INSERT INTO once_mutations (user_id, request_id, created_at) SELECT 'old', i, clock_timestamp() - interval '2 hours' FROM generate_series(1, $1) AS i" >/dev/null; }
old 1000
query "$direct" "DROP SCHEMA IF EXISTS once CASCADE; CREATE ROLE ${db}_sweep LOGIN PASSWORD 'sweep'; GRANT SELECT, UPDATE, DELETE ON once_mutations TO ${db}_sweep" >/dev/null
is "once sweep --markers, by who may do no more than that" \
    "$(timeout $limit "$once" --ledger "$(sed -E "s,//[^@]*@,//${db}_sweep:sweep@," <<<"$direct")" sweep --markers)" "1000 removed"
is "... makes no tables of its own" "$(query "$direct" "SELECT count(*) FROM pg_namespace WHERE nspname = 'once'")" 0
query "$direct" "DROP OWNED BY ${db}_sweep; DROP ROLE ${db}_sweep" >/dev/null
old 70000
like "doctor: how far behind the sweep is" "$(timeout $limit "$once" --ledger "$direct" doctor)" "*markers*each counts for 1h; the oldest*has expired 1h*once sweep --markers*"
is "once sweep --markers" "$(timeout $limit "$once" --ledger "$direct" sweep --markers)" "70000 removed"
like "doctor: nothing to do" "$(timeout $limit "$once" --ledger "$direct" doctor)" "*markers*each counts for 1h; none is expired*"
old 120000
daemon_start --ledger "$direct" --listen 127.0.0.1:0 --resp off
until_so "SELECT count(*) = 0 FROM once_mutations"
report $? "a daemon sweeps by itself, more than one batch"
metric() { curl -sS "http://$http/metrics" | sed -n "s/^$1 //p"; }
is "idempotency_cleanup_rows_total" "$(metric idempotency_cleanup_rows_total)" 120000
is "idempotency_cleanup_batch_duration_seconds" "$(metric idempotency_cleanup_batch_duration_seconds_count)" 3
took=$(metric idempotency_cleanup_batch_duration_seconds_sum)
is "... in seconds ($took)" "$(jq -n "$took > 0.01 and $took < $limit")" true
end=$((SECONDS + limit)) age=
until [ "$age" = 0 ] || [ $SECONDS -ge $end ]; do age=$(metric idempotency_oldest_expired_age_seconds); done
is "idempotency_oldest_expired_age_seconds" "$age" 0
stop TERM 2>/dev/null

# One that is too slow for full batches, and then one where sweeping is refused.
old 400
query "$direct" "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.002); RETURN OLD; END'; CREATE TRIGGER slow BEFORE DELETE ON once_mutations FOR EACH ROW EXECUTE FUNCTION slow()"
timeout $limit "$once" --ledger "$direct?timeout_ms=500ms" sweep --markers >out 2>err
report $? "once sweep --markers, where a full batch takes too long"
until_so "SELECT count(*) = 0 FROM once_mutations" # the last of them may be with the sweep that every process has
report $? "... removes them all"
query "$direct" "CREATE OR REPLACE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''not today''; END'"
query "$direct" "INSERT INTO once_mutations (user_id, request_id, created_at) VALUES ('old', '1', clock_timestamp() - interval '2 hours')"
: >err
daemon_start --ledger "$direct" --listen 127.0.0.1:0 --resp off
until_said 'event=markers_failed .*reason="[^"]*not today'
report $? "a sweep that fails is in the log, with the reason"
age=0 end=$((SECONDS + limit))
until [ "${age%.*}" -ge 3600 ] || [ $SECONDS -ge $end ]; do age=$(metric idempotency_oldest_expired_age_seconds); done
[ "${age%.*}" -ge 3600 ]
report $? "... and how old they get is still known ($age)"
stop TERM 2>/dev/null
query "$direct" "DROP TRIGGER slow ON once_mutations"

# ---- the epoch -----------------------------------------------------------------------------------

like "the epoch has the timeline" "$epoch" "00000001-*-????????????????"
install_again() { psql -qX -v ON_ERROR_STOP=1 "$direct" -f "$source/src/store/markers/postgres.sql" >out 2>err; }
other_epoch() { # NAME
    local now
    now=$(query "$direct" "SELECT once_mutation_epoch()")
    [[ $now == *-* && $now != "$epoch" ]]
    report $? "$1: another epoch"
    epoch=$now
}
query "$direct" "DROP FUNCTION once_mutation_installation" >/dev/null
install_again
other_epoch "another installation on the same table"
query "$direct" "DROP TABLE once_mutations" >/dev/null
install_again
other_epoch "another table of the same installation"
query "$direct" "DROP TABLE once_mutations; DROP FUNCTION once_mutation_installation" >/dev/null
timeout $limit "$once" --ledger "$direct" migrate --mutations >out 2>err
report $? "installed anew"
[ "$(query "$direct" "SELECT once_mutation_epoch()")" != "$epoch" ]
report $? "... it is another epoch"

# ---- SQLite --------------------------------------------------------------------------------------

sqlite3 app.db <"$source/src/store/markers/sqlite.sql"
report $? "sqlite: the script, as it stands"
like "sqlite: migrate agrees" "$(timeout $limit "$once" --ledger sqlite:app.db migrate --mutations)" "*nothing to do"
sed -n '/^--     INSERT/,/RETURNING/s/^--     //p' "$source/src/store/markers/sqlite.sql" >begin.sql
both() { cat begin.sql; } # the documented statement
is "sqlite: begin returns a row" "$(both | sqlite3 app.db | wc -l)" 1
is "sqlite: again it does not" "$(both | sqlite3 app.db | wc -l)" 0
sqlite3 app.db "UPDATE once_mutations SET created_at_ms = created_at_ms - 3600000"
is "sqlite: expired, it does" "$(both | sqlite3 app.db | wc -l)" 1
sqlite3 app.db "UPDATE once_mutations SET created_at_ms = created_at_ms - 3600000"
is "sqlite: the sweep, of a file that is nobody's ledger" "$(timeout $limit "$once" --ledger sqlite:app.db sweep --markers)" "1 removed"
is "... makes no tables of its own" "$(sqlite3 app.db "SELECT group_concat(name, ' ') FROM (SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name)")" "once_mutation_meta once_mutations"
timeout $limit "$once" --ledger sqlite:absent.db sweep --markers >out 2>err
report $((!$?)) "sqlite: no file"
[ ! -e absent.db ]
report $? "... is not made"
sqlite3 restored.db <"$source/src/store/markers/sqlite.sql"
[ "$(sqlite3 app.db "SELECT epoch FROM once_mutation_meta")" != "$(sqlite3 restored.db "SELECT epoch FROM once_mutation_meta")" ]
report $? "sqlite: another file has another epoch"
both | sqlite3 app.db >/dev/null
sqlite3 app.db "UPDATE once_mutations SET created_at_ms = created_at_ms - 3600000"
is "sqlite: the sweep, from a ledger beside it" \
    "$(timeout $limit "$once" --ledger "sqlite:ledger.db?markers=app.db" sweep --markers)" "1 removed"

over
