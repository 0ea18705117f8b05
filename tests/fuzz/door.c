/* door.c - the HTTP door, from bytes to the store and back: whatever is sent, and however it
 * is cut, every request has one answer, in order, and nobody is left waiting. Cut input is
 * answered as a whole one is, except that a request whose body is still to come may be refused
 * without it, which ends the connection. */
#include "daemon/http_door.h"
#include "daemon/http_session.h"
#include "daemon/metrics.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/world.h"

#include <stdlib.h>

enum { VALUE_BYTES_MAX = 64, STATUSES_MAX = 4096, WAIT_MS = 6000 };

/* A connection without a socket: the bytes come from here and stay here. */
struct peer {
    struct world world;
    struct store *store;
    struct engine *engine;
    struct bounds bounds;
    struct http_door door;
    struct metrics metrics;
    struct conns conns;
    struct conn *conn;
    uint8_t *in; /* what has come and was not used */
    size_t in_bytes;
};

struct statuses {
    int list[STATUSES_MAX];
    size_t count;
    bool ended; /* the daemon would close it */
};

static void peer_open(struct peer *p)
{
    static const struct conn_limits limits = {
        1 << 18, 1 << 16, 1 << 22, 16, 30000, 30000, 1000
    };
    struct engine_config config = ENGINE_CONFIG_INIT;
    struct err err;
    world_init(&p->world, 1);
    p->store = world_open(&p->world, "memory");
    config.value_bytes_max = VALUE_BYTES_MAX;
    CHECK(engine_open(p->store, &p->world.env, &config, &p->engine, &err) == 0);
    CHECK(bounds_init(&p->bounds, p->engine, &p->world.loop, &p->world.rng.base, &err) == 0);
    conns_init(&p->conns, NULL, &p->world.loop, &limits, 1);
    p->door.engine = p->engine;
    p->door.loop = &p->world.loop;
    p->door.conns = &p->conns;
    p->door.bounds = &p->bounds;
    p->door.wall = p->world.env.wall;
    http_door_init(&p->door, VALUE_BYTES_MAX, &p->world.rng.base);
    p->metrics = (struct metrics){ .loop = &p->world.loop,
                                   .engine = p->engine,
                                   .store = p->store,
                                   .plane = "coord",
                                   .conns = &p->conns,
                                   .bounds = &p->bounds,
                                   .http_answered = p->door.answered };
    metrics_init(&p->metrics, &p->world.env.wall);
    p->door.metrics = &p->metrics;
    p->conn = calloc(1, sizeof *p->conn + http_door.session_bytes);
    CHECK(p->conn);
    p->conn->all = &p->conns;
    p->conn->door = &http_door;
    p->conn->ctx = &p->door;
    link_init(&p->conn->dirty);
    buf_init(&p->conn->out, 1 << 22);
    http_door.on_opened(p->conn);
}

static void peer_close(struct peer *p)
{
    struct conn *c = p->conn;
    http_door.on_closed(c);
    world_settle(&p->world);
    engine_stop(p->engine);
    world_settle(&p->world);
    CHECK(engine_idle(p->engine));
    link_remove(&c->dirty);
    buf_fini(&c->out);
    free(c);
    free(p->in);
    http_door_fini(&p->door);
    bounds_fini(&p->bounds);
    conns_fini(&p->conns);
    engine_free(p->engine);
    world_close(&p->world, p->store);
    world_fini(&p->world);
}

/* Who waits is answered in time; who wants to wait for years is taken to have left. */
static void wait_for_answer(struct peer *p)
{
    world_settle(&p->world);
    if (p->conn->owed) world_advance(&p->world, WAIT_MS);
    if (!p->conn->owed) return;
    http_door.on_ended(p->conn);
    p->conn->peer_ended = true;
    world_settle(&p->world);
    CHECK(p->conn->owed == 0);
}

/* The input that is not used is shown again, in memory of exactly its size. */
static void feed(struct peer *p, struct bytes more)
{
    uint8_t *all = malloc(p->in_bytes + more.len + !more.len);
    CHECK(all);
    if (p->in_bytes) memcpy(all, p->in, p->in_bytes);
    memcpy(all + p->in_bytes, more.data, more.len);
    size_t len = p->in_bytes + more.len, used = 0, n;
    do {
        n = http_door.on_bytes(p->conn, all + used, len - used);
        CHECK(n <= len - used);
        CHECK(p->conn->owed <= 1);
        used += n;
        wait_for_answer(p);
    } while (n > 0 && !p->conn->refused);
    free(p->in);
    p->in_bytes = len - used;
    p->in = malloc(p->in_bytes + 1);
    CHECK(p->in);
    memcpy(p->in, all + used, p->in_bytes);
    free(all);
}

/* One answer, as a client would take it apart: its status; 0: there is no more. */
static int take_answer(struct bytes *out)
{
    static const char field[] = "\r\nContent-Length: ";
    if (out->len == 0) return 0;
    const uint8_t *end = memmem(out->data, out->len, "\r\n\r\n", 4);
    CHECK(end && memcmp(out->data, "HTTP/1.1 ", 9) == 0);
    int status = atoi((const char *)out->data + 9);
    CHECK(status >= 100 && status < 600);
    size_t head = (size_t)(end - out->data) + 4;
    const char *length = memmem(out->data, head, field, sizeof field - 1);
    CHECK(!length == (status == 100 || status == 204));
    size_t all = head + (length ? strtoul(length + sizeof field - 1, NULL, 10) : 0);
    CHECK(all <= out->len);
    *out = bytes_of(out->data + all, out->len - all);
    return status;
}

/* Without "100 Continue", which depends on when the body comes. */
static void note_statuses(struct bytes out, struct statuses *s)
{
    for (int status; (status = take_answer(&out));)
        if (status != 100 && s->count < STATUSES_MAX) s->list[s->count++] = status;
}

static void told(struct bytes in, size_t step, struct statuses *ret)
{
    bool framed = !memmem(in.data, in.len, "HEAD", 4); /* or a length may be of nothing */
    static struct peer p;
    p = (struct peer){ 0 };
    *ret = (struct statuses){ 0 };
    peer_open(&p);
    for (size_t at = 0; at < in.len && !p.conn->refused; at += step) {
        size_t n = in.len - at < step ? in.len - at : step;
        feed(&p, bytes_of(in.data + at, n));
    }
    CHECK(!buf_failed(&p.conn->out));
    if (framed) note_statuses(buf_bytes(&p.conn->out), ret);
    CHECK(!framed || ret->count == p.conns.stats[DOOR_HTTP].requests);
    ret->ended = p.conn->refused;
    peer_close(&p);
}

/* The last answer may be another refusal: of the head alone, whatever is wrong with the body. */
static void check_same(const struct statuses *cut, const struct statuses *whole)
{
    CHECK(cut->count <= whole->count);
    CHECK(cut->count == whole->count || cut->ended);
    for (size_t i = 0; i < cut->count; i++) {
        if (cut->list[i] == whole->list[i]) continue;
        CHECK(cut->ended && i == cut->count - 1);
        CHECK(cut->list[i] >= 400 && whole->list[i] >= 400);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct statuses whole, cut;
    struct bytes in = bytes_of(data, size);
    told(in, size ? size : 1, &whole);
    size_t steps[] = { size / 64 + 1, size / 2 + 1 };
    for (size_t i = 0; i < 2; i++) {
        told(in, steps[i], &cut);
        check_same(&cut, &whole);
    }
    return 0;
}
