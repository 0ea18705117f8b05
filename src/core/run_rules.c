/* run_rules.c - one decision per line; see run_rules.h for U1 to U5. */
#include "core/run_rules.h"

#include "base/check.h"
#include "core/document.h"
#include "core/metadata.h"

#include <stdio.h>

enum { SCRATCH_SLACK_BYTES = 1024 };

#define BACK_OFF_MS_FIRST INT64_C(1000)
#define BACK_OFF_MS_MAX INT64_C(3600000)

void run_scratch_init(struct run_scratch *s)
{
    for (unsigned i = 0; i < 2; i++) {
        buf_init(&s->tags[i], TAGS_BYTES_MAX);
        buf_init(&s->metadata[i], METADATA_BYTES_MAX + SCRATCH_SLACK_BYTES);
    }
    buf_init(&s->reason, RUN_ERROR_BYTES_MAX);
}

void run_scratch_fini(struct run_scratch *s)
{
    for (unsigned i = 0; i < 2; i++) {
        buf_fini(&s->tags[i]);
        buf_fini(&s->metadata[i]);
    }
    buf_fini(&s->reason);
}

/* The one of the two that `in_use` does not point into, empty. */
static struct buf *spare(struct buf pair[2], struct bytes in_use)
{
    uintptr_t at = (uintptr_t)in_use.data, first = (uintptr_t)pair[0].data;
    struct buf *b = &pair[first && at >= first && at < first + pair[0].cap];
    buf_clear(b);
    return b;
}

static void keep(struct run_verdict *v, enum outcome outcome, const char *reason)
{
    v->outcome = outcome;
    v->reason = reason;
    v->changed = false;
}

static void change(struct run_verdict *v)
{
    v->outcome = OUTCOME_OK;
    v->changed = true;
}

static void finish(struct run *next, enum run_state state, int64_t now_ms)
{
    next->state = state;
    next->finished_at_ms = now_ms;
    next->lease_until_ms = 0;
}

/* ---- changes that make sense ---- */

/* What the rules themselves look at. */
static int body_check(const struct run_change *c, struct err *reterr)
{
    if (c->kind == RUN_ADD_TAGS) return tags_check(c->body, reterr);
    if (c->kind == RUN_SET_METADATA) return metadata_check(c->body, reterr);
    if (c->kind == RUN_OPERATE) return metadata_check_operations(c->body, reterr);
    return 0;
}

static int sense_check(const struct run_change *c, struct err *reterr)
{
    if (c->kind < RUN_ADD_TAGS || c->kind > RUN_RETURN)
        return err_set(reterr, ERR_INVALID, "there is no such change of a run");
    if (c->kind == RUN_RESCHEDULE && (c->at_ms < 0 || c->at_ms > TIME_MS_MAX))
        return err_set(reterr, ERR_INVALID, "that time is out of range");
    if (c->kind == RUN_HEARTBEAT && c->lease_ms > DURATION_MS_MAX)
        return err_set(reterr, ERR_INVALID, "the lease is longer than ten years");
    if (c->kind == RUN_FAIL && c->retry_ms > DURATION_MS_MAX)
        return err_set(reterr, ERR_INVALID, "the next attempt is more than ten years away");
    return body_check(c, reterr);
}

int run_change_check(const struct run_change *c, size_t output_bytes_max, struct err *reterr)
{
    static const char *const names[RUN_RETURN + 1] = {
        [RUN_CANCEL] = "reason", [RUN_COMPLETE] = "output", [RUN_FAIL] = "error"
    };
    int r = sense_check(c, reterr);
    if (!r && c->kind == RUN_HEARTBEAT && c->lease_ms == 0)
        return err_set(reterr, ERR_INVALID, "a lease of 0 ms is over at once: 1 ms at least");
    if (r || !names[c->kind] || c->body.len == 0) return r;
    size_t bytes_max = c->kind == RUN_COMPLETE ? output_bytes_max : RUN_ERROR_BYTES_MAX;
    if (c->body.len > bytes_max)
        return err_set(reterr, ERR_LIMIT, "the %s has %zu bytes; at most %zu are kept",
                       names[c->kind], c->body.len, bytes_max);
    return document_check(c->body, names[c->kind], reterr);
}

/* ---- tags and metadata ---- */

/* Set semantics: in the order of their first appearance. */
static void add_missing(struct bytes tags, struct bytes more, struct buf *out)
{
    struct bytes tag;
    buf_add(out, tags);
    while (tags_next(&more, &tag)) {
        if (tags_have(buf_bytes(out), tag)) continue;
        buf_byte(out, (uint8_t)tag.len);
        buf_add(out, tag);
    }
}

static int add_tags(const struct run_change *c, struct run_scratch *s, struct run_verdict *v,
                    struct err *reterr)
{
    struct buf *out = spare(s->tags, v->next.tags);
    add_missing(v->next.tags, c->body, out);
    if (buf_failed(out) == ERR_NOMEM)
        return err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    if (buf_failed(out) || tags_count(buf_bytes(out)) > TAGS_MAX) {
        keep(v, OUTCOME_REFUSED, "a run has at most 10 tags");
        return 0;
    }
    change(v);
    v->changed = out->len > v->next.tags.len;
    v->next.tags = buf_bytes(out);
    return 0;
}

static int set_metadata(const struct run_change *c, struct run_verdict *v)
{
    if (c->version != RUN_ANY_VERSION && c->version != v->next.metadata_version) {
        keep(v, OUTCOME_CONFLICT, "the metadata has another version by now");
        return 0;
    }
    change(v);
    v->next.metadata = c->body;
    v->next.metadata_version++;
    return 0;
}

static int operate(const struct run_change *c, struct run_scratch *s, struct run_verdict *v,
                   struct err *reterr)
{
    struct buf *out = spare(s->metadata, v->next.metadata);
    struct err why;
    int r = metadata_apply(v->next.metadata, c->body, out, &why);
    if (r == ERR_INVALID) {
        keep(v, OUTCOME_REFUSED, "an operation does not fit the metadata that is there");
        return 0;
    }
    if (r == ERR_LIMIT) {
        keep(v, OUTCOME_REFUSED, "the metadata would be larger than 256 KiB");
        return 0;
    }
    if (r) return err_set(reterr, r, "%s", why.text);
    change(v);
    v->next.metadata = buf_bytes(out);
    v->next.metadata_version++;
    return 0;
}

/* ---- times, key, end ---- */

static void reschedule(const struct run_change *c, int64_t now_ms, struct run_verdict *v)
{
    if (!run_is_delayed(&v->next, now_ms)) {
        keep(v, OUTCOME_REFUSED, "only a DELAYED run can be rescheduled");
        return;
    }
    if (c->at_ms > now_ms + DURATION_MS_MAX) {
        keep(v, OUTCOME_REFUSED, "the delay is longer than ten years");
        return;
    }
    change(v);
    v->next.delay_until_ms = c->at_ms;
    v->next.available_at_ms = c->at_ms > now_ms ? c->at_ms : now_ms;
}

static void cancel(const struct run_change *c, int64_t now_ms, struct run_verdict *v)
{
    if (run_is_final(&v->next)) { /* asked for again, or too late: it is what it is (U1) */
        keep(v, OUTCOME_OK, NULL);
        return;
    }
    change(v);
    finish(&v->next, RUN_CANCELED, now_ms);
    if (c->body.len) v->next.error = c->body;
}

static void reset_key(struct run_verdict *v)
{
    change(v);
    v->changed = v->next.key_held;
    v->next.key_held = false;
}

/* ---- attempts: the token counts, also when the lease has lapsed, until somebody takes over ---- */

static bool is_holder(const struct run *r, const struct run_change *c)
{
    return r->state == RUN_EXECUTING && token_eq(&r->token, &c->token);
}

/* The answer got lost on the way, and the holder says it again. */
static bool is_repeated(const struct run *r, const struct run_change *c)
{
    static const struct token none;
    if (token_eq(&r->token, &none) || !token_eq(&r->token, &c->token)) return false;
    if (c->kind == RUN_COMPLETE)
        return r->state == RUN_COMPLETED && bytes_eq(r->output, c->body);
    if (c->kind != RUN_FAIL || !bytes_eq(r->error, c->body)) return false;
    return r->state == RUN_FAILED || r->state == RUN_QUEUED;
}

static void heartbeat(const struct run_change *c, int64_t now_ms, struct run_verdict *v)
{
    change(v);
    if (c->lease_ms >= 0) v->next.lease_ms = c->lease_ms;
    v->next.lease_until_ms = now_ms + v->next.lease_ms;
}

static void complete(const struct run_change *c, int64_t now_ms, struct run_verdict *v)
{
    change(v);
    finish(&v->next, RUN_COMPLETED, now_ms);
    v->next.output = c->body;
}

int64_t run_back_off_ms(uint32_t attempts)
{
    int64_t ms = BACK_OFF_MS_FIRST;
    for (uint32_t i = 1; i < attempts && ms < BACK_OFF_MS_MAX; i++) ms *= 2;
    return ms < BACK_OFF_MS_MAX ? ms : BACK_OFF_MS_MAX;
}

static void fail(const struct run_change *c, int64_t now_ms, struct run_verdict *v)
{
    struct run *next = &v->next;
    change(v);
    next->error = c->body;
    if (next->attempts >= next->attempts_max) {
        finish(next, RUN_FAILED, now_ms);
        return;
    }
    next->state = RUN_QUEUED;
    next->lease_until_ms = 0;
    next->available_at_ms =
        now_ms + (c->retry_ms >= 0 ? c->retry_ms : run_back_off_ms(next->attempts));
}

/* Nobody has worked on it: not an attempt, and due at once. */
static void give_back(int64_t now_ms, struct run_verdict *v)
{
    struct run *next = &v->next;
    change(v);
    next->state = RUN_QUEUED;
    next->token = (struct token){ 0 };
    next->lease_until_ms = 0;
    next->available_at_ms = now_ms;
    if (next->attempts) next->attempts--;
}

static void by_holder(const struct run_change *c, int64_t now_ms, struct run_verdict *v)
{
    if (!is_holder(&v->next, c)) { /* U2 */
        keep(v, is_repeated(&v->next, c) ? OUTCOME_OK : OUTCOME_LOST, NULL);
        return;
    }
    if (c->kind == RUN_HEARTBEAT) heartbeat(c, now_ms, v);
    if (c->kind == RUN_COMPLETE) complete(c, now_ms, v);
    if (c->kind == RUN_FAIL) fail(c, now_ms, v);
    if (c->kind == RUN_RETURN) give_back(now_ms, v);
}

int rules_run_change(const struct run *stored, const struct run_change *c, int64_t now_ms,
                     struct run_scratch *scratch, struct run_verdict *ret_verdict,
                     struct err *reterr)
{
    struct run_verdict v = { .next = *stored };
    int r = sense_check(c, reterr);
    if (r) return r;
    switch (c->kind) {
    case RUN_ADD_TAGS:
        r = add_tags(c, scratch, &v, reterr);
        break;
    case RUN_SET_METADATA:
        r = set_metadata(c, &v);
        break;
    case RUN_OPERATE:
        r = operate(c, scratch, &v, reterr);
        break;
    case RUN_RESCHEDULE:
        reschedule(c, now_ms, &v);
        break;
    case RUN_CANCEL:
        cancel(c, now_ms, &v);
        break;
    case RUN_RESET_KEY:
        reset_key(&v);
        break;
    case RUN_HEARTBEAT:
    case RUN_COMPLETE:
    case RUN_RETURN:
    case RUN_FAIL:
        by_holder(c, now_ms, &v);
        break;
    }
    if (!r) *ret_verdict = v;
    return r;
}

/* ---- leasing ---- */

static const char too_many_stalls[] =
    "\"its workers vanished: the lease lapsed more often than is allowed\"";

struct run_verdict rules_run_lease(const struct run *stored, const struct token *token,
                                   int64_t lease_ms, int64_t now_ms)
{
    struct run_verdict v = { .next = *stored };
    struct run *next = &v.next;
    if (run_due_ms(stored) > now_ms) {
        keep(&v, OUTCOME_REFUSED, "it is not due");
        return v;
    }
    change(&v);
    if (stored->state == RUN_EXECUTING && stored->stalls >= RUN_STALLS_MAX) {
        finish(next, RUN_FAILED, now_ms);
        next->error = bytes_str(too_many_stalls);
        v.outcome = OUTCOME_REFUSED;
        v.reason = "it has stalled too often";
        return v;
    }
    if (stored->state == RUN_EXECUTING)
        next->stalls++; /* U5 */
    else
        next->attempts++;
    uint64_t now_us = now_ms > 0 ? (uint64_t)now_ms * 1000 : 0;
    next->state = RUN_EXECUTING;
    next->token = *token;
    next->fence = now_us > stored->fence ? now_us : stored->fence + 1;
    next->lease_ms = lease_ms;
    next->lease_until_ms = now_ms + lease_ms;
    if (!next->started_at_ms) next->started_at_ms = now_ms;
    return v;
}

/* ---- a run that is new to the ledger ---- */

bool run_is_same(const struct run *a, const struct run *b)
{
    return bytes_eq(a->task, b->task) && bytes_eq(a->key, b->key) &&
           bytes_eq(a->fingerprint, b->fingerprint);
}

enum run_put rules_run_put(const struct run *by_id, const struct run *by_key,
                           const struct run *incoming, bool drains, int64_t now_ms)
{
    bool wants_key = incoming->key_held && incoming->key.len && now_ms < incoming->key_until_ms;
    if (by_id)
        return by_id->canonical.text[0] || run_is_same(by_id, incoming) ? PUT_SAME
                                                                        : PUT_MISMATCH;
    if (!wants_key || !by_key) return PUT_INSERT;
    if (!run_holds_key(by_key, now_ms)) return PUT_INSERT;
    if (!bytes_eq(by_key->fingerprint, incoming->fingerprint)) /* C7 */
        return drains ? PUT_FAILED : PUT_MISMATCH;
    return drains ? PUT_ALIAS : PUT_CACHED;
}

/* What was canceled in the buffer was acknowledged (U1): it needs no reason. */
static int fail_for(struct run *next, const char *why, int64_t now_ms,
                    struct run_scratch *scratch, struct err *reterr)
{
    struct json_writer w;
    if (run_is_final(next)) return 0;
    buf_clear(&scratch->reason);
    json_start(&w, &scratch->reason);
    json_put_cstring(&w, why);
    if (buf_failed(&scratch->reason))
        return err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    finish(next, RUN_FAILED, now_ms);
    next->error = buf_bytes(&scratch->reason);
    return 0;
}

int rules_run_put_failed(const struct run *incoming, const struct run *by_key, int64_t now_ms,
                         struct run_scratch *scratch, struct run *ret_run, struct err *reterr)
{
    char why[80 + RUN_ID_BYTES];
    struct run next = *incoming;
    snprintf(why, sizeof why, "its key is taken by %s, which has another payload",
             by_key->id.text);
    next.key_held = false;
    int r = fail_for(&next, why, now_ms, scratch, reterr);
    if (!r) *ret_run = next;
    return r;
}

int rules_run_park(const struct run *refused, const char *why, int64_t now_ms,
                   struct run_scratch *scratch, struct run *ret_run, struct err *reterr)
{
    char text[32 + sizeof reterr->text];
    struct run next = *refused;
    snprintf(text, sizeof text, "it cannot be written: %s", why);
    int r = fail_for(&next, text, now_ms, scratch, reterr);
    if (r) return r;
    if (next.state == RUN_FAILED) next.key_held = false;
    *ret_run = next;
    return 0;
}

/* ---- changes of a buffered run ---- */

bool run_change_may_wait(enum run_change_kind kind)
{
    return kind >= RUN_ADD_TAGS && kind <= RUN_RESET_KEY;
}

/* One change after another; what is refused, or makes no sense by now, changes nothing. */
static int apply_rest(struct run *run, struct bytes changes, uint64_t done, bool times_too,
                      int64_t now_ms, struct run_scratch *scratch, struct err *reterr)
{
    struct run_change c;
    for (uint64_t n = 0; run_change_next(&changes, &c); n++) {
        struct run_verdict v;
        struct err why;
        if (n < done) continue;
        if (!times_too && (c.kind == RUN_RESCHEDULE || c.kind == RUN_RESET_KEY)) continue;
        if (!times_too && c.kind == RUN_SET_METADATA) c.version = RUN_ANY_VERSION;
        int r = rules_run_change(run, &c, times_too ? c.made_at_ms : now_ms, scratch, &v, &why);
        if (r == ERR_INVALID || r == ERR_LIMIT) continue;
        if (r) return err_set(reterr, r, "%s", why.text);
        if (v.outcome == OUTCOME_OK) *run = v.next;
    }
    if (changes.len)
        return err_set(reterr, ERR_CORRUPT, "a change of a buffered run makes no sense");
    return 0;
}

static uint64_t changes_count(struct bytes changes)
{
    struct run_change c;
    uint64_t n = 0;
    while (run_change_next(&changes, &c)) n++;
    return n;
}

int run_fold(const struct run *run, struct bytes changes, struct run_scratch *scratch,
             struct run *ret_run, struct err *reterr)
{
    struct run next = *run;
    int r = apply_rest(&next, changes, run->changes, true, 0, scratch, reterr);
    if (r) return r;
    /* U4: a drainer that comes late brings fewer than are in it; what is in it stays counted. */
    uint64_t count = changes_count(changes);
    if (count > next.changes) next.changes = count;
    *ret_run = next;
    return 0;
}

int run_merge(const struct run *canonical, struct bytes changes, uint64_t done, int64_t now_ms,
              struct run_scratch *scratch, struct run *ret_run, struct err *reterr)
{
    struct run next = *canonical;
    int r = apply_rest(&next, changes, done, false, now_ms, scratch, reterr);
    if (r) return r;
    *ret_run = next;
    return 0;
}
