/* run_codec_test.c - every field comes back, nothing that is cut, longer or absurd is taken. */
#include "core/run_rules.h"

#include "core/key.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static struct buf packed;

static void setup(void)
{
    buf_init(&packed, 1 << 20);
}

static void teardown(void)
{
    buf_fini(&packed);
}

TestSuite(run_codec, .init = setup, .fini = teardown);

/* No two fields are alike. */
static struct run full_run(void)
{
    return (struct run){ .id = { "run_01ARYZ6S410000000000000001" },
                         .env = bytes_str("env"),
                         .task = bytes_str("task"),
                         .queue = bytes_str("queue"),
                         .payload = bytes_str("{\"payload\":[]}"),
                         .ordering_key = bytes_str("order"),
                         .fingerprint = bytes_str("0123456789abcdef0123456789abcdef"),
                         .key = bytes_str("key"),
                         .key_held = true,
                         .key_until_ms = 101,
                         .state = RUN_EXECUTING,
                         .tags = bytes_str("\x03tag\x01t"),
                         .metadata = bytes_str("{\"n\":1}"),
                         .metadata_version = UINT64_MAX - 1,
                         .output = bytes_str("\"output\""),
                         .error = bytes_str("\"error\""),
                         .created_at_ms = 102,
                         .delay_until_ms = 103,
                         .available_at_ms = 104,
                         .started_at_ms = 105,
                         .finished_at_ms = 106,
                         .attempts = 3,
                         .attempts_max = 4,
                         .stalls = 5,
                         .token = { { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 } },
                         .fence = UINT64_C(1) << 63,
                         .lease_ms = 107,
                         .lease_until_ms = TIME_MS_MAX,
                         .changes = 108,
                         .canonical = { "run_01ARYZ6S410000000000000002" } };
}

static void expect_same_bytes(const struct run *a, const struct run *b)
{
    cr_expect(bytes_eq(a->env, b->env) && bytes_eq(a->task, b->task));
    cr_expect(bytes_eq(a->queue, b->queue) && bytes_eq(a->payload, b->payload));
    cr_expect(bytes_eq(a->ordering_key, b->ordering_key));
    cr_expect(bytes_eq(a->fingerprint, b->fingerprint) && bytes_eq(a->key, b->key));
    cr_expect(bytes_eq(a->tags, b->tags) && bytes_eq(a->metadata, b->metadata));
    cr_expect(bytes_eq(a->output, b->output) && bytes_eq(a->error, b->error));
}

static void expect_same_numbers(const struct run *a, const struct run *b)
{
    cr_expect_eq(a->state, b->state);
    cr_expect(a->key_held == b->key_held && a->key_until_ms == b->key_until_ms);
    cr_expect_eq(a->metadata_version, b->metadata_version);
    cr_expect_eq(a->created_at_ms, b->created_at_ms);
    cr_expect_eq(a->delay_until_ms, b->delay_until_ms);
    cr_expect_eq(a->available_at_ms, b->available_at_ms);
    cr_expect_eq(a->started_at_ms, b->started_at_ms);
    cr_expect_eq(a->finished_at_ms, b->finished_at_ms);
    cr_expect(a->attempts == b->attempts && a->attempts_max == b->attempts_max);
    cr_expect(a->stalls == b->stalls && a->fence == b->fence);
    cr_expect(a->lease_ms == b->lease_ms && a->lease_until_ms == b->lease_until_ms);
    cr_expect_eq(a->changes, b->changes);
}

static void expect_round_trip(const struct run *r)
{
    struct run back;
    buf_clear(&packed);
    run_encode(r, &packed);
    cr_assert(!buf_failed(&packed) && run_decode(buf_bytes(&packed), &back));
    expect_same_bytes(r, &back);
    expect_same_numbers(r, &back);
    cr_expect(run_id_eq(&r->id, &back.id) && run_id_eq(&r->canonical, &back.canonical));
    cr_expect(token_eq(&r->token, &back.token));
}

Test(run_codec, every_field_comes_back)
{
    struct run r = full_run();
    expect_round_trip(&r);
    for (r.state = RUN_QUEUED; r.state <= RUN_CANCELED; r.state++) expect_round_trip(&r);
    struct run bare = { .state = RUN_QUEUED };
    expect_round_trip(&bare);
}

Test(run_codec, bytes_come_back_as_they_were)
{
    struct run r = full_run();
    uint8_t payload[256];
    for (size_t i = 0; i < sizeof payload; i++) payload[i] = (uint8_t)i;
    r.payload = bytes_of(payload, sizeof payload);
    expect_round_trip(&r);
}

/* In memory of exactly its size. */
static bool decodes(struct bytes content)
{
    struct run r = { .changes = 77 };
    uint8_t *copy = malloc(content.len ? content.len : 1);
    if (content.len) memcpy(copy, content.data, content.len);
    bool fine = run_decode(bytes_of(copy, content.len), &r);
    if (!fine) cr_expect_eq(r.changes, 77, "untouched");
    free(copy);
    return fine;
}

Test(run_codec, a_run_that_is_cut_off_or_longer_is_refused)
{
    struct run r = full_run();
    run_encode(&r, &packed);
    for (size_t len = 0; len < packed.len; len++)
        cr_expect(!decodes(bytes_of(packed.data, len)), "%zu bytes", len);
    cr_expect(decodes(buf_bytes(&packed)));
    buf_byte(&packed, 0);
    cr_expect(!decodes(buf_bytes(&packed)));
}

Test(run_codec, another_format_is_refused)
{
    struct run r = full_run();
    run_encode(&r, &packed);
    packed.data[0]++;
    cr_expect(!decodes(buf_bytes(&packed)));
}

static void expect_refused(const struct run *r, const char *what)
{
    buf_clear(&packed);
    run_encode(r, &packed);
    cr_expect(!decodes(buf_bytes(&packed)), "%s", what);
    cr_expect(run_nonsense(r), "%s", what);
}
#define EXPECT_REFUSED(change)                                                                 \
    do {                                                                                       \
        struct run r = full_run();                                                             \
        r.change;                                                                              \
        expect_refused(&r, #change);                                                           \
    } while (0)

/* What the rules, and frames of keys, rely on. */
Test(run_codec, nonsense_is_refused)
{
    static char letters[METADATA_BYTES_MAX + 1];
    EXPECT_REFUSED(env = bytes_of(letters, ENV_BYTES_MAX + 1));
    EXPECT_REFUSED(task = bytes_of(letters, TASK_BYTES_MAX + 1));
    EXPECT_REFUSED(queue = bytes_of(letters, QUEUE_BYTES_MAX + 1));
    EXPECT_REFUSED(key = bytes_of(letters, KEY_BYTES_MAX + 1));
    EXPECT_REFUSED(ordering_key = bytes_of(letters, ORDERING_KEY_BYTES_MAX + 1));
    EXPECT_REFUSED(metadata = bytes_of(letters, METADATA_BYTES_MAX + 1));
    EXPECT_REFUSED(tags = bytes_of(letters, TAGS_BYTES_MAX + 1));
    EXPECT_REFUSED(tags = bytes_str("\x05tag"));
    EXPECT_REFUSED(key_until_ms = -1);
    EXPECT_REFUSED(created_at_ms = TIME_MS_MAX + 1);
    EXPECT_REFUSED(delay_until_ms = INT64_MIN);
    EXPECT_REFUSED(available_at_ms = INT64_MAX);
    EXPECT_REFUSED(started_at_ms = -1);
    EXPECT_REFUSED(finished_at_ms = -1);
    EXPECT_REFUSED(lease_ms = -1);
    EXPECT_REFUSED(lease_until_ms = TIME_MS_MAX + 1);
}

/* A byte that says yes or no, or which state, in another way. */
Test(run_codec, every_run_has_one_encoding)
{
    struct run r = full_run();
    run_encode(&r, &packed);
    for (size_t i = 0; i < packed.len; i++) {
        for (unsigned flip = 1; flip < 256; flip <<= 1) {
            struct run back;
            struct buf again;
            packed.data[i] ^= (uint8_t)flip;
            buf_init(&again, 1 << 20);
            if (run_decode(buf_bytes(&packed), &back)) {
                run_encode(&back, &again);
                cr_expect(bytes_eq(buf_bytes(&again), buf_bytes(&packed)), "byte %zu", i);
            }
            buf_fini(&again);
            packed.data[i] ^= (uint8_t)flip;
        }
    }
}

/* ---- changes ---- */

static const struct run_change changes[] = {
    { .kind = RUN_ADD_TAGS, .body = { (const uint8_t *)"\x01t", 2 }, .made_at_ms = 1 },
    { .kind = RUN_SET_METADATA,
      .body = { (const uint8_t *)"{}", 2 },
      .version = RUN_ANY_VERSION,
      .made_at_ms = 2 },
    { .kind = RUN_OPERATE, .body = { (const uint8_t *)"[]", 2 }, .made_at_ms = 3 },
    { .kind = RUN_RESCHEDULE, .at_ms = 99, .made_at_ms = 4 },
    { .kind = RUN_CANCEL, .version = 7, .made_at_ms = TIME_MS_MAX },
    { .kind = RUN_RESET_KEY, .at_ms = -1, .made_at_ms = 0 },
};
enum { CHANGES = sizeof changes / sizeof changes[0] };

Test(run_codec, changes_come_back_in_order)
{
    struct run_change c;
    for (size_t i = 0; i < CHANGES; i++) run_change_encode(&changes[i], &packed);
    struct bytes list = buf_bytes(&packed);
    for (size_t i = 0; i < CHANGES; i++) {
        cr_assert(run_change_next(&list, &c), "%zu", i);
        cr_expect(c.kind == changes[i].kind && bytes_eq(c.body, changes[i].body));
        cr_expect(c.version == changes[i].version && c.at_ms == changes[i].at_ms);
        cr_expect_eq(c.made_at_ms, changes[i].made_at_ms);
    }
    cr_expect(!run_change_next(&list, &c) && list.len == 0);
}

static void expect_no_change(struct bytes list, const char *what)
{
    struct bytes left = list;
    struct run_change c = { .version = 77 };
    cr_expect(!run_change_next(&left, &c), "%s", what);
    cr_expect_eq(left.len, list.len, "%s: what is left tells", what);
    cr_expect_eq(c.version, 77, "untouched");
}

Test(run_codec, a_change_that_is_cut_off_is_none)
{
    run_change_encode(&changes[0], &packed);
    for (size_t len = 1; len < packed.len; len++)
        expect_no_change(bytes_of(packed.data, len), "cut off");
}

Test(run_codec, a_change_that_makes_no_sense_is_none)
{
    enum { AT_FORMAT = 0, AT_KIND = 1, AT_MADE = 18 };
    run_change_encode(&changes[0], &packed);
    packed.data[AT_FORMAT]++;
    expect_no_change(buf_bytes(&packed), "another format");
    packed.data[AT_FORMAT]--;
    for (unsigned kind = 0; kind < 256; kind++) {
        packed.data[AT_KIND] = (uint8_t)kind;
        if (!run_change_may_wait((enum run_change_kind)kind))
            expect_no_change(buf_bytes(&packed), "another kind");
    }
    packed.data[AT_KIND] = RUN_CANCEL;
    packed.data[AT_MADE] = 0x80;
    expect_no_change(buf_bytes(&packed), "made before 1970");
    packed.data[AT_MADE] = 0x11;
    expect_no_change(buf_bytes(&packed), "made too late");
}

Test(run_codec, only_what_needs_no_token_may_wait)
{
    for (enum run_change_kind kind = RUN_ADD_TAGS; kind <= RUN_RESET_KEY; kind++)
        cr_expect(run_change_may_wait(kind));
    for (enum run_change_kind kind = RUN_HEARTBEAT; kind <= RUN_RETURN; kind++)
        cr_expect(!run_change_may_wait(kind));
    cr_expect(!run_change_may_wait((enum run_change_kind)0));
}
