/* runs.c - see runs.h. */
#include "tests/conform/runs.h"

enum { KEPT_ASKS_MAX = 8192, KEPT_BYTES_MAX = 4096 };

struct asked {
    struct run_ask ask;
    struct run run;
    struct token *tokens;
};

static struct asked *asks[KEPT_ASKS_MAX];
static void *kept_bytes[KEPT_BYTES_MAX];
static size_t ask_count, bytes_count, token_count;

static void forget_all(void)
{
    for (size_t i = 0; i < ask_count; i++) {
        run_ask_clear(&asks[i]->ask);
        free(asks[i]->tokens);
        free(asks[i]);
    }
    for (size_t i = 0; i < bytes_count; i++) free(kept_bytes[i]);
}

void runs_open(const char *store_name)
{
    conform_open(store_name);
    if (store->caps & CAP_RUNS) return;
    conform_close();
    cr_skip_test("it is no ledger of runs");
}

void runs_close(void)
{
    conform_close();
    forget_all();
}

static struct bytes keep(struct bytes content)
{
    cr_assert(bytes_count < KEPT_BYTES_MAX);
    uint8_t *copy = malloc(content.len + 1);
    cr_assert(copy);
    if (content.len) memcpy(copy, content.data, content.len);
    kept_bytes[bytes_count++] = copy;
    return bytes_of(copy, content.len);
}

/* ---- what is asked about ---- */

struct run_id id_nr(unsigned n)
{
    struct run_id id;
    uint8_t random[10] = { [8] = (uint8_t)(n >> 8), [9] = (uint8_t)n };
    run_id_make(INT64_C(1700000000000), random, &id);
    return id;
}

struct bytes fingerprint_nr(uint8_t n)
{
    uint8_t bytes[RUN_FINGERPRINT_BYTES];
    memset(bytes, 0xf0 + (n & 15), sizeof bytes);
    return keep(bytes_of(bytes, sizeof bytes));
}

struct run run_nr(unsigned n)
{
    return (struct run){ .id = id_nr(n),
                         .env = bytes_str("e"),
                         .task = bytes_str("t"),
                         .queue = bytes_str("q"),
                         .payload = bytes_str("{\"a\": 1}"),
                         .fingerprint = fingerprint_nr(0),
                         .state = RUN_QUEUED,
                         .created_at_ms = world.wall_ms,
                         .available_at_ms = world.wall_ms,
                         .attempts_max = RUN_ATTEMPTS_DEFAULT };
}

struct run run_keyed(unsigned n, const char *key)
{
    struct run r = run_nr(n);
    r.key = bytes_str(key);
    r.key_held = true;
    r.key_until_ms = world.wall_ms + RUN_KEY_MS_DEFAULT;
    return r;
}

struct run run_in_line(unsigned n, const char *ordering_key)
{
    struct run r = run_nr(n);
    r.ordering_key = bytes_str(ordering_key);
    return r;
}

struct run run_delayed(unsigned n, int64_t delay_ms)
{
    struct run r = run_nr(n);
    r.delay_until_ms = r.available_at_ms = world.wall_ms + delay_ms;
    return r;
}

struct bytes tags_of(const char *a, const char *b)
{
    struct buf out;
    const char *texts[] = { a, b };
    buf_init(&out, TAGS_BYTES_MAX);
    for (size_t i = 0; i < 2 && texts[i]; i++) {
        buf_byte(&out, (uint8_t)strlen(texts[i]));
        buf_add(&out, bytes_str(texts[i]));
    }
    struct bytes tags = keep(buf_bytes(&out));
    buf_fini(&out);
    return tags;
}

struct run_change add_tags(const char *a, const char *b)
{
    return (struct run_change){ .kind = RUN_ADD_TAGS, .body = tags_of(a, b) };
}

struct run_change set_metadata(const char *json, uint64_t version)
{
    return (struct run_change){ .kind = RUN_SET_METADATA,
                                .body = bytes_str(json),
                                .version = version };
}

struct run_change increment(void)
{
    static const char one_more[] = "[{\"type\": \"increment\", \"key\": \"n\", \"value\": 1}]";
    return (struct run_change){ .kind = RUN_OPERATE, .body = bytes_str(one_more) };
}

struct run_change cancel(void)
{
    return (struct run_change){ .kind = RUN_CANCEL };
}

struct run_change reschedule(int64_t at_ms)
{
    return (struct run_change){ .kind = RUN_RESCHEDULE, .at_ms = at_ms };
}

struct run_change reset_key(void)
{
    return (struct run_change){ .kind = RUN_RESET_KEY };
}

struct run_change heartbeat(const struct run *leased, int64_t lease_ms)
{
    return (struct run_change){ .kind = RUN_HEARTBEAT,
                                .token = leased->token,
                                .lease_ms = lease_ms };
}

struct run_change complete(const struct run *leased, const char *output)
{
    return (struct run_change){ .kind = RUN_COMPLETE,
                                .token = leased->token,
                                .body = bytes_str(output) };
}

struct run_change fail(const struct run *leased, int64_t retry_ms)
{
    return (struct run_change){ .kind = RUN_FAIL,
                                .token = leased->token,
                                .body = bytes_str("\"oops\""),
                                .retry_ms = retry_ms };
}

struct bytes changes_of(const struct run_change *changes, size_t count)
{
    struct buf out;
    buf_init(&out, RUN_CHANGES_BYTES_MAX);
    for (size_t i = 0; i < count; i++) {
        struct run_change c = changes[i];
        if (!c.made_at_ms) c.made_at_ms = world.wall_ms;
        run_change_encode(&c, &out);
    }
    cr_assert(!buf_failed(&out));
    struct bytes all = keep(buf_bytes(&out));
    buf_fini(&out);
    return all;
}

/* ---- asking ---- */

static struct token *tokens_copy(const struct token *from, size_t count)
{
    struct token *tokens = malloc(count * sizeof *tokens);
    cr_assert(tokens);
    memcpy(tokens, from, count * sizeof *tokens);
    return tokens;
}

struct waiting *submit_run(enum verb verb, struct run_ask ask)
{
    cr_assert(ask_count < KEPT_ASKS_MAX);
    struct asked *a = calloc(1, sizeof *a);
    cr_assert(a);
    asks[ask_count++] = a;
    a->ask = ask;
    if (ask.run) a->run = *ask.run;
    if (ask.run) a->ask.run = &a->run;
    if (ask.tokens) a->ask.tokens = a->tokens = tokens_copy(ask.tokens, ask.limit);
    struct op *op = op_new(verb, NULL, NULL);
    cr_assert(op);
    op->run = &a->ask;
    op->lane = a->ask.env;
    return submit(op);
}

const struct op *ask_run(enum verb verb, struct run_ask ask)
{
    return answered(submit_run(verb, ask));
}

struct run_ask ask_put(const struct run *r)
{
    return (struct run_ask){ .env = r->env, .id = r->id, .run = r };
}

struct run_ask ask_change(unsigned n, struct run_change c)
{
    return (struct run_ask){ .env = bytes_str("e"), .id = id_nr(n), .change = c };
}

struct run_ask ask_lease(size_t limit)
{
    static struct token tokens[RUN_ROWS_MAX];
    cr_assert(limit <= RUN_ROWS_MAX);
    for (size_t i = 0; i < limit; i++) {
        tokens[i] = token_of(0xa5);
        tokens[i].bytes[0] = (uint8_t)(++token_count >> 8);
        tokens[i].bytes[1] = (uint8_t)token_count;
    }
    return (struct run_ask){ .env = bytes_str("e"),
                             .queue = bytes_str("q"),
                             .limit = limit,
                             .lease_ms = LEASE_MS,
                             .tokens = tokens };
}

const struct op *put_run(struct run r)
{
    return ask_run(VERB_RUN_PUT, ask_put(&r));
}

const struct op *drain_run(struct run r, struct bytes changes)
{
    struct run_ask ask = ask_put(&r);
    ask.drains = true;
    ask.changes = changes;
    return ask_run(VERB_RUN_PUT, ask);
}

const struct op *get_run(unsigned n)
{
    return ask_run(VERB_RUN_GET, (struct run_ask){ .env = bytes_str("e"), .id = id_nr(n) });
}

static struct run_ask about_key(const char *key)
{
    return (
        struct run_ask){ .env = bytes_str("e"), .task = bytes_str("t"), .key = bytes_str(key) };
}

const struct op *get_run_by_key(const char *key)
{
    return ask_run(VERB_RUN_GET, about_key(key));
}

const struct op *change_run(unsigned n, struct run_change c)
{
    return ask_run(VERB_RUN_CHANGE, ask_change(n, c));
}

const struct op *reset_run_key(const char *key)
{
    return ask_run(VERB_RUN_RESET, about_key(key));
}

const struct op *lease_runs(size_t limit)
{
    return ask_run(VERB_RUN_LEASE, ask_lease(limit));
}

const struct op *list_runs(size_t limit)
{
    return ask_run(VERB_RUN_LIST, (struct run_ask){ .env = bytes_str("e"), .limit = limit });
}

/* ---- answers ---- */

const struct run *only_run(const struct op *op)
{
    cr_assert(op->run->rows.count == 1, "%s: %zu rows", verb_info[op->verb].name,
              op->run->rows.count);
    return op->run->rows.rows[0];
}

const struct run *run_now(unsigned n)
{
    return only_run(expect(get_run(n), OUTCOME_OK));
}

struct run leased_one(unsigned n)
{
    const struct op *op = expect(lease_runs(1), OUTCOME_OK);
    EXPECT_RUNS(op, n);
    return *only_run(op);
}

unsigned run_number(const struct run *r)
{
    for (unsigned n = 0; n < 1 << 16; n++) {
        struct run_id id = id_nr(n);
        if (run_id_eq(&id, &r->id)) return n;
    }
    cr_assert_fail("%s is none of ours", r->id.text);
    return 0;
}

void expect_runs(const struct op *op, const unsigned *numbers, size_t count)
{
    const struct run_rows *rows = &op->run->rows;
    for (size_t i = 0; i < count && i < rows->count; i++)
        cr_assert(run_number(rows->rows[i]) == numbers[i], "row %zu is run %u, expected %u", i,
                  run_number(rows->rows[i]), numbers[i]);
    cr_assert(rows->count == count, "%zu rows, expected %zu", rows->count, count);
}

void expect_no_runs(const struct op *op)
{
    cr_assert(op->run->rows.count == 0, "%s: there are rows", verb_info[op->verb].name);
}

void expect_run_state(unsigned n, enum run_state state)
{
    const struct run *r = run_now(n);
    cr_assert(r->state == state, "run %u is %s", n, run_status(r, world.wall_ms));
}

void expect_text(struct bytes got, const char *want)
{
    cr_assert(bytes_eq(got, bytes_str(want)), "\"%.*s\", expected \"%s\"", (int)got.len,
              (const char *)got.data, want);
}

void expect_json(struct bytes got, const char *want)
{
    char text[512];
    size_t len = 0;
    cr_assert(got.len < sizeof text);
    for (size_t i = 0; i < got.len; i++)
        if (!strchr(" \t\n", got.data[i])) text[len++] = (char)got.data[i];
    expect_text(bytes_of(text, len), want);
}
