/* tiered_test.c - coord refused, hung, flushed, wrong: the answers stay right (T1-T4).
 * What holds while both planes are well is in the conform and model suites. */
#include "store/store.h"

#include "tests/support/faulty.h"
#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define LEASE_MS INT64_C(30000)
#define RETAIN_MS INT64_C(600000)

static struct world world;
static struct store *coord_memory, *coord, *ledger, *tiered;
static unsigned amnesia, opened, closed;

static void on_trace(void *ctx, const struct trace_event *event)
{
    (void)ctx;
    if (event->kind == TRACE_AMNESIA) amnesia++;
    if (event->kind == TRACE_BREAKER && event->number) opened++;
    if (event->kind == TRACE_BREAKER && !event->number) closed++;
}

static const struct trace trace = { .emit = on_trace };

static struct store *direct(struct store *bare)
{
    struct store *s;
    struct err err;
    cr_assert(direct_open(bare, &world.env, &s, &err) == 0);
    return s;
}

static struct store *memory(void)
{
    struct store *s;
    struct err err;
    cr_assert(store_open_bare("memory:", &world.env, &s, &err) == 0);
    return s;
}

static void setup(void)
{
    struct tiered_options options = TIERED_OPTIONS_INIT;
    struct err err;
    world_init(&world, 1);
    world.env.trace = &trace;
    coord_memory = memory();
    coord = faulty_open(direct(coord_memory), &world.env);
    ledger = faulty_open(direct(memory()), &world.env);
    cr_assert(tiered_open(coord, ledger, &options, &world.env, &tiered, &err) == 0);
}

static void teardown(void)
{
    world_close(&world, tiered);
    world_fini(&world);
}

TestSuite(tiered, .init = setup, .fini = teardown);

/* ---- asking ---- */

struct reply {
    struct op *op;
    unsigned finished;
    int64_t took_ms, started_ms;
};

static void finished(struct op *op, void *ctx)
{
    (void)op;
    struct reply *r = ctx;
    r->finished++;
    r->took_ms = world.mono_ms - r->started_ms;
}

static void start(struct reply *r, struct store *s, enum verb verb, uint8_t who,
                  const char *value)
{
    struct key key = key_of("s", "k");
    struct request in = { .token = token_of(who),
                          .lease_ms = LEASE_MS,
                          .retain_ms = RETAIN_MS };
    if (value) in.value = blob_new(bytes_str(value));
    *r = (struct reply){ .op = op_new(verb, &key, &in), .started_ms = world.mono_ms };
    blob_unref(in.value);
    op_push(r->op, finished, r);
    store_submit(s, r->op);
    world_settle(&world);
}

static struct reply ask_at(struct store *s, enum verb verb, uint8_t who, const char *value)
{
    static struct reply r;
    start(&r, s, verb, who, value);
    while (!r.finished) world_advance(&world, 1);
    cr_assert(r.finished == 1);
    return r;
}

static void expect_value(const struct op *op, const char *value)
{
    struct bytes got = blob_bytes(op->out.value);
    cr_assert(bytes_eq(got, bytes_str(value ? value : "")) && (!value == !op->out.value));
}

/* Asks, expects this outcome and whether it was degraded; returns how long it took. */
static int64_t expect(enum verb verb, uint8_t who, const char *value, enum outcome outcome,
                      bool degraded)
{
    struct reply r = ask_at(tiered, verb, who, value);
    cr_assert(r.op->err.code == 0, "%s: %s", verb_info[verb].name, r.op->err.text);
    cr_assert(r.op->out.outcome == outcome, "%s: %s", verb_info[verb].name,
              outcome_name(r.op->out.outcome));
    cr_assert(r.op->out.degraded == degraded, "%s: degraded %d", verb_info[verb].name,
              r.op->out.degraded);
    if (outcome == OUTCOME_CACHED) expect_value(r.op, "A");
    op_free(r.op);
    return r.took_ms;
}

static void expect_error(enum verb verb, uint8_t who, int code)
{
    struct reply r = ask_at(tiered, verb, who, NULL);
    cr_assert(r.op->err.code == code, "%s: %d", verb_info[verb].name, r.op->err.code);
    cr_assert(!r.op->out.value && r.op->out.outcome == 0);
    op_free(r.op);
}

static void open_breaker(void)
{
    faulty_set(coord, VERBS, FAULT_REFUSE, FAULTY_ALWAYS);
    for (uint8_t i = 0; i < 3; i++) expect(VERB_RELEASE, 99, NULL, OUTCOME_LOST, true);
    cr_assert(opened == 1);
}

/* ---- coord refuses ---- */

Test(tiered, without_coord_a_whole_life_goes_on)
{
    faulty_set(coord, VERBS, FAULT_REFUSE, FAULTY_ALWAYS);
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, true);
    expect(VERB_CLAIM, 2, NULL, OUTCOME_IN_PROGRESS, true);
    expect(VERB_RENEW, 1, NULL, OUTCOME_OK, true);
    expect(VERB_PUBLISH, 1, "A", OUTCOME_OK, true);
    expect(VERB_CLAIM, 2, NULL, OUTCOME_CACHED, true);
    expect(VERB_PUBLISH, 2, "B", OUTCOME_LOST, true);
}

Test(tiered, a_refusing_coord_costs_no_time)
{
    faulty_set(coord, VERBS, FAULT_REFUSE, FAULTY_ALWAYS);
    cr_assert(expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, true) == 0);
}

Test(tiered, one_failure_is_not_the_end)
{
    faulty_set(coord, VERB_CLAIM, FAULT_REFUSE, 1);
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, true);
    expect(VERB_CLAIM, 2, NULL, OUTCOME_IN_PROGRESS, false);
    cr_assert(opened == 0);
}

Test(tiered, coord_alone_never_grants)
{
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, false);
    cr_assert(faulty_count(ledger, VERB_CLAIM) == 1);
    memory_flush(coord_memory);
    expect(VERB_CLAIM, 2, NULL, OUTCOME_IN_PROGRESS, false);
    cr_assert(faulty_count(ledger, VERB_CLAIM) == 2, "coord had room, the ledger was asked");
}

Test(tiered, coord_absorbs_those_who_come_meanwhile)
{
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, false);
    for (uint8_t i = 2; i < 50; i++) expect(VERB_CLAIM, i, NULL, OUTCOME_IN_PROGRESS, false);
    cr_assert(faulty_count(ledger, VERB_CLAIM) == 1);
}

/* ---- coord hangs ---- */

Test(tiered, a_hung_coord_costs_one_deadline)
{
    faulty_set(coord, VERB_CLAIM, FAULT_HOLD, 1);
    cr_assert(expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, true) == 100);
    cr_assert(!store_idle(tiered), "the step is still out");
    faulty_let_go(coord);
    world_settle(&world);
    cr_assert(store_idle(tiered));
}

Test(tiered, an_answer_that_comes_too_late_changes_nothing)
{
    faulty_set(coord, VERB_CLAIM, FAULT_HOLD, 1);
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, true);
    expect(VERB_PUBLISH, 1, "A", OUTCOME_OK, true);
    faulty_let_go(coord); /* coord now believes that 1 is on it */
    world_settle(&world);
    world_advance(&world, LEASE_MS);
    expect(VERB_CLAIM, 2, NULL, OUTCOME_CACHED, false);
}

Test(tiered, a_hung_coord_costs_one_deadline_and_then_nothing)
{
    faulty_set(coord, VERBS, FAULT_HOLD, FAULTY_ALWAYS);
    cr_assert(expect(VERB_RELEASE, 1, NULL, OUTCOME_LOST, true) == 100);
    cr_assert(opened == 1);
    for (uint8_t i = 2; i <= 20; i++)
        cr_assert(expect(VERB_RELEASE, i, NULL, OUTCOME_LOST, true) == 0);
    faulty_heal(coord);
    faulty_let_go(coord);
}

/* ---- the breaker ---- */

Test(tiered, breaker_opens_after_three_failures_in_a_row)
{
    faulty_set(coord, VERB_RELEASE, FAULT_REFUSE, 2);
    expect(VERB_RELEASE, 1, NULL, OUTCOME_LOST, true);
    expect(VERB_RELEASE, 1, NULL, OUTCOME_LOST, true);
    expect(VERB_RELEASE, 1, NULL, OUTCOME_LOST, false);
    faulty_set(coord, VERB_RELEASE, FAULT_REFUSE, 2);
    expect(VERB_RELEASE, 1, NULL, OUTCOME_LOST, true);
    expect(VERB_RELEASE, 1, NULL, OUTCOME_LOST, true);
    cr_assert(opened == 0, "two, a success, two: not three in a row");
}

Test(tiered, open_breaker_does_not_ask_coord)
{
    open_breaker();
    unsigned before = faulty_count(coord, VERB_CLAIM);
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, true);
    cr_assert(faulty_count(coord, VERB_CLAIM) == before);
}

Test(tiered, breaker_closes_by_a_probe)
{
    open_breaker();
    faulty_heal(coord);
    world_advance(&world, 1000);
    cr_assert(closed == 1);
    cr_assert(faulty_count(coord, VERB_PING) == 1);
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, false);
    expect(VERB_CLAIM, 2, NULL, OUTCOME_IN_PROGRESS, false);
}

Test(tiered, breaker_stays_open_while_probes_fail)
{
    open_breaker();
    world_advance(&world, 10000);
    unsigned probes = faulty_count(coord, VERB_PING);
    cr_assert(probes >= 10 && probes <= 20, "%u probes in ten seconds", probes);
    cr_assert(closed == 0);
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, true);
    faulty_heal(coord);
    world_advance(&world, 1000);
    cr_assert(closed == 1);
}

/* What the planes say of themselves. */
static void expect_reached(const char *why)
{
    struct reply r = { .op = op_new(VERB_PING, NULL, NULL), .started_ms = world.mono_ms };
    r.op->wants_facts = true;
    op_push(r.op, finished, &r);
    store_submit(tiered, r.op);
    while (!r.finished) world_advance(&world, 1);
    const struct fact *f = r.op->facts ? &r.op->facts->rows[0] : NULL;
    cr_assert(f && strcmp(f->plane, "coord") == 0 && strcmp(f->name, "reached") == 0);
    cr_expect(f->level == FACT_WARN && strstr(f->text, why), "%s", f->text);
    op_free(r.op);
}

Test(tiered, why_coord_is_not_reached_is_told)
{
    faulty_set(coord, VERBS, FAULT_REFUSE, FAULTY_ALWAYS);
    expect_reached("no: it was told to fail");
    open_breaker();
    expect_reached("no: it was told to fail"); /* it is not asked, and is still known */
}

Test(tiered, a_coord_that_hangs_is_told_as_that)
{
    faulty_set(coord, VERBS, FAULT_HOLD, FAULTY_ALWAYS);
    expect_reached("no: no answer within 100 ms");
    faulty_let_go(coord);
}

/* ---- coord forgets, or is wrong ---- */

Test(tiered, flushed_coord_is_noticed_and_does_no_harm)
{
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, false);
    expect(VERB_PUBLISH, 1, "A", OUTCOME_OK, false);
    cr_assert(amnesia == 0);
    memory_flush(coord_memory);
    expect(VERB_CLAIM, 2, NULL, OUTCOME_CACHED, false);
    cr_assert(amnesia == 1);
    unsigned asked = faulty_count(ledger, VERB_CLAIM);
    expect(VERB_CLAIM, 3, NULL, OUTCOME_CACHED, false);
    cr_assert(faulty_count(ledger, VERB_CLAIM) == asked, "coord has its copy again");
}

Test(tiered, owner_survives_a_flush)
{
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, false);
    memory_flush(coord_memory);
    expect(VERB_CLAIM, 2, NULL, OUTCOME_IN_PROGRESS, false);
    expect(VERB_PUBLISH, 1, "A", OUTCOME_OK, false);
    expect(VERB_CLAIM, 2, NULL, OUTCOME_CACHED, false);
}

Test(tiered, publish_that_coord_missed_is_still_the_answer)
{
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, false);
    faulty_set(coord, VERB_PUBLISH, FAULT_REFUSE, 1);
    expect(VERB_PUBLISH, 1, "A", OUTCOME_OK, true);
    world_advance(&world, LEASE_MS); /* until then coord believes that 1 is on it */
    expect(VERB_CLAIM, 2, NULL, OUTCOME_CACHED, false);
}

static void forget_as_another_process(void)
{
    struct reply r = ask_at(ledger, VERB_FORGET, 0, NULL);
    cr_assert(r.op->out.outcome == OUTCOME_OK);
    op_free(r.op);
}

Test(tiered, done_is_not_believed_when_others_may_have_forgotten_it)
{
    ledger->caps |= CAP_SHARED;
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, false);
    expect(VERB_PUBLISH, 1, "A", OUTCOME_OK, false);
    expect(VERB_CLAIM, 2, NULL, OUTCOME_CACHED, false);
    forget_as_another_process();
    expect(VERB_CLAIM, 3, NULL, OUTCOME_CLAIMED, false);
    expect(VERB_CLAIM, 4, NULL, OUTCOME_IN_PROGRESS, false);
}

Test(tiered, done_is_believed_when_the_ledger_is_ours_alone)
{
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, false);
    expect(VERB_PUBLISH, 1, "A", OUTCOME_OK, false);
    unsigned asked = faulty_count(ledger, VERB_CLAIM);
    for (uint8_t i = 2; i < 20; i++) expect(VERB_CLAIM, i, NULL, OUTCOME_CACHED, false);
    cr_assert(faulty_count(ledger, VERB_CLAIM) == asked);
}

Test(tiered, done_is_believed_when_coord_is_shared_as_well)
{
    ledger->caps |= CAP_SHARED;
    coord->caps |= CAP_SHARED;
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, false);
    expect(VERB_PUBLISH, 1, "A", OUTCOME_OK, false);
    unsigned asked = faulty_count(ledger, VERB_CLAIM);
    expect(VERB_CLAIM, 2, NULL, OUTCOME_CACHED, false);
    cr_assert(faulty_count(ledger, VERB_CLAIM) == asked);
}

Test(tiered, stale_owner_at_coord_gives_way_to_the_ledgers)
{
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, false);
    struct reply r = ask_at(ledger, VERB_RELEASE, 1, NULL); /* coord was not told */
    op_free(r.op);
    expect(VERB_RENEW, 1, NULL, OUTCOME_LOST, false);
    expect(VERB_CLAIM, 2, NULL, OUTCOME_CLAIMED, false);
}

/* ---- the ledger fails ---- */

Test(tiered, refused_by_the_ledger_leaves_no_place_taken_at_coord)
{
    faulty_set(ledger, VERB_CLAIM, FAULT_REFUSE, 1);
    expect_error(VERB_CLAIM, 1, ERR_UNAVAILABLE);
    expect(VERB_CLAIM, 2, NULL, OUTCOME_CLAIMED, false);
}

Test(tiered, ambiguous_claim_keeps_its_place_and_is_found_again)
{
    faulty_set(ledger, VERB_CLAIM, FAULT_LOSE_ANSWER, 1);
    expect_error(VERB_CLAIM, 1, ERR_AMBIGUOUS);
    expect(VERB_CLAIM, 2, NULL, OUTCOME_IN_PROGRESS, false);
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, false);
}

Test(tiered, publish_the_ledger_did_not_confirm_does_not_reach_coord)
{
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, false);
    faulty_set(ledger, VERB_PUBLISH, FAULT_REFUSE, 1);
    unsigned before = faulty_count(coord, VERB_PUBLISH);
    expect_error(VERB_PUBLISH, 1, ERR_UNAVAILABLE);
    cr_assert(faulty_count(coord, VERB_PUBLISH) == before);
    expect(VERB_CLAIM, 2, NULL, OUTCOME_IN_PROGRESS, false);
}

/* ---- forget ---- */

Test(tiered, forget_with_coord_known_to_be_down_does_nothing)
{
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, false);
    expect(VERB_PUBLISH, 1, "A", OUTCOME_OK, false);
    open_breaker();
    expect_error(VERB_FORGET, 0, ERR_UNAVAILABLE);
    expect(VERB_CLAIM, 2, NULL, OUTCOME_CACHED, true);
}

Test(tiered, forget_that_coord_missed_is_not_called_forgotten)
{
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, false);
    expect(VERB_PUBLISH, 1, "A", OUTCOME_OK, false);
    faulty_set(coord, VERB_FORGET, FAULT_REFUSE, 1);
    expect_error(VERB_FORGET, 0, ERR_AMBIGUOUS);
    expect(VERB_FORGET, 0, NULL, OUTCOME_ABSENT, false);
    expect(VERB_CLAIM, 2, NULL, OUTCOME_CLAIMED, false);
}

/* ---- watches ---- */

static uint64_t seen_at_coord(void)
{
    struct reply r = ask_at(tiered, VERB_CLAIM, 9, NULL);
    uint64_t seen = r.op->out.version;
    cr_assert(r.op->out.outcome == OUTCOME_IN_PROGRESS);
    op_free(r.op);
    return seen;
}

static void start_watch(struct reply *r, uint64_t seen)
{
    struct key key = key_of("s", "k");
    *r = (struct reply){ .op = op_new(VERB_WATCH, &key, NULL), .started_ms = world.mono_ms };
    r->op->seen = seen;
    op_push(r->op, finished, r);
    store_submit(tiered, r->op);
    world_settle(&world);
}

Test(tiered, watch_at_coord_is_given_back_when_the_breaker_opens)
{
    struct reply watch;
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, false);
    start_watch(&watch, seen_at_coord());
    cr_assert(watch.finished == 0 && faulty_count(coord, VERB_WATCH) == 1);
    open_breaker();
    world_settle(&world);
    cr_assert(watch.finished == 1 && watch.op->err.code != 0);
    op_free(watch.op);
}

Test(tiered, watch_of_what_coord_showed_is_refused_while_the_breaker_is_open)
{
    struct reply watch;
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, false);
    uint64_t seen = seen_at_coord();
    open_breaker();
    start_watch(&watch, seen);
    cr_assert(watch.finished == 1 && watch.op->err.code == ERR_UNSUPPORTED);
    op_free(watch.op);
}

Test(tiered, watch_at_the_ledger_lives_through_an_open_breaker)
{
    struct reply watch;
    open_breaker();
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, true);
    struct reply r = ask_at(tiered, VERB_CLAIM, 2, NULL);
    start_watch(&watch, r.op->out.version);
    op_free(r.op);
    cr_assert(watch.finished == 0 && faulty_count(ledger, VERB_WATCH) == 1);
    expect(VERB_PUBLISH, 1, "A", OUTCOME_OK, true);
    cr_assert(watch.finished == 1 && !watch.op->err.code);
    op_free(watch.op);
}

Test(tiered, publish_wakes_those_who_watch_at_coord)
{
    struct reply watch;
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, false);
    start_watch(&watch, seen_at_coord());
    expect(VERB_PUBLISH, 1, "A", OUTCOME_OK, false);
    cr_assert(watch.finished == 1 && !watch.op->err.code);
    op_free(watch.op);
}

Test(tiered, coord_is_told_before_the_caller_is)
{
    struct reply publish;
    expect(VERB_CLAIM, 1, NULL, OUTCOME_CLAIMED, false);
    faulty_set(coord, VERB_PUBLISH, FAULT_HOLD, 1);
    start(&publish, tiered, VERB_PUBLISH, 1, "A");
    cr_assert(publish.finished == 0 && faulty_held(coord) == 1);
    faulty_let_go(coord);
    world_settle(&world);
    cr_assert(publish.finished == 1 && publish.op->out.outcome == OUTCOME_OK);
    op_free(publish.op);
}
