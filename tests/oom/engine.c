/* engine.c - the engine on every store, on a clock that only the scenario moves.
 *
 * Parties make calls on one key. Whatever the fault did: each party is told exactly once; what
 * a publish acknowledged is what everybody finds; what was refused is not there; and the key
 * can be claimed or is answered within a lease and two seconds after memory is back. */
#include "tests/oom/oom.h"

#include "base/check.h"
#include "engine/engine.h"
#include "tests/support/world.h"

#include <string.h>

enum {
    PARTIES = 6,
    LEASE_MS = 30000,
    RETAIN_MS = 86400000,
    HEAL_MS = LEASE_MS + 2000,
    ASKED_AGAIN_MS = 3000
};

struct party {
    struct rig *rig;
    struct call *call;
    bool started, done;
    int code;
    enum outcome outcome;
    struct token token;
    char value[8];
    unsigned lost;
};

struct rig {
    struct world world;
    struct store *store;
    struct engine *engine;
    struct party parties[PARTIES];
    enum oom_mode mode;
    size_t nth;
};

static const char *const answer_text = "answer";

static struct key the_key(void)
{
    return key_of("oom", "key");
}

static void rig_open(struct rig *r, const char *store, enum oom_mode mode, size_t nth)
{
    struct engine_config config = ENGINE_CONFIG_INIT;
    struct err err;
    config.sweep_ms = 0;
    *r = (struct rig){ .mode = mode, .nth = nth };
    world_init(&r->world, nth);
    static size_t opened; /* the directory is shared, the files are not */
    memcpy(r->world.dir, oom_dir(), strlen(oom_dir()) + 1);
    r->world.file_count = opened++;
    r->store = world_open(&r->world, store);
    CHECK(engine_open(r->store, &r->world.env, &config, &r->engine, &err) == 0);
}

static void rig_close(struct rig *r)
{
    engine_stop(r->engine);
    world_settle(&r->world);
    CHECK(engine_idle(r->engine));
    engine_free(r->engine);
    world_close(&r->world, r->store);
    r->world.dir[0] = '\0'; /* main's, and still needed */
    world_fini(&r->world);
}

static void party_over(struct call *call, void *ctx)
{
    struct party *p = ctx;
    EXPECT(!p->done);
    p->done = true;
    p->code = call_error(call)->code;
    if (p->code) {
        if (p->code != ERR_CANCELED) expect_error(p->code, call_error(call)->text);
        return;
    }
    const struct answer *out = call_answer(call);
    struct bytes value = blob_bytes(out->value);
    p->outcome = out->outcome;
    if (p->outcome == OUTCOME_CLAIMED) p->token = *call_token(call);
    memcpy(p->value, value.data ? (const void *)value.data : "", value.len);
}

static void party_lost(const struct owner *owner, const struct token *token, uint64_t fence,
                       int64_t lease_ms, bool certain)
{
    (void)token, (void)fence, (void)lease_ms, (void)certain;
    ((struct party *)owner->ctx)->lost++;
}

static void party_start(struct rig *r, struct party *p, const struct call_args *args)
{
    struct call_args all = *args;
    struct err err = { 0 };
    *p = (struct party){ .rig = r, .token = args->in.token };
    all.key = the_key();
    all.done = party_over;
    all.ctx = p;
    p->code = engine_call(r->engine, &all, &p->call, &err);
    p->started = p->code == 0;
    p->done = !p->started;
    if (p->code) expect_error(p->code, err.text);
}

static void claim(struct rig *r, unsigned who, int64_t lease_ms, int64_t wait_ms)
{
    party_start(
        r, &r->parties[who],
        &(struct call_args){ .verb = VERB_CLAIM,
                             .in = { .lease_ms = lease_ms, .retain_ms = RETAIN_MS },
                             .wait_ms = wait_ms,
                             .renew = true,
                             .owner = { .lost = party_lost, .ctx = &r->parties[who] } });
}

/* The publish or release of a claim that `owner` was granted. */
static void settle_claim(struct rig *r, unsigned who, const struct party *owner, enum verb verb)
{
    struct call_args args = { .verb = verb, .in = { .token = owner->token, .retain_ms = -1 } };
    if (verb == VERB_PUBLISH) args.in.value = blob_new(bytes_str(answer_text));
    if (verb == VERB_PUBLISH && !args.in.value) {
        r->parties[who] = (struct party){ .done = true, .code = ERR_NOMEM };
        return;
    }
    party_start(r, &r->parties[who], &args);
    blob_unref(args.in.value);
}

/* A claim and a settled world, without a fault. */
static void own_first(struct rig *r, int64_t lease_ms)
{
    claim(r, 0, lease_ms, 0);
    world_settle(&r->world);
    CHECK(r->parties[0].done && r->parties[0].outcome == OUTCOME_CLAIMED);
}

static bool was_told_answer(const struct party *p)
{
    return p->done && !p->code && p->outcome == OUTCOME_CACHED;
}

static bool acknowledged(const struct party *publish)
{
    return publish->done && !publish->code && publish->outcome == OUTCOME_OK;
}

/* Memory is back: everybody is told, and the key is not stuck. `publish` NULL: nobody tried. */
static void heal(struct rig *r, const struct party *publish)
{
    world_advance(&r->world, HEAL_MS);
    for (unsigned i = 0; i < PARTIES; i++) {
        const struct party *p = &r->parties[i];
        if (p->started) EXPECT(p->done);
        if (was_told_answer(p)) EXPECT(strcmp(p->value, answer_text) == 0);
        if (was_told_answer(p))
            EXPECT(publish && (acknowledged(publish) || publish->code == ERR_AMBIGUOUS));
    }
    struct party *last = &r->parties[PARTIES - 1];
    claim(r, PARTIES - 1, LEASE_MS, 0);
    world_settle(&r->world);
    EXPECT(last->done && last->code == 0);
    bool there = was_told_answer(last);
    if (publish && acknowledged(publish)) EXPECT(there);
    if (!publish || (publish->code && publish->code != ERR_AMBIGUOUS)) EXPECT(!there);
    if (there) EXPECT(strcmp(last->value, answer_text) == 0);
}

/* ... and whoever owns it now can finish it. */
static void finish_key(struct rig *r)
{
    if (was_told_answer(&r->parties[PARTIES - 1])) return;
    for (unsigned i = PARTIES; i-- > 0;) {
        struct party owner = r->parties[i];
        if (!owner.done || owner.code || owner.outcome != OUTCOME_CLAIMED) continue;
        settle_claim(r, i, &owner, VERB_PUBLISH);
        world_settle(&r->world);
        EXPECT(r->parties[i].done && !r->parties[i].code);
        if (acknowledged(&r->parties[i])) return;
    }
    EXPECT(!"somebody who can finish the key");
}

/* ---- the scenarios ---- */

static bool claim_alone(const char *store, enum oom_mode mode, size_t nth)
{
    struct rig r;
    rig_open(&r, store, mode, nth);
    oom_arm(mode, nth);
    claim(&r, 0, LEASE_MS, 0);
    world_settle(&r.world);
    bool fired = oom_disarm();
    world_advance(&r.world, ASKED_AGAIN_MS);
    struct party owner = r.parties[0];
    EXPECT(owner.done && (owner.code || owner.outcome == OUTCOME_CLAIMED));
    struct party *publish = NULL;
    if (!owner.code) {
        settle_claim(&r, 1, &owner, VERB_PUBLISH);
        world_settle(&r.world);
        publish = &r.parties[1];
        EXPECT(acknowledged(publish));
    }
    heal(&r, publish);
    finish_key(&r);
    rig_close(&r);
    return fired;
}

static bool publish_replay(const char *store, enum oom_mode mode, size_t nth)
{
    struct rig r;
    rig_open(&r, store, mode, nth);
    own_first(&r, LEASE_MS);
    oom_arm(mode, nth);
    settle_claim(&r, 1, &r.parties[0], VERB_PUBLISH);
    world_settle(&r.world);
    claim(&r, 2, LEASE_MS, 0);
    world_settle(&r.world);
    bool fired = oom_disarm();
    heal(&r, &r.parties[1]);
    finish_key(&r);
    rig_close(&r);
    return fired;
}

static bool contended_wait(const char *store, enum oom_mode mode, size_t nth)
{
    struct rig r;
    rig_open(&r, store, mode, nth);
    own_first(&r, LEASE_MS);
    oom_arm(mode, nth);
    for (unsigned i = 2; i < PARTIES - 1; i++) claim(&r, i, LEASE_MS, HEAL_MS / 2);
    world_settle(&r.world);
    settle_claim(&r, 1, &r.parties[0], VERB_PUBLISH);
    world_settle(&r.world);
    bool fired = oom_disarm();
    heal(&r, &r.parties[1]);
    finish_key(&r);
    rig_close(&r);
    return fired;
}

static bool takeover(const char *store, enum oom_mode mode, size_t nth)
{
    struct rig r;
    rig_open(&r, store, mode, nth);
    own_first(&r, 0); /* lapsed at once */
    oom_arm(mode, nth);
    claim(&r, 2, LEASE_MS, 1000);
    world_settle(&r.world);
    bool fired = oom_disarm();
    world_advance(&r.world, 1000);
    const struct party *second = &r.parties[2];
    EXPECT(second->done && (second->code || second->outcome == OUTCOME_CLAIMED));
    struct party *late = &r.parties[1];
    settle_claim(&r, 1, &r.parties[0], VERB_PUBLISH);
    world_settle(&r.world);
    EXPECT(late->done && !late->code);
    if (!second->code) EXPECT(late->outcome == OUTCOME_LOST);
    if (!second->code) {
        settle_claim(&r, 1, second, VERB_PUBLISH);
        world_settle(&r.world);
    }
    heal(&r, late);
    finish_key(&r);
    rig_close(&r);
    return fired;
}

static bool release_promotion(const char *store, enum oom_mode mode, size_t nth)
{
    struct rig r;
    rig_open(&r, store, mode, nth);
    own_first(&r, LEASE_MS);
    claim(&r, 2, LEASE_MS, HEAL_MS);
    claim(&r, 3, LEASE_MS, HEAL_MS);
    world_settle(&r.world);
    oom_arm(mode, nth);
    settle_claim(&r, 1, &r.parties[0], VERB_RELEASE);
    world_settle(&r.world);
    bool fired = oom_disarm();
    world_advance(&r.world, 2000);
    bool second = r.parties[2].done && !r.parties[2].code;
    bool third = r.parties[3].done && !r.parties[3].code;
    EXPECT(!(second && third)); /* never both */
    for (unsigned i = 2; i < 4; i++)
        if (r.parties[i].done && !r.parties[i].code)
            EXPECT(r.parties[i].outcome == OUTCOME_CLAIMED);
    engine_stop(r.engine); /* owners that nobody renews any more */
    world_settle(&r.world);
    for (unsigned i = 0; i < 4; i++) EXPECT(!r.parties[i].started || r.parties[i].done);
    rig_close(&r);
    return fired;
}

static bool renewal(const char *store, enum oom_mode mode, size_t nth)
{
    struct rig r;
    rig_open(&r, store, mode, nth);
    own_first(&r, LEASE_MS);
    oom_arm(mode, nth);
    world_advance(&r.world, LEASE_MS * 2);
    bool fired = oom_disarm();
    /* Long enough for a retry, short enough for nobody else to have come: still the owner. */
    world_advance(&r.world, 2000);
    settle_claim(&r, 1, &r.parties[0], VERB_PUBLISH);
    world_settle(&r.world);
    EXPECT(acknowledged(&r.parties[1]));
    heal(&r, &r.parties[1]);
    rig_close(&r);
    return fired;
}

/* Somebody else takes the key over behind the engine's back; the owner is told. */
static bool lost(const char *store, enum oom_mode mode, size_t nth)
{
    struct rig r;
    rig_open(&r, store, mode, nth);
    own_first(&r, LEASE_MS);
    struct key key = the_key();
    struct request in = { .token = r.parties[0].token, .retain_ms = -1 };
    struct op *op = op_new(VERB_RELEASE, &key, &in);
    world_run(&r.world, r.store, op);
    op_free(op);
    oom_arm(mode, nth);
    world_advance(&r.world, LEASE_MS / 2);
    bool fired = oom_disarm();
    world_advance(&r.world, LEASE_MS);
    EXPECT(r.parties[0].lost >= 1);
    heal(&r, NULL);
    finish_key(&r);
    rig_close(&r);
    return fired;
}

static bool cancel(const char *store, enum oom_mode mode, size_t nth)
{
    struct rig r;
    rig_open(&r, store, mode, nth);
    own_first(&r, LEASE_MS);
    oom_arm(mode, nth);
    for (unsigned i = 2; i < 5; i++) claim(&r, i, LEASE_MS, HEAL_MS);
    if (r.parties[2].started) call_cancel(r.parties[2].call);
    world_settle(&r.world);
    for (unsigned i = 3; i < 5; i++)
        if (!r.parties[i].done) call_cancel(r.parties[i].call);
    world_settle(&r.world);
    for (unsigned i = 2; i < 5; i++) EXPECT(r.parties[i].done);
    settle_claim(&r, 1, &r.parties[0], VERB_RELEASE);
    world_settle(&r.world);
    bool fired = oom_disarm();
    if (r.parties[1].code) settle_claim(&r, 1, &r.parties[0], VERB_RELEASE);
    world_settle(&r.world);
    heal(&r, NULL);
    finish_key(&r);
    rig_close(&r);
    return fired;
}

static bool list_and_sweep(const char *store, enum oom_mode mode, size_t nth)
{
    static const enum verb verbs[] = { VERB_SCAN, VERB_STATS, VERB_EXPIRE };
    struct rig r;
    rig_open(&r, store, mode, nth);
    own_first(&r, LEASE_MS);
    oom_arm(mode, nth);
    for (unsigned i = 0; i < 3; i++) {
        party_start(&r, &r.parties[2 + i],
                    &(struct call_args){ .verb = verbs[i], .all_scopes = true, .limit = 10 });
        world_settle(&r.world);
        EXPECT(r.parties[2 + i].done);
    }
    bool fired = oom_disarm();
    settle_claim(&r, 1, &r.parties[0], VERB_PUBLISH);
    world_settle(&r.world);
    heal(&r, &r.parties[1]);
    rig_close(&r);
    return fired;
}

#define ON_EVERY_STORE(text, function)                                                         \
    { text, function, "memory" }, { text, function, "sqlite" }, { text, function, "tiered" },  \
        { text, function, "tiered-sqlite" }, { text, function, "remote" },                     \
    {                                                                                          \
        text, function, "redis"                                                                \
    }

const struct scenario engine_scenarios[] = {
    ON_EVERY_STORE("claim", claim_alone),
    ON_EVERY_STORE("publish and replay", publish_replay),
    ON_EVERY_STORE("contended wait", contended_wait),
    ON_EVERY_STORE("takeover", takeover),
    ON_EVERY_STORE("release and promotion", release_promotion),
    ON_EVERY_STORE("renewal", renewal),
    ON_EVERY_STORE("lost", lost),
    ON_EVERY_STORE("cancel", cancel),
    ON_EVERY_STORE("list, stats, sweep", list_and_sweep),
    { NULL, NULL, NULL },
};
