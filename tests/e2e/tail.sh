#!/usr/bin/env bash
# tail.sh BUILD_DIR - once runs tail beside a daemon that is triggered as fast as it goes: every run is told
# of, once; what is committed late, too; and what has to be skipped is counted. Prints TAP.
#
# shellcheck source=tests/e2e/shared/daemon.bash
. "$(dirname "$0")/shared/daemon.bash" tail "$1"
limit=60

# batches FILE TASK COUNT ATONCE: COUNT requests of 500 runs each, so many at a time; the ids in FILE.
batches() {
    jq -nc '{items: [range(500) | {payload: .}]}' >"$1.items"
    seq "$3" | xargs -P "$4" -I {} curl -sS -m $limit -X POST -H 'Content-Type: application/json' \
        -d "@$1.items" -o "$1.{}" "http://$http/v1/tasks/$2/batch"
    cat "$1".[0-9]* | grep -o '"id":"run_[0-9A-Z]*"' | cut -d'"' -f4 | sort >"$1"
}
# follow TASK: in the background, its lines in the file "told"
follow() {
    : >told
    "$once" --url "once://$resp" runs tail --task "$1" --limit 1 --json >told 2>told.err &
    tail=$!
}
unfollow() {
    kill $tail
    wait $tail 2>/dev/null
}
within() { # COMMAND...: until it succeeds
    local end=$((SECONDS + limit))
    until "$@" 2>/dev/null; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.02
    done
}
new_ids() { sed -n 's/^{"id":"\(run_[0-9A-Z]*\)".*"status":"QUEUED".*/\1/p' told | sort; }
told_of() { new_ids | grep -qx "$1"; } # ID
all_told() { new_ids | cmp -s - "$1"; } # FILE of ids
one() { # TASK OPTIONS: a trigger
    curl -sS -m $limit -X POST -H 'Content-Type: application/json' -d "{\"payload\":1,\"options\":$2}" -o body \
        "http://$http/v1/tasks/$1/trigger"
    id=$(jq -r .id body)
}
# id_at MS: an id that was made so many milliseconds from now
id_at() {
    python3 -c 'import random, sys, time
ms, digits = int(time.time() * 1000) + int(sys.argv[1]), "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
print("run_" + "".join(digits[ms >> 5 * i & 31] for i in range(9, -1, -1)) + "".join(random.choices(digits, k=16)))' "$1"
}

daemon_start --listen 127.0.0.1:0 --resp 127.0.0.1:0 --gate off

# ---- under load ----------------------------------------------------------------------------------

one load '{}'
first=$id
follow load
within told_of "$first"
report $? "it begins with what is there"
batches ids load 12 3
echo "$first" | sort -o ids - ids
is "all are made" "$(sort -u ids | wc -l)" 6001
within all_told ids
report $? "all of 6,000 that are triggered as fast as it goes are told of, each once"
is "nothing is said to be skipped" "$(cat told.err)" ""
"$once" --url "once://$resp" runs cancel "$first" -q
canceled() { grep -q "\"$first\".*CANCELED" told; }
within canceled
report $? "and the end of the first, behind all of them"
unfollow

# ---- late, and early -----------------------------------------------------------------------------

one late "{\"id\":\"$(id_at -3600000)\"}"
old=$id
one late '{}'
follow late
within told_of "$id"
report $? "a new one"
"$once" --url "once://$resp" runs cancel "$old" -q
old_canceled() { grep -q "\"$old\".*CANCELED" told; }
within old_canceled
report $? "another status of an old one that was there before"
for ms in -1000 -8000 3600000; do
    one late "{\"id\":\"$(id_at $ms)\"}"
    within told_of "$id"
    report $? "one whose id is of $ms ms from now"
done
one late '{}'
within told_of "$id"
report $? "one of now, after one whose id is of the future"
is "each once" "$(new_ids | uniq -d | wc -l) $(new_ids | wc -l)" "0 5"
unfollow

# ---- too many at once ----------------------------------------------------------------------------

one flood '{}'
follow flood
within told_of "$id"
kill -STOP $tail
batches ids flood 50 3
kill -CONT $tail
counted() {
    skipped=$(sed -n 's/^once: \([0-9]*\) skipped.*/\1/p' told.err | paste -sd+ | sed 's/^$/0/')
    [ $(($(new_ids | wc -l) - 1 + skipped)) -eq 25000 ]
}
within counted
report $? "of 25,000 that came at once what is not told of is counted"
[ $((skipped)) -gt 0 ]
report $? "and that is said"
one flood '{}'
within told_of "$id"
report $? "and it goes on"
is "none twice" "$(new_ids | uniq -d | wc -l)" 0
unfollow

stop
is "the daemon ends" "$status" 0
over
