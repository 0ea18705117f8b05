/* http_args.c - see http_args.h. */
#include "daemon/http_args.h"

#include "base/check.h"
#include "base/text.h"
#include "daemon/cursor.h"
#include "proto/base64.h"
#include "proto/chars.h"
#include "proto/number.h"

#include <openssl/evp.h>

enum { IDEMPOTENCY_KEY_BYTES_MAX = 255, NAME_SHOWN_BYTES = 40, DEPTH_MAX = 8 };

/* ---- members: of a body, or of a query ---- */

enum member_kind {
    MEMBER_MS,    /* int64_t */
    MEMBER_COUNT, /* size_t */
    MEMBER_BYTES, /* struct bytes: text, or {"base64": "..."} */
    MEMBER_TOKEN, /* struct token */
    MEMBER_OWN,   /* as MEMBER_TOKEN, made by who asks: not all zero, which stands for none */
    MEMBER_BEGUN, /* as MEMBER_TOKEN, or empty: all zero */
    MEMBER_VALUE, /* as MEMBER_BYTES, or null */
    MEMBER_FLAG,  /* bool */
    MEMBER_SEEN,  /* uint64_t, and it is waited for */
};

struct member {
    const char *name;
    enum member_kind kind;
    size_t at; /* in struct http_args */
    bool required;
};

#define AT(field) offsetof(struct http_args, field)

static const struct member claim_members[] = {
    { "lease_ms", MEMBER_MS, AT(call.in.lease_ms) },
    { "wait_ms", MEMBER_MS, AT(call.wait_ms) },
    { "retain_ms", MEMBER_MS, AT(call.in.retain_ms) },
    { "fingerprint", MEMBER_BYTES, AT(call.in.fingerprint) },
    { "token", MEMBER_OWN, AT(call.in.token) },
    { 0 },
};

static const struct member publish_members[] = {
    { "token", MEMBER_TOKEN, AT(call.in.token), .required = true },
    { "value", MEMBER_VALUE, AT(value), .required = true },
    { "retain_ms", MEMBER_MS, AT(call.in.retain_ms) },
    { 0 },
};

static const struct member raw_parameters[] = {
    { "token", MEMBER_TOKEN, AT(call.in.token), .required = true },
    { "retain_ms", MEMBER_MS, AT(call.in.retain_ms) },
    { "meta", MEMBER_FLAG, AT(meta) },
    { 0 },
};

static const struct member renew_members[] = {
    { "token", MEMBER_TOKEN, AT(call.in.token), .required = true },
    { "lease_ms", MEMBER_MS, AT(call.in.lease_ms) },
    { 0 },
};

static const struct member release_parameters[] = {
    { "token", MEMBER_TOKEN, AT(call.in.token), .required = true },
    { "meta", MEMBER_FLAG, AT(meta) },
    { 0 },
};

/* Who looks need not be anybody; an owner is told what is its own. */
static const struct member peek_parameters[] = {
    { "token", MEMBER_TOKEN, AT(call.in.token) },
    { "seen", MEMBER_SEEN, AT(call.seen) },
    { "meta", MEMBER_FLAG, AT(meta) },
    { 0 },
};

static const struct member forget_parameters[] = {
    { "token", MEMBER_TOKEN, AT(call.in.token) },
    { "meta", MEMBER_FLAG, AT(meta) },
    { 0 },
};

static const struct member meta_only[] = { { "meta", MEMBER_FLAG, AT(meta) }, { 0 } };

static const struct member list_parameters[] = {
    { "scope", MEMBER_BYTES, AT(scope) },
    { "cursor", MEMBER_BYTES, AT(cursor) },
    { "limit", MEMBER_COUNT, AT(call.limit) },
    { 0 },
};

#define MUTATION_MEMBERS                                                                       \
    { "user_id", MEMBER_BYTES, AT(mutation.mutation.user), .required = true },                 \
        { "request_id", MEMBER_BYTES, AT(mutation.mutation.request), .required = true },       \
        { "method", MEMBER_BYTES, AT(mutation.mutation.method) },                              \
    {                                                                                          \
        "fingerprint", MEMBER_BYTES, AT(mutation.mutation.fingerprint)                         \
    }

static const struct member mutation_begin_members[] = {
    MUTATION_MEMBERS,
    { "epoch", MEMBER_BYTES, AT(mutation.epoch) },
    { "lease_ms", MEMBER_MS, AT(mutation.lease_ms) },
    { "wait_ms", MEMBER_MS, AT(mutation.wait_ms) },
    { "token", MEMBER_OWN, AT(mutation.token) },
    { 0 },
};

static const struct member mutation_complete_members[] = {
    MUTATION_MEMBERS,
    { "token", MEMBER_BEGUN, AT(mutation.token), .required = true },
    { "response", MEMBER_VALUE, AT(value), .required = true },
    { "epoch", MEMBER_BYTES, AT(mutation.epoch) },
    { "retain_ms", MEMBER_MS, AT(mutation.retain_ms) },
    { 0 },
};

static const struct member mutation_abort_members[] = {
    MUTATION_MEMBERS,
    { "token", MEMBER_BEGUN, AT(mutation.token), .required = true },
    { 0 },
};

static const struct member none[] = { { 0 } };

static int wants(const struct member *m, const char *what, struct err *reterr)
{
    return err_set(reterr, ERR_INVALID, "%s wants %s", m->name, what);
}

/* ---- one value ---- */

static int set_number(const struct member *m, int64_t n, void *at, struct err *reterr)
{
    if (m->kind == MEMBER_COUNT) {
        if (n < 1 || n > HTTP_LIST_MAX) return wants(m, "a number from 1 to 1000", reterr);
        *(size_t *)at = (size_t)n;
        return 0;
    }
    if (n < 0) return wants(m, "milliseconds, a whole number from 0 on", reterr);
    *(int64_t *)at = n;
    return 0;
}

static int set_token(const struct member *m, struct bytes text, void *at, struct err *reterr)
{
    struct token *token = at;
    if (!hex_decode(text, token->bytes, sizeof token->bytes))
        return wants(m, "32 hexadecimal digits, as the claim gave them", reterr);
    return 0;
}

static int set_own(const struct member *m, struct bytes text, void *at, struct err *reterr)
{
    static const struct token nobodys;
    int r = set_token(m, text, at, reterr);
    if (r || !token_eq(at, &nobodys)) return r;
    return wants(m, "32 hexadecimal digits that are random: 128 bits of your own", reterr);
}

static int set_flag(const struct member *m, struct bytes text, void *at, struct err *reterr)
{
    bool yes = bytes_eq(text, bytes_str("true"));
    if (!yes && !bytes_eq(text, bytes_str("false"))) return wants(m, "true or false", reterr);
    *(bool *)at = yes;
    return 0;
}

static int set_seen(const struct member *m, struct bytes text, struct http_args *ret,
                    struct err *reterr)
{
    if (!number_parse_unsigned(text, &ret->call.seen))
        return wants(m, "a version as meta=true shows it, or 0: there was no record", reterr);
    ret->polls = true;
    return 0;
}

/* In place: what was written in JSON is never shorter than what it says. */
static struct bytes string_of(struct http_input *in, const struct json *j,
                              const struct json_node *n)
{
    uint8_t *at = in->body + n->start;
    return n->escaped ? bytes_of(at, json_unescape(j, n, at)) : json_text(j, n);
}

static int take_base64(const struct member *m, struct http_input *in, const struct json *j,
                       const struct json_node *n, struct bytes *ret, struct err *reterr)
{
    const struct json_node *text = json_member(j, n, "base64");
    size_t len;
    if (n->count != 1 || !text || text->kind != JSON_KIND_STRING)
        return wants(m,
                     "text, or {\"base64\": \"...\"}; JSON is sent as text, or as it is with "
                     "Content-Type: application/octet-stream",
                     reterr);
    struct bytes content = string_of(in, j, text);
    uint8_t *at = in->body + text->start;
    if (!base64_decode(content, at, &len))
        return wants(m, "base64 with its padding and without line ends", reterr);
    *ret = bytes_of(at, len);
    return 0;
}

static int take_bytes(const struct member *m, struct http_input *in, const struct json *j,
                      const struct json_node *n, struct bytes *ret, struct err *reterr)
{
    if (n->kind != JSON_KIND_STRING) return take_base64(m, in, j, n, ret, reterr);
    *ret = string_of(in, j, n);
    return 0;
}

static int take_token(const struct member *m, struct http_input *in, const struct json *j,
                      const struct json_node *n, void *at, struct err *reterr)
{
    bool is_text = n->kind == JSON_KIND_STRING;
    return set_token(m, is_text ? string_of(in, j, n) : bytes_str(""), at, reterr);
}

static bool is_empty_string(const struct json *j, const struct json_node *n)
{
    return n->kind == JSON_KIND_STRING && json_text(j, n).len == 0;
}

static int take_node(const struct member *m, struct http_input *in, const struct json *j,
                     const struct json_node *n, struct http_args *ret, struct err *reterr)
{
    void *at = (char *)ret + m->at;
    switch (m->kind) {
    case MEMBER_MS:
    case MEMBER_COUNT:
        return set_number(m, n->kind == JSON_KIND_INTEGER ? n->number : -1, at, reterr);
    case MEMBER_TOKEN:
        return take_token(m, in, j, n, at, reterr);
    case MEMBER_BEGUN:
        if (is_empty_string(j, n)) return 0;
        __attribute__((fallthrough));
    case MEMBER_OWN:
        return set_own(m, n->kind == JSON_KIND_STRING ? string_of(in, j, n) : bytes_str(""), at,
                       reterr);
    case MEMBER_VALUE:
        ret->value_kept = n->kind != JSON_KIND_NULL;
        return ret->value_kept ? take_bytes(m, in, j, n, at, reterr) : 0;
    case MEMBER_BYTES:
        return take_bytes(m, in, j, n, at, reterr);
    case MEMBER_FLAG:
    case MEMBER_SEEN:
        break; /* of queries alone */
    }
    return 0;
}

static int take_text(const struct member *m, struct bytes text, struct http_args *ret,
                     struct err *reterr)
{
    void *at = (char *)ret + m->at;
    int64_t n;
    if (m->kind == MEMBER_TOKEN) return set_token(m, text, at, reterr);
    if (m->kind == MEMBER_FLAG) return set_flag(m, text, at, reterr);
    if (m->kind == MEMBER_SEEN) return set_seen(m, text, ret, reterr);
    if (m->kind == MEMBER_MS || m->kind == MEMBER_COUNT)
        return set_number(m, number_parse(text, &n) ? n : -1, at, reterr);
    *(struct bytes *)at = text;
    return 0;
}

/* ---- all of them ---- */

static const struct member *member_find(const struct member *members, struct bytes name)
{
    for (const struct member *m = members; m->name; m++)
        if (bytes_eq(name, bytes_str(m->name))) return m;
    return NULL;
}

int http_refuse_unknown(struct bytes name, const char *what, const char *meant,
                        struct err *reterr)
{
    int shown = (int)(name.len < NAME_SHOWN_BYTES ? name.len : NAME_SHOWN_BYTES);
    return err_set(reterr, ERR_INVALID, "there is no %s \"%.*s\" here%s%s%s", what, shown,
                   (const char *)name.data, meant ? "; did you mean \"" : "",
                   meant ? meant : "", meant ? "\"?" : "");
}

static int check_required(const struct member *members, unsigned seen, struct err *reterr)
{
    for (const struct member *m = members; m->name; m++)
        if (m->required && !(seen & BIT(m - members)))
            return err_set(reterr, ERR_INVALID, "%s is missing", m->name);
    return 0;
}

static int take_members(struct http_input *in, const struct json *j,
                        const struct member *members, struct http_args *ret, struct err *reterr)
{
    const struct json_node *key = j->nodes + 1, *end = json_next(j, j->nodes);
    unsigned seen = 0;
    for (; key < end; key = json_next(j, key + 1)) {
        struct bytes name = string_of(in, j, key);
        const struct member *m = member_find(members, name);
        int r = m ? take_node(m, in, j, key + 1, ret, reterr)
                  : http_refuse_unknown(name, "member", NULL, reterr);
        if (r) return r;
        seen |= BIT(m - members); /* twice: the reader has refused it */
    }
    return check_required(members, seen, reterr);
}

static int take_body(struct http_door *d, struct http_input *in, const struct member *members,
                     struct http_args *ret, struct err *reterr)
{
    struct json_limits limits = { .nodes_max = HTTP_NODES_MAX, .depth_max = DEPTH_MAX };
    struct json j;
    if (in->body_bytes == 0) return check_required(members, 0, reterr);
    struct err why;
    if (json_read(bytes_of(in->body, in->body_bytes), &limits, d->nodes, &j, &why) < 0)
        return err_set(reterr, ERR_INVALID, "the body is not JSON: %.140s", why.text);
    if (j.nodes[0].kind != JSON_KIND_OBJECT)
        return err_set(reterr, ERR_INVALID, "the body is not a JSON object");
    return take_members(in, &j, members, ret, reterr);
}

/* In the order they came; `Once-Token` keeps a token out of addresses, which are logged. */
static int take_query(struct http_door *d, struct http_input *in, const struct member *members,
                      struct http_args *ret, struct err *reterr)
{
    struct bytes query = in->request.query, token = http_field(&in->request, "Once-Token");
    const struct member *m = token.data ? member_find(members, bytes_str("token")) : NULL;
    uint8_t *memory = d->query;
    unsigned seen = m ? BIT(m - members) : 0;
    int r = m ? take_text(m, token, ret, reterr) : 0;
    for (struct http_parameter p; !r && http_next_parameter(&query, &p);) {
        size_t len;
        m = member_find(members, p.name);
        if (!m) return http_refuse_unknown(p.name, "parameter", NULL, reterr);
        if (seen & BIT(m - members))
            return err_set(reterr, ERR_INVALID, "%s was given twice", m->name);
        seen |= BIT(m - members);
        if (!http_unescape_parameter(p.value, memory, &len))
            return wants(m, "well-formed escapes", reterr);
        r = take_text(m, bytes_of(memory, len), ret, reterr);
        memory += len;
    }
    return r ? r : check_required(members, seen, reterr);
}

/* ---- fields ---- */

/* A body says it more exactly, so it counts if both do. */
void http_take_preferred_wait(const struct http_request *request, int64_t *wait_ms)
{
    struct bytes text;
    int64_t s;
    if (!http_preference(http_known_field(request, HTTP_PREFER), "wait", &text)) return;
    if (number_parse(text, &s) && s >= 0 && s <= DURATION_MS_MAX / 1000) *wait_ms = s * 1000;
}

/* Checked on whatever changes something; but for a claim, asking again is safe without it. */
static int check_idempotency_key(const struct http_request *request, struct err *reterr)
{
    struct bytes key = http_known_field(request, HTTP_IDEMPOTENCY_KEY);
    if (!key.data || (key.len > 0 && key.len <= IDEMPOTENCY_KEY_BYTES_MAX)) return 0;
    return err_set(reterr, ERR_INVALID, "Idempotency-Key has 1 to %d bytes",
                   IDEMPOTENCY_KEY_BYTES_MAX);
}

static void add_framed(struct buf *to, struct bytes part)
{
    buf_u32(to, (uint32_t)part.len);
    buf_add(to, part);
}

/* A claim whose answer was lost is asked for again with the same Idempotency-Key: made from that,
 * the owner token is the same, and the owner is found to be the owner. Who else asks, with another
 * access token, is somebody else. */
static int take_idempotency_key(const struct http_input *in, struct http_args *ret,
                                struct err *reterr)
{
    static const struct token nobodys;
    struct bytes header = http_known_field(&in->request, HTTP_IDEMPOTENCY_KEY);
    const struct key *key = &ret->call.key;
    uint8_t hash[EVP_MAX_MD_SIZE];
    struct buf text;
    int r = header.data ? key_check(key, reterr) : 0;
    if (!header.data || r) return r;
    if (!token_eq(&ret->call.in.token, &nobodys))
        return err_set(reterr, ERR_INVALID, "token and Idempotency-Key exclude each other");
    buf_init(&text, 4096);
    add_framed(&text, bytes_str("once: owner token of an Idempotency-Key"));
    add_framed(&text, bytes_of(in->grant.id, sizeof in->grant.id));
    add_framed(&text, key->scope);
    add_framed(&text, key->name);
    add_framed(&text, header);
    bool done = !buf_failed(&text) &&
                EVP_Digest(text.data, text.len, hash, NULL, EVP_sha256(), NULL) == 1;
    buf_fini(&text);
    if (!done) return err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    memcpy(ret->call.in.token.bytes, hash, sizeof ret->call.in.token.bytes);
    return 0;
}

/* ---- verbs ---- */

static int start(const struct http_input *in, enum verb verb, struct http_args *ret,
                 struct err *reterr)
{
    ret->call =
        (struct call_args){ .verb = verb, .key = { in->match.parts[0], in->match.parts[1] } };
    ret->call.in.lease_ms = ret->call.in.retain_ms = -1; /* as claimed */
    ret->value = ret->scope = ret->cursor = (struct bytes){ 0 };
    ret->value_kept = ret->meta = ret->polls = false;
    return check_idempotency_key(&in->request, reterr);
}

int http_parse_claim(struct http_door *d, struct http_input *in, struct http_args *ret,
                     struct err *reterr)
{
    int r = start(in, VERB_CLAIM, ret, reterr);
    ret->call.in.lease_ms = LEASE_MS_DEFAULT;
    ret->call.in.retain_ms = RETAIN_MS_DEFAULT;
    ret->call.wait_ms = WAIT_MS_DEFAULT;
    http_take_preferred_wait(&in->request, &ret->call.wait_ms);
    if (!r) r = take_query(d, in, meta_only, ret, reterr);
    if (!r) r = take_body(d, in, claim_members, ret, reterr);
    return r ? r : take_idempotency_key(in, ret, reterr);
}

static bool is_raw(const struct http_request *request)
{
    struct http_media media;
    return http_parse_media(http_known_field(request, HTTP_CONTENT_TYPE), &media) &&
           http_media_is(&media, "application", "octet-stream");
}

int http_parse_publish(struct http_door *d, struct http_input *in, struct http_args *ret,
                       struct err *reterr)
{
    int r = start(in, VERB_PUBLISH, ret, reterr);
    if (r) return r;
    if (is_raw(&in->request)) {
        ret->value = bytes_of(in->body, in->body_bytes);
        ret->value_kept = true;
        return take_query(d, in, raw_parameters, ret, reterr);
    }
    r = take_query(d, in, meta_only, ret, reterr);
    return r ? r : take_body(d, in, publish_members, ret, reterr);
}

int http_parse_release(struct http_door *d, struct http_input *in, struct http_args *ret,
                       struct err *reterr)
{
    int r = start(in, VERB_RELEASE, ret, reterr);
    return r ? r : take_query(d, in, release_parameters, ret, reterr);
}

int http_parse_renew(struct http_door *d, struct http_input *in, struct http_args *ret,
                     struct err *reterr)
{
    int r = start(in, VERB_RENEW, ret, reterr);
    if (!r) r = take_query(d, in, meta_only, ret, reterr);
    return r ? r : take_body(d, in, renew_members, ret, reterr);
}

int http_parse_peek(struct http_door *d, struct http_input *in, struct http_args *ret,
                    struct err *reterr)
{
    int r = start(in, VERB_PEEK, ret, reterr);
    ret->call.wait_ms = WAIT_MS_DEFAULT; /* of a poll */
    http_take_preferred_wait(&in->request, &ret->call.wait_ms);
    return r ? r : take_query(d, in, peek_parameters, ret, reterr);
}

int http_parse_forget(struct http_door *d, struct http_input *in, struct http_args *ret,
                      struct err *reterr)
{
    int r = start(in, VERB_FORGET, ret, reterr);
    if (!r) r = take_query(d, in, forget_parameters, ret, reterr);
    return r ? r : take_body(d, in, none, ret, reterr);
}

int http_parse_list(struct http_door *d, struct http_input *in, struct http_args *ret,
                    struct err *reterr)
{
    int r = start(in, VERB_SCAN, ret, reterr);
    ret->call.limit = HTTP_LIST_DEFAULT;
    if (!r) r = take_query(d, in, list_parameters, ret, reterr);
    if (r) return r;
    ret->call.all_scopes = ret->scope.len == 0;
    ret->call.key = (struct key){ .scope = ret->scope };
    if (ret->scope.len > SCOPE_BYTES_MAX)
        return err_set(reterr, ERR_LIMIT, "the scope has more than %d bytes", SCOPE_BYTES_MAX);
    if (ret->cursor.len == 0) return 0;
    r = cursor_read(ret->cursor, ret->memory, &ret->call.key, reterr);
    if (!r && ret->scope.len && !bytes_eq(ret->scope, ret->call.key.scope))
        return err_set(reterr, ERR_INVALID, "invalid cursor: it is of another scope");
    return r;
}

/* ---- mutations ---- */

static int parse_mutation(struct http_door *d, struct http_input *in, enum mutation_step step,
                          const struct member *members, struct http_args *ret,
                          struct err *reterr)
{
    static const struct mutation_args asked = MUTATION_ARGS_INIT;
    int r = start(in, VERB_MUTATION, ret, reterr);
    ret->mutation = asked;
    ret->mutation.step = step;
    ret->mutation.env = in->env;
    http_take_preferred_wait(&in->request, &ret->mutation.wait_ms);
    if (!r) r = take_query(d, in, none, ret, reterr);
    if (!r) r = take_body(d, in, members, ret, reterr);
    ret->mutation.response = ret->value;
    ret->mutation.has_response = ret->value_kept;
    return r;
}

int http_parse_mutation_begin(struct http_door *d, struct http_input *in, struct http_args *ret,
                              struct err *reterr)
{
    return parse_mutation(d, in, MUTATION_BEGIN, mutation_begin_members, ret, reterr);
}

int http_parse_mutation_complete(struct http_door *d, struct http_input *in,
                                 struct http_args *ret, struct err *reterr)
{
    return parse_mutation(d, in, MUTATION_COMPLETE, mutation_complete_members, ret, reterr);
}

int http_parse_mutation_abort(struct http_door *d, struct http_input *in, struct http_args *ret,
                              struct err *reterr)
{
    return parse_mutation(d, in, MUTATION_ABORT, mutation_abort_members, ret, reterr);
}
