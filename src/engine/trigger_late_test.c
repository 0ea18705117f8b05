/* trigger_late_test.c - a trigger that is overtaken, between any two of its steps, and one whose claims come
 * to nothing again and again.
 *
 * The slow one is in a process of its own, whose way to the stores is held up; whoever overtakes it uses
 * the stores as they are. */
#include "base/check.h"
#include "engine/runs_scene_test.h"

static struct scene s, slow; /* on the same stores */

static void open_slow(void)
{
    struct engine_config config = ENGINE_CONFIG_INIT;
    struct err err;
    scene_open(&s, 100000);
    slow = s;
    slow.store = faulty_open(s.store, &s.world.env);
    config.sweep_ms = 0;
    config.runs = &slow.config;
    cr_assert(engine_open(slow.store, &s.world.env, &config, &slow.engine, &err) == 0);
}

static void close_slow(void)
{
    engine_stop(slow.engine);
    world_settle(&s.world);
    cr_assert(engine_idle(slow.engine));
    engine_free(slow.engine);
    s.store = slow.store; /* it owns the other one */
    scene_close(&s);
}

TestSuite(trigger_late, .init = open_slow, .fini = close_slow);

/* The trigger of "k" comes to this step and no further. */
static void stops_before(enum verb verb, struct asked *a)
{
    struct run_args args = trigger_args("k", "1");
    args.wait_ms = 120000;
    faulty_set(slow.store, VERB_RENEW, FAULT_REFUSE, FAULTY_ALWAYS); /* it stands still */
    faulty_set(slow.store, verb, FAULT_HOLD, 1);
    ask_start(&slow, &args, a);
    world_settle(&s.world);
    cr_assert(a->finished == 0 && faulty_held(slow.store) == 1);
}

static void goes_on(void)
{
    faulty_let_go(slow.store);
    world_settle(&s.world);
}

/* ---- hints that lead nowhere ---- */

/* Each time that a hint was dropped, and before the key is claimed anew, there is another one. */
Test(trigger_late, claims_that_come_to_nothing_five_times_are_told_to_come_again)
{
    static const char ghost[] = "run_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    struct run_args args = trigger_args("k", "1");
    struct asked a;
    faulty_set(slow.store, VERB_CLAIM, FAULT_HOLD, FAULTY_ALWAYS);
    ask_start(&slow, &args, &a);
    for (unsigned round = 1; round <= 5; round++) {
        world_settle(&s.world);
        cr_assert(a.finished == 0 && faulty_held(slow.store) == 1, "round %u", round);
        plant(&s, VERB_CLAIM, "k", NULL, 30000);
        plant(&s, VERB_PUBLISH, "k", ghost, 0);
        faulty_let_go(slow.store);
    }
    world_settle(&s.world);
    expect(a, OUTCOME_TIMED_OUT); /* 503, and not a run without a claim */
    struct run_stats stats = engine_run_stats(slow.engine);
    cr_assert(stats.hints_dropped == 5 && stats.claim_timeouts == 1 && stats.claims == 0);
    cr_assert(faulty_count(slow.store, VERB_CLAIM) == 5);
    cr_assert(faulty_count(slow.store, VERB_RUN_PUT) == 0, "and made none");
    expect(trigger(&s, "k", "1"), OUTCOME_OK);
}

/* ---- overtaken before the insert ---- */

Test(trigger_late, an_insert_after_the_lease_is_refused_and_leads_to_the_successors_run)
{
    struct asked a;
    stops_before(VERB_RUN_PUT, &a);
    world_advance(&s.world, LEASE_MS_DEFAULT);
    struct asked successor = expect(trigger(&s, "k", "1"), OUTCOME_OK);
    goes_on();
    expect(a, OUTCOME_CACHED);
    struct run_id mine = id_of(&a), theirs = id_of(&successor);
    cr_assert(run_id_eq(&mine, &theirs));
    cr_assert(engine_run_stats(slow.engine).ownership_lost == 1);
}

/* ---- overtaken before the publish: the row is there ---- */

Test(trigger_late, who_takes_over_between_insert_and_publish_finds_the_row)
{
    struct asked a;
    stops_before(VERB_PUBLISH, &a);
    struct run_args impatient = trigger_args("k", "1");
    impatient.wait_ms = 0;
    expect(ask(&s, impatient), OUTCOME_TIMED_OUT); /* it is inserted, and not published */
    world_advance(&s.world, LEASE_MS_DEFAULT);
    struct asked successor = expect(trigger(&s, "k", "1"), OUTCOME_CACHED);
    goes_on();
    expect(a, OUTCOME_OK);
    struct run_id mine = id_of(&a), theirs = id_of(&successor);
    cr_assert(run_id_eq(&mine, &theirs));
    struct run_stats stats = engine_run_stats(slow.engine);
    cr_assert(stats.ownership_lost == 1 && stats.aliased == 0, "overtaken, by its own run");
}

/* A run in the buffer, under a claim of somebody's, or without one. */
static void accept_behind(const char *key, const struct run_id *id, bool claimed)
{
    uint8_t hash[SHA256_BYTES], frame[RUN_KEY_FRAME_BYTES_MAX];
    char name[65];
    struct buf packed;
    fingerprint_of("1", hash);
    if (claimed) plant(&s, VERB_CLAIM, key, NULL, 30000);
    struct run run = { .id = *id,
                       .env = bytes_str("test"),
                       .task = bytes_str("mail"),
                       .queue = bytes_str("mail"),
                       .payload = bytes_str("1"),
                       .fingerprint = bytes_of(hash, sizeof hash),
                       .key = bytes_str(key),
                       .key_held = true,
                       .key_until_ms = s.world.wall_ms + 86400000,
                       .state = RUN_QUEUED,
                       .created_at_ms = s.world.wall_ms,
                       .available_at_ms = s.world.wall_ms,
                       .attempts_max = 3 };
    buf_init(&packed, 10000);
    run_encode(&run, &packed);
    struct key claim = claim_of(key, name);
    struct request in = { .token = token_of(9),
                          .retain_ms = -1,
                          .value = blob_new(run_id_bytes(&run.id)) };
    struct buffer_ask accept = { .env = run.env,
                                 .id = run.id,
                                 .run = buf_bytes(&packed),
                                 .unclaimed = !claimed,
                                 .key_frame =
                                     bytes_of(frame, run_key_frame(run.task, run.key, frame)) };
    struct op *op = op_new(VERB_ACCEPT, &claim, &in);
    op->buffer = &accept;
    world_run(&s.world, s.store, op);
    cr_assert(!op->err.code && op->out.outcome == OUTCOME_OK);
    op_free(op);
    buffer_ask_clear(&accept);
    blob_unref(in.value);
    buf_fini(&packed);
}

static struct run_id other_id(void)
{
    uint8_t random[RUN_ID_RANDOM_BYTES] = { 7 };
    struct run_id id;
    run_id_make(s.world.wall_ms, random, &id);
    return id;
}

/* Somebody has taken the claim over, has not seen the row, which was not committed then, and has put
 * another run into the buffer. */
Test(trigger_late, a_rival_in_the_buffer_becomes_an_alias_at_once)
{
    struct asked a;
    stops_before(VERB_PUBLISH, &a);
    world_advance(&s.world, LEASE_MS_DEFAULT);
    struct run_id rival = other_id();
    accept_behind("k", &rival, true);
    struct run_change tag = { .kind = RUN_ADD_TAGS, .body = bytes_str("\5rival") };
    cr_assert(expect(change(&s, &rival, tag), OUTCOME_OK).buffered);
    goes_on(); /* nobody drains, but for this one */
    expect(a, OUTCOME_OK);
    struct run_id mine = id_of(&a);
    struct asked by_rival = expect(get(&s, &rival), OUTCOME_OK);
    const struct run *run = by_rival.rows.rows[0];
    cr_assert(!by_rival.buffered && run_id_eq(&run->id, &mine));
    cr_assert(run_id_eq(&run->canonical, &mine) && bytes_eq(run->tags, bytes_str("\5rival")));
    struct run_stats stats = engine_run_stats(slow.engine);
    cr_assert(stats.ownership_lost == 1 && stats.aliased == 1);
    struct asked later = expect(trigger(&s, "k", "1"), OUTCOME_CACHED);
    struct run_id id = id_of(&later);
    cr_assert(run_id_eq(&id, &mine));
}

/* Its run went into the buffer, the answer was lost, and so was that of the ledger, which it asked next.
 * Meanwhile somebody who did not see coord has made another, and it was drained into an alias of that. */
Test(trigger_late, whose_run_has_become_an_alias_meanwhile_has_not_made_the_other)
{
    struct asked a;
    struct run_args args = trigger_args("k", "1");
    args.run.id = other_id();
    args.id_is_new = true;
    faulty_set(slow.store, VERB_CLAIM, FAULT_REFUSE, FAULTY_ALWAYS);
    faulty_set(slow.store, VERB_RUN_PUT, FAULT_LOSE_REQUEST, 1);
    ask_start(&slow, &args, &a);
    world_settle(&s.world);
    cr_assert(a.finished == 0);
    struct asked made = expect(trigger(&s, "k", "1"), OUTCOME_OK);
    accept_behind("k", &args.run.id, false);
    cr_assert(drain_for(&s, 10, 0).aliased == 1);
    world_advance(&s.world, 1000);
    expect(a, OUTCOME_CACHED);
    struct run_id mine = id_of(&a), theirs = id_of(&made);
    cr_assert(run_id_eq(&mine, &theirs));
}
