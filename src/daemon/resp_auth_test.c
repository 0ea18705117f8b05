/* resp_auth_test.c - who speaks on a RESP connection: what a stranger may say, what a token is good
 * for there, and what is left of it when it is void. */
#include "base/check.h"
#include "daemon/resp_session.h"
#include "daemon/scene_test.h"
#include "daemon/tokens_file.h"

#define NOAUTH "-NOAUTH Authentication required.\r\n"
#define OK "+OK\r\n"

enum { BIG_BYTES = 2000 }; /* too much for a stranger */

struct guarded {
    struct scene scene;
    struct auth auth;
    struct rng_system rng;
    int64_t now_ms;
    char path[64];
};

static int64_t guarded_now_ms(void *ctx)
{
    return *(int64_t *)ctx;
}

static void reload(struct guarded *g)
{
    struct err err = { 0 };
    cr_assert_eq(auth_reload(&g->auth, &err), 0, "%s", err.text);
    resp_door_recheck(&g->scene.door);
    go(&g->scene);
}

/* The text of a new token, which the door knows; valid until the next one. */
static const char *make(struct guarded *g, const char *scopes, unsigned rights)
{
    static char text[TOKEN_TEXT_BYTES + 1];
    struct tokens_change c;
    struct err err = { 0 };
    struct token_wish wish = { .name = bytes_str("t"),
                               .scopes = bytes_str(scopes),
                               .rights = rights,
                               .now_ms = g->now_ms,
                               .expires_ms = 60000 };
    cr_assert_eq(tokens_change_begin(&c, g->path, &err), 0, "%s", err.text);
    cr_assert_eq(tokens_create(&c.tokens, &wish, &g->rng.base, text, &err), 0, "%s", err.text);
    cr_assert_eq(tokens_change_save(&c, &err), 0, "%s", err.text);
    tokens_change_end(&c);
    reload(g);
    return text;
}

static void take_away_all(struct guarded *g)
{
    struct tokens_change c;
    struct err err = { 0 };
    cr_assert_eq(tokens_change_begin(&c, g->path, &err), 0, "%s", err.text);
    tokens_fini(&c.tokens);
    cr_assert_eq(tokens_change_save(&c, &err), 0, "%s", err.text);
    tokens_change_end(&c);
    reload(g);
}

static void guarded_open(struct guarded *g)
{
    struct err err = { 0 };
    *g = (struct guarded){ .now_ms = INT64_C(1794808800000) };
    rng_system_init(&g->rng);
    scene_open_door(&g->scene, &resp_door);
    snprintf(g->path, sizeof g->path, "%s/tokens", g->scene.dir);
    struct clock clock = { guarded_now_ms, &g->now_ms };
    cr_assert_eq(auth_open(&g->auth, g->path, false, clock, &err), 0, "%s", err.text);
    g->scene.door.auth = &g->auth;
}

static void guarded_close(struct guarded *g)
{
    unlink(g->path);
    scene_close(&g->scene);
    auth_close(&g->auth);
}

/* Says it and hears this, on a connection that stays. */
static void talks(struct guarded *g, int fd, const char *text, const char *want)
{
    say(&g->scene, fd, text);
    hears(fd, want);
}

static int dial_as(struct guarded *g, const char *token)
{
    char line[128];
    int fd = dial(&g->scene);
    snprintf(line, sizeof line, "AUTH %s\n", token);
    talks(g, fd, line, OK);
    return fd;
}

Test(resp_auth, a_stranger_may_say_who_they_are_and_leave)
{
    struct guarded g;
    guarded_open(&g);
    make(&g, "*", BIT(RIGHTS) - 1);
    int fd = dial(&g.scene);
    talks(&g, fd, "PING\n", NOAUTH);
    talks(&g, fd, "ONCE.CLAIM s k\n", NOAUTH);
    talks(&g, fd, "ONCE.UNWATCH 1\n", NOAUTH);
    talks(&g, fd, "INFO\n", NOAUTH);
    talks(&g, fd, "COMMAND COUNT\n", NOAUTH);
    talks(&g, fd, "CLIENT ID\n", NOAUTH);
    talks(&g, fd, "HELLO\n", "-NOAUTH HELLO");
    close(fd);
    fd = dial(&g.scene);
    talks(&g, fd, "RESET\n", "+RESET\r\n");
    talks(&g, fd, "QUIT\n", OK);
    close(fd);
    cr_assert_eq(faulty_count(g.scene.store, VERB_CLAIM), 0);
    guarded_close(&g);
}

Test(resp_auth, every_row_of_the_table_is_closed_to_strangers_but_four)
{
    struct guarded g;
    guarded_open(&g);
    int open = 0;
    for (const struct resp_entry *e = resp_table; e->name; e++) open += e->for_strangers;
    cr_assert_eq(open, 4);
    guarded_close(&g);
}

Test(resp_auth, five_wrong_tokens_end_it)
{
    struct guarded g;
    guarded_open(&g);
    const char *token = make(&g, "*", BIT(RIGHT_CLAIM));
    int fd = dial_as(&g, token);
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(g.scene.conns.stats[DOOR_RESP].open, 1);
        talks(&g, fd, "AUTH wrong\n", "-WRONGPASS");
    }
    hang_up(&g.scene, fd);
    cr_assert_eq(g.auth.wrong, 5);
    cr_assert_eq(g.scene.conns.stats[DOOR_RESP].closed[CLOSE_REFUSED], 1);
    guarded_close(&g);
}

Test(resp_auth, a_wrong_token_takes_nothing_away)
{
    struct guarded g;
    guarded_open(&g);
    int fd = dial_as(&g, make(&g, "*", BIT(RIGHT_CLAIM)));
    talks(&g, fd, "AUTH wrong\n", "-WRONGPASS");
    talks(&g, fd, "PING\n", "+PONG\r\n");
    close(fd);
    guarded_close(&g);
}

Test(resp_auth, what_stands_behind_auth_in_one_packet_is_a_friends)
{
    struct guarded g;
    guarded_open(&g);
    char text[4096], big[BIG_BYTES + 1];
    memset(big, 'x', BIG_BYTES);
    big[BIG_BYTES] = 0;
    const char *token = make(&g, "*", BIT(RIGHT_CLAIM));
    snprintf(text, sizeof text, "AUTH %s\r\n*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", token,
             BIG_BYTES, big);
    int fd = dial(&g.scene);
    talks(&g, fd, text, "+OK\r\n$2000\r\nxxx");
    close(fd);
    fd = dial(&g.scene);
    talks(&g, fd, strchr(text, '*'), "-ERR Protocol error");
    close(fd);
    guarded_close(&g);
}

Test(resp_auth, reset_forgets_who_it_was)
{
    struct guarded g;
    guarded_open(&g);
    int fd = dial_as(&g, make(&g, "*", BIT(RIGHT_CLAIM)));
    talks(&g, fd, "PING\n", "+PONG\r\n");
    talks(&g, fd, "RESET\n", "+RESET\r\n");
    talks(&g, fd, "PING\n", NOAUTH);
    close(fd);
    guarded_close(&g);
}

Test(resp_auth, the_store_is_not_asked_what_the_token_does_not_cover)
{
    struct guarded g;
    guarded_open(&g);
    int fd = dial_as(&g, make(&g, "mine,tmp:*", BIT(RIGHT_PEEK) | BIT(RIGHT_SCAN)));
    talks(&g, fd, "ONCE.PEEK mine k\n", "*1\r\n$6\r\nabsent\r\n");
    talks(&g, fd, "ONCE.PEEK tmp:1 k\n", "*1\r\n$6\r\nabsent\r\n");
    size_t peeks = faulty_count(g.scene.store, VERB_PEEK);
    talks(&g, fd, "ONCE.PEEK other k\n", "-NOPERM");
    close(fd);
    fd = dial_as(&g, make(&g, "mine,tmp:*", BIT(RIGHT_PEEK) | BIT(RIGHT_SCAN)));
    talks(&g, fd, "ONCE.CLAIM mine k\n", "-NOPERM");
    cr_assert_eq(faulty_count(g.scene.store, VERB_PEEK), peeks);
    cr_assert_eq(faulty_count(g.scene.store, VERB_CLAIM), 0);
    cr_assert_eq(faulty_count(g.scene.store, VERB_SCAN), 0);
    close(fd);
    guarded_close(&g);
}

Test(resp_auth, a_scan_of_everything_needs_everything)
{
    struct guarded g;
    guarded_open(&g);
    int some = dial_as(&g, make(&g, "mine", BIT(RIGHT_SCAN)));
    int all = dial_as(&g, make(&g, "*", BIT(RIGHT_SCAN)));
    talks(&g, some, "ONCE.SCAN 0 SCOPE mine\n", "*2\r\n$1\r\n0\r\n*0\r\n");
    talks(&g, all, "ONCE.SCAN 0\n", "*2\r\n$1\r\n0\r\n*0\r\n");
    /* A cursor names a scope; without SCOPE it is about all of them all the same. */
    talks(&g, some, "ONCE.SCAN 046d696e656b\n", "-NOPERM");
    close(some);
    close(all);
    guarded_close(&g);
}

Test(resp_auth, revoked_or_expired_counts_at_the_next_command)
{
    struct guarded g;
    guarded_open(&g);
    int fd = dial_as(&g, make(&g, "*", BIT(RIGHT_PEEK)));
    g.now_ms += 59999;
    talks(&g, fd, "PING\n", "+PONG\r\n");
    g.now_ms += 1;
    talks(&g, fd, "PING\n", NOAUTH);
    close(fd);
    fd = dial_as(&g, make(&g, "*", BIT(RIGHT_PEEK)));
    take_away_all(&g);
    talks(&g, fd, "PING\n", NOAUTH);
    close(fd);
    guarded_close(&g);
}

Test(resp_auth, who_is_revoked_keeps_nothing_bound_and_waits_for_nothing)
{
    struct guarded g;
    guarded_open(&g);
    const char *token = make(&g, "*", BIT(RIGHT_CLAIM) | BIT(RIGHT_PEEK));
    int owner = dial_as(&g, token), waiter = dial_as(&g, token);
    talks(&g, owner, "ONCE.CLAIM s k BOUND\n", "*4\r\n$7\r\nclaimed\r\n");
    say(&g.scene, waiter, "ONCE.CLAIM s k WAIT 30s\n");
    cr_assert_eq(engine_stats(g.scene.engine).waiters, 1);
    cr_assert_eq(engine_stats(g.scene.engine).held, 1);
    take_away_all(&g);
    hears(waiter, "-UNAVAILABLE nothing was done");
    cr_assert_eq(engine_stats(g.scene.engine).waiters, 0);
    cr_assert_eq(engine_stats(g.scene.engine).held, 0);
    int other = dial_as(&g, make(&g, "*", BIT(RIGHT_PEEK)));
    talks(&g, other, "ONCE.PEEK s k\n", "*1\r\n$6\r\nabsent\r\n");
    close(owner);
    close(waiter);
    close(other);
    guarded_close(&g);
}

/* Nobody had to say who they are, until a tokens file appears. */
Test(resp_auth, a_new_tokens_file_counts_for_those_who_are_there)
{
    struct guarded g;
    guarded_open(&g);
    int fd = dial(&g.scene);
    talks(&g, fd, "PING\n", "+PONG\r\n");
    make(&g, "*", BIT(RIGHT_PEEK));
    talks(&g, fd, "PING\n", NOAUTH);
    close(fd);
    guarded_close(&g);
}
