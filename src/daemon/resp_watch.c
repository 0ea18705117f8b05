/* resp_watch.c - ONCE.WATCH: being told once that a record is no longer what was seen.
 *
 * A watch is a call of the engine that is not in line with the answers of its connection. It is on
 * one list of its session: `watches` while the store has it, `told` while it waits for room to be
 * pushed. It ends by being told, by ONCE.UNWATCH, or with the connection. How many there are is
 * bounded for the whole door. */
#include "daemon/resp_session.h"

#include "base/check.h"

#include <stdlib.h>

enum { WATCHES_MAX = 100000 };

struct watch_key {
    uint64_t conn;
    int64_t id;
};

struct watched {
    struct map_node node;
    struct link link;
    struct resp_session *session; /* NULL: nobody is there to be told */
    struct resp_door *door;
    struct call *call; /* NULL: `err` or `out` is to be told */
    struct watch_key key;
    struct err err;
    struct answer out; /* with its own reference to the value ... */
    bool answers;      /* ... and worth telling: what a claim would be told */
};

static struct bytes watched_key(const struct map_node *n)
{
    return bytes_of(&container_of(n, struct watched, node)->key, sizeof(struct watch_key));
}

static struct watched *watched_find(struct resp_session *s, int64_t id)
{
    struct watch_key key = { s->conn->id, id };
    struct map_node *n = map_find(&s->door->watches, bytes_of(&key, sizeof key));
    return n ? container_of(n, struct watched, node) : NULL;
}

static void watched_free(struct watched *w)
{
    map_remove(&w->door->watches, &w->node);
    link_remove(&w->link);
    blob_unref(w->out.value);
    free(w);
}

/* ---- telling ---- */

static void push_error(struct resp_writer *writer, int64_t id, const struct err *err)
{
    resp_push(writer, 3);
    resp_text(writer, "once.watch");
    resp_integer(writer, id);
    resp_write_error(writer, err);
}

static void push(struct watched *w)
{
    struct resp_session *s = w->session;
    struct resp_writer writer = { .out = conn_out(s->conn), .version = 3 };
    if (w->err.code)
        push_error(&writer, w->key.id, &w->err);
    else
        resp_write_told(&writer, w->key.id, w->answers ? &w->out : NULL);
    watched_free(w);
}

void resp_watches_room(struct resp_session *s)
{
    for (struct link *at; conn_has_room(s->conn) && (at = list_first(&s->told));)
        push(container_of(at, struct watched, link));
}

/* It may have waited for long: who asked has to be good for the answer now. */
static bool may_know(struct watched *w, struct call *call)
{
    struct op *op = call_op(call);
    return op->answers &&
           auth_may(w->door->auth, &w->session->grant, VERB_WATCH, op->key.scope);
}

static void watch_done(struct call *call, void *ctx)
{
    struct watched *w = ctx;
    w->call = NULL;
    link_remove(&w->link);
    if (!w->session) {
        watched_free(w);
        return;
    }
    w->err = *call_error(call);
    if (!w->err.code && may_know(w, call)) {
        w->answers = true;
        w->out = *call_answer(call);
        blob_ref(w->out.value);
    }
    list_append(&w->session->told, &w->link);
    resp_watches_room(w->session);
}

/* ---- beginning and ending ---- */

static struct watched *watched_new(struct resp_session *s, int64_t id)
{
    struct watched *w = malloc(sizeof *w);
    if (!w) return NULL;
    *w = (struct watched){ .session = s, .door = s->door, .key = { s->conn->id, id } };
    link_init(&w->link);
    map_insert(&s->door->watches, &w->node);
    return w;
}

static int watch_allowed(struct resp_session *s, int64_t id, struct err *reterr)
{
    if (s->version < 3)
        return err_set(reterr, ERR_INVALID, "pushes need RESP3: say HELLO 3 first");
    if (watched_find(s, id))
        return err_set(reterr, ERR_INVALID, "there is a watch with this id on this connection");
    if (s->door->watches.count >= WATCHES_MAX)
        return err_set(reterr, ERR_UNAVAILABLE, "too many watches; try again later");
    return 0;
}

int resp_watch(struct resp_session *s, struct ask_args *args, struct err *reterr)
{
    int r = watch_allowed(s, args->watch_id, reterr);
    if (r) return r;
    struct watched *w = watched_new(s, args->watch_id);
    if (!w) return err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    args->call.done = watch_done;
    args->call.ctx = w;
    r = engine_call(s->door->engine, &args->call, &w->call, reterr);
    if (r)
        watched_free(w);
    else
        list_append(&s->watches, &w->link);
    return r;
}

/* The engine answers later, to nobody; the id is free at once. */
static void forget(struct watched *w)
{
    struct call *call = w->call;
    if (!call) {
        watched_free(w);
        return;
    }
    link_remove(&w->link);
    map_remove(&w->door->watches, &w->node);
    w->key.conn = 0; /* of no connection: nobody finds it */
    w->key.id = (int64_t)(intptr_t)w;
    map_insert(&w->door->watches, &w->node);
    w->session = NULL;
    call_cancel(call);
}

void resp_unwatch(struct resp_session *s, const struct resp_command *in, struct resp_writer *w)
{
    int64_t id;
    bool is_id = resp_parse_watch_id(in->args[1], &id);
    struct watched *found = is_id ? watched_find(s, id) : NULL;
    if (found) forget(found);
    resp_integer(w, found || (is_id && resp_call_forget(s, id)));
}

void resp_watches_cancel(struct resp_session *s)
{
    for (struct link *at; (at = list_pop(&s->told));)
        watched_free(container_of(at, struct watched, link));
    for (struct link *at; (at = list_first(&s->watches));)
        forget(container_of(at, struct watched, link));
}

int resp_watches_init(struct resp_door *d, struct rng *rng)
{
    return map_init(&d->watches, watched_key, (uint64_t[2]){ rng_u64(rng), rng_u64(rng) });
}

void resp_watches_fini(struct resp_door *d)
{
    CHECK(d->watches.count == 0);
    map_fini(&d->watches);
}
