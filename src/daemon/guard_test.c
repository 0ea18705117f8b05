/* guard_test.c - where a door may open, with which tokens and without which key. Certificates are in
 * tls_test.c and tests/e2e/auth.sh. */
#include "daemon/guard.h"

#include "daemon/tokens_file.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct place {
    char dir[32], tokens[64];
};

static struct place a_place(void)
{
    struct place p = { .dir = "/tmp/guard-test-XXXXXX" };
    cr_assert(mkdtemp(p.dir));
    snprintf(p.tokens, sizeof p.tokens, "%s/tokens", p.dir);
    return p;
}

static void leave(const struct place *p, struct guard *g)
{
    guard_close(g);
    unlink(p->tokens);
    rmdir(p->dir);
}

static void add_token(const struct place *p, int64_t created_ms, int64_t expires_ms)
{
    char text[TOKEN_TEXT_BYTES + 1];
    struct tokens_change c;
    struct rng_system rng;
    struct err err = { 0 };
    struct token_wish wish = { .name = bytes_str("t"),
                               .scopes = bytes_str("*"),
                               .rights = 1,
                               .now_ms = created_ms,
                               .expires_ms = expires_ms };
    rng_system_init(&rng);
    cr_assert_eq(tokens_change_begin(&c, p->tokens, &err), 0, "%s", err.text);
    cr_assert_eq(tokens_create(&c.tokens, &wish, &rng.base, text, &err), 0, "%s", err.text);
    cr_assert_eq(tokens_change_save(&c, &err), 0, "%s", err.text);
    tokens_change_end(&c);
}

static struct guard open_guard(const struct place *p, bool insecure)
{
    struct guard g;
    struct err err = { 0 };
    struct guard_config config = { .tokens = p->tokens, .insecure = insecure };
    cr_assert_eq(guard_open(&g, &config, &err), 0, "%s", err.text);
    return g;
}

static void takes(const struct guard *g, const char *address)
{
    struct err err = { 0 };
    cr_assert_eq(guard_check(g, address, &err), 0, "%s: %s", address, err.text);
}

static void refuses(const struct guard *g, const char *address, const char *why)
{
    struct err err = { 0 };
    cr_assert_eq(guard_check(g, address, &err), ERR_INVALID, "%s", address);
    cr_assert(strstr(err.text, why), "%s", err.text);
}

Test(guard, without_tokens_this_machine_only)
{
    struct place p = a_place();
    struct guard g = open_guard(&p, true);
    takes(&g, "127.0.0.1:0");
    takes(&g, "[::1]:0");
    takes(&g, "unix:/x");
    refuses(&g, "0.0.0.0:0", "once token create");
    refuses(&g, "[::]:0", "once token create");
    refuses(&g, "nonsense", "not an address");
    leave(&p, &g);
}

Test(guard, a_token_that_has_expired_is_none)
{
    struct place p = a_place();
    add_token(&p, 1000, 1000);
    struct guard g = open_guard(&p, true);
    takes(&g, "127.0.0.1:0");
    refuses(&g, "0.0.0.0:0", "once token create");
    leave(&p, &g);
}

Test(guard, with_tokens_others_need_tls_or_to_be_told)
{
    struct place p = a_place();
    add_token(&p, 1000, INT64_MAX);
    struct guard g = open_guard(&p, false);
    takes(&g, "127.0.0.1:0");
    refuses(&g, "0.0.0.0:0", "in the clear");
    guard_close(&g);
    g = open_guard(&p, true);
    takes(&g, "0.0.0.0:0");
    cr_assert_null(guard_keys(&g));
    leave(&p, &g);
}

Test(guard, half_a_pair_is_refused)
{
    struct guard g;
    struct err err = { 0 };
    struct guard_config cert = { .tls_cert = "x" }, key = { .tls_key = "x" };
    cr_assert_eq(guard_open(&g, &cert, &err), ERR_INVALID);
    cr_assert(strstr(err.text, "--tls-key"), "%s", err.text);
    cr_assert_eq(guard_open(&g, &key, &err), ERR_INVALID);
}

Test(guard, what_fails_to_open_leaves_nothing)
{
    struct guard g;
    struct err err = { 0 };
    struct guard_config config = { .tokens = "/nowhere/tokens", .tokens_needed = true };
    cr_assert_eq(guard_open(&g, &config, &err), ERR_INVALID);
    cr_assert_null(g.tokens);
    config = (struct guard_config){ .tls_cert = "/nowhere", .tls_key = "/nowhere" };
    cr_assert_eq(guard_open(&g, &config, &err), ERR_INVALID);
    cr_assert_null(guard_keys(&g));
}

Test(guard, reloading_takes_what_is_there)
{
    struct place p = a_place();
    struct guard g = open_guard(&p, true);
    struct err err = { 0 };
    cr_assert(!auth_required(&g.auth));
    add_token(&p, 1000, INT64_MAX);
    cr_assert_eq(guard_reload(&g, &err), 0, "%s", err.text);
    cr_assert(auth_required(&g.auth));
    takes(&g, "0.0.0.0:0");
    leave(&p, &g);
}
