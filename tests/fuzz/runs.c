/* runs.c - runs. The first byte says what the rest is:
 *
 *   'r' an encoded run: what is taken has that one encoding, and is fit for every rule
 *   'c' a list of changes as the buffer has it: it is walked to its end, or stopped at nonsense
 *   'f' choices: a run, changes to it, and where a drainer stopped; each change counts once
 *   'm' metadata, a NUL, operations: Jansson, asked to do the same, has the same members in order */
#include "core/metadata.h"
#include "core/run_rules.h"
#include "proto/number.h"
#include "tests/fuzz/fuzz.h"

#include <jansson.h>

enum { NOW = 5000, OUT_MAX = 1 << 21 };

static bool same_run(const struct run *a, const struct run *b)
{
    struct buf one, other;
    buf_init(&one, OUT_MAX);
    buf_init(&other, OUT_MAX);
    run_encode(a, &one);
    run_encode(b, &other);
    CHECK(!buf_failed(&one) && !buf_failed(&other));
    bool same = bytes_eq(buf_bytes(&one), buf_bytes(&other));
    buf_fini(&one);
    buf_fini(&other);
    return same;
}

/* ---- runs ---- */

static void check_lease(const struct run *r)
{
    struct token token = { { 1 } };
    struct run_verdict v = rules_run_lease(r, &token, 100, NOW);
    CHECK(v.changed || same_run(&v.next, r));
    CHECK(!run_is_final(r) || !v.changed);
    CHECK(v.outcome != OUTCOME_OK || v.next.fence != r->fence);
}

static void check_run(struct bytes in)
{
    struct run r;
    struct buf again;
    uint8_t frame[RUN_KEY_FRAME_BYTES_MAX];
    if (!run_decode(in, &r)) return;
    buf_init(&again, OUT_MAX);
    run_encode(&r, &again);
    CHECK(bytes_eq(buf_bytes(&again), in));
    CHECK(run_key_frame(r.task, r.key, frame) == 1 + r.task.len + r.key.len);
    CHECK(run_status(&r, NOW) && tags_count(r.tags) <= TAGS_BYTES_MAX);
    CHECK(run_is_final(&r) == (run_due_ms(&r) == INT64_MAX));
    CHECK(!run_holds_key(&r, r.key_until_ms));
    CHECK(rules_run_put(&r, NULL, &r, false, NOW) == PUT_SAME);
    check_lease(&r);
    buf_fini(&again);
}

/* ---- changes ---- */

static struct run sample(void)
{
    return (struct run){ .id = { "run_01ARYZ6S410000000000000000" },
                         .env = bytes_str("e"),
                         .task = bytes_str("t"),
                         .queue = bytes_str("t"),
                         .key = bytes_str("k"),
                         .key_held = true,
                         .key_until_ms = 9000,
                         .state = RUN_QUEUED,
                         .delay_until_ms = 4000,
                         .available_at_ms = 4000,
                         .metadata = bytes_str("{ \"z\": [],\"n\":9,\"l\":[1] }"),
                         .attempts_max = 3 };
}

static void check_folded(const struct run *before, const struct run *after)
{
    CHECK(!run_nonsense(after));
    CHECK(!run_is_final(before) || after->state == before->state);
    CHECK(before->key_held || !after->key_held);
    CHECK(after->metadata_version >= before->metadata_version);
    CHECK(after->changes >= before->changes);
}

static struct run folded(const struct run *r, struct bytes changes, struct run_scratch *scratch)
{
    struct run next;
    struct err err;
    CHECK(run_fold(r, changes, scratch, &next, &err) == 0);
    check_folded(r, &next);
    return next;
}

static void check_changes(struct bytes in)
{
    struct run r = sample(), next;
    struct run_scratch scratch;
    struct run_change c;
    struct err err = { 0 };
    struct bytes left = in;
    uint64_t count = 0;
    for (size_t before = left.len; run_change_next(&left, &c); before = left.len, count++)
        CHECK(left.len < before && run_change_may_wait(c.kind));
    run_scratch_init(&scratch);
    int code = run_fold(&r, in, &scratch, &next, &err);
    CHECK(code == err.code && code == (left.len ? ERR_CORRUPT : 0));
    if (code == 0) check_folded(&r, &next);
    if (code == 0) CHECK(next.changes == count);
    run_scratch_fini(&scratch);
}

/* ---- choices ---- */

static struct reader input;

static struct bytes choose_body(enum run_change_kind kind)
{
    static const char *const bodies[][4] = {
        [RUN_ADD_TAGS] = { "\x01t", "\x01u\x02uu", "\x05x", "" },
        [RUN_SET_METADATA] = { "{}", "{\"n\":\"x\"}", "{\"n\": 99 ,\"l\":[ ]}", "[]" },
        [RUN_OPERATE] = { "[{\"type\":\"increment\",\"key\":\"n\"}]",
                          "[{\"type\":\"append\",\"key\":\"l\",\"value\":{}}]",
                          "[{\"type\":\"remove\",\"key\":\"z\"}]",
                          "[{\"type\":\"set\",\"key\":\"z\",\"value\":[]}]" },
        [RUN_CANCEL] = { "", "", "\"why\"", "" },
    };
    unsigned which = reader_byte(&input) % 5;
    if (which == 4) return reader_take(&input, reader_byte(&input) % 32);
    if (kind >= sizeof bodies / sizeof bodies[0]) return bytes_of(NULL, 0);
    return bytes_str(bodies[kind][which]);
}

static struct run_change choose_change(void)
{
    struct run_change c = { .kind = (enum run_change_kind)(1 + reader_byte(&input) %
                                                                   RUN_RESET_KEY) };
    c.body = choose_body(c.kind);
    c.version = reader_byte(&input) % 4 ? RUN_ANY_VERSION : reader_byte(&input) % 4;
    c.at_ms = reader_byte(&input) * 100;
    c.made_at_ms = 3000 + reader_byte(&input) * 10;
    return c;
}

/* Brought at once, or in parts and once more with fewer of them: the same run. */
static void check_once(struct bytes changes, size_t some, size_t fewer)
{
    struct run_scratch one, other;
    struct run r = sample();
    run_scratch_init(&one);
    run_scratch_init(&other);
    struct run at_once = folded(&r, changes, &one);
    struct run in_parts = folded(&r, bytes_of(changes.data, some), &other);
    in_parts = folded(&in_parts, bytes_of(changes.data, fewer), &other);
    in_parts = folded(&in_parts, changes, &other);
    CHECK(same_run(&at_once, &in_parts));
    run_scratch_fini(&one);
    run_scratch_fini(&other);
}

static void check_choices(struct bytes in)
{
    enum { MOST = 40 };
    struct buf list;
    size_t ends[MOST + 1] = { 0 }, count = 0;
    input = (struct reader){ .left = in };
    unsigned some = reader_byte(&input), fewer = reader_byte(&input);
    buf_init(&list, OUT_MAX);
    while (count < MOST && input.left.len) {
        struct run_change c = choose_change();
        run_change_encode(&c, &list);
        ends[++count] = list.len;
    }
    some %= count + 1;
    check_once(buf_bytes(&list), ends[some], ends[fewer % (some + 1)]);
    buf_fini(&list);
}

/* ---- metadata ---- */

enum { LOAD = JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES };

static json_t *load(struct bytes text)
{
    return json_loadb(text.len ? (const char *)text.data : "", text.len, LOAD, NULL);
}

/* What Jansson has of a double is what is written of it. */
static json_t *written(double d)
{
    char text[NUMBER_BYTES_MAX];
    return load(bytes_of(text, number_write_double(d, text)));
}

static bool incremented(json_t *all, const char *key, const json_t *by)
{
    json_t *now = json_object_get(all, key), *sum;
    json_int_t n = json_integer_value(now), amount = by ? json_integer_value(by) : 1;
    if (now && !json_is_number(now)) return false;
    if (by && !json_is_number(by)) return false;
    if (json_is_real(now) || json_is_real(by)) {
        double d = json_number_value(now) + (by ? json_number_value(by) : 1);
        sum = d - d == 0 ? written(d) : NULL;
    } else {
        sum = __builtin_add_overflow(n, amount, &n) ? NULL : json_integer(n);
    }
    return sum && json_object_set_new(all, key, sum) == 0;
}

static bool appended(json_t *all, const char *key, json_t *value)
{
    if (!json_object_get(all, key)) json_object_set_new(all, key, json_array());
    return json_array_append(json_object_get(all, key), value) == 0;
}

static bool applied(json_t *all, json_t *o)
{
    const char *type = json_string_value(json_object_get(o, "type"));
    const char *key = json_string_value(json_object_get(o, "key"));
    json_t *value = json_object_get(o, "value");
    if (!type || !key || json_object_size(o) != 2u + !!value) return false;
    if (strcmp(type, "increment") == 0) return incremented(all, key, value);
    if (strcmp(type, "remove") == 0) return !value && (json_object_del(all, key), true);
    if (!value) return false;
    if (strcmp(type, "append") == 0) return appended(all, key, value);
    return strcmp(type, "set") == 0 && json_object_set(all, key, value) == 0;
}

static bool applied_all(json_t *all, json_t *operations)
{
    size_t i;
    json_t *o;
    if (!json_is_object(all) || !json_is_array(operations)) return false;
    json_array_foreach(operations, i, o) if (!applied(all, o)) return false;
    return true;
}

static bool same_json(const json_t *a, const json_t *b)
{
    char *one = json_dumps(a, JSON_COMPACT), *other = json_dumps(b, JSON_COMPACT);
    bool same = one && other && strcmp(one, other) == 0;
    free(one);
    free(other);
    return same;
}

/* Jansson takes no integer of more than 64 bits, no double beyond the largest, and its strings end
 * at a NUL: then it has no opinion. "-0" is an integer to it. */
static bool no_opinion(struct bytes metadata, struct bytes operations)
{
    const struct bytes texts[] = { metadata, operations };
    for (size_t i = 0; i < 2; i++) {
        const char *text = (const char *)texts[i].data;
        if (memmem(text, texts[i].len, "-0", 2) || memmem(text, texts[i].len, "\\u0000", 6))
            return true;
    }
    return false;
}

static void check_second_opinion(struct bytes metadata, struct bytes operations, int r,
                                 struct bytes result)
{
    if (no_opinion(metadata, operations)) return;
    json_t *all = load(metadata.len ? metadata : bytes_str("{}")), *list = load(operations);
    bool both = all && list;
    bool fine = both && applied_all(all, list);
    if (r == 0) CHECK(!both || fine);
    if (r == ERR_INVALID) CHECK(!fine);
    if (r == 0 && fine) {
        json_t *ours = load(result);
        CHECK(ours && same_json(ours, all));
        json_decref(ours);
    }
    json_decref(all);
    json_decref(list);
}

static void check_metadata(struct bytes in)
{
    const uint8_t *nul = in.len ? memchr(in.data, 0, in.len) : NULL;
    size_t len = nul ? (size_t)(nul - in.data) : in.len;
    struct bytes metadata = bytes_of(in.data, len);
    struct bytes operations = nul ? bytes_of(nul + 1, in.len - len - 1) : bytes_str("[]");
    struct buf out;
    struct err err = { 0 }, other = { 0 };
    buf_init(&out, OUT_MAX);
    int r = metadata_apply(metadata, operations, &out, &err);
    CHECK(r == err.code && (r == 0 || (err.text[0] && out.len == 0)));
    if (r == 0) CHECK(metadata_check(buf_bytes(&out), &other) == 0);
    if (metadata_check_operations(operations, &other)) CHECK(r);
    check_second_opinion(metadata, operations, r, buf_bytes(&out));
    buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > 4096) return 0;
    struct bytes rest = bytes_of(data + 1, size - 1);
    if (data[0] == 'r') check_run(rest);
    if (data[0] == 'c') check_changes(rest);
    if (data[0] == 'f') check_choices(rest);
    if (data[0] == 'm') check_metadata(rest);
    return 0;
}
