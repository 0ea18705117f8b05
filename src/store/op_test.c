/* op_test.c - an op owns its copies, finishes frame by frame, and forgets its answers; and the
 * decorator that shows what frames are for. */
#include "store/op.h"

#include "store/store.h"
#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <stdio.h>

Test(op, copies_key_and_fingerprint)
{
    char scope[] = "scope", name[] = "name", print[] = "print";
    struct key key = key_of(scope, name);
    struct request in = { .fingerprint = bytes_str(print), .lease_ms = 5 };
    struct op *op = op_new(VERB_CLAIM, &key, &in);
    scope[0] = name[0] = print[0] = '!';
    cr_assert(bytes_eq(op->key.scope, bytes_str("scope")));
    cr_assert(bytes_eq(op->key.name, bytes_str("name")));
    cr_assert(bytes_eq(op->in.fingerprint, bytes_str("print")) && op->in.lease_ms == 5);
    struct key framed = key_unframe(op->frame);
    cr_assert(bytes_eq(framed.scope, op->key.scope) && bytes_eq(framed.name, op->key.name));
    struct op *copy = op_copy(op, VERB_RELEASE);
    op_free(op);
    cr_assert(copy->verb == VERB_RELEASE && bytes_eq(copy->key.name, bytes_str("name")));
    cr_assert(bytes_eq(copy->in.fingerprint, bytes_str("print")));
    op_free(copy);
}

Test(op, unkeyed_ones_have_no_frame_and_may_have_a_cursor)
{
    struct op *op = op_new(VERB_STATS, NULL, NULL);
    cr_assert(op->frame.len == 0 && op->key.scope.len == 0 && op->key.name.len == 0);
    op_free(op);
    struct key after = key_of("s", "k");
    op = op_new(VERB_SCAN, &after, NULL);
    cr_assert(op->frame.len == 0 && bytes_eq(op->key.name, bytes_str("k")));
    op_free(op);
    op_free(NULL);
}

static char order[8];

static void frame_a(struct op *op, void *ctx)
{
    (void)op, (void)ctx;
    strcat(order, "a");
}

static void frame_b(struct op *op, void *ctx)
{
    cr_assert(ctx == order);
    strcat(order, "b");
    op_finish(op);
}

Test(op, frames_finish_from_the_inside_out)
{
    struct op *op = op_new(VERB_PING, NULL, NULL);
    op_push(op, frame_a, NULL);
    op_push(op, frame_b, order);
    op_finish(op);
    cr_assert(strcmp(order, "ba") == 0 && op->depth == 0);
    op_free(op);
}

Test(op, fail_drops_the_answer)
{
    struct op *op = op_new(VERB_PING, NULL, NULL);
    op->out.outcome = OUTCOME_CACHED;
    op->out.value = blob_new(bytes_str("A"));
    op->changed = true;
    op_push(op, frame_a, NULL);
    op_fail(op, ERR_UNAVAILABLE, "away");
    cr_assert(op->err.code == ERR_UNAVAILABLE && strcmp(op->err.text, "away") == 0);
    cr_assert(!op->out.value && op->out.outcome == 0 && !op->changed);
    op_free(op);
}

Test(op, verbs_are_a_table)
{
    for (int v = 0; v < VERBS; v++) {
        cr_expect(verb_info[v].name[0]);
        cr_expect(verb_info[v].keyed == (verb_info[v].rule != NULL), "%s", verb_info[v].name);
    }
    cr_assert(!verb_info[VERB_PEEK].writes && !verb_info[VERB_WATCH].writes);
    cr_assert(verb_info[VERB_CLAIM].writes && verb_info[VERB_EXPIRE].writes);
}

/* ---- store.c ---- */

Test(store, unknown_schemes_are_refused_with_what_is_known)
{
    struct world w;
    struct store *s;
    struct err err;
    static const char *const bad[] = { "", "memory", "redi:", "MEMORY:", ":", "memoryx:" };
    world_init(&w, 1);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_expect(store_open(bad[i], &w.env, &s, &err) == ERR_INVALID, "\"%s\"", bad[i]);
        cr_expect(strstr(err.text, "memory:"), "%s", err.text);
    }
    cr_assert(store_open("memory:x", &w.env, &s, &err) == ERR_INVALID);
    world_fini(&w);
}

Test(store, memory_is_opened_ready_for_submit)
{
    struct world w;
    struct store *s;
    struct err err;
    world_init(&w, 1);
    cr_assert(store_open("memory:", &w.env, &s, &err) == 0);
    cr_assert(s->class->submit && (s->caps & CAP_NOTIFY) && !(s->caps & CAP_DURABLE));
    world_close(&w, s);
    store_close(NULL);
    world_fini(&w);
}

/* ---- traced.c ---- */

static struct trace_event seen;
static unsigned seen_count;
static char seen_key[16];

static void on_trace(void *ctx, const struct trace_event *event)
{
    cr_assert(ctx == &seen);
    seen = *event;
    seen_count++;
    snprintf(seen_key, sizeof seen_key, "%.*s", (int)event->key.len,
             (const char *)event->key.data);
}

Test(traced, emits_one_event_per_op)
{
    struct world w;
    struct store *s;
    struct err err;
    struct trace trace = { .emit = on_trace, .ctx = &seen };
    world_init(&w, 1);
    struct store *inner = world_open(&w, "memory");
    w.env.trace = &trace;
    cr_assert(traced_open(inner, &w.env, &s, &err) == 0);
    cr_assert(s->caps == inner->caps && s->epoch == inner->epoch);
    struct key key = key_of("s", "k");
    struct request in = { .token = token_of(1), .lease_ms = 10 };
    struct op *op = op_new(VERB_CLAIM, &key, &in);
    world_run(&w, s, op);
    cr_assert(op->out.outcome == OUTCOME_CLAIMED);
    cr_assert(seen_count == 1 && seen.kind == TRACE_OP && strcmp(seen.text, "claim") == 0);
    cr_assert(strcmp(seen_key, "k") == 0);
    op_free(op);
    world_close(&w, s);
    world_fini(&w);
}
