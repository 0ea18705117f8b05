/* remote_wire.c - ops as commands of the RESP door, and its replies as answers.
 *
 * Claims go with TOKEN, so that one whose answer was lost is found again; with WAIT 0, because who
 * waits does it here, by ONCE.WATCH; and with META, which tells everything that an answer has. */
#include "store/remote.h"

#include "base/check.h"
#include "base/text.h"
#include "proto/number.h"

#include <stdio.h>

enum { SCAN_ROWS_MAX = 200, SWEEP_ROWS_MAX = 100000 };

/* ---- commands ---- */

static void add_key(struct words *w, const char *command, const struct op *op)
{
    words_text(w, command);
    words_add(w, op->key.scope);
    words_add(w, op->key.name);
}

static void add_token(struct words *w, const struct op *op)
{
    words_token(w, &op->in.token);
}

static void add_fingerprint(struct words *w, const struct op *op)
{
    if (op->in.fingerprint.len == 0) return;
    words_text(w, "FP");
    words_add(w, op->in.fingerprint);
}

static void claim_words(struct words *w, const struct op *op)
{
    add_key(w, "ONCE.CLAIM", op);
    words_text(w, "TOKEN");
    add_token(w, op);
    words_ms(w, "LEASE", op->in.lease_ms);
    words_ms(w, "RETAIN", op->in.retain_ms);
    words_ms(w, "WAIT", 0);
    add_fingerprint(w, op);
    words_text(w, "META");
}

static void publish_words(struct words *w, const struct op *op)
{
    add_key(w, "ONCE.PUBLISH", op);
    add_token(w, op);
    words_add(w, blob_bytes(op->in.value));
    if (!op->in.value) words_text(w, "OMIT");
    words_ms(w, "RETAIN", op->in.retain_ms);
    words_text(w, "META");
}

static void release_words(struct words *w, const struct op *op)
{
    add_key(w, "ONCE.RELEASE", op);
    add_token(w, op);
    words_text(w, "META");
}

static void renew_words(struct words *w, const struct op *op)
{
    add_key(w, "ONCE.RENEW", op);
    add_token(w, op);
    words_ms(w, "LEASE", op->in.lease_ms);
    words_text(w, "META");
}

/* Who asks need not be anybody; if it is, it is told what is its own. */
static void look_words(struct words *w, const struct op *op)
{
    static const struct token nobody;
    add_key(w, op->verb == VERB_PEEK ? "ONCE.PEEK" : "ONCE.FORGET", op);
    if (!token_eq(&op->in.token, &nobody)) {
        words_text(w, "TOKEN");
        add_token(w, op);
    }
    words_text(w, "META");
}

static void scan_words(struct words *w, const struct op *op)
{
    uint8_t frame[KEY_FRAME_BYTES_MAX];
    words_text(w, "ONCE.SCAN");
    if (op->key.name.len) hex_encode(bytes_of(frame, key_frame(&op->key, frame)), w->cursor);
    words_text(w, op->key.name.len ? w->cursor : "0");
    if (!op->all_scopes) {
        words_text(w, "SCOPE");
        words_add(w, op->key.scope);
    }
    words_text(w, "COUNT");
    words_number(w, op->limit < SCAN_ROWS_MAX ? op->limit : SCAN_ROWS_MAX);
}

static void sweep_words(struct words *w, const struct op *op)
{
    words_text(w, "ONCE.SWEEP");
    words_number(w, op->limit < SWEEP_ROWS_MAX ? op->limit : SWEEP_ROWS_MAX);
}

static void stats_words(struct words *w, const struct op *op)
{
    (void)op;
    words_text(w, "ONCE.STATS");
}

static void facts_words(struct words *w, const struct op *op)
{
    (void)op;
    words_text(w, "ONCE.FACTS");
}

static bool write_watch(struct buf *out, const struct op *op, int64_t watch_id)
{
    struct words w;
    words_start(&w);
    words_text(&w, "ONCE.WATCH");
    words_number(&w, (uint64_t)watch_id);
    words_add(&w, op->key.scope);
    words_add(&w, op->key.name);
    words_number(&w, op->seen);
    add_fingerprint(&w, op);
    return words_write(out, &w);
}

static void (*const words_of[VERBS])(struct words *, const struct op *) = {
    [VERB_CLAIM] = claim_words,
    [VERB_PUBLISH] = publish_words,
    [VERB_RELEASE] = release_words,
    [VERB_RENEW] = renew_words,
    [VERB_FORGET] = look_words,
    [VERB_PEEK] = look_words,
    [VERB_EXPIRE] = sweep_words,
    [VERB_SCAN] = scan_words,
    [VERB_STATS] = stats_words,
    [VERB_PING] = facts_words,
    [VERB_MUTATION] = wire_mutation_words,
};

bool wire_command(struct buf *out, const struct op *op, int64_t watch_id)
{
    struct words w;
    if (op->verb == VERB_WATCH) return write_watch(out, op, watch_id);
    if (op->verb == VERB_RUN_CALL) return wire_run_call(out, op->call->args, watch_id);
    words_start(&w);
    words_of[op->verb](&w, op);
    return words_write(out, &w);
}

bool wire_unwatch(struct buf *out, int64_t watch_id)
{
    struct words w;
    words_start(&w);
    words_text(&w, "ONCE.UNWATCH");
    words_number(&w, (uint64_t)watch_id);
    return words_write(out, &w);
}

bool wire_hello(struct buf *out, const char *token)
{
    struct words w;
    words_start(&w);
    words_text(&w, "HELLO");
    words_text(&w, "3");
    if (token) {
        words_text(&w, "AUTH");
        words_text(&w, "default");
        words_text(&w, token);
    }
    words_text(&w, "SETNAME");
    words_text(&w, "once");
    return words_write(out, &w);
}

/* ---- replies ---- */

static struct bytes text_of(const struct heard *h, const struct reply_node *n)
{
    return reply_bytes(n, h->in);
}

static bool node_is(const struct heard *h, const struct reply_node *n, const char *word)
{
    return n->type == REPLY_TEXT && bytes_eq(text_of(h, n), bytes_str(word));
}

const struct reply_node *wire_entry(const struct heard *h, const struct reply_node *map,
                                    const char *name)
{
    const struct reply_node *n = map + 1;
    if (map->type != REPLY_MAP) return NULL;
    for (int64_t i = 0; i < map->number; i += 2) {
        const struct reply_node *value = h->nodes + n->next;
        if (node_is(h, n, name)) return value;
        n = h->nodes + value->next;
    }
    return NULL;
}

int64_t wire_number(const struct heard *h, const struct reply_node *map, const char *name)
{
    const struct reply_node *n = wire_entry(h, map, name);
    return n && (n->type == REPLY_INTEGER || n->type == REPLY_BOOLEAN) ? n->number : 0;
}

static bool is_set(const struct heard *h, const struct reply_node *map, const char *name)
{
    return wire_number(h, map, name) != 0;
}

/* Only digits, as many as 64 bits have: what our own daemon writes. */
static uint64_t version_in(const struct heard *h, const struct reply_node *map)
{
    const struct reply_node *n = wire_entry(h, map, "version");
    struct bytes text = n && n->type == REPLY_TEXT ? text_of(h, n) : bytes_of(NULL, 0);
    uint64_t version = 0;
    for (size_t i = 0; i < text.len; i++)
        version = version * 10 + (uint64_t)(text.data[i] - '0');
    return version;
}

bool wire_outcome(const struct heard *h, const struct reply_node *n, enum outcome *ret)
{
    for (int o = 1; o <= OUTCOMES; o++) {
        if (!node_is(h, n, outcome_name((enum outcome)o))) continue;
        *ret = (enum outcome)o;
        return true;
    }
    return false;
}

static bool outcome_in(const struct heard *h, const struct reply_node *map, enum outcome *ret)
{
    const struct reply_node *n = wire_entry(h, map, "outcome");
    return n && wire_outcome(h, n, ret);
}

/* False: no memory for its value, or not an answer. */
static bool take_answer(struct op *op, const struct heard *h, const struct reply_node *map)
{
    struct answer out = { .fence = (uint64_t)wire_number(h, map, "fence"),
                          .version = version_in(h, map),
                          .lease_left_ms = wire_number(h, map, "lease_left_ms"),
                          .retain_left_ms = wire_number(h, map, "retain_left_ms"),
                          .mine = is_set(h, map, "mine"),
                          .taken_over = is_set(h, map, "taken_over"),
                          .degraded = is_set(h, map, "degraded") };
    const struct reply_node *value = wire_entry(h, map, "value");
    if (!outcome_in(h, map, &out.outcome)) return false;
    if (value && value->type == REPLY_TEXT && !(out.value = blob_new(text_of(h, value))))
        return false;
    op->out = out;
    op->changed = is_set(h, map, "changed");
    return true;
}

static bool keyed_answer(struct op *op, const struct heard *h)
{
    return take_answer(op, h, h->nodes);
}

static bool sweep_answer(struct op *op, const struct heard *h)
{
    if (h->nodes->type != REPLY_INTEGER) return false;
    op->count = (size_t)h->nodes->number;
    op->changed = op->count > 0;
    op->out.outcome = OUTCOME_OK;
    return true;
}

static bool stats_answer(struct op *op, const struct heard *h)
{
    const struct reply_node *map = h->nodes;
    if (map->type != REPLY_MAP) return false;
    op->stats =
        (struct store_stats){ .pending = (uint64_t)wire_number(h, map, "pending"),
                              .lapsed = (uint64_t)wire_number(h, map, "lapsed"),
                              .done = (uint64_t)wire_number(h, map, "done"),
                              .gone = (uint64_t)wire_number(h, map, "gone"),
                              .bytes = (uint64_t)wire_number(h, map, "bytes"),
                              .fence_floor = (uint64_t)wire_number(h, map, "fence_floor"),
                              .now_ms = wire_number(h, map, "now_ms") };
    op->out.outcome = OUTCOME_OK;
    return true;
}

static const char *plane_named(const struct heard *h, const struct reply_node *n)
{
    return node_is(h, n, "coord") ? "coord" : "ledger";
}

static bool fact_answer(struct op *op, const struct heard *h, const struct reply_node *row)
{
    const struct reply_node *at[5];
    for (size_t i = 0; i < 5; i++)
        if (!(at[i] = reply_element(h->nodes, row, i)) || at[i]->type != REPLY_TEXT)
            return false;
    enum fact_level level = node_is(h, at[0], "ok")     ? FACT_OK
                            : node_is(h, at[0], "warn") ? FACT_WARN
                                                        : FACT_FAIL;
    char name[64], advice[200];
    snprintf(name, sizeof name, "%.*s", (int)at[2]->len, (const char *)text_of(h, at[2]).data);
    snprintf(advice, sizeof advice, "%.*s", (int)at[4]->len,
             (const char *)text_of(h, at[4]).data);
    fact_add(op, level, name, advice, "%.*s", (int)at[3]->len,
             (const char *)text_of(h, at[3]).data);
    if (op->facts) op->facts->rows[op->facts->count - 1].plane = plane_named(h, at[1]);
    return true;
}

static bool facts_answer(struct op *op, const struct heard *h)
{
    const struct reply_node *row;
    if (h->nodes->type != REPLY_ARRAY) return false;
    for (size_t i = 0; op->wants_facts && (row = reply_element(h->nodes, h->nodes, i)); i++)
        if (!fact_answer(op, h, row)) return false;
    op->out.outcome = OUTCOME_OK;
    return true;
}

static bool row_answer(struct op *op, const struct heard *h, const struct reply_node *row)
{
    const struct reply_node *scope = wire_entry(h, row, "scope"),
                            *name = wire_entry(h, row, "key"),
                            *state = wire_entry(h, row, "state"),
                            *bytes = wire_entry(h, row, "value_bytes");
    if (!scope || !name || !state || !bytes) return false;
    struct key key = { text_of(h, scope), text_of(h, name) };
    struct record record = { .state = node_is(h, state, "done") ? RECORD_DONE : RECORD_PENDING,
                             .fence = (uint64_t)wire_number(h, row, "fence"),
                             .claimed_at_ms = wire_number(h, row, "claimed_at_ms"),
                             .done_at_ms = wire_number(h, row, "done_at_ms") };
    if (key.scope.len > SCOPE_BYTES_MAX || key.name.len > KEY_BYTES_MAX) return false;
    if (scan_add(&op->scan, &key, &record, 0)) return false;
    struct scan_row *added = &op->scan.rows[op->scan.count - 1];
    added->lease_left_ms = wire_number(h, row, "lease_left_ms");
    added->retain_left_ms = wire_number(h, row, "retain_left_ms");
    added->value_kept = bytes->type == REPLY_INTEGER;
    added->value_bytes = added->value_kept ? (size_t)bytes->number : 0;
    return true;
}

static bool scan_answer(struct op *op, const struct heard *h)
{
    const struct reply_node *cursor = reply_element(h->nodes, h->nodes, 0);
    const struct reply_node *rows = reply_element(h->nodes, h->nodes, 1), *row;
    if (!cursor || !rows || rows->type != REPLY_ARRAY) return false;
    for (size_t i = 0; (row = reply_element(h->nodes, rows, i)); i++)
        if (!row_answer(op, h, row)) return false;
    op->scan.more = !node_is(h, cursor, "0");
    op->out.outcome = OUTCOME_OK;
    return true;
}

static bool (*const answer_of[VERBS])(struct op *, const struct heard *) = {
    [VERB_CLAIM] = keyed_answer,
    [VERB_PUBLISH] = keyed_answer,
    [VERB_RELEASE] = keyed_answer,
    [VERB_RENEW] = keyed_answer,
    [VERB_FORGET] = keyed_answer,
    [VERB_PEEK] = keyed_answer,
    [VERB_EXPIRE] = sweep_answer,
    [VERB_SCAN] = scan_answer,
    [VERB_STATS] = stats_answer,
    [VERB_PING] = facts_answer,
    [VERB_MUTATION] = wire_mutation_answer,
};

bool wire_answer(struct op *op, const struct heard *h)
{
    op_clear_answer(op);
    return answer_of[op->verb](op, h);
}

/* ---- errors ---- */

static const struct {
    const char *word;
    int code;
} codes[] = {
    { "ERR", ERR_INVALID },
    { "OOM", ERR_NOMEM },
    { "UNAVAILABLE", ERR_UNAVAILABLE },
    { "AMBIGUOUS", ERR_AMBIGUOUS },
    { "CORRUPT", ERR_CORRUPT },
    { "UNSUPPORTED", ERR_UNSUPPORTED },
    { "NOAUTH", ERR_INVALID },
    { "NOPERM", ERR_INVALID },
};

/* A word that we do not know promises nothing. */
static int code_of(struct bytes word, bool writes)
{
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (bytes_eq(word, bytes_str(codes[i].word))) return codes[i].code;
    return writes ? ERR_AMBIGUOUS : ERR_UNAVAILABLE;
}

void wire_error_of(const struct heard *h, const struct reply_node *n, bool writes,
                   struct err *ret)
{
    struct bytes text = text_of(h, n);
    const uint8_t *blank = memchr(text.data, ' ', text.len);
    size_t word = blank ? (size_t)(blank - text.data) : text.len;
    int code = code_of(bytes_of(text.data, word), writes);
    /* The word says more than the code where it is about who may ask. */
    bool telling = word > 2 && text.data[0] == 'N';
    size_t skip = telling || !blank ? 0 : word + 1;
    err_set(ret, code, "%.*s", (int)(text.len - skip), (const char *)text.data + skip);
}

bool wire_error(struct op *op, const struct heard *h)
{
    if (h->nodes->type != REPLY_ERROR) return false;
    op_clear_answer(op);
    wire_error_of(h, h->nodes, remote_writes(op), &op->err);
    return true;
}

/* ---- greeting and pushes ---- */

/* What is wrong with a token is said in words of the daemon's own. Of anything else only the first
 * word is passed on: a server that does not know HELLO repeats the token. */
static void hello_refused(struct bytes text, struct err *reterr)
{
    struct bytes word = reply_error_word(text);
    bool login = bytes_eq(word, bytes_str("WRONGPASS")) || bytes_eq(word, bytes_str("NOAUTH"));
    if (login)
        err_set(reterr, ERR_UNAVAILABLE, "%.*s", (int)text.len, (const char *)text.data);
    else
        err_set(reterr, ERR_UNAVAILABLE, "it refuses HELLO: %.*s", (int)word.len,
                (const char *)word.data);
}

bool wire_greeted(const struct heard *h, struct remote_hello *ret, struct err *reterr)
{
    const struct reply_node *map = h->nodes, *server = wire_entry(h, map, "server");
    if (map->type == REPLY_ERROR) {
        hello_refused(text_of(h, map), reterr);
        return false;
    }
    if (!server || !node_is(h, server, "once")) {
        err_set(reterr, ERR_UNAVAILABLE,
                "it is no `once serve`: give the address of its RESP door");
        return false;
    }
    *ret = (struct remote_hello){ .durable = is_set(h, map, "durable"),
                                  .value_bytes_max = wire_number(h, map, "value_bytes_max") };
    return true;
}

bool wire_pushed(const struct heard *h, int64_t *ret_watch_id)
{
    const struct reply_node *kind = reply_element(h->nodes, h->nodes, 0);
    const struct reply_node *id = reply_element(h->nodes, h->nodes, 1);
    if (!kind || !id || !reply_element(h->nodes, h->nodes, 2)) return false;
    bool known = node_is(h, kind, "once.watch") || node_is(h, kind, "once.run");
    if (!known || id->type != REPLY_INTEGER) return false;
    *ret_watch_id = id->number;
    return true;
}

bool wire_told(struct op *op, const struct heard *h)
{
    const struct reply_node *news = reply_element(h->nodes, h->nodes, 2);
    op_clear_answer(op);
    if (news->type == REPLY_ERROR) {
        wire_error_of(h, news, remote_writes(op), &op->err);
        return true;
    }
    if (op->verb == VERB_RUN_CALL) return wire_run_told(op, h, news);
    if (news->type == REPLY_NULL) return true;
    if (!take_answer(op, h, news)) return false;
    op->answers = true;
    return true;
}
