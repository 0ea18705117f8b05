/* mutation_test.c - the replay cache: one begins, the others get its response; it decides nothing. */
#include "engine/mutation.h"

#include "base/sha256.h"
#include "base/text.h"
#include "tests/support/faulty.h"
#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <stdio.h>

static struct world world;
static struct store *store;
static struct engine *engine;

static void open_engine(void)
{
    struct engine_config config = ENGINE_CONFIG_INIT;
    struct err err;
    config.sweep_ms = 0;
    config.value_bytes_max = 100;
    world_init(&world, 11);
    store = faulty_open(world_open(&world, "memory"), &world.env);
    cr_assert(engine_open(store, &world.env, &config, &engine, &err) == 0);
}

static void close_engine(void)
{
    faulty_let_go(store);
    engine_stop(engine);
    world_settle(&world);
    cr_assert(engine_idle(engine));
    engine_free(engine);
    world_close(&world, store);
    world_fini(&world);
}

TestSuite(replay, .init = open_engine, .fini = close_engine);

struct asked {
    unsigned finished;
    int error;
    enum outcome outcome;
    bool degraded;
    struct token token;
    int64_t lease_left_ms;
    char response[120], epoch[32];
    bool gone; /* nobody hears of it */
    struct mutation_call *call;
};

static void done(struct mutation_call *call, void *ctx)
{
    struct asked *a = ctx;
    const struct mutation_answer *out = mutation_call_answer(call);
    a->finished++;
    a->call = NULL;
    a->error = mutation_call_error(call)->code;
    a->outcome = out->outcome;
    a->degraded = out->degraded;
    a->token = out->token;
    a->lease_left_ms = out->lease_left_ms;
    snprintf(a->response, sizeof a->response, "%.*s", (int)out->kept.response.len,
             (const char *)out->kept.response.data);
    snprintf(a->epoch, sizeof a->epoch, "%.*s", (int)out->kept.epoch.len,
             (const char *)out->kept.epoch.data);
    if (a->gone) mutation_call_unheard(call);
}

static struct mutation_args args_of(enum mutation_step step, const char *request)
{
    struct mutation_args args = MUTATION_ARGS_INIT;
    args.step = step;
    args.env = bytes_str("default");
    args.mutation.user = bytes_str("user-1");
    args.mutation.request = bytes_str(request);
    args.mutation.method = bytes_str("UseItem");
    return args;
}

static void start(struct mutation_args args, struct asked *a)
{
    struct err err;
    *a = (struct asked){ .gone = a->gone };
    args.done = done;
    args.ctx = a;
    cr_assert(engine_mutation(engine, &args, &a->call, &err) == 0, "%s", err.text);
    cr_assert(a->finished == 0, "told inside engine_mutation()");
}

static struct asked ask(struct mutation_args args, enum outcome want)
{
    struct asked a = { 0 };
    start(args, &a);
    world_settle(&world);
    cr_assert(a.finished == 1 && a.error == 0, "error %d", a.error);
    cr_assert(a.outcome == want, "%s, expected %s", outcome_name(a.outcome),
              outcome_name(want));
    return a;
}

static struct asked begin(const char *request, enum outcome want)
{
    return ask(args_of(MUTATION_BEGIN, request), want);
}

static struct asked begin_in(const char *epoch, enum outcome want)
{
    struct mutation_args args = args_of(MUTATION_BEGIN, "r");
    args.epoch = bytes_str(epoch);
    return ask(args, want);
}

static struct asked complete(const struct asked *begun, const char *epoch, const char *response,
                             enum outcome want)
{
    struct mutation_args args = args_of(MUTATION_COMPLETE, "r");
    args.token = begun->token;
    args.epoch = bytes_str(epoch);
    args.response = bytes_str(response);
    args.has_response = response != NULL;
    return ask(args, want);
}

static struct asked abort_it(const struct asked *begun, enum outcome want)
{
    struct mutation_args args = args_of(MUTATION_ABORT, "r");
    args.token = begun->token;
    return ask(args, want);
}

/* ---- one after the other ---- */

Test(replay, of_a_completed_mutation)
{
    struct asked first = begin("r", OUTCOME_CLAIMED);
    cr_assert(!first.degraded && first.lease_left_ms == LEASE_MS_DEFAULT);
    cr_assert(begin("r", OUTCOME_IN_PROGRESS).lease_left_ms == LEASE_MS_DEFAULT);
    complete(&first, "e1", "{\"left\":2}", OUTCOME_OK);
    complete(&first, "e1", "{\"left\":2}", OUTCOME_OK);
    struct asked again = begin("r", OUTCOME_CACHED);
    cr_assert_str_eq(again.response, "{\"left\":2}");
    cr_assert_str_eq(again.epoch, "e1");
    begin("other", OUTCOME_CLAIMED);
}

Test(replay, ends_with_the_time_of_the_marker)
{
    struct asked first = begin("r", OUTCOME_CLAIMED);
    struct mutation_args args = args_of(MUTATION_COMPLETE, "r");
    args.token = first.token;
    args.has_response = true;
    args.retain_ms = 5000;
    ask(args, OUTCOME_OK);
    world_advance(&world, 4999);
    begin("r", OUTCOME_CACHED);
    world_advance(&world, 1);
    begin("r", OUTCOME_CLAIMED);
}

Test(replay, without_a_response_says_that_it_was_done)
{
    struct asked first = begin("r", OUTCOME_CLAIMED);
    complete(&first, "e1", NULL, OUTCOME_OK);
    begin("r", OUTCOME_ALREADY_DONE);
    begin_in("e2", OUTCOME_CLAIMED);
}

Test(replay, after_an_abort_begins_anew)
{
    struct asked first = begin("r", OUTCOME_CLAIMED);
    abort_it(&first, OUTCOME_OK);
    struct asked second = begin("r", OUTCOME_CLAIMED);
    cr_assert(!token_eq(&first.token, &second.token));
    abort_it(&first, OUTCOME_LOST);
    begin("r", OUTCOME_IN_PROGRESS);
}

Test(replay, of_a_crashed_owner_is_taken_over_and_its_late_word_counts_for_nothing)
{
    struct asked first = begin("r", OUTCOME_CLAIMED);
    world_advance(&world, LEASE_MS_DEFAULT);
    struct asked second = begin("r", OUTCOME_CLAIMED);
    complete(&first, "e1", "late", OUTCOME_LOST);
    complete(&second, "e1", "right", OUTCOME_OK);
    cr_assert_str_eq(begin("r", OUTCOME_CACHED).response, "right");
}

/* ---- who asks for something else ---- */

Test(replay, is_for_the_same_method_and_fingerprint)
{
    struct asked first = begin("r", OUTCOME_CLAIMED);
    struct mutation_args args = args_of(MUTATION_BEGIN, "r");
    args.mutation.method = bytes_str("SellItem");
    ask(args, OUTCOME_MISMATCH);
    complete(&first, "e1", "secret", OUTCOME_OK);
    cr_assert_str_empty(ask(args, OUTCOME_MISMATCH).response);
    args = args_of(MUTATION_BEGIN, "r");
    args.mutation.fingerprint = bytes_str("x");
    ask(args, OUTCOME_MISMATCH);
    args = args_of(MUTATION_BEGIN, "r");
    args.mutation.user = bytes_str("user-2");
    ask(args, OUTCOME_CLAIMED);
    args = args_of(MUTATION_BEGIN, "r");
    args.env = bytes_str("other");
    ask(args, OUTCOME_CLAIMED);
}

/* ---- epochs ---- */

Test(replay, of_another_epoch_is_dropped_and_begun_again)
{
    struct asked first = begin("r", OUTCOME_CLAIMED);
    complete(&first, "e1", "lost in the failover", OUTCOME_OK);
    begin_in("e1", OUTCOME_CACHED);
    struct asked second = begin_in("e2", OUTCOME_CLAIMED);
    begin("r", OUTCOME_IN_PROGRESS);
    complete(&second, "e2", "again", OUTCOME_OK);
    cr_assert_str_eq(begin_in("e2", OUTCOME_CACHED).response, "again");
    cr_assert(engine_stats(engine).mutations_stale == 1);
}

/* Two find it at once: the one who is late drops nothing of the other. */
Test(replay, of_another_epoch_is_dropped_once)
{
    struct asked first = begin("r", OUTCOME_CLAIMED), late = { 0 };
    struct mutation_args args = args_of(MUTATION_BEGIN, "r");
    complete(&first, "e1", "lost in the failover", OUTCOME_OK);
    args.epoch = bytes_str("e2");
    faulty_set(store, VERB_FORGET, FAULT_HOLD, 1);
    start(args, &late);
    world_settle(&world);
    struct asked second = begin_in("e2", OUTCOME_CLAIMED);
    complete(&second, "e2", "again", OUTCOME_OK);
    faulty_let_go(store);
    world_settle(&world);
    cr_assert(late.finished == 1 && late.outcome == OUTCOME_CACHED, "%s",
              outcome_name(late.outcome));
    cr_assert_str_eq(late.response, "again");
}

/* What is kept under the key of a mutation, by somebody who does not know what that is. */
static void plant(const char *value)
{
    char name[2 * SHA256_BYTES + 1], scope[] = "@default#xx";
    uint8_t hash[SHA256_BYTES];
    struct bytes who[] = { bytes_str("mutation"), bytes_str("user-1"), bytes_str("r") };
    cr_assert(sha256_pieces(who, 3, hash));
    hex_encode(bytes_of(hash, sizeof hash), name);
    memcpy(scope + 9, name, 2);
    struct key key = { bytes_str(scope), bytes_str(name) };
    struct request in = { .token = token_of(7),
                          .retain_ms = 60000,
                          .value = blob_new(bytes_str(value)) };
    struct op *op = op_new(VERB_PUBLISH, &key, &in);
    world_run(&world, store, op);
    cr_assert(!op->err.code && op->out.outcome == OUTCOME_OK);
    op_free(op);
    blob_unref(in.value);
}

Test(replay, of_something_that_is_none_of_ours_is_dropped)
{
    struct mutation_args args = args_of(MUTATION_BEGIN, "r");
    args.token = token_of(7);
    ask(args, OUTCOME_CLAIMED);
    plant("run_01ARZ3NDEKTSV4RRFFQ69G5FAV");
    begin("r", OUTCOME_CLAIMED);
}

/* ---- waiting ---- */

Test(replay, is_waited_for_if_asked)
{
    struct asked first = begin("r", OUTCOME_CLAIMED), waits = { 0 };
    struct mutation_args args = args_of(MUTATION_BEGIN, "r");
    args.wait_ms = 1000;
    start(args, &waits);
    world_advance(&world, 500);
    cr_assert(!waits.finished);
    complete(&first, "e1", "x", OUTCOME_OK);
    world_settle(&world);
    cr_assert(waits.outcome == OUTCOME_CACHED);
    struct asked other = ask(args_of(MUTATION_BEGIN, "s"), OUTCOME_CLAIMED), late = { 0 };
    args = args_of(MUTATION_BEGIN, "s");
    args.wait_ms = 1000;
    start(args, &late);
    world_advance(&world, 1000);
    cr_assert(late.outcome == OUTCOME_TIMED_OUT);
    (void)other;
}

/* ---- coord is away ---- */

Test(replay, without_coord_goes_on)
{
    faulty_set(store, VERB_CLAIM, FAULT_REFUSE, 1);
    struct asked first = begin("r", OUTCOME_CLAIMED);
    cr_assert(first.degraded);
    unsigned before = faulty_count(store, VERB_PUBLISH);
    cr_assert(complete(&first, "e1", "x", OUTCOME_OK).degraded);
    cr_assert(abort_it(&first, OUTCOME_OK).degraded);
    cr_assert(faulty_count(store, VERB_PUBLISH) == before, "there is nothing to publish");
    cr_assert(engine_stats(engine).mutations_degraded == 3);
    begin("r", OUTCOME_CLAIMED);
}

Test(replay, whose_claim_may_be_there_is_given_back)
{
    faulty_set(store, VERB_CLAIM, FAULT_LOSE_ANSWER, 1);
    cr_assert(begin("r", OUTCOME_CLAIMED).degraded);
    cr_assert(!begin("r", OUTCOME_CLAIMED).degraded);
}

Test(replay, that_cannot_be_kept_is_no_error)
{
    struct asked first = begin("r", OUTCOME_CLAIMED);
    faulty_set(store, VERB_PUBLISH, FAULT_LOSE_REQUEST, 1);
    cr_assert(complete(&first, "e1", "x", OUTCOME_OK).degraded);
    begin("r", OUTCOME_IN_PROGRESS);
    faulty_set(store, VERB_RELEASE, FAULT_REFUSE, 1);
    cr_assert(abort_it(&first, OUTCOME_OK).degraded);
}

Test(replay, that_cannot_be_dropped_is_not_shown)
{
    struct asked first = begin("r", OUTCOME_CLAIMED);
    complete(&first, "e1", "x", OUTCOME_OK);
    faulty_set(store, VERB_FORGET, FAULT_REFUSE, 1);
    struct asked second = begin_in("e2", OUTCOME_CLAIMED);
    cr_assert(second.degraded && !second.response[0]);
}

/* ---- who does not hear of it ---- */

Test(replay, that_is_canceled_is_told_once_and_leaves_nothing)
{
    struct asked a = { 0 };
    faulty_set(store, VERB_CLAIM, FAULT_HOLD, 1);
    start(args_of(MUTATION_BEGIN, "r"), &a);
    world_settle(&world);
    mutation_call_cancel(a.call);
    world_settle(&world);
    cr_assert(a.finished == 1 && a.error == ERR_CANCELED);
    faulty_let_go(store);
    world_settle(&world);
    begin("r", OUTCOME_CLAIMED);
}

Test(replay, that_nobody_hears_of_is_given_back)
{
    struct asked a = { .gone = true };
    start(args_of(MUTATION_BEGIN, "r"), &a);
    world_settle(&world);
    cr_assert(a.finished == 1 && a.outcome == OUTCOME_CLAIMED);
    begin("r", OUTCOME_CLAIMED);
}

Test(replay, with_a_token_of_the_callers_own_is_found_again)
{
    struct mutation_args args = args_of(MUTATION_BEGIN, "r");
    args.token = token_of(5);
    struct asked first = ask(args, OUTCOME_CLAIMED);
    cr_assert(token_eq(&first.token, &args.token));
    ask(args, OUTCOME_CLAIMED);
    begin("r", OUTCOME_IN_PROGRESS);
}

Test(replay, stops_with_the_engine)
{
    struct asked a = { 0 }, b = { 0 };
    faulty_set(store, VERB_CLAIM, FAULT_HOLD, 1);
    start(args_of(MUTATION_BEGIN, "r"), &a);
    struct mutation_args args = args_of(MUTATION_COMPLETE, "s");
    start(args, &b);
    world_settle(&world);
    engine_stop(engine);
    world_settle(&world);
    cr_assert(a.finished == 1 && a.error == ERR_CANCELED && b.finished == 1);
}

/* ---- bad input ---- */

Test(replay, is_checked_before_anything_happens)
{
    struct mutation_args args = args_of(MUTATION_BEGIN, "");
    struct err err;
    char full[101] = { 0 };
    cr_assert(engine_mutation(engine, &args, NULL, &err) == ERR_INVALID);
    args = args_of(MUTATION_BEGIN, "r");
    args.env = bytes_str("a b");
    cr_assert(engine_mutation(engine, &args, NULL, &err) == ERR_INVALID);
    args = args_of(MUTATION_BEGIN, "r");
    args.lease_ms = -1;
    cr_assert(engine_mutation(engine, &args, NULL, &err) == ERR_INVALID);
    args = args_of(MUTATION_COMPLETE, "r");
    args.retain_ms = DURATION_MS_MAX + 1;
    cr_assert(engine_mutation(engine, &args, NULL, &err) == ERR_LIMIT);
    args = args_of(MUTATION_COMPLETE, "r");
    args.response = bytes_of(full, sizeof full);
    cr_assert(engine_mutation(engine, &args, NULL, &err) == ERR_LIMIT);
    cr_assert(engine_idle(engine) && faulty_count(store, VERB_CLAIM) == 0);
}

/* As long a response as is kept, with its frame. */
Test(replay, keeps_a_response_of_the_longest_kind)
{
    struct asked first = begin("r", OUTCOME_CLAIMED);
    char full[101];
    memset(full, 'x', 100);
    full[100] = 0;
    complete(&first, "an epoch", full, OUTCOME_OK);
    cr_assert_str_eq(begin("r", OUTCOME_CACHED).response, full);
}
