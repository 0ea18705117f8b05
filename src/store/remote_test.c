/* remote_test.c - a daemon as a store: the connection cut at every byte, the daemon restarted under
 * its clients, who may ask, two clients of one key. The daemon is a real one, in this process, on a
 * clock that the test moves; the store behind it is memory, or fails as it is told to. */
#include "base/check.h"
#include "daemon/tokens_file.h"
#include "store/remote_scene_test.h"
#include "tests/support/caller.h"
#include "tests/support/coord.h"
#include "tests/support/names.h"

#include <errno.h>
#include <fcntl.h>

static struct caller claim(struct client *c, const char *name, int64_t wait_ms)
{
    struct caller caller;
    caller_claim(&caller, c->engine, name, wait_ms);
    world_settle(c->world);
    return caller;
}

static struct caller publish(struct client *c, const char *name, const struct token *token,
                             const char *value)
{
    struct caller caller;
    caller_publish(&caller, c->engine, name, token, value);
    world_settle(c->world);
    return caller;
}

/* ---- the line is cut ---- */

/* Claimed, or provably not; and if it is claimed, by this call and nobody else. */
static struct caller claimed_in_the_end(struct scene *s)
{
    struct caller c;
    caller_claim(&c, s->client.engine, "k", 0);
    world_advance(&s->world, 4000);
    cr_assert_eq(c.finished, 1);
    if (!c.error) return c;
    cr_assert_eq(c.error, ERR_UNAVAILABLE); /* cut while it was greeted: nothing was sent */
    cr_assert_eq(faulty_count(s->behind, VERB_CLAIM), 0);
    return claim(&s->client, "k", 0);
}

static void do_it_once(struct scene *s)
{
    struct caller owner = claimed_in_the_end(s), done, other;
    cr_assert_eq(owner.outcome, OUTCOME_CLAIMED);
    caller_publish(&done, s->client.engine, "k", &owner.token, "v");
    world_advance(&s->world, 4000);
    cr_assert(done.finished == 1 && !done.error && done.outcome == OUTCOME_OK);
    other = claim(&s->direct, "k", 0);
    cr_assert_eq(other.outcome, OUTCOME_CACHED);
    cr_assert_str_eq(other.value, "v");
    cr_assert_eq(other.out.fence, owner.out.fence);
}

/* Byte by byte, until more may pass than is said. */
static void cut_everywhere(bool up)
{
    for (size_t at = 0;; at++) {
        struct scene s = { 0 };
        scene_open(&s);
        *(up ? &s.relay.left_up : &s.relay.left_down) = at;
        do_it_once(&s);
        bool was_cut = s.relay.cuts > 0;
        scene_close(&s);
        if (was_cut) continue;
        cr_assert(at > 250, "only %zu bytes were said", at);
        return;
    }
}

Test(remote, questions_are_cut_at_every_place)
{
    cut_everywhere(true);
}

Test(remote, answers_are_cut_at_every_place)
{
    cut_everywhere(false);
}

/* The claim was granted, the answer lost: the same call finds its claim, by its token. */
Test(remote, a_lost_answer_is_asked_for_again_with_the_token)
{
    struct scene s = { 0 };
    struct caller c;
    scene_open(&s);
    claim(&s.client, "first", 0);
    s.relay.left_down = 0;
    caller_claim(&c, s.client.engine, "k", 0);
    world_advance(&s.world, 2000);
    cr_assert(c.finished == 1 && c.outcome == OUTCOME_CLAIMED);
    cr_assert_eq(engine_stats(s.client.engine).ambiguous, 1);
    cr_assert_eq(faulty_count(s.behind, VERB_CLAIM), 3);
    cr_assert_eq(faulty_count(s.behind, VERB_RELEASE), 0); /* nobody gave it back meanwhile */
    scene_close(&s);
}

/* The daemon itself does not know: it asks again, and if it has to say so, so does the store. */
Test(remote, what_is_ambiguous_behind_the_daemon_is_settled)
{
    struct scene s = { 0 };
    struct caller c;
    scene_open(&s);
    faulty_set(s.behind, VERB_CLAIM, FAULT_LOSE_ANSWER, 2);
    caller_claim(&c, s.client.engine, "k", 0);
    world_advance(&s.world, 4000);
    cr_assert(c.finished == 1 && c.outcome == OUTCOME_CLAIMED);
    faulty_set(s.behind, VERB_PUBLISH, FAULT_LOSE_ANSWER, 1);
    struct caller p;
    caller_publish(&p, s.client.engine, "k", &c.token, "v");
    world_advance(&s.world, 4000);
    cr_assert(p.finished == 1 && p.outcome == OUTCOME_OK);
    faulty_set(s.behind, VERB_CLAIM, FAULT_REFUSE, FAULTY_ALWAYS);
    c = claim(&s.client, "other", 0);
    cr_assert_eq(c.error, ERR_UNAVAILABLE);
    scene_close(&s);
}

/* ---- waiting ---- */

Test(remote, who_waits_is_told_and_does_not_poll)
{
    struct scene s = { 0 };
    struct caller first, waiters[20];
    scene_open(&s);
    struct caller owner = claim(&s.direct, "k", 0);
    for (int i = 0; i < 20; i++) caller_claim(&waiters[i], s.client.engine, "k", 20000);
    world_advance(&s.world, 10000);
    cr_assert_eq(faulty_count(s.behind, VERB_CLAIM), 2); /* one for all of them */
    first = publish(&s.direct, "k", &owner.token, "v");
    cr_assert_eq(first.outcome, OUTCOME_OK);
    for (int i = 0; i < 20; i++) {
        cr_assert(waiters[i].finished == 1 && waiters[i].outcome == OUTCOME_CACHED);
        cr_assert_str_eq(waiters[i].value, "v");
    }
    scene_close(&s);
}

Test(remote, a_release_promotes_one_and_a_lapse_another)
{
    struct scene s = { 0 };
    struct caller a, b;
    scene_open(&s);
    struct caller owner = claim(&s.direct, "k", 0);
    caller_claim(&a, s.client.engine, "k", 100000);
    caller_claim(&b, s.client.engine, "k", 100000);
    world_settle(&s.world);
    struct caller released;
    caller_release(&released, s.direct.engine, "k", &owner.token);
    world_settle(&s.world);
    cr_assert(a.finished == 1 && a.outcome == OUTCOME_CLAIMED && b.finished == 0);
    world_advance(&s.world, 31000); /* nobody renews it: caller_claim() does not ask for that */
    cr_assert(b.finished == 1 && b.outcome == OUTCOME_CLAIMED && b.out.taken_over);
    scene_close(&s);
}

Test(remote, who_waits_is_answered_although_the_line_was_cut)
{
    struct scene s = { 0 };
    struct caller waiter;
    scene_open(&s);
    struct caller owner = claim(&s.direct, "k", 0);
    caller_claim(&waiter, s.client.engine, "k", 20000);
    world_settle(&s.world);
    s.relay.left_down = 0;
    publish(&s.direct, "k", &owner.token, "v"); /* its push is what is cut off */
    world_advance(&s.world, 2000);
    cr_assert(waiter.finished == 1 && waiter.outcome == OUTCOME_CACHED);
    scene_close(&s);
}

Test(remote, a_canceled_watch_is_taken_back_at_the_daemon)
{
    struct scene s = { 0 };
    struct caller waiter;
    scene_open(&s);
    claim(&s.direct, "k", 0);
    caller_claim(&waiter, s.client.engine, "k", 20000);
    world_settle(&s.world);
    cr_assert_eq(daemon_watches(s.daemon), 1);
    call_cancel(waiter.call);
    world_settle(&s.world);
    cr_assert(waiter.finished == 1 && waiter.error == ERR_CANCELED);
    cr_assert_eq(daemon_watches(s.daemon), 0);
    scene_close(&s);
}

/* ---- the daemon goes and comes ---- */

Test(remote, the_daemon_is_restarted_under_its_clients)
{
    struct scene s = { 0 };
    struct caller waiter, done;
    scene_open(&s);
    struct call_args args = caller_claim_args("k", 0);
    struct caller owner;
    args.renew = true;
    caller_call(&owner, s.direct.engine, &args);
    world_settle(&s.world);
    caller_claim(&waiter, s.client.engine, "k", 300000);
    world_advance(&s.world, 25000); /* renewed already */
    daemon_pause(s.daemon);
    world_advance(&s.world, 5000);
    cr_assert_eq(claim(&s.direct, "x", 0).error, ERR_UNAVAILABLE);
    caller_publish(&done, s.direct.engine, "k", &owner.token, "v");
    world_advance(&s.world, 1000);
    cr_assert_eq(done.finished, 0); /* it is tried again */
    daemon_resume(s.daemon);
    world_advance(&s.world, 4000);
    cr_assert(done.finished == 1 && !done.error && done.outcome == OUTCOME_OK);
    cr_assert(waiter.finished == 1 && waiter.outcome == OUTCOME_CACHED);
    cr_assert_eq(claim(&s.direct, "x", 0).outcome, OUTCOME_CLAIMED);
    scene_close(&s);
}

Test(remote, a_daemon_that_is_not_there_is_refused_at_once_and_found_later)
{
    struct scene s = { 0 };
    struct client late;
    scene_open(&s);
    daemon_pause(s.daemon);
    client_open(&late, &s.world, daemon_url(s.daemon));
    int64_t before_ms = s.world.mono_ms;
    cr_assert_eq(claim(&late, "k", 5000).error, ERR_UNAVAILABLE);
    cr_assert_eq(s.world.mono_ms, before_ms);
    daemon_resume(s.daemon);
    world_advance(&s.world, 2000);
    cr_assert_eq(claim(&late, "k", 0).outcome, OUTCOME_CLAIMED);
    client_close(&late);
    scene_close(&s);
}

/* A daemon that hangs: nobody turns it. */
Test(remote, what_is_not_answered_in_time_has_an_end)
{
    struct scene s = { 0 };
    struct caller writes;
    scene_open(&s);
    claim(&s.direct, "first", 0);
    caller_claim(&writes, s.direct.engine, "k", 0);
    struct call_args args = { .verb = VERB_PEEK, .key = key_of("s", "k") };
    struct caller reads;
    caller_call(&reads, s.direct.engine, &args);
    for (int i = 0; i < 3; i++) loop_turn(&s.world.loop, s.world.mono_ms);
    cr_assert(writes.finished == 0 && reads.finished == 0);
    s.world.mono_ms += 10001;
    for (int i = 0; i < 3; i++) loop_turn(&s.world.loop, s.world.mono_ms);
    cr_assert(reads.finished == 1 && reads.error == ERR_UNAVAILABLE);
    cr_assert_eq(engine_stats(s.direct.engine).ambiguous, 1);
    world_advance(&s.world, 4000);
    cr_assert_eq(writes.finished, 1);
    scene_close(&s);
}

/* ---- limits, and who is at the other end ---- */

Test(remote, a_value_that_the_daemon_does_not_keep_is_refused_here)
{
    struct world w;
    struct client c;
    world_init(&w, 1);
    struct daemon *d = daemon_start(&w, world_open(&w, "memory"),
                                    &(struct daemon_options){ .value_bytes_max = 40 });
    client_open(&c, &w, daemon_url(d));
    struct caller owner = claim(&c, "k", 0);
    char value[42] = "";
    memset(value, 'v', 41);
    cr_assert_eq(publish(&c, "k", &owner.token, value).error, ERR_LIMIT);
    cr_assert_eq(publish(&c, "k", &owner.token, value + 1).outcome, OUTCOME_OK);
    client_close(&c);
    world_fini(&w);
}

static void expect_why(struct world *w, const char *url, int code, const char *why)
{
    struct client c;
    client_open(&c, w, url);
    struct op *op = op_new(VERB_PEEK, &(struct key){ bytes_str("s"), bytes_str("k") }, NULL);
    struct asked asked;
    asked_start(&asked, c.store, op);
    world_await(w, &asked.finished);
    cr_assert_eq(op->err.code, code, "%s", op->err.text);
    cr_assert(strstr(op->err.text, why), "%s", op->err.text);
    asked_end(&asked);
    client_close(&c);
}

/* ---- who may ask ---- */

struct guarded {
    struct world world;
    struct auth auth;
    struct daemon *daemon;
    char path[96];
};

static int64_t wall_ms(void *ctx)
{
    return ((struct world *)ctx)->wall_ms;
}

/* A daemon that wants tokens, and one that is good for claims in scope "s". */
static void guarded_open(struct guarded *g, char token[TOKEN_TEXT_BYTES + 1])
{
    struct err err;
    struct tokens_change c;
    struct token_wish wish = { .name = bytes_str("t"),
                               .scopes = bytes_str("s"),
                               .rights = BIT(RIGHT_CLAIM),
                               .expires_ms = INT64_MAX };
    world_init(&g->world, 1);
    snprintf(g->path, sizeof g->path, "%s/tokens", world_dir(&g->world));
    cr_assert_eq(tokens_change_begin(&c, g->path, &err), 0, "%s", err.text);
    cr_assert_eq(tokens_create(&c.tokens, &wish, &g->world.rng.base, token, &err), 0);
    cr_assert_eq(tokens_change_save(&c, &err), 0, "%s", err.text);
    tokens_change_end(&c);
    struct clock wall = { .now_ms = wall_ms, .ctx = &g->world };
    cr_assert_eq(auth_open(&g->auth, g->path, true, wall, &err), 0, "%s", err.text);
    g->daemon = daemon_start(&g->world, world_open(&g->world, "memory"),
                             &(struct daemon_options){ .auth = &g->auth });
}

static void guarded_close(struct guarded *g)
{
    world_fini(&g->world);
    auth_close(&g->auth);
}

Test(remote, a_token_is_shown_and_what_it_is_not_good_for_is_refused)
{
    struct guarded g = { 0 };
    struct client c;
    char token[TOKEN_TEXT_BYTES + 1], url[300];
    guarded_open(&g, token);
    expect_why(&g.world, daemon_url(g.daemon), ERR_UNAVAILABLE, "NOAUTH");
    snprintf(url, sizeof url, "once://nonsense@%s", daemon_socket(g.daemon));
    expect_why(&g.world, url, ERR_UNAVAILABLE, "WRONGPASS");
    snprintf(url, sizeof url, "once://%s@%s", token, daemon_socket(g.daemon));
    expect_why(&g.world, url, ERR_INVALID, "NOPERM"); /* to peek */
    client_open(&c, &g.world, url);
    cr_assert_eq(claim(&c, "k", 0).outcome, OUTCOME_CLAIMED);
    client_close(&c);
    guarded_close(&g);
}

Test(remote, something_else_than_a_daemon_is_named)
{
    struct world w;
    char url[160];
    const char *redis = server_url(SERVER_REDIS);
    if (!redis) cr_skip_test("its server is not up: tests/with-servers");
    world_init(&w, 1);
    cr_assert_eq(loop_open(&w.loop, &(struct err){ 0 }), 0);
    snprintf(url, sizeof url, "once%s", strchr(redis, ':'));
    url[strcspn(url, "?")] = '\0';
    expect_why(&w, url, ERR_UNAVAILABLE, "no `once serve`");
    world_fini(&w);
}

/* ---- a daemon that has a name ---- */

Test(remote, a_resolver_that_hangs_costs_a_deadline_and_closing_does_not_wait_for_it)
{
    struct world world;
    struct client c;
    struct err err;
    struct caller caller;
    world_init(&world, 1);
    cr_assert(world.loop.fd >= 0 || loop_open(&world.loop, &err) == 0);
    names_hang();
    client_open(&c, &world, "once://" NAMES_HOST ":1");
    caller_claim(&caller, c.engine, "k", 0);
    world_advance(&world, 60000);
    cr_assert(caller.finished == 1 && caller.error == ERR_UNAVAILABLE, "%d", caller.error);
    cr_expect(names_waiting() <= 1);
    client_close(&c);
    world_fini(&world);
    names_go_on();
}
