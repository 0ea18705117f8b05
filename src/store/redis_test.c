/* redis_test.c - what only the redis store promises: records and messages in a real server that
 * others reach too. What happens when it fails is in redis_fault_test.c, the rules are tested by the
 * conform and model suites. */
#include "store/redis.h"

#include "tests/support/coord.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

static struct coord coord;
static struct store *a, *b; /* as of two processes */

static void setup(void)
{
    coord_init(&coord, SERVER_REDIS);
    a = coord_open(&coord, "");
    b = coord_open(&coord, "");
}

static void teardown(void)
{
    coord_close(&coord, a);
    coord_close(&coord, b);
    coord_fini(&coord);
}

TestSuite(redis, .init = setup, .fini = teardown, .timeout = 120);

static enum outcome outcome(struct store *s, enum verb verb, const char *name, uint8_t who,
                            const char *value)
{
    return coord_do(&coord, s, verb, name, who, value).outcome;
}

/* ---- values ---- */

static struct op *publish_bytes(const char *name, size_t len, uint8_t seed)
{
    uint8_t *content = malloc(len + 1);
    cr_assert(content);
    for (size_t i = 0; i < len; i++) content[i] = (uint8_t)(i * 31 + i / 256 + seed);
    struct key key = key_of("s", name);
    struct request in = { .token = token_of(1),
                          .retain_ms = COORD_RETAIN_MS,
                          .value = blob_new(bytes_of(content, len)) };
    struct op *op = op_new(VERB_PUBLISH, &key, &in);
    blob_unref(in.value);
    free(content);
    return op;
}

Test(redis, values_of_every_size_come_back_byte_for_byte)
{
    static const size_t sizes[] = { 0,     1,     100,       16383,          16384,
                                    16385, 65535, 64 * 1024, 64 * 1024 + 17, 1024 * 1024 };
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    struct asked publish[COUNT], peek[COUNT];
    char name[16];
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "v%zu", i);
        cr_assert(outcome(a, VERB_CLAIM, name, 1, NULL) == OUTCOME_CLAIMED);
        asked_start(&publish[i], a, publish_bytes(name, sizes[i], (uint8_t)i));
    }
    for (size_t i = 0; i < COUNT; i++) COORD_UNTIL(&coord, publish[i].finished);
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "v%zu", i);
        asked_start(&peek[i], b, coord_op(VERB_PEEK, name, 0, NULL));
    }
    for (size_t i = 0; i < COUNT; i++) {
        COORD_UNTIL(&coord, peek[i].finished);
        cr_expect(publish[i].op->out.outcome == OUTCOME_OK);
        cr_expect(peek[i].op->out.outcome == OUTCOME_CACHED, "%zu bytes: %s", sizes[i],
                  peek[i].op->err.text);
        cr_expect(blob_eq(peek[i].op->out.value, publish[i].op->in.value));
        asked_end(&publish[i]);
        asked_end(&peek[i]);
    }
}

/* ---- what others left in the way ---- */

static void put_in_the_way(const char *name, const void *content, size_t len)
{
    struct bytes field = coord_field(name);
    cr_assert_str_eq(coord_ask(&coord, "HSET %s %b %b", coord_shard(&coord), field.data,
                               field.len, content, len),
                     "1");
}

/* One connection: the three are one step. */
static void expect_fails_alone(const char *name)
{
    struct store *s = coord_open(&coord, "&connections=1");
    struct asked before, bad, after;
    asked_start(&before, s, coord_op(VERB_CLAIM, "before", 1, NULL));
    asked_start(&bad, s, coord_op(VERB_CLAIM, name, 1, NULL));
    asked_start(&after, s, coord_op(VERB_CLAIM, "after", 1, NULL));
    COORD_UNTIL(&coord, before.finished && bad.finished && after.finished);
    cr_expect(before.op->err.code == 0 && before.op->out.outcome == OUTCOME_CLAIMED);
    cr_expect(after.op->err.code == 0 && after.op->out.outcome == OUTCOME_CLAIMED);
    cr_expect(bad.op->err.code == ERR_CORRUPT, "%d %s", bad.op->err.code, bad.op->err.text);
    cr_expect(!bad.op->changed);
    asked_end(&before);
    asked_end(&bad);
    asked_end(&after);
    coord_close(&coord, s);
}

Test(redis, truncated_record_fails_alone)
{
    put_in_the_way("short", "\001once", 5);
    expect_fails_alone("short");
}

Test(redis, record_cut_in_its_fingerprint_or_of_no_known_state_fails_alone)
{
    uint8_t header[HEADER_BYTES] = { RECORD_PENDING };
    header[HEADER_BYTES - 1] = 40; /* of the fingerprint that is not there */
    put_in_the_way("cut", header, sizeof header);
    expect_fails_alone("cut");
    memset(header, 0, sizeof header);
    header[0] = 7;
    put_in_the_way("unknown", header, sizeof header);
    coord_do(&coord, a, VERB_RELEASE, "before", 1, NULL);
    coord_do(&coord, a, VERB_RELEASE, "after", 1, NULL);
    expect_fails_alone("unknown");
}

Test(redis, shard_that_is_none_is_told_and_left_alone)
{
    const char *shard = coord_shard(&coord);
    coord_ask(&coord, "HSET %s %s x", shard, "");
    cr_expect(coord_fails(&coord, a, VERB_CLAIM, "k", 1).code == ERR_CORRUPT);
    cr_expect_str_eq(coord_ask(&coord, "HLEN %s", shard), "1");
    coord_ask(&coord, "DEL %s", shard);
    coord_ask(&coord, "RPUSH %s x", shard);
    cr_expect(coord_fails(&coord, a, VERB_CLAIM, "k", 1).code == ERR_UNAVAILABLE);
    cr_expect_str_eq(coord_ask(&coord, "LLEN %s", shard), "1");
    coord_ask(&coord, "DEL %s", shard);
    cr_expect(outcome(a, VERB_CLAIM, "k", 1, NULL) == OUTCOME_CLAIMED);
}

static struct op *list_op(enum verb verb)
{
    struct op *op = coord_op(verb, "", 0, NULL);
    op->all_scopes = true;
    op->limit = 100;
    return op;
}

Test(redis, list_passes_over_what_is_not_ours)
{
    /* Alive, if it were ours: done at 2^40 ms, kept for as long. */
    uint8_t header[HEADER_BYTES] = { RECORD_DONE, [4 + 5] = 1, [36 + 5] = 1 };
    const char *shard = coord_shard(&coord);
    outcome(a, VERB_CLAIM, "k", 1, NULL);
    coord_ask(&coord, "HSET %s x %b", shard, header, sizeof header);
    coord_ask(&coord, "HSET %s zebra %b", shard, header, sizeof header);
    put_in_the_way("short", "x", 1);
    struct asked list;
    asked_start(&list, a, list_op(VERB_SCAN));
    COORD_UNTIL(&coord, list.finished);
    cr_expect(list.op->err.code == 0, "%s", list.op->err.text);
    cr_expect(list.op->scan.count == 1);
    asked_end(&list);
}

/* ---- time ---- */

static long long number(const char *command, const char *key)
{
    char full[200];
    snprintf(full, sizeof full, "%s %s", command, key);
    return atoll(coord_ask(&coord, full));
}

enum { GRACE_MS = 86400000 }; /* of tests that move the clock */

/* What is not a record: the meta, the ends of lists, entries. */
static bool is_record(const redisReply *field)
{
    return field->len > 0 && field->str[0] != 0;
}

static bool is_entry(const redisReply *field)
{
    return field->len > 2 && field->str[0] == 0;
}

static long long fields(bool (*are)(const redisReply *))
{
    redisReply *all = coord_reply(&coord, "HKEYS %s", coord_shard(&coord));
    long long count = 0;
    for (size_t i = 0; i < all->elements; i++) count += are(all->element[i]);
    freeReplyObject(all);
    return count;
}

static size_t sweep(struct store *s)
{
    struct asked sweep;
    struct op *op = list_op(VERB_EXPIRE);
    op->routine = true;
    asked_start(&sweep, s, op);
    COORD_UNTIL(&coord, sweep.finished);
    cr_expect(op->err.code == 0, "%s", op->err.text);
    size_t count = op->count;
    asked_end(&sweep);
    return count;
}

Test(redis, routine_sweep_removes_what_is_due_and_nothing_else)
{
    outcome(a, VERB_CLAIM, "done", 1, NULL);
    outcome(a, VERB_PUBLISH, "done", 1, "v");
    outcome(a, VERB_CLAIM, "pending", 1, NULL);
    cr_expect(sweep(b) == 0 && fields(is_record) == 2);
    coord.world.wall_ms += COORD_LEASE_MS + COORD_RETAIN_MS;
    cr_expect(sweep(b) == 0 && fields(is_record) == 2);
    coord.world.wall_ms += GRACE_MS;
    cr_expect(sweep(b) == 1 && fields(is_record) == 1);
    coord.world.wall_ms += COORD_LEASE_MS + ABANDONED_KEEP_MS + COORD_RETAIN_MS;
    cr_expect(sweep(a) == 1 && fields(is_record) == 0 && fields(is_entry) == 0);
    cr_expect(sweep(b) == 0);
}

Test(redis, claims_clear_up_behind_them)
{
    char name[16];
    for (int i = 0; i < 50; i++) {
        snprintf(name, sizeof name, "k%d", i);
        outcome(a, VERB_CLAIM, name, 1, NULL);
        coord.world.wall_ms += COORD_LEASE_MS + ABANDONED_KEEP_MS + GRACE_MS;
    }
    cr_expect(fields(is_record) <= 3 && fields(is_entry) <= 3, "%lld %lld", fields(is_record),
              fields(is_entry));
}

/* What an abandoned claim leaves is looked at late, and is in nobody's way until then. */
Test(redis, claims_clear_up_behind_them_also_behind_an_abandoned_one)
{
    struct asked claim;
    struct op *abandoned = coord_op(VERB_CLAIM, "abandoned", 1, NULL);
    abandoned->in.retain_ms = 10 * ABANDONED_KEEP_MS;
    asked_start(&claim, a, abandoned);
    COORD_UNTIL(&coord, claim.finished);
    asked_end(&claim);
    for (int i = 0; i < 200; i++) {
        coord.world.wall_ms += GRACE_MS / 48;
        outcome(a, VERB_CLAIM, "lock", 1, NULL);
        outcome(a, VERB_RELEASE, "lock", 1, NULL);
    }
    cr_expect(fields(is_record) == 1);
    cr_expect(fields(is_entry) < 60, "%lld", fields(is_entry));
}

Test(redis, record_that_was_granted_again_is_noted_once)
{
    for (int i = 0; i < 20; i++) {
        outcome(a, VERB_CLAIM, "lock", 1, NULL);
        coord.world.wall_ms += COORD_LEASE_MS;
        cr_expect(coord_do(&coord, a, VERB_CLAIM, "lock", 2, NULL).taken_over);
        outcome(a, VERB_RELEASE, "lock", 2, NULL);
        coord.world.wall_ms++;
    }
    outcome(a, VERB_CLAIM, "lock", 1, NULL);
    coord.world.wall_ms += COORD_LEASE_MS + COORD_RETAIN_MS + GRACE_MS;
    cr_expect(sweep(a) == 0 && fields(is_record) == 1);
    cr_expect(fields(is_entry) == 1, "%lld", fields(is_entry));
}

Test(redis, sweep_takes_many_and_stops_at_its_limit)
{
    enum { COUNT = 1500 };
    static struct asked claims[COUNT];
    char name[16];
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "k%d", i);
        asked_start(&claims[i], a, coord_op(VERB_CLAIM, name, 1, NULL));
    }
    for (int i = 0; i < COUNT; i++) {
        COORD_UNTIL(&coord, claims[i].finished);
        asked_end(&claims[i]);
    }
    coord.world.wall_ms += COORD_LEASE_MS + ABANDONED_KEEP_MS + COORD_RETAIN_MS + GRACE_MS;
    size_t swept = 0;
    for (size_t some; (some = sweep(a)) > 0; swept += some)
        cr_expect(some >= 100 && some < 700);
    cr_expect(swept == COUNT && fields(is_record) == 0 && fields(is_entry) == 0);
}

Test(redis, placeholder_of_a_watch_is_swept)
{
    struct asked watch;
    coord_watch(&coord, a, "nobody's", &watch);
    cr_expect(fields(is_record) == 1);
    coord.world.wall_ms += 60000 + GRACE_MS;
    sweep(a);
    cr_expect(fields(is_record) == 0);
    outcome(b, VERB_CLAIM, "nobody's", 1, NULL);
    coord_pass(&coord, 2000); /* its inbox is gone: found by the slow look */
    COORD_UNTIL(&coord, watch.finished);
    asked_end(&watch);
}

static void expect_ttl(long long least_ms)
{
    long long ms = number("PTTL", coord_shard(&coord));
    cr_expect(ms > least_ms && ms < least_ms + 3 * ABANDONED_KEEP_MS, "%lld", ms);
}

Test(redis, shard_that_nobody_uses_any_more_goes_by_itself_later_than_its_records)
{
    coord.world.env.wall_rules = false; /* the server's clock, as in production */
    struct store *s = coord_open(&coord, "");
    outcome(s, VERB_PEEK, "k", 1, NULL);
    expect_ttl(0);
    outcome(s, VERB_CLAIM, "k", 1, NULL);
    expect_ttl(COORD_LEASE_MS + ABANDONED_KEEP_MS);
    struct op *publish = coord_op(VERB_PUBLISH, "k", 1, "v");
    publish->in.retain_ms = 10 * ABANDONED_KEEP_MS;
    struct asked asked;
    asked_start(&asked, s, publish);
    COORD_UNTIL(&coord, asked.finished);
    asked_end(&asked);
    expect_ttl(10 * ABANDONED_KEEP_MS);
    coord_close(&coord, s);
}

Test(redis, ten_years_are_exact)
{
    struct key key = key_of("s", "long");
    struct request in = { .token = token_of(1),
                          .lease_ms = DURATION_MS_MAX,
                          .retain_ms = DURATION_MS_MAX };
    struct asked claim;
    asked_start(&claim, a, op_new(VERB_CLAIM, &key, &in));
    COORD_UNTIL(&coord, claim.finished);
    cr_expect(claim.op->out.lease_left_ms == DURATION_MS_MAX);
    cr_expect(claim.op->out.fence == (uint64_t)coord.world.wall_ms * 1000);
    asked_end(&claim);
    struct op *publish = coord_op(VERB_PUBLISH, "long", 1, "v");
    publish->in.retain_ms = -1;
    asked_start(&claim, a, publish);
    COORD_UNTIL(&coord, claim.finished);
    cr_expect(claim.op->out.retain_left_ms == DURATION_MS_MAX);
    asked_end(&claim);
}

/* ---- watching, from another process ---- */

static void expect_woken(struct asked *watch, uint64_t version)
{
    COORD_UNTIL(&coord, watch->finished);
    cr_expect(watch->op->err.code == 0, "%s", watch->op->err.text);
    cr_expect(watch->op->out.version == version);
    asked_end(watch);
}

Test(redis, watch_is_told_of_publish_release_takeover_and_forget)
{
    struct asked watch;
    outcome(a, VERB_CLAIM, "k", 1, NULL);
    coord_watch(&coord, b, "k", &watch);
    expect_woken(&watch, coord_do(&coord, a, VERB_PUBLISH, "k", 1, "v").version);
    coord_watch(&coord, b, "k", &watch);
    outcome(a, VERB_FORGET, "k", 0, NULL);
    expect_woken(&watch, 0);
    coord_watch(&coord, b, "k", &watch);
    expect_woken(&watch, coord_do(&coord, a, VERB_CLAIM, "k", 2, NULL).version);
    coord_watch(&coord, b, "k", &watch);
    outcome(a, VERB_RELEASE, "k", 2, NULL);
    expect_woken(&watch, 0);
    outcome(a, VERB_CLAIM, "k", 3, NULL);
    coord_watch(&coord, b, "k", &watch);
    coord.world.wall_ms += COORD_LEASE_MS; /* the lease lapses; nobody's timer has fired */
    struct answer taken = coord_do(&coord, a, VERB_CLAIM, "k", 4, NULL);
    cr_expect(taken.taken_over);
    expect_woken(&watch, taken.version);
}

Test(redis, renewal_wakes_nobody)
{
    struct asked watch;
    outcome(a, VERB_CLAIM, "k", 1, NULL);
    coord_watch(&coord, b, "k", &watch);
    outcome(a, VERB_RENEW, "k", 1, NULL);
    cr_expect(outcome(b, VERB_CLAIM, "k", 2, NULL) == OUTCOME_IN_PROGRESS);
    cr_expect(!watch.finished);
    expect_woken(&watch, coord_do(&coord, a, VERB_PUBLISH, "k", 1, "v").version);
}

/* As the engine does it: a claim that found somebody on it turns into a watch. */
static struct op *watch_op(const char *name, const char *fingerprint, uint64_t seen)
{
    struct key key = key_of("s", name);
    struct request in = { .token = token_of(9), .fingerprint = bytes_str(fingerprint) };
    struct op *op = op_new(VERB_WATCH, &key, &in);
    op->seen = seen;
    return op;
}

static uint64_t claim_with(const char *name, const char *fingerprint)
{
    struct key key = key_of("s", name);
    struct request in = { .token = token_of(1),
                          .lease_ms = COORD_LEASE_MS,
                          .retain_ms = COORD_RETAIN_MS,
                          .fingerprint = bytes_str(fingerprint) };
    struct asked claim;
    asked_start(&claim, a, op_new(VERB_CLAIM, &key, &in));
    COORD_UNTIL(&coord, claim.finished);
    uint64_t version = claim.op->out.version;
    asked_end(&claim);
    return version;
}

Test(redis, message_brings_the_answer_to_those_who_asked_the_same)
{
    struct asked same, other;
    uint64_t seen = claim_with("k", "body");
    asked_start(&same, b, watch_op("k", "body", seen));
    asked_start(&other, b, watch_op("k", "another body", seen));
    COORD_UNTIL(&coord, coord_listens(&coord, b));
    struct answer published = coord_do(&coord, a, VERB_PUBLISH, "k", 1, "the answer");
    COORD_UNTIL(&coord, same.finished && other.finished);
    cr_expect(same.op->answers && same.op->out.outcome == OUTCOME_CACHED);
    cr_expect(bytes_eq(blob_bytes(same.op->out.value), bytes_str("the answer")));
    cr_expect(same.op->out.version == published.version);
    cr_expect(same.op->out.retain_left_ms == COORD_RETAIN_MS);
    cr_expect(!other.op->answers && !other.op->out.value);
    asked_end(&same);
    asked_end(&other);
}

Test(redis, message_says_so_when_the_answer_was_not_kept)
{
    struct asked watch;
    asked_start(&watch, b, watch_op("k", "body", claim_with("k", "body")));
    COORD_UNTIL(&coord, coord_listens(&coord, b));
    outcome(a, VERB_PUBLISH, "k", 1, NULL);
    COORD_UNTIL(&coord, watch.finished);
    cr_expect(watch.op->answers && watch.op->out.outcome == OUTCOME_ALREADY_DONE);
    asked_end(&watch);
}

Test(redis, message_does_not_carry_a_large_answer)
{
    struct asked watch, publish;
    asked_start(&watch, b, watch_op("k", "", claim_with("k", "")));
    COORD_UNTIL(&coord, coord_listens(&coord, b));
    asked_start(&publish, a, publish_bytes("k", 16385, 0));
    COORD_UNTIL(&coord, watch.finished && publish.finished);
    cr_expect(!watch.op->answers && !watch.op->out.value);
    cr_expect(watch.op->out.version == publish.op->out.version);
    asked_end(&watch);
    asked_end(&publish);
}

/* A claim that found somebody on it, of a caller who is going to watch. */
static struct asked waiting_claim(struct store *s, const char *name)
{
    struct asked claim;
    struct op *op = coord_op(VERB_CLAIM, name, 2, NULL);
    op->waits = true;
    asked_start(&claim, s, op);
    COORD_UNTIL(&coord, claim.finished);
    cr_expect(op->out.outcome == OUTCOME_IN_PROGRESS);
    return claim;
}

static void watch_after(struct asked *claim, struct store *s, const char *name,
                        struct asked *ret_watch)
{
    struct op *op = watch_op(name, "", claim->op->out.version);
    op->heard = claim->op->heard;
    asked_end(claim);
    asked_start(ret_watch, s, op);
}

static void listen_first(struct store *s)
{
    struct asked watch;
    coord_watch(&coord, s, "another", &watch);
    store_cancel(s, watch.op);
    COORD_UNTIL(&coord, watch.finished);
    asked_end(&watch);
}

Test(redis, waiting_claim_saves_the_watch_its_look)
{
    struct asked watch;
    uint64_t seen = claim_with("k", "");
    listen_first(b);
    struct asked claim = waiting_claim(b, "k");
    cr_expect(claim.op->heard != 0 && claim.op->out.version == seen);
    watch_after(&claim, b, "k", &watch);
    cr_expect(watch.op->parked);
    outcome(a, VERB_PUBLISH, "k", 1, "v");
    COORD_UNTIL(&coord, watch.finished);
    cr_expect(watch.op->answers && watch.op->out.outcome == OUTCOME_CACHED);
    asked_end(&watch);
}

Test(redis, watch_looks_if_anything_was_heard_since_the_claim)
{
    struct asked watch, other;
    claim_with("k", "");
    claim_with("other", "");
    coord_watch(&coord, b, "other", &other);
    struct asked claim = waiting_claim(b, "k");
    outcome(a, VERB_PUBLISH, "k", 1, "v");
    outcome(a, VERB_PUBLISH, "other", 1, "v");
    COORD_UNTIL(&coord, other.finished);
    watch_after(&claim, b, "k", &watch);
    cr_expect(!watch.op->parked);
    COORD_UNTIL(&coord, watch.finished);
    cr_expect(watch.op->out.version != watch.op->seen);
    asked_end(&watch);
    asked_end(&other);
}

Test(redis, waiting_claim_of_a_process_that_cannot_hear_saves_nothing)
{
    struct asked watch;
    claim_with("k", "");
    listen_first(b);
    conn_drop(&((struct redis *)b)->inbox_conn, ERR_UNAVAILABLE, "lost");
    struct asked claim = waiting_claim(b, "k");
    cr_expect(claim.op->heard == 0);
    watch_after(&claim, b, "k", &watch);
    cr_expect(!watch.op->parked);
    coord_pass(&coord, 10); /* it connects again */
    COORD_UNTIL(&coord, coord_listens(&coord, b));
    outcome(a, VERB_PUBLISH, "k", 1, "v");
    COORD_UNTIL(&coord, watch.finished);
    asked_end(&watch);
}

Test(redis, a_thousand_watches_are_told_once_each)
{
    enum { COUNT = 1000 };
    static struct asked watches[COUNT], publishes[COUNT];
    char name[16];
    uint64_t seen[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "k%u", i);
        seen[i] = claim_with(name, "");
        asked_start(&watches[i], b, watch_op(name, "", seen[i]));
    }
    COORD_UNTIL(&coord, coord_listens(&coord, b));
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "k%u", i);
        asked_start(&publishes[i], a, coord_op(VERB_PUBLISH, name, 1, name));
    }
    for (unsigned i = 0; i < COUNT; i++)
        COORD_UNTIL(&coord, watches[i].finished && publishes[i].finished);
    for (unsigned i = 0; i < COUNT; i++) {
        cr_expect(watches[i].op->answers);
        asked_end(&watches[i]);
        asked_end(&publishes[i]);
    }
}

Test(redis, canceled_watch_finishes_once_in_whatever_state)
{
    struct asked queued, parked;
    outcome(a, VERB_CLAIM, "k", 1, NULL);
    coord_watch(&coord, b, "k", &parked);
    asked_start(&queued, b, watch_op("k", "", parked.op->seen));
    store_cancel(b, queued.op);
    store_cancel(b, parked.op);
    COORD_UNTIL(&coord, queued.finished && parked.finished);
    cr_expect(parked.op->err.code == ERR_CANCELED);
    outcome(a, VERB_PUBLISH, "k", 1, "v");
    asked_end(&queued);
    asked_end(&parked);
}

Test(redis, unix_socket)
{
    const char *url = getenv("ONCE_TEST_REDIS_SOCKET");
    cr_assert(url, "run it through tests/with-servers");
    char more[300];
    snprintf(more, sizeof more, "%s%s", url, strchr(coord.url, '?'));
    struct store *s = coord_open_url(&coord, more);
    cr_expect(outcome(s, VERB_CLAIM, "k", 1, NULL) == OUTCOME_CLAIMED);
    cr_expect(outcome(a, VERB_CLAIM, "k", 2, NULL) == OUTCOME_IN_PROGRESS);
    coord_close(&coord, s);
}

/* ---- the database of the URL ---- */

static long long in_database(int db)
{
    cr_assert_str_eq(coord_ask(&coord, "SELECT %d", db), "OK");
    long long there = atoll(coord_ask(&coord, "EXISTS %s", coord_shard(&coord)));
    coord_ask(&coord, "SELECT 0");
    return there;
}

static void clear_database(int db)
{
    coord_ask(&coord, "SELECT %d", db);
    coord_ask(&coord, "UNLINK %s", coord_shard(&coord));
    coord_ask(&coord, "SELECT 0");
}

static struct store *open_database(const char *db)
{
    char url[300];
    const char *options = strchr(coord.url, '?');
    snprintf(url, sizeof url, "%.*s/%s%s", (int)(options - coord.url), coord.url, db, options);
    return coord_open_url(&coord, url);
}

Test(redis, the_database_of_the_url_has_the_records)
{
    struct store *s = open_database("5");
    cr_expect(outcome(s, VERB_CLAIM, "k", 1, NULL) == OUTCOME_CLAIMED);
    cr_expect(in_database(5) == 1 && in_database(0) == 0);
    cr_expect(outcome(a, VERB_PEEK, "k", 0, NULL) == OUTCOME_ABSENT);
    const struct conn *c = &((const struct redis *)s)->seed_node->lanes[0].conn;
    shutdown(c->io.fd, SHUT_RDWR);
    COORD_UNTIL(&coord, c->state == CONN_DOWN);
    coord_revive(&coord, s); /* the next connection has it, too */
    cr_expect(outcome(s, VERB_PUBLISH, "k", 1, "v") == OUTCOME_OK);
    cr_expect(outcome(a, VERB_PEEK, "k", 0, NULL) == OUTCOME_ABSENT);
    clear_database(5);
    coord_close(&coord, s);
}

/* Messages know no databases: who waits in one is told of what happens there. */
Test(redis, who_waits_in_a_database_is_told)
{
    struct asked watch;
    struct store *s = open_database("5"), *other = open_database("5");
    cr_expect(outcome(s, VERB_CLAIM, "k", 1, NULL) == OUTCOME_CLAIMED);
    coord_watch(&coord, other, "k", &watch);
    cr_expect(outcome(s, VERB_PUBLISH, "k", 1, "v") == OUTCOME_OK);
    COORD_UNTIL(&coord, watch.finished);
    asked_end(&watch);
    clear_database(5);
    coord_close(&coord, s);
    coord_close(&coord, other);
}

Test(redis, a_database_that_is_not_there_is_named)
{
    struct store *s = open_database("1000");
    struct err err = coord_fails(&coord, s, VERB_CLAIM, "k", 1);
    cr_expect(err.code == ERR_UNAVAILABLE && strstr(err.text, "DB index"), "%s", err.text);
    coord_close(&coord, s);
}
