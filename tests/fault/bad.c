/* bad.c - requests that must be refused before anything changes (C9), whatever goes wrong.
 *
 * Each is one mistake in a request that is good otherwise. The history has it with the error that
 * it must meet. A claim is for a key that nobody else asks for: there must never be a record of
 * it. What an owner does wrong must leave it the owner. */
#include "tests/fault/fault.h"

#include <stdint.h>
#include <string.h>

enum { KEY_BYTES_MAX = 512, SCOPE_BYTES_MAX = 128, PRINT_BYTES_MAX = 64, VALUE_MAX = 1 << 20 };

#define TEN_YEARS_MS (INT64_C(3660) * 24 * 3600 * 1000)

static char letters[VALUE_MAX + 1] = BAD_KEY;

/* What is given replaces what is right. */
struct mistake {
    int error;
    struct once_bytes scope, key, fingerprint, value;
    int64_t lease_ms, wait_ms;
    const char *token;
};

static const struct mistake of_claims[] = {
    { ONCE_ELIMIT, .key = { letters, KEY_BYTES_MAX + 1 } },
    { ONCE_EINVAL, .key = { BAD_KEY "\n", sizeof BAD_KEY } },
    { ONCE_EINVAL, .key = { BAD_KEY "\0", sizeof BAD_KEY } },
    { ONCE_EINVAL, .key = { BAD_KEY "\xc3", sizeof BAD_KEY } },
    { ONCE_EINVAL, .key = { "", 0 } },
    { ONCE_EINVAL, .scope = { "no scope", 8 } },
    { ONCE_ELIMIT, .scope = { letters, SCOPE_BYTES_MAX + 1 } },
    { ONCE_ELIMIT, .fingerprint = { letters, PRINT_BYTES_MAX + 1 } },
    { ONCE_EINVAL, .lease_ms = -5 },
    { ONCE_ELIMIT, .lease_ms = TEN_YEARS_MS },
    { ONCE_ELIMIT, .wait_ms = TEN_YEARS_MS },
};

static const struct mistake of_owners[] = {
    { ONCE_ELIMIT, .value = { letters, VALUE_MAX + 1 } },
    { ONCE_EINVAL, .token = "00112233" },
    { ONCE_EINVAL, .token = "not-thirty-two-digits-of-any-kind" },
    { ONCE_EINVAL, .key = { BAD_KEY "\x7f", sizeof BAD_KEY } },
    { ONCE_EINVAL, .scope = { "no/such scope", 13 } },
};

#define PICK(table, which) (&(table)[(which) % (sizeof(table) / sizeof *(table))])

void bad_init(void)
{
    memset(letters + strlen(letters), 'x', sizeof letters - strlen(letters));
}

static void instead(struct once_bytes *to, struct once_bytes wrong)
{
    if (wrong.data) *to = wrong;
}

static void refused(struct scribe *s, uint64_t call, int r, struct once_answer *a)
{
    scribe_end(s, call, &(struct ended){ .error = r, .outcome = r ? 0 : a->outcome });
    once_answer_clear(a);
}

void bad_claim(const struct bad *b, uint64_t which)
{
    const struct mistake *m = PICK(of_claims, which);
    struct once_claim in = ONCE_CLAIM_INIT;
    struct once_answer answer;
    in.scope = once_str(b->scope);
    in.key = once_str(b->key);
    in.flags = ONCE_NO_RENEW;
    in.wait_ms = m->wait_ms;
    if (m->lease_ms) in.lease_ms = m->lease_ms;
    instead(&in.scope, m->scope);
    instead(&in.key, m->key);
    instead(&in.fingerprint, m->fingerprint);
    memset(&answer, 0, sizeof answer);
    uint64_t call = scribe_begin(
        b->scribe, &(struct begun){ .act = ACT_CLAIM, .key = b->key, .refused = m->error });
    refused(b->scribe, call, once_claim(b->once, &in, &answer), &answer);
}

void bad_publish(const struct bad *b, const char *token, uint64_t which)
{
    const struct mistake *m = PICK(of_owners, which);
    struct once_owned in = ONCE_OWNED_INIT;
    struct once_answer answer;
    in.scope = once_str(b->scope);
    in.key = once_str(b->key);
    in.token = m->token ? m->token : token;
    in.value = once_str("bad");
    instead(&in.scope, m->scope);
    instead(&in.key, m->key);
    instead(&in.value, m->value);
    memset(&answer, 0, sizeof answer);
    uint64_t call = scribe_begin(b->scribe, &(struct begun){ .act = ACT_PUBLISH,
                                                             .key = b->key,
                                                             .token = token,
                                                             .value = "bad",
                                                             .refused = m->error });
    refused(b->scribe, call, once_publish(b->once, &in, &answer), &answer);
}

/* A record of one of them is written down as if somebody had looked at it. */
static int listed(void *ctx, const struct once_row *row)
{
    struct scribe *s = ctx;
    size_t len = strlen(BAD_KEY);
    if (row->key.len < len || memcmp(row->key.data, BAD_KEY, len) != 0) return 0;
    uint64_t call =
        scribe_begin(s, &(struct begun){ .act = ACT_PEEK, .key = BAD_KEY "listed" });
    scribe_end(s, call,
               &(struct ended){ .outcome = row->pending ? ONCE_IN_PROGRESS : ONCE_CACHED,
                                .fence = row->fence });
    return 0;
}

int bad_list(const struct bad *b)
{
    struct once_error error;
    return once_list(b->once, once_str(b->scope), listed, b->scribe, &error);
}
