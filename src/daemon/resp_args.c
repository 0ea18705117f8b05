/* resp_args.c - see resp_args.h. */
#include "daemon/resp_args.h"

#include "base/check.h"
#include "base/text.h"
#include "daemon/cursor.h"
#include "proto/number.h"

#include <strings.h>

bool resp_word_is(struct bytes word, const char *name)
{
    return word.len == strlen(name) &&
           strncasecmp((const char *)word.data, name, word.len) == 0;
}

/* ---- options: a word, and mostly its value ---- */

enum option_kind { OPTION_MS, OPTION_COUNT, OPTION_BYTES, OPTION_FLAG, OPTION_TOKEN };

struct option {
    const char *name;
    enum option_kind kind;
    size_t at; /* in struct ask_args */
};

static int take_ms(const struct option *o, struct bytes text, void *at, struct err *reterr)
{
    int64_t ms;
    if (!duration_parse(text, DURATION_MS_MAX, &ms))
        return err_set(reterr, ERR_INVALID,
                       "%s wants milliseconds, or 500ms, 30s, 5m, 24h; ten years at most",
                       o->name);
    *(int64_t *)at = ms;
    return 0;
}

static int take_count(const struct option *o, struct bytes text, void *at, struct err *reterr)
{
    int64_t n;
    if (!number_parse(text, &n) || n < 1 || n > SCAN_COUNT_MAX)
        return err_set(reterr, ERR_INVALID, "%s wants a number from 1 to %d", o->name,
                       SCAN_COUNT_MAX);
    *(size_t *)at = (size_t)n;
    return 0;
}

static int take_token(struct bytes text, struct token *at, struct err *reterr)
{
    static const struct token none;
    if (hex_decode(text, at->bytes, sizeof at->bytes) && !token_eq(at, &none)) return 0;
    return err_set(reterr, ERR_INVALID,
                   "a token is %zu hexadecimal digits, as ONCE.CLAIM gave it",
                   2 * sizeof at->bytes);
}

static int take_value(const struct option *o, struct bytes text, struct ask_args *into,
                      struct err *reterr)
{
    void *at = (char *)into + o->at;
    switch (o->kind) {
    case OPTION_MS:
        return take_ms(o, text, at, reterr);
    case OPTION_COUNT:
        return take_count(o, text, at, reterr);
    case OPTION_BYTES:
        *(struct bytes *)at = text;
        return 0;
    case OPTION_TOKEN:
        return take_token(text, at, reterr);
    case OPTION_FLAG:
        *(bool *)at = true;
        return 0;
    }
    return 0;
}

static const struct option *option_find(const struct option *options, struct bytes word)
{
    for (const struct option *o = options; o->name; o++)
        if (resp_word_is(word, o->name)) return o;
    return NULL;
}

/* From argument `from` on. The same option twice can be read in two ways, so it is refused. */
static int take_options(const struct resp_command *in, size_t from,
                        const struct option *options, struct ask_args *ret, struct err *reterr)
{
    unsigned seen = 0;
    for (size_t i = from; i < in->count; i++) {
        const struct option *o = option_find(options, in->args[i]);
        if (!o)
            return err_set(reterr, ERR_INVALID, "syntax error: there is no option '%.*s'",
                           (int)(in->args[i].len < 32 ? in->args[i].len : 32),
                           (const char *)in->args[i].data);
        unsigned bit = BIT(o - options);
        if (seen & bit)
            return err_set(reterr, ERR_INVALID, "syntax error: %s was given twice", o->name);
        seen |= bit;
        if (o->kind != OPTION_FLAG && ++i == in->count)
            return err_set(reterr, ERR_INVALID, "syntax error: %s wants a value", o->name);
        int r = take_value(o, in->args[i], ret, reterr);
        if (r) return r;
    }
    return 0;
}

static const struct option claim_options[] = {
    { "LEASE", OPTION_MS, offsetof(struct ask_args, call.in.lease_ms) },
    { "WAIT", OPTION_MS, offsetof(struct ask_args, call.wait_ms) },
    { "RETAIN", OPTION_MS, offsetof(struct ask_args, call.in.retain_ms) },
    { "FP", OPTION_BYTES, offsetof(struct ask_args, call.in.fingerprint) },
    { "BOUND", OPTION_FLAG, offsetof(struct ask_args, bound) },
    { "TOKEN", OPTION_TOKEN, offsetof(struct ask_args, call.in.token) },
    { "META", OPTION_FLAG, offsetof(struct ask_args, meta) },
    { 0 },
};

static const struct option publish_options[] = {
    { "RETAIN", OPTION_MS, offsetof(struct ask_args, call.in.retain_ms) },
    { "OMIT", OPTION_FLAG, offsetof(struct ask_args, omit) },
    { "META", OPTION_FLAG, offsetof(struct ask_args, meta) },
    { 0 },
};

static const struct option renew_options[] = {
    { "LEASE", OPTION_MS, offsetof(struct ask_args, call.in.lease_ms) },
    { "META", OPTION_FLAG, offsetof(struct ask_args, meta) },
    { 0 },
};

static const struct option peek_options[] = {
    { "TOKEN", OPTION_TOKEN, offsetof(struct ask_args, call.in.token) },
    { "META", OPTION_FLAG, offsetof(struct ask_args, meta) },
    { 0 },
};

static const struct option meta_only[] = {
    { "META", OPTION_FLAG, offsetof(struct ask_args, meta) },
    { 0 },
};

static const struct option watch_options[] = {
    { "FP", OPTION_BYTES, offsetof(struct ask_args, call.in.fingerprint) },
    { 0 },
};

static const struct option scan_options[] = {
    { "SCOPE", OPTION_BYTES, offsetof(struct ask_args, value) },
    { "COUNT", OPTION_COUNT, offsetof(struct ask_args, call.limit) },
    { 0 },
};

/* ---- verbs ---- */

/* All but `cursor`, which is large and SCAN's alone. */
static void start_call(const struct call_args *call, struct ask_args *ret)
{
    ret->call = *call;
    ret->value = (struct bytes){ 0 };
    ret->bound = ret->omit = ret->meta = false;
    ret->watch_id = 0;
}

static void start(const struct resp_command *in, size_t from, enum verb verb,
                  struct ask_args *ret)
{
    struct call_args call = { .verb = verb,
                              .key = { .scope = in->args[from], .name = in->args[from + 1] } };
    start_call(&call, ret);
}

static int start_owned(const struct resp_command *in, enum verb verb, struct ask_args *ret,
                       struct err *reterr)
{
    start(in, 1, verb, ret);
    ret->call.in.lease_ms = ret->call.in.retain_ms = -1; /* as claimed */
    return take_token(in->args[3], &ret->call.in.token, reterr);
}

int resp_parse_claim(const struct resp_command *in, struct ask_args *ret, struct err *reterr)
{
    static const struct token none;
    start(in, 1, VERB_CLAIM, ret);
    ret->call.in.lease_ms = LEASE_MS_DEFAULT;
    ret->call.in.retain_ms = RETAIN_MS_DEFAULT;
    ret->call.wait_ms = WAIT_MS_DEFAULT;
    int r = take_options(in, 3, claim_options, ret, reterr);
    /* The one is given back when the connection drops, the other asked for again. */
    if (!r && ret->bound && !token_eq(&ret->call.in.token, &none))
        return err_set(reterr, ERR_INVALID, "syntax error: BOUND and TOKEN exclude each other");
    ret->call.renew = ret->bound;
    return r;
}

int resp_parse_publish(const struct resp_command *in, struct ask_args *ret, struct err *reterr)
{
    int r = start_owned(in, VERB_PUBLISH, ret, reterr);
    if (!r) ret->value = in->args[4];
    return r ? r : take_options(in, 5, publish_options, ret, reterr);
}

int resp_parse_release(const struct resp_command *in, struct ask_args *ret, struct err *reterr)
{
    int r = start_owned(in, VERB_RELEASE, ret, reterr);
    return r ? r : take_options(in, 4, meta_only, ret, reterr);
}

int resp_parse_renew(const struct resp_command *in, struct ask_args *ret, struct err *reterr)
{
    int r = start_owned(in, VERB_RENEW, ret, reterr);
    return r ? r : take_options(in, 4, renew_options, ret, reterr);
}

int resp_parse_peek(const struct resp_command *in, struct ask_args *ret, struct err *reterr)
{
    start(in, 1, VERB_PEEK, ret);
    return take_options(in, 3, peek_options, ret, reterr);
}

int resp_parse_forget(const struct resp_command *in, struct ask_args *ret, struct err *reterr)
{
    start(in, 1, VERB_FORGET, ret);
    return take_options(in, 3, peek_options, ret, reterr);
}

/* ---- WATCH id scope key seen [FP x] ---- */

bool resp_parse_watch_id(struct bytes text, int64_t *ret)
{
    return number_parse(text, ret) && *ret >= 0;
}

int resp_parse_watch(const struct resp_command *in, struct ask_args *ret, struct err *reterr)
{
    start(in, 2, VERB_WATCH, ret);
    if (!resp_parse_watch_id(in->args[1], &ret->watch_id))
        return err_set(reterr, ERR_INVALID, "the id of a watch is a number of yours, from 0");
    if (!number_parse_unsigned(in->args[4], &ret->call.seen))
        return err_set(reterr, ERR_INVALID, "what was seen is a version, as META gave it");
    int r = take_options(in, 5, watch_options, ret, reterr);
    if (!r && ret->call.in.fingerprint.len > FINGERPRINT_BYTES_MAX)
        return err_set(reterr, ERR_LIMIT, "a fingerprint has at most %d bytes",
                       FINGERPRINT_BYTES_MAX);
    return r;
}

/* ---- SWEEP [n], STATS, FACTS ---- */

int resp_parse_sweep(const struct resp_command *in, struct ask_args *ret, struct err *reterr)
{
    int64_t n = SWEEP_COUNT_DEFAULT;
    bool fits = in->count == 1 || (number_parse(in->args[1], &n) && n >= 0);
    if (!fits || n > SWEEP_COUNT_MAX)
        return err_set(reterr, ERR_INVALID, "how many at most: a number up to %d",
                       SWEEP_COUNT_MAX);
    start_call(&(struct call_args){ .verb = VERB_EXPIRE, .limit = (size_t)n }, ret);
    return 0;
}

int resp_parse_stats(const struct resp_command *in, struct ask_args *ret, struct err *reterr)
{
    (void)in, (void)reterr;
    start_call(&(struct call_args){ .verb = VERB_STATS }, ret);
    return 0;
}

int resp_parse_facts(const struct resp_command *in, struct ask_args *ret, struct err *reterr)
{
    (void)in, (void)reterr;
    start_call(&(struct call_args){ .verb = VERB_PING, .wants_facts = true }, ret);
    return 0;
}

/* ---- SCAN cursor [SCOPE s] [COUNT n] ---- */

int resp_parse_scan(const struct resp_command *in, struct ask_args *ret, struct err *reterr)
{
    start_call(&(struct call_args){ .verb = VERB_SCAN, .limit = SCAN_COUNT_DEFAULT }, ret);
    int r = take_options(in, 2, scan_options, ret, reterr);
    if (r) return r;
    struct bytes scope = ret->value;
    bool from_start = resp_word_is(in->args[1], "0");
    ret->call.all_scopes = scope.len == 0;
    if (scope.len > SCOPE_BYTES_MAX)
        return err_set(reterr, ERR_LIMIT, "the scope has more than %d bytes", SCOPE_BYTES_MAX);
    ret->call.key.scope = scope;
    if (from_start) return 0;
    r = cursor_read(in->args[1], ret->cursor, &ret->call.key, reterr);
    if (!r && scope.len && !bytes_eq(scope, ret->call.key.scope))
        return err_set(reterr, ERR_INVALID, "invalid cursor: it is of another scope");
    return r;
}
