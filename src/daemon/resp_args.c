/* resp_args.c - see resp_args.h. */
#include "daemon/resp_args.h"

#include "daemon/cursor.h"
#include "daemon/resp_options.h"
#include "proto/number.h"

static const struct resp_option claim_options[] = {
    { "LEASE", resp_take_ms, offsetof(struct ask_args, call.in.lease_ms) },
    { "WAIT", resp_take_ms, offsetof(struct ask_args, call.wait_ms) },
    { "RETAIN", resp_take_ms, offsetof(struct ask_args, call.in.retain_ms) },
    { "FP", resp_take_bytes, offsetof(struct ask_args, call.in.fingerprint) },
    { "BOUND", resp_take_flag, offsetof(struct ask_args, bound) },
    { "TOKEN", resp_take_token, offsetof(struct ask_args, call.in.token) },
    { "META", resp_take_flag, offsetof(struct ask_args, meta) },
    { 0 },
};

static const struct resp_option publish_options[] = {
    { "RETAIN", resp_take_ms, offsetof(struct ask_args, call.in.retain_ms) },
    { "OMIT", resp_take_flag, offsetof(struct ask_args, omit) },
    { "META", resp_take_flag, offsetof(struct ask_args, meta) },
    { 0 },
};

static const struct resp_option renew_options[] = {
    { "LEASE", resp_take_ms, offsetof(struct ask_args, call.in.lease_ms) },
    { "META", resp_take_flag, offsetof(struct ask_args, meta) },
    { 0 },
};

static const struct resp_option peek_options[] = {
    { "TOKEN", resp_take_token, offsetof(struct ask_args, call.in.token) },
    { "META", resp_take_flag, offsetof(struct ask_args, meta) },
    { 0 },
};

static const struct resp_option meta_only[] = {
    { "META", resp_take_flag, offsetof(struct ask_args, meta) },
    { 0 },
};

static const struct resp_option watch_options[] = {
    { "FP", resp_take_bytes, offsetof(struct ask_args, call.in.fingerprint) },
    { 0 },
};

static const struct resp_option scan_options[] = {
    { "SCOPE", resp_take_bytes, offsetof(struct ask_args, value) },
    { "COUNT", resp_take_count, offsetof(struct ask_args, call.limit) },
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
    return resp_take_token(NULL, in->args[3], &ret->call.in.token, reterr);
}

int resp_parse_claim(const struct resp_command *in, struct ask_args *ret, struct err *reterr)
{
    static const struct token none;
    start(in, 1, VERB_CLAIM, ret);
    ret->call.in.lease_ms = LEASE_MS_DEFAULT;
    ret->call.in.retain_ms = RETAIN_MS_DEFAULT;
    ret->call.wait_ms = WAIT_MS_DEFAULT;
    int r = resp_take_options(in, 3, claim_options, ret, reterr);
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
    return r ? r : resp_take_options(in, 5, publish_options, ret, reterr);
}

int resp_parse_release(const struct resp_command *in, struct ask_args *ret, struct err *reterr)
{
    int r = start_owned(in, VERB_RELEASE, ret, reterr);
    return r ? r : resp_take_options(in, 4, meta_only, ret, reterr);
}

int resp_parse_renew(const struct resp_command *in, struct ask_args *ret, struct err *reterr)
{
    int r = start_owned(in, VERB_RENEW, ret, reterr);
    return r ? r : resp_take_options(in, 4, renew_options, ret, reterr);
}

int resp_parse_peek(const struct resp_command *in, struct ask_args *ret, struct err *reterr)
{
    start(in, 1, VERB_PEEK, ret);
    return resp_take_options(in, 3, peek_options, ret, reterr);
}

int resp_parse_forget(const struct resp_command *in, struct ask_args *ret, struct err *reterr)
{
    start(in, 1, VERB_FORGET, ret);
    return resp_take_options(in, 3, peek_options, ret, reterr);
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
    int r = resp_take_options(in, 5, watch_options, ret, reterr);
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
    int r = resp_take_options(in, 2, scan_options, ret, reterr);
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
