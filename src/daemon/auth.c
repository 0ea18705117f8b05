/* auth.c - see auth.h. */
#include "daemon/auth.h"

#include "base/check.h"
#include "daemon/tokens_file.h"

#include <openssl/crypto.h>

/* Any of these is enough. To watch a key tells what claiming or peeking at it would. Anybody who is
 * known may ask how the planes are, and remove what counts as absent already. */
static const unsigned rights_of[VERBS] = {
    [VERB_CLAIM] = BIT(RIGHT_CLAIM),
    [VERB_PUBLISH] = BIT(RIGHT_PUBLISH),
    [VERB_RELEASE] = BIT(RIGHT_RELEASE),
    [VERB_RENEW] = BIT(RIGHT_RENEW),
    [VERB_FORGET] = BIT(RIGHT_FORGET),
    [VERB_PEEK] = BIT(RIGHT_PEEK),
    [VERB_WATCH] = BIT(RIGHT_CLAIM) | BIT(RIGHT_PEEK),
    [VERB_SCAN] = BIT(RIGHT_SCAN),
    [VERB_STATS] = BIT(RIGHT_SCAN) | BIT(RIGHT_METRICS),
    [VERB_RUN_PUT] = BIT(RIGHT_TRIGGER),
    [VERB_RUN_GET] = BIT(RIGHT_RUNS),
    [VERB_RUN_LIST] = BIT(RIGHT_RUNS),
    [VERB_RUN_CHANGE] = BIT(RIGHT_CHANGE),
    [VERB_RUN_RESET] = BIT(RIGHT_CHANGE),
    [VERB_RUN_LEASE] = BIT(RIGHT_WORK), /* and to end what was leased */
    [VERB_MUTATION] = BIT(RIGHT_MUTATE),
};

/* ---- the file ---- */

int auth_open(struct auth *a, const char *path, bool must_exist, struct clock wall,
              struct err *reterr)
{
    struct auth opened = { .wall = wall, .path = path };
    if (path) {
        int r = tokens_load(path, must_exist, &opened.tokens, &opened.required, reterr);
        if (r) return r;
    }
    *a = opened;
    return 0;
}

/* A file that is gone is not the wish that everybody may come in. */
int auth_reload(struct auth *a, struct err *reterr)
{
    struct tokens tokens = { 0 };
    bool found;
    if (!a->path) return 0;
    int r = tokens_load(a->path, a->required, &tokens, &found, reterr);
    if (r) return r;
    tokens_fini(&a->tokens);
    a->tokens = tokens;
    a->required = found;
    return 0;
}

void auth_close(struct auth *a)
{
    tokens_fini(&a->tokens);
}

/* ---- who ---- */

bool auth_required(const struct auth *a)
{
    return a && a->required;
}

static bool expired(const struct auth *a, const struct access_token *row)
{
    return row->expires_ms != INT64_MAX && row->expires_ms <= clock_now_ms(&a->wall);
}

static int refuse(struct auth *a, struct err *reterr, const char *why)
{
    a->wrong++;
    trace_emit(a->trace,
               (struct trace_event){ .kind = TRACE_LOGIN_FAILED, .number = (int64_t)a->wrong });
    return err_set(reterr, ERR_INVALID, "%s", why);
}

int auth_login(struct auth *a, struct bytes token_text, struct grant *ret_grant,
               struct err *reterr)
{
    static const struct access_token nobody = { 0 };
    uint8_t hash[TOKEN_HASH_BYTES];
    struct bytes id;
    struct err why;
    if (token_text_parse(token_text, &id, &why) < 0) return refuse(a, reterr, why.text);
    if (token_text_hash(token_text, hash) < 0)
        return err_set(reterr, ERR_NOMEM, "out of memory");
    const struct access_token *row = tokens_find(&a->tokens, id);
    bool same = CRYPTO_memcmp(hash, row ? row->hash : nobody.hash, sizeof hash) == 0;
    if (!row || !same) return refuse(a, reterr, "the token is not known; it may be revoked");
    if (expired(a, row)) return refuse(a, reterr, "the token has expired");
    struct grant g = { .row = (uint32_t)(row - a->tokens.rows) };
    memcpy(g.id, row->id, sizeof g.id);
    memcpy(g.mark, row->hash, sizeof g.mark);
    a->logins++;
    *ret_grant = g;
    return 0;
}

static bool is_of(const struct grant *g, const struct access_token *row)
{
    return memcmp(g->id, row->id, sizeof g->id) == 0 &&
           memcmp(g->mark, row->hash, sizeof g->mark) == 0;
}

/* NULL: it is void. */
static const struct access_token *row_of(const struct auth *a, const struct grant *g)
{
    const struct access_token *row = NULL;
    if (g->row < a->tokens.count && is_of(g, &a->tokens.rows[g->row]))
        row = &a->tokens.rows[g->row];
    else if (g->id[0])
        row = tokens_find(&a->tokens, bytes_of(g->id, sizeof g->id));
    return row && is_of(g, row) && !expired(a, row) ? row : NULL;
}

bool auth_known(const struct auth *a, const struct grant *g)
{
    return !auth_required(a) || row_of(a, g);
}

/* ---- what ---- */

static bool may(struct auth *a, const struct grant *g, unsigned rights, struct bytes scope)
{
    const struct access_token *row = row_of(a, g);
    bool fine = row && row->rights & rights && scopes_cover(row->scopes, scope);
    if (!fine) a->denied++;
    return fine;
}

bool auth_may(struct auth *a, const struct grant *g, enum verb verb, struct bytes scope)
{
    if (!auth_required(a)) return true;
    if (verb == VERB_PING || verb == VERB_EXPIRE) return row_of(a, g);
    return may(a, g, rights_of[verb], scope);
}

bool auth_may_metrics(struct auth *a, const struct grant *g)
{
    const struct access_token *row;
    if (!auth_required(a)) return true;
    row = row_of(a, g);
    if (row && row->rights & BIT(RIGHT_METRICS)) return true;
    a->denied++;
    return false;
}

struct bytes auth_only_scope(const struct auth *a, const struct grant *g)
{
    const struct access_token *row = auth_required(a) ? row_of(a, g) : NULL;
    if (!row || strpbrk(row->scopes, ",*")) return (struct bytes){ 0 };
    return bytes_str(row->scopes);
}
