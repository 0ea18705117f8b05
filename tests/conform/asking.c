/* asking.c - see buffer.h. */
#include "tests/conform/buffer.h"

#include "core/key.h"

enum { ASKS_MAX = 8192, FRAMES_MAX = 256 };

static struct buffer_ask *asks[ASKS_MAX];
static size_t ask_count;
static uint8_t frames[FRAMES_MAX][RUN_KEY_FRAME_BYTES_MAX];
static size_t frame_count;

void asking_open(const char *store_name, unsigned cap)
{
    conform_open(store_name);
    if (store->caps & cap) return;
    conform_close();
    cr_skip_test("%s has no such thing", store_name);
}

void asking_close(void)
{
    conform_close();
    for (size_t i = 0; i < ask_count; i++) {
        buffer_ask_clear(asks[i]);
        free(asks[i]);
    }
}

/* ---- entries by number ---- */

struct run_id id_of(unsigned n)
{
    struct run_id id;
    snprintf(id.text, sizeof id.text, "run_%026u", n);
    return id;
}

unsigned number_of(const struct run_id *id)
{
    return (unsigned)strtoul(id->text + 4, NULL, 10);
}

/* Not text, and not the same for any two. */
struct bytes run_of(unsigned n)
{
    static uint8_t runs[ASKS_MAX][12];
    cr_assert(n < ASKS_MAX);
    uint8_t *r = runs[n];
    memcpy(r, (const uint8_t[]){ 0xff, 0, '"', '\\', '\n', 0x80, 0 }, 7);
    snprintf((char *)r + 7, 5, "%04x", n);
    return bytes_of(r, 12);
}

static struct bytes key_frame_of(const char *key)
{
    if (!key) return bytes_of(NULL, 0);
    cr_assert(frame_count < FRAMES_MAX);
    uint8_t *frame = frames[frame_count++];
    return bytes_of(frame, run_key_frame(bytes_str("task"), bytes_str(key), frame));
}

/* ---- asking ---- */

struct waiting *submit_buffer(enum verb verb, struct buffer_ask ask, const struct key *claim,
                              const struct request *in)
{
    struct key none = key_of("s", "unclaimed");
    cr_assert(ask_count < ASKS_MAX);
    struct buffer_ask *kept = malloc(sizeof *kept);
    cr_assert(kept);
    *kept = ask;
    asks[ask_count++] = kept;
    struct op *op = op_new(verb, claim ? claim : &none, in);
    cr_assert(op);
    op->buffer = kept;
    op->lane = kept->env;
    return submit(op);
}

const struct op *buffer(enum verb verb, struct buffer_ask ask)
{
    ask.unclaimed = true;
    struct waiting *w = submit_buffer(verb, ask, NULL, NULL);
    world_settle(&world);
    cr_assert(w->finished == 1, "%s finished %u times", verb_info[verb].name, w->finished);
    cr_assert(w->op->err.code == 0, "%s: %s", verb_info[verb].name, w->op->err.text);
    return w->op;
}

struct buffer_ask entry_ask(const char *env, unsigned n, const char *key)
{
    return (struct buffer_ask){
        .env = bytes_str(env), .id = id_of(n), .key_frame = key_frame_of(key), .run = run_of(n)
    };
}

const struct op *accept_entry(const char *env, unsigned n, const char *key)
{
    return buffer(VERB_ACCEPT, entry_ask(env, n, key));
}

/* In flight together: as a burst comes. */
void accept_many(const char *env, unsigned first, unsigned count)
{
    struct waiting *all[1024];
    cr_assert(count <= 1024);
    for (unsigned i = 0; i < count; i++) {
        struct buffer_ask ask = entry_ask(env, first + i, NULL);
        ask.unclaimed = true;
        all[i] = submit_buffer(VERB_ACCEPT, ask, NULL, NULL);
    }
    world_settle(&world);
    for (unsigned i = 0; i < count; i++) {
        cr_assert(all[i]->finished == 1 && all[i]->op->err.code == 0, "%u: %s", first + i,
                  all[i]->op->err.text);
        expect(all[i]->op, OUTCOME_OK);
    }
}

const struct op *get(const char *env, unsigned n)
{
    return buffer(VERB_ENTRY_GET, (struct buffer_ask){ .env = bytes_str(env), .id = id_of(n) });
}

const struct op *get_by_key(const char *env, const char *key)
{
    return buffer(VERB_ENTRY_GET,
                  (struct buffer_ask){ .env = bytes_str(env), .key_frame = key_frame_of(key) });
}

static struct buffer_ask append_ask(const char *env, unsigned n, uint64_t rev,
                                    const char *change)
{
    return (struct buffer_ask){
        .env = bytes_str(env), .id = id_of(n), .rev = rev, .change = bytes_str(change)
    };
}

const struct op *append(const char *env, unsigned n, uint64_t rev, const char *change)
{
    return buffer(VERB_APPEND, append_ask(env, n, rev, change));
}

const struct op *append_freeing(const char *env, unsigned n, uint64_t rev, const char *change)
{
    struct buffer_ask ask = append_ask(env, n, rev, change);
    ask.frees_key = true;
    return buffer(VERB_APPEND, ask);
}

const struct op *drain(uint8_t who, size_t limit, size_t env_limit)
{
    return expect(buffer(VERB_DRAIN_LEASE, (struct buffer_ask){ .token = token_of(who),
                                                                .lease_ms = LEASE_MS,
                                                                .limit = limit,
                                                                .env_limit = env_limit }),
                  OUTCOME_OK);
}

const struct op *drain_entry(uint8_t who, const char *env, unsigned n)
{
    return expect(buffer(VERB_DRAIN_LEASE, (struct buffer_ask){ .token = token_of(who),
                                                                .lease_ms = LEASE_MS,
                                                                .limit = 1,
                                                                .env = bytes_str(env),
                                                                .id = id_of(n) }),
                  OUTCOME_OK);
}

const struct op *settle(uint8_t who, const char *env, unsigned n, enum settle_how how)
{
    struct settle one = { .id = id_of(n), .env = bytes_str(env), .how = how };
    return expect(buffer(VERB_SETTLE, (struct buffer_ask){ .token = token_of(who),
                                                           .settles = &one,
                                                           .settle_count = 1 }),
                  OUTCOME_OK);
}

const struct op *list_entries(const char *env, unsigned before, size_t limit)
{
    struct buffer_ask ask = { .env = bytes_str(env), .limit = limit };
    if (before) ask.before = id_of(before);
    return expect(buffer(VERB_ENTRY_LIST, ask), OUTCOME_OK);
}

const struct op *buffer_stats(void)
{
    return expect(buffer(VERB_BUFFER_STATS, (struct buffer_ask){ 0 }), OUTCOME_OK);
}

/* ---- looking at answers ---- */

const struct entry *only(const struct op *op)
{
    cr_assert(op->buffer->entries.count == 1, "%zu entries", op->buffer->entries.count);
    return op->buffer->entries.rows[0];
}

size_t entries_of(const struct op *op, const char *env)
{
    size_t count = 0;
    for (size_t i = 0; i < op->buffer->entries.count; i++)
        count += bytes_eq(op->buffer->entries.rows[i]->env, bytes_str(env));
    return count;
}

void expect_entries(const struct op *op, const char *env, const char *numbers)
{
    char text[4096] = "";
    size_t len = 0;
    for (size_t i = 0; i < op->buffer->entries.count; i++) {
        const struct entry *e = op->buffer->entries.rows[i];
        if (!bytes_eq(e->env, bytes_str(env))) continue;
        cr_assert(len < sizeof text - 16);
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%u", len ? " " : "",
                                number_of(&e->id));
    }
    cr_assert(strcmp(text, numbers) == 0, "%s: %s, expected %s", env, text, numbers);
}

void expect_state(const char *env, unsigned n, enum entry_state state)
{
    const struct entry *e = only(expect(get(env, n), OUTCOME_OK));
    cr_assert(e->state == state, "%s/%u is %d, expected %d", env, n, (int)e->state, (int)state);
}
