/* remote_runs_test.c - runs through a daemon as a store: every question and its answer, the line cut at
 * every byte, those who wait, and what a daemon may answer. Behind the daemon is a real ledger. */
#include "base/check.h"
#include "daemon/tokens_file.h"
#include "engine/runs.h"
#include "store/remote_scene_test.h"

#define TASK "send"

/* ---- somebody who asks and remembers the answer ---- */

struct asker {
    struct run_call *call;
    unsigned finished;
    int error;
    char text[188], reason[128];
    enum outcome outcome;
    struct run_rows rows; /* copies */
    bool more;
    int64_t now_ms;
};

static void asker_done(struct run_call *call, void *ctx)
{
    struct asker *a = ctx;
    const struct run_answer *out = run_call_answer(call);
    a->finished++;
    a->error = run_call_error(call)->code;
    snprintf(a->text, sizeof a->text, "%s", run_call_error(call)->text);
    if (a->error) return;
    a->outcome = out->outcome;
    a->more = out->rows.more;
    a->now_ms = out->now_ms;
    snprintf(a->reason, sizeof a->reason, "%s", out->reason ? out->reason : "");
    for (size_t i = 0; i < out->rows.count; i++)
        cr_assert_eq(run_rows_add(&a->rows, out->rows.rows[i]), 0);
}

static struct run_args args_of(enum run_question question)
{
    struct run_args args = RUN_ARGS_INIT;
    args.question = question;
    args.env = bytes_str("default");
    return args;
}

static struct run_args trigger_args(const char *key)
{
    struct run_args args = args_of(ASK_TRIGGER);
    args.run.task = bytes_str(TASK);
    args.run.payload = bytes_str("{ \"to\": 1 }");
    args.run.key = bytes_str(key);
    return args;
}

static struct run_args lease_args(int64_t wait_ms)
{
    struct run_args args = args_of(ASK_LEASE);
    args.queue = bytes_str(TASK);
    args.limit = 1;
    args.wait_ms = wait_ms;
    return args;
}

static struct run_args change_args(const struct run *r, enum run_change_kind kind,
                                   const char *body)
{
    struct run_args args = args_of(ASK_CHANGE);
    args.id = r->id;
    args.change = (struct run_change){ .kind = kind,
                                       .body = bytes_str(body),
                                       .version = RUN_ANY_VERSION,
                                       .token = r->token,
                                       .lease_ms = -1,
                                       .retry_ms = -1 };
    return args;
}

static void ask_later(struct asker *a, struct client *c, const struct run_args *args)
{
    struct run_args mine = *args;
    struct err err;
    *a = (struct asker){ 0 };
    mine.done = asker_done;
    mine.ctx = a;
    int r = engine_run(c->engine, &mine, &a->call, &err);
    if (r == 0) return;
    a->finished = 1;
    a->error = r;
    snprintf(a->text, sizeof a->text, "%s", err.text);
}

static void ask(struct asker *a, struct client *c, const struct run_args *args)
{
    ask_later(a, c, args);
    world_settle(c->world);
    cr_assert_eq(a->finished, 1);
}

static const struct run *row(const struct asker *a)
{
    cr_assert(!a->error, "%s", a->text);
    cr_assert_geq(a->rows.count, 1);
    return a->rows.rows[0];
}

static void forget(struct asker *a)
{
    run_rows_clear(&a->rows);
}

static void expect(struct client *c, struct run_args args, enum outcome outcome)
{
    struct asker a;
    ask(&a, c, &args);
    cr_assert(!a.error, "%s", a.text);
    cr_assert_eq(a.outcome, outcome, "%s", outcome_name(a.outcome));
    forget(&a);
}

static void open_on_ledger(struct scene *s)
{
    s->plane = "sqlite";
    scene_open(s);
}

static size_t count_runs(struct client *c)
{
    struct asker a;
    struct run_args args = args_of(ASK_LIST);
    args.limit = 100;
    ask(&a, c, &args);
    cr_assert(!a.error, "%s", a.text);
    size_t count = a.rows.count;
    forget(&a);
    return count;
}

/* ---- every question ---- */

Test(remote_runs, a_trigger_with_everything_arrives_as_it_is)
{
    struct scene s = { 0 };
    struct asker made, found;
    open_on_ledger(&s);
    struct run_args args = trigger_args("k");
    args.run.queue = bytes_str("mail");
    args.run.ordering_key = bytes_str("user-1");
    args.run.tags = bytes_str("\3ENV\1b");
    args.run.metadata = bytes_str("{\"n\": 1}");
    args.run.attempts_max = 7;
    args.delay_ms = 5000;
    args.key_ms = 60000;
    ask(&made, &s.client, &args);
    cr_assert_eq(made.outcome, OUTCOME_OK);
    struct run_args get = args_of(ASK_GET);
    get.id = row(&made)->id;
    ask(&found, &s.client, &get);
    const struct run *r = row(&found);
    cr_assert(run_id_eq(&r->id, &row(&made)->id) && r->state == RUN_QUEUED);
    cr_assert(bytes_eq(r->payload, args.run.payload) && bytes_eq(r->tags, args.run.tags));
    cr_assert(bytes_eq(r->queue, args.run.queue) && bytes_eq(r->key, args.run.key));
    cr_assert(bytes_eq(r->ordering_key, args.run.ordering_key) && r->attempts_max == 7);
    cr_assert(bytes_eq(r->metadata, args.run.metadata) && r->metadata_version == 1);
    cr_assert_eq(r->delay_until_ms, s.world.wall_ms + 5000);
    cr_assert_eq(r->key_until_ms, s.world.wall_ms + 60000);
    cr_assert(run_is_delayed(r, found.now_ms) && found.now_ms == s.world.wall_ms);
    expect(&s.client, args, OUTCOME_CACHED);
    args.run.payload = bytes_str("2");
    expect(&s.client, args, OUTCOME_MISMATCH);
    args.mismatch_returns = true;
    expect(&s.client, args, OUTCOME_CACHED);
    forget(&made);
    forget(&found);
    scene_close(&s);
}

Test(remote_runs, changes_and_what_comes_of_them)
{
    struct scene s = { 0 };
    struct asker made, a;
    open_on_ledger(&s);
    struct run_args args = trigger_args("");
    args.run.delay_until_ms = s.world.wall_ms + 5000;
    ask(&made, &s.client, &args);
    const struct run *r = row(&made);
    struct run none = { .id = { "run_01KA6JD5X80123456789ABCDEF" } };
    expect(&s.client, change_args(r, RUN_ADD_TAGS, "\3RAW\3ENV"), OUTCOME_OK);
    expect(&s.client, change_args(r, RUN_SET_METADATA, "{\"n\":1}"), OUTCOME_OK);
    expect(&s.client,
           change_args(r, RUN_OPERATE, "[{\"type\":\"increment\",\"key\":\"n\",\"value\":2}]"),
           OUTCOME_OK);
    args = change_args(r, RUN_SET_METADATA, "{}");
    args.change.version = 1;
    expect(&s.client, args, OUTCOME_CONFLICT);
    args = change_args(r, RUN_RESCHEDULE, "");
    args.change.at_ms = s.world.wall_ms + 9000;
    expect(&s.client, args, OUTCOME_OK);
    args = args_of(ASK_GET);
    args.id = r->id;
    ask(&a, &s.client, &args);
    cr_assert(bytes_eq(row(&a)->tags, bytes_str("\3RAW\3ENV")));
    cr_assert(bytes_eq(row(&a)->metadata, bytes_str("{\"n\":3}")));
    cr_assert_eq(row(&a)->delay_until_ms, s.world.wall_ms + 9000);
    forget(&a);
    expect(&s.client, change_args(r, RUN_CANCEL, "\"enough\""), OUTCOME_OK);
    args = change_args(r, RUN_RESCHEDULE, "");
    ask(&a, &s.client, &args);
    cr_assert_eq(a.outcome, OUTCOME_REFUSED);
    cr_assert_str_eq(a.reason, "only a DELAYED run can be rescheduled");
    forget(&a);
    expect(&s.client, change_args(&none, RUN_CANCEL, ""), OUTCOME_ABSENT);
    args = args_of(ASK_REPLAY);
    args.id = r->id;
    expect(&s.client, args, OUTCOME_OK);
    args.id = none.id;
    expect(&s.client, args, OUTCOME_ABSENT);
    cr_assert_eq(count_runs(&s.direct), 2);
    forget(&made);
    scene_close(&s);
}

Test(remote_runs, keys_are_reset_and_runs_listed)
{
    struct scene s = { 0 };
    struct asker a;
    open_on_ledger(&s);
    for (int i = 0; i < 3; i++) {
        struct run_args reset = args_of(ASK_RESET);
        reset.task = bytes_str(TASK);
        reset.key = bytes_str("k");
        world_advance(&s.world, 1);
        expect(&s.client, trigger_args("k"), OUTCOME_OK);
        expect(&s.client, reset, OUTCOME_OK);
        expect(&s.client, reset, OUTCOME_ABSENT);
    }
    struct run_args list = args_of(ASK_LIST);
    list.limit = 2;
    list.task = list.queue = bytes_str(TASK);
    list.states = BIT(RUN_QUEUED) | BIT(RUN_FAILED);
    ask(&a, &s.client, &list);
    cr_assert(a.rows.count == 2 && a.more);
    list.before = a.rows.rows[1]->id;
    forget(&a);
    ask(&a, &s.client, &list);
    cr_assert(a.rows.count == 1 && !a.more);
    forget(&a);
    list.before = (struct run_id){ 0 };
    list.states = BIT(RUN_FAILED);
    ask(&a, &s.client, &list);
    cr_assert_eq(a.rows.count, 0);
    scene_close(&s);
}

Test(remote_runs, workers)
{
    struct scene s = { 0 };
    struct asker a;
    open_on_ledger(&s);
    expect(&s.client, trigger_args(""), OUTCOME_OK);
    struct run_args lease = lease_args(0);
    ask(&a, &s.client, &lease);
    struct run held = *row(&a), thief = held;
    thief.token.bytes[0] ^= 1;
    cr_assert(held.state == RUN_EXECUTING && held.fence > 0 && held.attempts == 1);
    cr_assert_eq(held.lease_until_ms, s.world.wall_ms + LEASE_MS_DEFAULT);
    expect(&s.client, change_args(&thief, RUN_COMPLETE, ""), OUTCOME_LOST);
    expect(&s.client, change_args(&held, RUN_HEARTBEAT, ""), OUTCOME_OK);
    expect(&s.client, change_args(&held, RUN_RETURN, ""), OUTCOME_OK);
    forget(&a);
    ask(&a, &s.client, &lease);
    struct run_args failed = change_args(row(&a), RUN_FAIL, "\"no\"");
    failed.change.retry_ms = 0;
    expect(&s.client, failed, OUTCOME_OK);
    forget(&a);
    ask(&a, &s.client, &lease);
    cr_assert_eq(row(&a)->attempts, 2);
    expect(&s.client, change_args(row(&a), RUN_COMPLETE, "[1]"), OUTCOME_OK);
    expect(&s.client, change_args(row(&a), RUN_FAIL, "\"late\""), OUTCOME_LOST);
    forget(&a);
    ask(&a, &s.client, &lease);
    cr_assert(!a.error && a.rows.count == 0);
    scene_close(&s);
}

Test(remote_runs, what_makes_no_sense_is_refused_before_it_is_sent)
{
    struct scene s = { 0 };
    struct asker a;
    open_on_ledger(&s);
    expect(&s.client, trigger_args(""), OUTCOME_OK);
    unsigned puts = faulty_count(s.behind, VERB_RUN_PUT);
    struct run_args args = trigger_args("");
    args.run.payload = bytes_str("{");
    ask(&a, &s.client, &args);
    cr_assert_eq(a.error, ERR_INVALID);
    args = trigger_args("");
    args.env = bytes_str("");
    ask(&a, &s.client, &args);
    cr_assert_eq(a.error, ERR_INVALID);
    args = args_of(ASK_CHANGE);
    memcpy(args.id.text, "run_01KA6JD5X80123456789ABCDEF", RUN_ID_BYTES);
    args.change = (struct run_change){ .kind = RUN_RESET_KEY };
    ask(&a, &s.client, &args);
    cr_assert_eq(a.error, ERR_UNSUPPORTED);
    cr_assert_eq(faulty_count(s.behind, VERB_RUN_PUT), puts);
    scene_close(&s);
}

/* ---- the line is cut ---- */

/* Whatever is lost on the way: one run, and its trigger is told of it. */
static void cut_everywhere(bool up, const char *key)
{
    for (size_t at = 0;; at++) {
        struct scene s = { 0 };
        struct asker a;
        open_on_ledger(&s);
        *(up ? &s.relay.left_up : &s.relay.left_down) = at;
        struct run_args args = trigger_args(key);
        ask_later(&a, &s.client, &args);
        world_advance(&s.world, 4000);
        cr_assert_eq(a.finished, 1);
        if (a.error) { /* cut while it was greeted: nothing was sent */
            cr_assert_eq(a.error, ERR_UNAVAILABLE, "%s", a.text);
            cr_assert_eq(count_runs(&s.direct), 0);
        } else {
            cr_assert(a.outcome == OUTCOME_OK || a.outcome == OUTCOME_CACHED);
            cr_assert_eq(count_runs(&s.direct), 1);
        }
        forget(&a);
        bool was_cut = s.relay.cuts > 0;
        scene_close(&s);
        if (was_cut) continue;
        cr_assert(at > 200, "only %zu bytes were said", at);
        return;
    }
}

Test(remote_runs, triggers_are_cut_at_every_place)
{
    cut_everywhere(true, "");
}

Test(remote_runs, answers_to_triggers_are_cut_at_every_place)
{
    cut_everywhere(false, "");
}

Test(remote_runs, answers_to_triggers_with_a_key_are_cut_at_every_place)
{
    cut_everywhere(false, "k");
}

/* What cannot be asked twice is said to be ambiguous, and a read is not. */
Test(remote_runs, a_lost_answer_is_ambiguous_if_it_may_have_counted)
{
    struct scene s = { 0 };
    struct asker a;
    open_on_ledger(&s);
    ask(&a, &s.client, &(struct run_args){ 0 }); /* refused: nothing is sent */
    expect(&s.client, trigger_args(""), OUTCOME_OK);
    struct run_args list = args_of(ASK_LIST);
    list.limit = 1;
    ask(&a, &s.client, &list);
    struct run r = *row(&a);
    struct asker change, read;
    struct run_args args = change_args(&r, RUN_ADD_TAGS, "\1a");
    faulty_set(s.behind, VERB_RUN_CHANGE, FAULT_HOLD, 1);
    ask_later(&change, &s.client, &args);
    world_settle(&s.world);
    cr_assert_eq(faulty_held(s.behind), 1);
    s.relay.left_down = 0;
    ask_later(&read, &s.client, &list);
    world_settle(&s.world);
    cr_assert(change.finished == 1 && change.error == ERR_AMBIGUOUS);
    cr_assert(read.finished == 1 && read.error == ERR_UNAVAILABLE);
    faulty_let_go(s.behind);
    world_advance(&s.world, 2000);
    forget(&a);
    args = args_of(ASK_GET);
    args.id = r.id;
    ask(&a, &s.client, &args);
    cr_assert(bytes_eq(row(&a)->tags, bytes_str("\1a")), "it is done, heard or not");
    forget(&a);
    scene_close(&s);
}

/* ---- waiting ---- */

Test(remote_runs, who_waits_holds_up_nobody)
{
    struct scene s = { 0 };
    struct asker waits, other;
    open_on_ledger(&s);
    struct run_args lease = lease_args(60000);
    ask_later(&waits, &s.client, &lease);
    world_advance(&s.world, 30000); /* longer than anybody may take to answer */
    cr_assert_eq(waits.finished, 0);
    struct run_args args = trigger_args("");
    ask_later(&other, &s.client, &args); /* on the same connection */
    world_settle(&s.world);
    cr_assert(other.finished == 1 && other.outcome == OUTCOME_OK);
    cr_assert(waits.finished == 1 && waits.outcome == OUTCOME_OK, "woken, not polled");
    cr_assert(run_id_eq(&row(&waits)->id, &row(&other)->id));
    forget(&waits);
    forget(&other);
    lease.wait_ms = 20000;
    ask_later(&waits, &s.client, &lease);
    world_advance(&s.world, 20000);
    cr_assert(waits.finished == 1 && !waits.error && waits.rows.count == 0);
    scene_close(&s);
}

Test(remote_runs, who_waits_no_more_is_given_nothing)
{
    struct scene s = { 0 };
    struct asker waits, other;
    open_on_ledger(&s);
    struct run_args lease = lease_args(60000);
    ask_later(&waits, &s.client, &lease);
    world_settle(&s.world);
    run_call_cancel(waits.call);
    world_settle(&s.world);
    cr_assert(waits.finished == 1 && waits.error == ERR_CANCELED);
    expect(&s.client, trigger_args(""), OUTCOME_OK);
    lease.wait_ms = 0;
    ask(&other, &s.direct, &lease);
    cr_assert_eq(row(&other)->attempts, 1);
    forget(&other);
    scene_close(&s);
}

/* It was leased in the moment when nobody wanted it any more. */
Test(remote_runs, what_was_leased_meanwhile_is_given_back)
{
    struct scene s = { 0 };
    struct asker waits, other;
    open_on_ledger(&s);
    expect(&s.client, trigger_args(""), OUTCOME_OK);
    struct run_args lease = lease_args(60000);
    faulty_set(s.behind, VERB_RUN_LEASE, FAULT_HOLD, 1);
    ask_later(&waits, &s.client, &lease);
    world_settle(&s.world);
    run_call_cancel(waits.call);
    faulty_let_go(s.behind);
    world_settle(&s.world);
    cr_assert(waits.finished == 1 && waits.error == ERR_CANCELED);
    lease.wait_ms = 0;
    ask(&other, &s.direct, &lease);
    cr_assert(row(&other)->attempts == 1 && row(&other)->stalls == 0);
    forget(&other);
    scene_close(&s);
}

Test(remote_runs, a_client_that_closes_does_not_leave_its_questions)
{
    struct scene s = { 0 };
    struct asker waits;
    struct client late;
    open_on_ledger(&s);
    client_open(&late, &s.world, daemon_url(s.daemon));
    struct run_args lease = lease_args(60000);
    ask_later(&waits, &late, &lease);
    world_settle(&s.world);
    client_close(&late);
    cr_assert_eq(waits.finished, 1);
    scene_close(&s);
}

/* ---- the daemon goes and hangs ---- */

Test(remote_runs, a_daemon_that_is_not_there)
{
    struct scene s = { 0 };
    struct asker a;
    struct client late;
    open_on_ledger(&s);
    daemon_pause(s.daemon);
    client_open(&late, &s.world, daemon_url(s.daemon));
    struct run_args args = trigger_args("");
    ask(&a, &late, &args);
    cr_assert_eq(a.error, ERR_UNAVAILABLE);
    daemon_resume(s.daemon);
    world_advance(&s.world, 2000);
    expect(&late, trigger_args(""), OUTCOME_OK);
    client_close(&late);
    scene_close(&s);
}

/* The ledger behind it does not answer, so the daemon does not; others on the connection go on. */
Test(remote_runs, what_is_not_answered_in_time_has_an_end)
{
    struct scene s = { 0 };
    struct asker write, read;
    open_on_ledger(&s);
    expect(&s.client, trigger_args(""), OUTCOME_OK);
    struct run_args reset = args_of(ASK_RESET), list = args_of(ASK_LIST);
    reset.task = reset.key = bytes_str(TASK);
    list.limit = 1;
    faulty_set(s.behind, VERB_RUN_RESET, FAULT_HOLD, 1);
    ask_later(&write, &s.client, &reset);
    world_advance(&s.world, 9000);
    cr_assert_eq(write.finished, 0);
    ask(&read, &s.client, &list);
    cr_assert_eq(read.rows.count, 1);
    world_advance(&s.world, 2000);
    cr_assert(write.finished == 1 && write.error == ERR_AMBIGUOUS);
    cr_assert_eq(s.relay.cuts, 0);
    faulty_let_go(s.behind);
    world_settle(&s.world);
    forget(&read);
    scene_close(&s);
}

/* ---- limits, and who may ask ---- */

Test(remote_runs, a_payload_that_the_daemon_does_not_keep)
{
    struct world w;
    struct client c;
    struct asker a;
    enum { LARGE = 600 * 1024 };
    static char payload[LARGE + 1];
    world_init(&w, 1);
    struct daemon *d = daemon_start(&w, world_open(&w, "sqlite"),
                                    &(struct daemon_options){ .value_bytes_max = 40 });
    client_open(&c, &w, daemon_url(d));
    struct run_args args = trigger_args("");
    memset(payload, '1', LARGE);
    payload[LARGE] = '\0';
    args.run.payload = bytes_str(payload);
    ask(&a, &c, &args); /* so large that it is not even sent */
    cr_assert_eq(a.error, ERR_LIMIT, "%s", a.text);
    args.run.payload = bytes_of(payload, 41);
    ask(&a, &c, &args);
    cr_assert(a.error == ERR_LIMIT || a.error == ERR_INVALID, "%s", a.text);
    args.run.payload = bytes_of(payload, 40);
    ask(&a, &c, &args);
    cr_assert_eq(a.error, 0, "%s", a.text);
    forget(&a);
    client_close(&c);
    world_fini(&w);
}

static int64_t test_wall_ms(void *ctx)
{
    return ((struct world *)ctx)->wall_ms;
}

Test(remote_runs, what_a_token_is_not_good_for_is_refused)
{
    struct world w;
    struct auth auth;
    struct client c;
    struct asker a;
    struct err err;
    struct tokens_change change;
    char path[96], url[300], token[TOKEN_TEXT_BYTES + 1];
    struct token_wish wish = { .name = bytes_str("t"),
                               .scopes = bytes_str("default"),
                               .rights = BIT(RIGHT_TRIGGER),
                               .expires_ms = INT64_MAX };
    world_init(&w, 1);
    snprintf(path, sizeof path, "%s/tokens", world_dir(&w));
    cr_assert_eq(tokens_change_begin(&change, path, &err), 0, "%s", err.text);
    cr_assert_eq(tokens_create(&change.tokens, &wish, &w.rng.base, token, &err), 0);
    cr_assert_eq(tokens_change_save(&change, &err), 0, "%s", err.text);
    tokens_change_end(&change);
    cr_assert_eq(auth_open(&auth, path, true, (struct clock){ test_wall_ms, &w }, &err), 0);
    struct daemon *d =
        daemon_start(&w, world_open(&w, "sqlite"), &(struct daemon_options){ .auth = &auth });
    snprintf(url, sizeof url, "once://%s@%s", token, daemon_socket(d));
    client_open(&c, &w, url);
    expect(&c, trigger_args(""), OUTCOME_OK);
    struct run_args list = args_of(ASK_LIST);
    list.limit = 1;
    ask(&a, &c, &list);
    cr_assert(a.error == ERR_INVALID && strstr(a.text, "NOPERM"), "%s", a.text);
    client_close(&c);
    world_fini(&w);
    auth_close(&auth);
}
