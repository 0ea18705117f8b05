/* redis_greeting_test.c - what a server is told to let us in is shown to nobody, even if the server
 * repeats it: a real one does that with a command that it does not know. */
#include "store/redis.h"

#include "tests/support/coord.h"

#include <criterion/criterion.h>
#include <stdio.h>

static struct coord coord;

static void setup(void)
{
    coord_init_private(&coord, SERVER_REDIS,
                       "rename-command AUTH \"\"\nrename-command HELLO \"\"");
}

static void teardown(void)
{
    coord_fini(&coord);
}

TestSuite(redis_greeting, .init = setup, .fini = teardown, .timeout = 120);

static const char *address(void)
{
    return coord.url + strlen("redis://");
}

static void expect_hidden(const char *url, const char *word)
{
    struct store *s = coord_open_url(&coord, url);
    struct err err = coord_fails(&coord, s, VERB_CLAIM, "k", 1);
    cr_expect(err.code == ERR_UNAVAILABLE && strstr(err.text, word), "%s", err.text);
    cr_expect(!strstr(err.text, "Secret"), "%s", err.text);
    coord_close(&coord, s);
}

Test(redis_greeting, password_that_is_repeated_is_not_shown)
{
    char url[300];
    cr_assert(strstr(coord_ask(&coord, "AUTH TopSecret42"), "TopSecret42"));
    snprintf(url, sizeof url, "redis://:TopSecret42@%s", address());
    expect_hidden(url, "AUTH: ERR");
    snprintf(url, sizeof url, "redis://VerySecret:TopSecret42@%s", address());
    expect_hidden(url, "AUTH: ERR");
}

/* Somebody gave the address of a Redis for that of a daemon. */
Test(redis_greeting, token_that_is_repeated_is_not_shown)
{
    char url[300];
    snprintf(url, sizeof url, "once://TopSecret42@%.*s", (int)strcspn(address(), "?/"),
             address());
    expect_hidden(url, "ERR");
}
