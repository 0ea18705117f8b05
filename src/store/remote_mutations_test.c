/* remote_mutations_test.c - the replay cache through a daemon: the same answers, and with the line cut
 * at any byte it goes on, as without coord. */
#include "engine/mutation.h"
#include "store/remote_scene_test.h"

struct asked {
    unsigned finished;
    int error;
    char text[188];
    enum outcome outcome;
    bool degraded;
    struct token token;
    char response[32], epoch[16];
    bool has_response;
};

static void done(struct mutation_call *call, void *ctx)
{
    struct asked *a = ctx;
    const struct mutation_answer *out = mutation_call_answer(call);
    a->finished++;
    a->error = mutation_call_error(call)->code;
    snprintf(a->text, sizeof a->text, "%s", mutation_call_error(call)->text);
    a->outcome = out->outcome;
    a->degraded = out->degraded;
    a->token = out->token;
    a->has_response = out->kept.has_response;
    snprintf(a->response, sizeof a->response, "%.*s", (int)out->kept.response.len,
             (const char *)out->kept.response.data);
    snprintf(a->epoch, sizeof a->epoch, "%.*s", (int)out->kept.epoch.len,
             (const char *)out->kept.epoch.data);
}

static struct mutation_args args_of(enum mutation_step step)
{
    struct mutation_args args = MUTATION_ARGS_INIT;
    args.step = step;
    args.env = bytes_str("shop");
    args.mutation = (struct mutation){ .user = bytes_str("user 1"),
                                       .request = bytes_str("r\"9"),
                                       .method = bytes_str("Use"),
                                       .fingerprint = bytes_of("\0\xff", 2) };
    return args;
}

static struct asked ask(struct client *c, struct mutation_args args)
{
    struct asked a = { 0 };
    struct err err;
    args.done = done;
    args.ctx = &a;
    cr_assert_eq(engine_mutation(c->engine, &args, NULL, &err), 0, "%s", err.text);
    world_settle(c->world);
    cr_assert_eq(a.finished, 1);
    return a;
}

static struct asked begin(struct client *c, enum outcome want)
{
    struct asked a = ask(c, args_of(MUTATION_BEGIN));
    cr_assert(!a.error, "%s", a.text);
    cr_assert_eq(a.outcome, want, "%s", outcome_name(a.outcome));
    return a;
}

static struct asked complete(struct client *c, const struct asked *begun, const char *response)
{
    struct mutation_args args = args_of(MUTATION_COMPLETE);
    args.token = begun->token;
    args.epoch = bytes_str("e1");
    args.response = bytes_str(response);
    args.has_response = response != NULL;
    return ask(c, args);
}

Test(remote_mutations, the_same_answers)
{
    struct scene s = { 0 };
    scene_open(&s);
    struct asked first = begin(&s.client, OUTCOME_CLAIMED);
    begin(&s.direct, OUTCOME_IN_PROGRESS);
    struct mutation_args other = args_of(MUTATION_BEGIN);
    other.mutation.method = bytes_str("Sell");
    struct asked mismatch = ask(&s.client, other);
    cr_assert(!mismatch.error && mismatch.outcome == OUTCOME_MISMATCH, "%s", mismatch.text);
    cr_assert_eq(complete(&s.client, &first, "done").outcome, OUTCOME_OK);
    struct asked again = begin(&s.direct, OUTCOME_CACHED);
    cr_assert_str_eq(again.response, "done");
    cr_assert_str_eq(again.epoch, "e1");
    other = args_of(MUTATION_BEGIN);
    other.epoch = bytes_str("e2");
    struct asked second = ask(&s.client, other);
    cr_assert_eq(second.outcome, OUTCOME_CLAIMED);
    struct mutation_args abort = args_of(MUTATION_ABORT);
    abort.token = second.token;
    cr_assert_eq(ask(&s.client, abort).outcome, OUTCOME_OK);
    cr_assert_eq(ask(&s.client, abort).outcome, OUTCOME_LOST);
    second = begin(&s.client, OUTCOME_CLAIMED);
    complete(&s.client, &second, NULL);
    cr_assert(!begin(&s.direct, OUTCOME_ALREADY_DONE).has_response);
    scene_close(&s);
}

Test(remote_mutations, coord_of_the_daemon_is_away)
{
    struct scene s = { 0 };
    scene_open(&s);
    faulty_set(s.behind, VERB_CLAIM, FAULT_REFUSE, 1);
    struct asked first = begin(&s.client, OUTCOME_CLAIMED);
    cr_assert(first.degraded && !token_is_set(&first.token));
    cr_assert(complete(&s.client, &first, "x").degraded);
    begin(&s.client, OUTCOME_CLAIMED);
    scene_close(&s);
}

/* Whatever was lost, it goes on. */
Test(remote_mutations, the_line_is_cut_at_any_byte)
{
    unsigned degraded = 0;
    for (size_t bytes = 0; bytes < 400; bytes += 7) {
        struct scene s = { 0 };
        scene_open(&s);
        if (bytes % 2)
            s.relay.left_up = bytes;
        else
            s.relay.left_down = bytes;
        struct asked first = begin(&s.client, OUTCOME_CLAIMED);
        degraded += first.degraded;
        struct asked completed = complete(&s.client, &first, "x");
        cr_assert(!completed.error, "%s", completed.text);
        struct asked again = ask(&s.direct, args_of(MUTATION_BEGIN));
        bool fine = again.outcome == OUTCOME_CACHED || again.outcome == OUTCOME_CLAIMED ||
                    again.outcome == OUTCOME_IN_PROGRESS;
        cr_assert(!again.error && fine, "%s", outcome_name(again.outcome));
        if (again.outcome == OUTCOME_CACHED) cr_assert_str_eq(again.response, "x");
        scene_close(&s);
    }
    cr_assert(degraded > 5, "%u", degraded);
}

Test(remote_mutations, the_end_of_the_client)
{
    struct scene s = { 0 };
    struct asked a = { 0 };
    struct err err;
    scene_open(&s);
    struct mutation_args args = args_of(MUTATION_BEGIN);
    args.done = done;
    args.ctx = &a;
    begin(&s.direct, OUTCOME_CLAIMED);
    faulty_set(s.behind, VERB_CLAIM, FAULT_HOLD, 1);
    struct mutation_call *call;
    cr_assert_eq(engine_mutation(s.client.engine, &args, &call, &err), 0);
    world_settle(&s.world);
    mutation_call_cancel(call);
    faulty_let_go(s.behind);
    world_settle(&s.world);
    cr_assert(a.finished == 1 && a.error == ERR_CANCELED, "%d", a.error);
    scene_close(&s);
}
