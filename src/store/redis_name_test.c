/* redis_name_test.c - a Redis that is found by its name: while the resolver hangs nobody else does, a
 * server that is known is found without it, one that has moved is found again. */
#include "store/redis.h"

#include "tests/support/coord.h"
#include "tests/support/names.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <sys/socket.h>

enum { TIMEOUT_MS = 100 };

static struct coord coord;
static char url[256];

static void setup(void)
{
    int port;
    coord_init(&coord, SERVER_REDIS);
    cr_assert_eq(sscanf(coord.url, "redis://127.0.0.1:%d", &port), 1, "%s", coord.url);
    snprintf(url, sizeof url, "redis://" NAMES_HOST ":%d%s", port, strchr(coord.url, '?'));
    names_say("127.0.0.1");
}

static void teardown(void)
{
    coord_fini(&coord);
}

TestSuite(redis_name, .init = setup, .fini = teardown, .timeout = 120);

static const struct conn *conn_of(const struct store *s)
{
    return &((const struct redis *)s)->seed_node->lanes[0].conn;
}

static enum outcome claim(struct store *s, const char *name)
{
    return coord_do(&coord, s, VERB_CLAIM, name, 1, NULL).outcome;
}

static void cut(struct store *s)
{
    shutdown(conn_of(s)->io.fd, SHUT_RDWR);
    COORD_UNTIL(&coord, conn_of(s)->state == CONN_DOWN);
}

Test(redis_name, localhost)
{
    char local[256];
    snprintf(local, sizeof local, "redis://localhost%s", strrchr(coord.url, ':'));
    struct store *s = coord_open_url(&coord, local);
    cr_expect_eq(claim(s, "k"), OUTCOME_CLAIMED);
    coord_close(&coord, s);
}

/* Nobody listens at the first two. */
Test(redis_name, every_address_is_tried_and_the_good_one_is_remembered)
{
    names_say("127.0.0.2 127.0.0.3 127.0.0.1");
    struct store *s = coord_open_url(&coord, url);
    cr_expect_eq(claim(s, "k"), OUTCOME_CLAIMED);
    cr_expect_eq(conn_of(s)->address, 2);
    cut(s);
    coord_revive(&coord, s);
    cr_expect_eq(conn_of(s)->address, 2);
    coord_close(&coord, s);
}

Test(redis_name, a_name_that_is_not_there_is_named)
{
    names_say(NULL);
    struct store *s = coord_open_url(&coord, url);
    struct err err = coord_fails(&coord, s, VERB_CLAIM, "k", 1);
    cr_expect_eq(err.code, ERR_UNAVAILABLE);
    cr_expect(strstr(err.text, NAMES_HOST) && strstr(err.text, "not known"), "%s", err.text);
    names_say("127.0.0.1");
    coord_revive(&coord, s);
    cr_expect_eq(claim(s, "k"), OUTCOME_CLAIMED);
    coord_close(&coord, s);
}

/* Were it looked up on the loop, coord_turn() would not come back. */
Test(redis_name, a_resolver_that_hangs_costs_one_deadline_and_one_thread)
{
    struct asked a;
    struct store *s = coord_open_url(&coord, url);
    names_hang();
    asked_start(&a, s, coord_op(VERB_CLAIM, "k", 1, NULL));
    coord_turn(&coord);
    cr_assert(!a.finished && conn_of(s)->state == CONN_RESOLVING);
    coord_pass(&coord, TIMEOUT_MS);
    cr_assert(a.finished);
    cr_expect_eq(a.op->err.code, ERR_UNAVAILABLE);
    asked_end(&a);
    for (int i = 0; i < 20; i++) { /* attempt after attempt */
        asked_start(&a, s, coord_op(VERB_CLAIM, "k", 1, NULL));
        coord_turn(&coord);
        cr_expect(a.finished, "it is known not to be there");
        asked_end(&a);
        coord_pass(&coord, 1000);
    }
    cr_expect(names_waiting() <= 1, "%u", names_waiting());
    names_go_on();
    coord_revive(&coord, s);
    cr_expect_eq(claim(s, "k"), OUTCOME_CLAIMED);
    coord_close(&coord, s);
}

Test(redis_name, a_server_that_is_known_is_found_while_the_resolver_hangs)
{
    struct store *s = coord_open_url(&coord, url);
    cr_expect_eq(claim(s, "k"), OUTCOME_CLAIMED);
    names_hang();
    cut(s);
    coord_pass(&coord, 1000); /* the pause */
    coord_pass(&coord, RESOLVER_KNOWN_MS);
    COORD_UNTIL(&coord, conn_of(s)->state == CONN_READY);
    cr_expect_eq(claim(s, "j"), OUTCOME_CLAIMED);
    coord_close(&coord, s); /* with a lookup under way, of nobody's any more */
    names_go_on();
}

Test(redis_name, a_server_that_is_known_is_found_while_the_resolver_fails)
{
    struct store *s = coord_open_url(&coord, url);
    cr_expect_eq(claim(s, "k"), OUTCOME_CLAIMED);
    names_say(NULL);
    cut(s);
    coord_revive(&coord, s);
    cr_expect_eq(claim(s, "j"), OUTCOME_CLAIMED);
    coord_close(&coord, s);
}

/* What it said last is of no use, and what it says now, too late, is tried next. */
Test(redis_name, a_server_that_has_moved_is_found_by_a_slow_resolver)
{
    names_say("127.0.0.2");
    struct store *s = coord_open_url(&coord, url);
    coord_fails(&coord, s, VERB_CLAIM, "k", 1);
    names_hang();
    coord_pass(&coord, 1000);
    coord_pass(&coord, RESOLVER_KNOWN_MS);
    COORD_UNTIL(&coord, conn_of(s)->state == CONN_DOWN);
    names_say("127.0.0.1");
    names_go_on();
    coord_revive(&coord, s);
    cr_expect_eq(claim(s, "k"), OUTCOME_CLAIMED);
    coord_close(&coord, s);
}
