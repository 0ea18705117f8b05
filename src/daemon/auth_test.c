/* auth_test.c - who gets in, what for and how long; the test moves the clock. */
#include "daemon/auth.h"

#include "base/check.h"
#include "daemon/tokens_file.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct scene {
    char dir[32], path[64];
    int64_t now_ms;
    struct rng_system rng;
    struct auth auth;
};

static int64_t scene_now_ms(void *ctx)
{
    return *(int64_t *)ctx;
}

static int open_auth(struct scene *s, struct err *reterr)
{
    struct clock clock = { scene_now_ms, &s->now_ms };
    return auth_open(&s->auth, s->path, false, clock, reterr);
}

static void scene_open(struct scene *s)
{
    struct err err = { 0 };
    snprintf(s->dir, sizeof s->dir, "/tmp/auth-test-XXXXXX");
    cr_assert(mkdtemp(s->dir));
    snprintf(s->path, sizeof s->path, "%s/tokens", s->dir);
    s->now_ms = INT64_C(1794808800000);
    rng_system_init(&s->rng);
    cr_assert_eq(open_auth(s, &err), 0, "%s", err.text);
}

static void scene_close(struct scene *s)
{
    auth_close(&s->auth);
    unlink(s->path);
    rmdir(s->dir);
}

static void reload(struct scene *s)
{
    struct err err = { 0 };
    cr_assert_eq(auth_reload(&s->auth, &err), 0, "%s", err.text);
}

struct token_text {
    char text[TOKEN_TEXT_BYTES + 1];
};

static struct token_text make(struct scene *s, const char *scopes, unsigned rights,
                              int64_t expires_ms)
{
    struct token_text made;
    struct tokens_change c;
    struct err err = { 0 };
    struct token_wish wish = { .name = bytes_str("t"),
                               .scopes = bytes_str(scopes),
                               .rights = rights,
                               .now_ms = s->now_ms,
                               .expires_ms = expires_ms };
    cr_assert_eq(tokens_change_begin(&c, s->path, &err), 0, "%s", err.text);
    cr_assert_eq(tokens_create(&c.tokens, &wish, &s->rng.base, made.text, &err), 0, "%s",
                 err.text);
    cr_assert_eq(tokens_change_save(&c, &err), 0, "%s", err.text);
    tokens_change_end(&c);
    reload(s);
    return made;
}

static void take_away(struct scene *s, const struct token_text *token)
{
    struct tokens_change c;
    struct err err = { 0 };
    struct bytes id;
    cr_assert_eq(token_text_parse(bytes_str(token->text), &id, &err), 0);
    cr_assert_eq(tokens_change_begin(&c, s->path, &err), 0, "%s", err.text);
    cr_assert(tokens_remove(&c.tokens, id));
    cr_assert_eq(tokens_change_save(&c, &err), 0, "%s", err.text);
    tokens_change_end(&c);
    reload(s);
}

static struct grant login(struct scene *s, const struct token_text *token)
{
    struct grant g;
    struct err err = { 0 };
    cr_assert_eq(auth_login(&s->auth, bytes_str(token->text), &g, &err), 0, "%s", err.text);
    return g;
}

static void no_login(struct scene *s, const char *token, const char *why)
{
    struct grant g = { .row = 7 };
    struct err err = { 0 };
    cr_assert_eq(auth_login(&s->auth, bytes_str(token), &g, &err), ERR_INVALID);
    cr_assert(strstr(err.text, why), "%s", err.text);
    cr_assert_eq(g.row, 7);
}

static bool may(struct scene *s, const struct grant *g, enum verb verb, const char *scope)
{
    return auth_may(&s->auth, g, verb, bytes_str(scope));
}

Test(auth, without_a_file_everybody_may)
{
    struct scene s;
    struct grant nobody = { 0 };
    scene_open(&s);
    cr_assert(!auth_required(&s.auth));
    cr_assert(auth_known(&s.auth, &nobody));
    cr_assert(may(&s, &nobody, VERB_FORGET, "x"));
    cr_assert(may(&s, &nobody, VERB_SCAN, ""));
    cr_assert(auth_may_metrics(&s.auth, &nobody));
    cr_assert(auth_may(NULL, &nobody, VERB_CLAIM, bytes_str("x")));
    scene_close(&s);
}

Test(auth, with_a_file_nobody_may_without_a_token)
{
    struct scene s;
    struct grant nobody = { 0 };
    scene_open(&s);
    make(&s, "*", BIT(RIGHTS) - 1, INT64_MAX);
    cr_assert(auth_required(&s.auth));
    cr_assert(!auth_known(&s.auth, &nobody));
    for (int verb = 0; verb < VERBS; verb++) cr_assert(!may(&s, &nobody, (enum verb)verb, "x"));
    cr_assert(!auth_may_metrics(&s.auth, &nobody));
    scene_close(&s);
}

Test(auth, covers_verb_and_scope)
{
    struct scene s;
    scene_open(&s);
    struct token_text token =
        make(&s, "orders,tmp:*", BIT(RIGHT_CLAIM) | BIT(RIGHT_SCAN), INT64_MAX);
    struct grant g = login(&s, &token);
    cr_assert(auth_known(&s.auth, &g));
    cr_assert(may(&s, &g, VERB_CLAIM, "orders"));
    cr_assert(may(&s, &g, VERB_WATCH, "orders"));
    cr_assert(may(&s, &g, VERB_CLAIM, "tmp:1"));
    cr_assert(may(&s, &g, VERB_SCAN, "orders"));
    cr_assert(!may(&s, &g, VERB_SCAN, ""), "all scopes");
    cr_assert(!may(&s, &g, VERB_CLAIM, "others"));
    cr_assert(!may(&s, &g, VERB_PUBLISH, "orders"));
    cr_assert(!may(&s, &g, VERB_FORGET, "orders"));
    cr_assert(!auth_may_metrics(&s.auth, &g));
    cr_assert_eq(s.auth.denied, 5);
    scene_close(&s);
}

Test(auth, every_verb_has_its_right)
{
    struct scene s;
    scene_open(&s);
    for (unsigned right = 0; right < RIGHTS; right++) {
        struct token_text token = make(&s, "*", BIT(right), INT64_MAX);
        struct grant g = login(&s, &token);
        cr_assert_eq(may(&s, &g, VERB_CLAIM, "x"), right == RIGHT_CLAIM);
        cr_assert_eq(may(&s, &g, VERB_PUBLISH, "x"), right == RIGHT_PUBLISH);
        cr_assert_eq(may(&s, &g, VERB_RENEW, "x"), right == RIGHT_RENEW);
        cr_assert_eq(may(&s, &g, VERB_RELEASE, "x"), right == RIGHT_RELEASE);
        cr_assert_eq(may(&s, &g, VERB_PEEK, "x"), right == RIGHT_PEEK);
        cr_assert_eq(may(&s, &g, VERB_FORGET, "x"), right == RIGHT_FORGET);
        cr_assert_eq(may(&s, &g, VERB_SCAN, ""), right == RIGHT_SCAN);
        cr_assert_eq(auth_may_metrics(&s.auth, &g), right == RIGHT_METRICS);
    }
    scene_close(&s);
}

Test(auth, a_revoked_token_is_void_for_those_who_hold_it)
{
    struct scene s;
    scene_open(&s);
    struct token_text one = make(&s, "*", BIT(RIGHT_CLAIM), INT64_MAX);
    struct grant g = login(&s, &one);
    struct token_text others[20];
    struct grant grants[20];
    for (size_t i = 0; i < 20; i++) {
        others[i] = make(&s, "*", BIT(RIGHT_CLAIM), INT64_MAX);
        grants[i] = login(&s, &others[i]);
    }
    cr_assert(may(&s, &g, VERB_CLAIM, "x"), "rows have moved");
    take_away(&s, &one);
    cr_assert(!auth_known(&s.auth, &g));
    cr_assert(!may(&s, &g, VERB_CLAIM, "x"));
    no_login(&s, one.text, "revoked");
    for (size_t i = 0; i < 20; i++) cr_assert(may(&s, &grants[i], VERB_CLAIM, "x"));
    scene_close(&s);
}

Test(auth, expiry_is_judged_when_it_is_used)
{
    struct scene s;
    scene_open(&s);
    struct token_text token = make(&s, "*", BIT(RIGHT_CLAIM), 60000);
    struct grant g = login(&s, &token);
    s.now_ms += 59999;
    cr_assert(may(&s, &g, VERB_CLAIM, "x"));
    s.now_ms += 1;
    cr_assert(!auth_known(&s.auth, &g));
    cr_assert(!may(&s, &g, VERB_CLAIM, "x"));
    no_login(&s, token.text, "expired");
    scene_close(&s);
}

Test(auth, wrong_unknown_and_malformed_are_refused)
{
    struct scene s;
    scene_open(&s);
    struct token_text one = make(&s, "*", 1, INT64_MAX), other = make(&s, "*", 1, INT64_MAX);
    no_login(&s, "", "not a token");
    no_login(&s, "password", "not a token");
    other.text[30] = other.text[30] == '0' ? '1' : '0';
    no_login(&s, other.text, "typo");
    take_away(&s, &one);
    no_login(&s, one.text, "not known");
    cr_assert_eq(s.auth.wrong, 4);
    scene_close(&s);
}

Test(auth, a_broken_or_missing_file_leaves_everything_as_it_was)
{
    struct scene s;
    struct err err;
    scene_open(&s);
    struct token_text token = make(&s, "*", BIT(RIGHT_CLAIM), INT64_MAX);
    struct grant g = login(&s, &token);
    FILE *f = fopen(s.path, "w");
    cr_assert(f);
    fputs("nonsense\n", f);
    fclose(f);
    cr_assert_eq(auth_reload(&s.auth, &err), ERR_CORRUPT);
    cr_assert(may(&s, &g, VERB_CLAIM, "x"));
    unlink(s.path);
    cr_assert_eq(auth_reload(&s.auth, &err), ERR_INVALID);
    cr_assert(may(&s, &g, VERB_CLAIM, "x"));
    cr_assert(!may(&s, &(struct grant){ 0 }, VERB_CLAIM, "x"), "a missing file opens no door");
    scene_close(&s);
}
