/* http_twin_test.c - one random history, told to the HTTP door and to an engine beside it that
 * has the same clock: every answer is the same, with the status that the table of outcomes has
 * for it. */
#include "daemon/http_scene_test.h"
#include "tests/support/caller.h"

#include <jansson.h>
#include <limits.h>

enum { KEYS = 3, OWNERS_MAX = 6, SEEDS = 12, STEPS = 250 };

/* Of one claim: as the door gave it, and as the engine did. */
struct owner_pair {
    char text[33];
    struct token token;
};

struct twin {
    struct scene scene;
    struct store *store;
    struct engine *engine;
    struct rng_seeded rng;
    int fd;
    struct owner_pair owners[KEYS][OWNERS_MAX]; /* the last ones, in turns */
    size_t claims[KEYS];
    unsigned seen[OUTCOMES + 1];
    int status;     /* of the last answer */
    json_t *answer; /* its content */
};

static void twin_open(struct twin *t, uint64_t seed)
{
    struct engine_config config = ENGINE_CONFIG_INIT;
    struct err err;
    scene_open(&t->scene);
    rng_seeded_init(&t->rng, seed);
    t->store = world_open(&t->scene.world, "memory");
    config.value_bytes_max = SCENE_VALUE_BYTES_MAX;
    cr_assert_eq(engine_open(t->store, &t->scene.world.env, &config, &t->engine, &err), 0);
    t->fd = dial(&t->scene);
}

static void twin_close(struct twin *t)
{
    json_decref(t->answer);
    close(t->fd);
    engine_stop(t->engine);
    world_settle(&t->scene.world);
    engine_free(t->engine);
    world_close(&t->scene.world, t->store);
    scene_close(&t->scene);
}

static unsigned below(struct twin *t, unsigned limit)
{
    return (unsigned)rng_below(&t->rng.base, limit);
}

/* ---- the door ---- */

static void tell_door(struct twin *t, const char *line, json_t *body)
{
    char text[4096];
    char *json = body ? json_dumps(body, JSON_COMPACT) : NULL;
    snprintf(text, sizeof text, "%s" HOST "%sContent-Length: %zu\r\n\r\n%s", line,
             json ? "Content-Type: application/json\r\n" : "", json ? strlen(json) : 0,
             json ? json : "");
    say(&t->scene, t->fd, text);
    const char *got = hear(t->fd), *content = strstr(got, "\r\n\r\n");
    cr_assert(content && strncmp(got, "HTTP/1.1 ", 9) == 0, "%s: %s", line, got);
    json_decref(t->answer);
    t->status = atoi(got + 9);
    t->answer = json_loads(content + 4, 0, NULL);
    cr_assert(t->answer, "%s: %s", line, got);
    json_decref(body);
    free(json);
}

static const char *text_of(const struct twin *t, const char *name)
{
    return json_string_value(json_object_get(t->answer, name));
}

static int64_t number_of(const struct twin *t, const char *name)
{
    json_t *n = json_object_get(t->answer, name);
    return n ? json_integer_value(n) : -1;
}

static void line_of(char out[128], const char *method, unsigned key, const char *rest)
{
    snprintf(out, 128, "%s /v1/claims/s/%c%s", method, (char)('a' + key), rest);
}

/* ---- the engine beside it ---- */

static struct call_args args_of(enum verb verb, unsigned key)
{
    static const char *const names[] = { "a", "b", "c" };
    return (struct call_args){ .verb = verb,
                               .key = key_of("s", names[key]),
                               .in = { .lease_ms = -1, .retain_ms = -1 } };
}

/* Asks the engine the same, and compares. */
static void same(struct twin *t, const char *line, const struct call_args *args)
{
    struct caller c = { 0 };
    caller_call(&c, t->engine, args);
    world_settle(&t->scene.world);
    cr_assert(c.finished == 1 && c.error == 0, "%s", line);
    const struct outcome_info *info = outcome_info(c.outcome);
    cr_assert_str_eq(text_of(t, "outcome"), info->name, "%s", line);
    cr_assert_eq(t->status, info->http_status, "%s", line);
    t->seen[c.outcome]++;
    if (c.outcome == OUTCOME_CLAIMED)
        cr_assert_eq(number_of(t, "fence"), (int64_t)c.out.fence, "%s", line);
    if (number_of(t, "lease_left_ms") >= 0)
        cr_assert_eq(number_of(t, "lease_left_ms"), c.out.lease_left_ms, "%s", line);
    bool shown = c.has_value && c.outcome != OUTCOME_OK;
    cr_assert_eq(text_of(t, "value") != NULL, shown, "%s", line);
    if (shown) cr_assert_str_eq(text_of(t, "value"), c.value, "%s", line);
    if (c.outcome != OUTCOME_CLAIMED) return;
    unsigned key = args->key.name.data[0] - 'a';
    struct owner_pair *o = &t->owners[key][t->claims[key]++ % OWNERS_MAX];
    snprintf(o->text, sizeof o->text, "%s", text_of(t, "token"));
    o->token = c.token;
}

/* One of those who own the key, or did; nobody's if there was none. */
static const struct owner_pair *some_owner(struct twin *t, unsigned key)
{
    static const struct owner_pair nobody = { .text = "00000000000000000000000000000000" };
    size_t n = t->claims[key] < OWNERS_MAX ? t->claims[key] : OWNERS_MAX;
    return n ? &t->owners[key][below(t, (unsigned)n)] : &nobody;
}

/* ---- verbs ---- */

static void step_claim(struct twin *t, unsigned key)
{
    static const int64_t leases[] = { 0, 1000, 5000 }, retains[] = { 0, 3000, 60000 };
    static const char *const prints[] = { "", "x" };
    struct call_args args = args_of(VERB_CLAIM, key);
    const char *print = prints[below(t, 8) == 0];
    char line[128];
    args.in.lease_ms = leases[below(t, 3)];
    args.in.retain_ms = retains[below(t, 3)];
    args.in.fingerprint = bytes_str(print);
    line_of(line, "POST", key, "");
    tell_door(t, line,
              json_pack("{s:I, s:I, s:i, s:s}", "lease_ms", (json_int_t)args.in.lease_ms,
                        "retain_ms", (json_int_t)args.in.retain_ms, "wait_ms", 0, "fingerprint",
                        print));
    same(t, line, &args);
}

static void step_publish(struct twin *t, unsigned key)
{
    static const char *const values[] = { NULL, "", "v", "\xc3\xa9 \"\\\n" };
    const struct owner_pair *o = some_owner(t, key);
    const char *value = values[below(t, 4)];
    struct call_args args = args_of(VERB_PUBLISH, key);
    char line[128];
    args.in.token = o->token;
    args.in.value = value ? blob_new(bytes_str(value)) : NULL;
    line_of(line, "PUT", key, "");
    tell_door(t, line, json_pack("{s:s, s:s?}", "token", o->text, "value", value));
    same(t, line, &args);
    blob_unref(args.in.value);
}

static void step_renew(struct twin *t, unsigned key)
{
    const struct owner_pair *o = some_owner(t, key);
    struct call_args args = args_of(VERB_RENEW, key);
    char line[128];
    args.in.token = o->token;
    line_of(line, "POST", key, "/renew");
    if (below(t, 2)) args.in.lease_ms = 2000;
    tell_door(t, line,
              args.in.lease_ms < 0
                  ? json_pack("{s:s}", "token", o->text)
                  : json_pack("{s:s, s:i}", "token", o->text, "lease_ms", 2000));
    same(t, line, &args);
}

static void step_release(struct twin *t, unsigned key)
{
    const struct owner_pair *o = some_owner(t, key);
    struct call_args args = args_of(VERB_RELEASE, key);
    char line[128], query[48];
    args.in.token = o->token;
    snprintf(query, sizeof query, "?token=%s", o->text);
    line_of(line, "DELETE", key, query);
    tell_door(t, line, NULL);
    same(t, line, &args);
}

static void step_peek(struct twin *t, unsigned key)
{
    struct call_args args = args_of(VERB_PEEK, key);
    char line[128];
    line_of(line, "GET", key, "");
    tell_door(t, line, NULL);
    same(t, line, &args);
}

static void step_forget(struct twin *t, unsigned key)
{
    struct call_args args = args_of(VERB_FORGET, key);
    char line[128];
    line_of(line, "POST", key, "/forget");
    tell_door(t, line, NULL);
    same(t, line, &args);
}

static void step_time(struct twin *t, unsigned key)
{
    static const int64_t pauses_ms[] = { 1, 999, 1000 };
    pass_ms(&t->scene, pauses_ms[key]);
}

static void (*const steps[])(struct twin *, unsigned) = {
    step_claim, step_claim,   step_claim, step_publish, step_publish, step_renew,
    step_peek,  step_release, step_time,  step_time,    step_forget,
};

Test(http_twin, the_door_says_what_the_engine_says)
{
    unsigned seen[OUTCOMES + 1] = { 0 };
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct twin t = { 0 };
        twin_open(&t, seed);
        for (int i = 0; i < STEPS; i++)
            steps[below(&t, sizeof steps / sizeof steps[0])](&t, below(&t, KEYS));
        for (size_t i = 0; i <= OUTCOMES; i++) seen[i] += t.seen[i];
        twin_close(&t);
    }
    seen[OUTCOME_TIMED_OUT] = UINT_MAX;       /* nobody waits here */
    for (int o = 1; o <= OUTCOME_ABSENT; o++) /* those of claims */
        cr_assert(seen[o] > 10, "%s was hardly seen", outcome_name((enum outcome)o));
}
