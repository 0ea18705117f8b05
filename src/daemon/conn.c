/* conn.c - see conn.h. One function changes the state of a connection (set_state), one decides
 * when it has to be looked at again (conn_wake_ms). */
#include "daemon/conn.h"

#include "base/check.h"

#include <stdlib.h>

static const unsigned conn_arrow[] = {
    [CONN_OPEN] = BIT(CONN_ENDING) | BIT(CONN_CLOSED),
    [CONN_ENDING] = BIT(CONN_LINGERING) | BIT(CONN_CLOSED),
    [CONN_LINGERING] = BIT(CONN_CLOSED),
    [CONN_CLOSED] = 0,
};

static void set_state(struct conn *c, enum conn_state to)
{
    CHECK(conn_arrow[c->state] & BIT(to));
    c->state = to;
}

static struct door_stats *stats_of(const struct conn *c)
{
    return &c->all->stats[c->door->id];
}

static void touch(struct conn *c)
{
    if (c->state != CONN_CLOSED && !link_used(&c->dirty))
        list_append(&c->all->dirty, &c->dirty);
}

/* ---- closing ---- */

static void release_out(struct conn *c)
{
    struct conns *all = c->all;
    if (c->out.cap == CONN_SPARE_BYTES && all->spare_count < CONN_SPARES_MAX) {
        all->spares[all->spare_count++] = c->out.data;
        c->out.data = NULL;
        c->out.cap = 0;
    }
    buf_fini(&c->out);
}

static void closed(uv_handle_t *handle)
{
    struct conn *c = handle->data;
    link_remove(&c->link);
    c->all->count--;
    buf_fini(&c->in);
    buf_fini(&c->sending);
    release_out(c);
    tls_free(c->tls);
    free(c);
}

/* Somebody who runs the daemon may want to know of these. */
static bool is_drop(enum close_reason why)
{
    return why == CLOSE_SLOW_INPUT || why == CLOSE_SLOW_OUTPUT || why == CLOSE_LIMIT;
}

static void note_closed(struct conn *c)
{
    stats_of(c)->closed[c->why]++;
    stats_of(c)->open--;
    trace_emit(c->all->trace,
               (struct trace_event){ .kind = is_drop(c->why) ? TRACE_DROPPED : TRACE_CLOSED,
                                     .number = (int64_t)c->id,
                                     .text = close_name(c->why) });
}

void conn_close(struct conn *c, enum close_reason why)
{
    if (c->state == CONN_CLOSED) return;
    if (c->state == CONN_OPEN) c->why = why;
    set_state(c, CONN_CLOSED);
    note_closed(c);
    timer_stop(c->all->loop, &c->timer);
    link_remove(&c->dirty);
    c->door->on_closed(c);
    uv_close(&c->uv.handle, closed);
}

static void end_for(struct conn *c, enum close_reason why)
{
    c->why = why;
    set_state(c, CONN_ENDING);
    touch(c);
}

void conn_end(struct conn *c, enum close_reason why)
{
    c->refused = true;
    if (c->state == CONN_OPEN) end_for(c, why);
}

/* ---- reading ---- */

bool conn_full(const struct conn *c)
{
    size_t unsent = c->out.len + c->parked_bytes + c->unsent;
    uint32_t owed_max = c->door->owed_max ? c->door->owed_max : c->all->limits.owed_max;
    return c->owed >= owed_max || unsent > c->all->limits.out_bytes_high || c->refused ||
           c->state == CONN_CLOSED;
}

bool conn_has_room(const struct conn *c)
{
    return c->out.len + c->unsent <= c->all->limits.out_bytes_high;
}

/* Shows the door what there is; what of it is left over. */
static struct bytes feed(struct conn *c, uint8_t *data, size_t len)
{
    size_t used = c->door->on_bytes(c, data, len);
    CHECK(used <= len);
    c->stalled = used < len && conn_full(c);
    if (c->refused) used = len;
    return bytes_of(data + used, len - used);
}

static void feed_kept(struct conn *c)
{
    struct bytes left = feed(c, c->in.data, c->in.len);
    if (c->state == CONN_CLOSED) return;
    if (left.len < c->in.len) c->since_ms = c->all->loop->now_ms;
    if (left.len) memmove(c->in.data, left.data, left.len);
    c->in.len = left.len;
    if (!left.len) buf_fini(&c->in);
}

static void take(struct conn *c, uint8_t *data, size_t len)
{
    if (c->in.len) {
        buf_add(&c->in, bytes_of(data, len));
        if (!buf_failed(&c->in)) feed_kept(c);
    } else {
        struct bytes left = feed(c, data, len);
        if (c->state == CONN_CLOSED) return;
        if (left.len) c->since_ms = c->all->loop->now_ms;
        buf_add(&c->in, left);
    }
    if (buf_failed(&c->in)) conn_close(c, CLOSE_LIMIT);
}

static void give_input(uv_handle_t *handle, size_t wish, uv_buf_t *ret)
{
    struct conn *c = handle->data;
    (void)wish;
    *ret = uv_buf_init((char *)c->all->input, CONN_INPUT_BYTES);
}

static void stop_reading(struct conn *c)
{
    if (c->reading) uv_read_stop(&c->uv.stream);
    c->reading = false;
}

static void peer_ended(struct conn *c)
{
    stop_reading(c);
    c->peer_ended = true;
    if (c->state == CONN_LINGERING) {
        conn_close(c, c->why);
        return;
    }
    if (c->state == CONN_OPEN) end_for(c, CLOSE_ENDED);
    c->door->on_ended(c);
    touch(c);
}

/* Half a record may wait as long as half a command, from its first byte on. */
static void note_record(struct conn *c, bool was_midway)
{
    if (tls_midway(c->tls) && !was_midway && !c->in.len) c->since_ms = c->all->loop->now_ms;
}

static void take_sealed(struct conn *c, struct bytes sealed)
{
    enum tls_progress p = TLS_PLAIN;
    bool midway = tls_midway(c->tls);
    tls_feed(c->tls, sealed);
    while (p == TLS_PLAIN) {
        size_t len;
        p = tls_read(c->tls, c->all->plain, sizeof c->all->plain, &len);
        if (len) take(c, c->all->plain, len);
        if (c->state == CONN_CLOSED) return;
        if (len) midway = false;
    }
    note_record(c, midway);
    if (p == TLS_ENDED) peer_ended(c);
    if (p == TLS_BAD) conn_end(c, CLOSE_TLS);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct conn *c = stream->data;
    if (n == 0) return; /* nothing after all */
    if (n == UV_EOF) {
        peer_ended(c);
        return;
    }
    if (n < 0) {
        conn_close(c, CLOSE_BROKEN);
        return;
    }
    stats_of(c)->in_bytes += (size_t)n;
    if (c->refused) return; /* lingering: taken and dropped */
    loop_update(c->all->loop, clock_now_ms(&c->all->clock));
    if (c->tls)
        take_sealed(c, bytes_of(buf->base, (size_t)n));
    else
        take(c, (uint8_t *)buf->base, (size_t)n);
    touch(c);
}

/* Reads while more can be taken, and while the peer's end is waited for. A little more is always
 * taken, or the end of a peer that waits would not be seen. */
static void control_reading(struct conn *c)
{
    bool linger = c->state == CONN_LINGERING || (c->state == CONN_ENDING && c->refused);
    bool room = !c->stalled || c->in.len < CONN_INPUT_BYTES;
    bool want = !c->peer_ended && (linger || (c->state == CONN_OPEN && room));
    if (want == c->reading) return;
    if (!want) {
        stop_reading(c);
        return;
    }
    c->reading = uv_read_start(&c->uv.stream, give_input, on_read) == 0;
    if (!c->reading) conn_close(c, CLOSE_BROKEN);
}

/* ---- writing ---- */

struct buf *conn_out(struct conn *c)
{
    struct conns *all = c->all;
    if (!c->out.data && all->spare_count) {
        c->out.data = all->spares[--all->spare_count];
        c->out.cap = CONN_SPARE_BYTES;
    }
    touch(c);
    return &c->out;
}

static void sent(uv_write_t *write, int status)
{
    struct conn *c = write->data;
    if (c->state == CONN_CLOSED) return;
    if (status < 0) {
        conn_close(c, CLOSE_BROKEN);
        return;
    }
    buf_fini(&c->sending);
    c->unsent = 0;
    touch(c);
}

static void send_later(struct conn *c, struct buf *wire, size_t done)
{
    c->sending = *wire;
    buf_init(wire, c->sending.bytes_max);
    c->unsent = c->sending.len - done;
    c->since_ms = c->all->loop->now_ms;
    uv_buf_t rest = uv_buf_init((char *)c->sending.data + done, (unsigned)c->unsent);
    c->request.write.data = c;
    if (uv_write(&c->request.write, &c->uv.stream, &rest, 1, sent) < 0)
        conn_close(c, CLOSE_BROKEN);
}

/* Before they have shaken hands nothing can be said: who is turned away then hears nothing. */
static struct buf *seal(struct conn *c)
{
    struct buf *sealed = tls_out(c->tls);
    if (!tls_ready(c->tls)) {
        if (c->state != CONN_OPEN) release_out(c);
        return sealed;
    }
    if (c->out.len && tls_write(c->tls, buf_bytes(&c->out)) < 0) sealed->failed = ERR_LIMIT;
    release_out(c);
    return sealed;
}

static void release_wire(struct conn *c, struct buf *wire)
{
    if (wire == &c->out)
        release_out(c);
    else
        buf_fini(wire);
}

static void flush(struct conn *c)
{
    if (c->unsent && !buf_failed(&c->out)) return;
    struct buf *wire = c->tls && !buf_failed(&c->out) ? seal(c) : &c->out;
    if (buf_failed(wire)) {
        conn_close(c, CLOSE_LIMIT);
        return;
    }
    if (!wire->len) return;
    uv_buf_t all = uv_buf_init((char *)wire->data, (unsigned)wire->len);
    int n = uv_try_write(&c->uv.stream, &all, 1);
    if (n < 0 && n != UV_EAGAIN) {
        conn_close(c, CLOSE_BROKEN);
        return;
    }
    size_t done = n > 0 ? (size_t)n : 0;
    stats_of(c)->out_bytes += wire->len;
    if (done == wire->len)
        release_wire(c, wire);
    else
        send_later(c, wire, done);
}

/* ---- what comes next ---- */

static bool waits_for_input(const struct conn *c)
{
    bool half = c->in.len || (c->tls && tls_midway(c->tls));
    return c->state == CONN_OPEN && half && !c->stalled;
}

static bool shakes_hands(const struct conn *c)
{
    return c->state == CONN_OPEN && c->tls && !tls_ready(c->tls);
}

/* INT64_MAX: nothing has to happen in time. */
static int64_t conn_wake_ms(const struct conn *c)
{
    const struct conn_limits *limits = &c->all->limits;
    if (c->state == CONN_LINGERING) return c->since_ms + limits->linger_ms;
    if (shakes_hands(c)) return c->since_ms + limits->handshake_ms;
    if (c->unsent) return c->since_ms + limits->send_ms;
    if (waits_for_input(c)) return c->since_ms + limits->command_ms;
    return INT64_MAX;
}

static void reset_timer(struct conn *c)
{
    int64_t at_ms = conn_wake_ms(c);
    if (at_ms != INT64_MAX)
        timer_set(c->all->loop, &c->timer, at_ms);
    else if (timer_is_set(&c->timer))
        timer_stop(c->all->loop, &c->timer);
}

static void too_slow(struct timer *t)
{
    struct conn *c = container_of(t, struct conn, timer);
    size_t unsent = uv_stream_get_write_queue_size(&c->uv.stream);
    if (c->state == CONN_LINGERING) {
        conn_close(c, c->why);
    } else if (c->unsent && unsent < c->unsent) {
        c->unsent = unsent ? unsent : 1; /* it moves: `sent` says when it is over */
        c->since_ms = c->all->loop->now_ms;
        reset_timer(c);
    } else {
        c->why = shakes_hands(c) ? CLOSE_TLS : c->unsent ? CLOSE_SLOW_OUTPUT : CLOSE_SLOW_INPUT;
        conn_close(c, c->why);
    }
}

static void shut(uv_shutdown_t *request, int status)
{
    (void)request, (void)status; /* a peer that is gone is noticed by reading */
}

static void finish(struct conn *c)
{
    if (c->tls && tls_end(c->tls)) flush(c);
    if (c->state == CONN_CLOSED || c->unsent) return; /* again, when that is sent */
    if (c->peer_ended) {
        conn_close(c, c->why);
        return;
    }
    set_state(c, CONN_LINGERING);
    c->since_ms = c->all->loop->now_ms;
    if (uv_shutdown(&c->request.shutdown, &c->uv.stream, shut) < 0) conn_close(c, CLOSE_BROKEN);
}

static void settle(struct conn *c)
{
    if (c->owed && conn_has_room(c)) c->door->on_room(c);
    if (c->stalled && !conn_full(c)) feed_kept(c);
    bool writes = c->out.len;
    if (c->state != CONN_CLOSED) flush(c);
    if (c->state == CONN_CLOSED) return;
    bool waits = c->owed || (c->stalled && !conn_full(c));
    if (writes && !c->unsent && waits) touch(c); /* what was sent made room: again, soon */
    bool owes = c->owed || c->unsent || (c->stalled && !c->refused);
    if (c->state == CONN_ENDING && !owes) finish(c);
    if (c->state == CONN_CLOSED) return;
    control_reading(c);
    if (c->state != CONN_CLOSED) reset_timer(c);
}

void conns_settle(struct conns *all)
{
    struct list dirty;
    list_init(&dirty);
    list_take(&dirty, &all->dirty);
    for (struct link *at; (at = list_pop(&dirty));)
        settle(container_of(at, struct conn, dirty));
}

void conn_owe(struct conn *c)
{
    c->owed++;
}

void conn_paid(struct conn *c)
{
    CHECK(c->owed > 0);
    c->owed--;
    touch(c);
}

void conn_parked(struct conn *c, size_t bytes)
{
    c->parked_bytes += bytes;
}

void conn_unparked(struct conn *c, size_t bytes)
{
    CHECK(c->parked_bytes >= bytes);
    c->parked_bytes -= bytes;
}

/* ---- life ---- */

static struct conn *conn_new(struct conns *all, const struct door *door, void *ctx)
{
    struct conn *c = calloc(1, sizeof *c + door->session_bytes);
    if (!c) return NULL;
    c->all = all;
    c->door = door;
    c->ctx = ctx;
    link_init(&c->link);
    link_init(&c->dirty);
    timer_init(&c->timer, too_slow);
    buf_init(&c->in, all->limits.in_bytes_max);
    buf_init(&c->out, all->limits.out_bytes_max);
    return c;
}

static int init_handle(struct conn *c, const uv_stream_t *listener)
{
    bool tcp = listener->type == UV_TCP;
    int r =
        tcp ? uv_tcp_init(c->all->uv, &c->uv.tcp) : uv_pipe_init(c->all->uv, &c->uv.pipe, 0);
    c->uv.handle.data = c;
    return r;
}

enum { KEEPALIVE_S = 60 }; /* a host that vanished is noticed, if slowly */

/* Nothing else than answering is worth an error here: a connection works without. */
static void tune(struct conn *c)
{
    if (c->uv.handle.type != UV_TCP) return;
    uv_tcp_nodelay(&c->uv.tcp, 1);
    uv_tcp_keepalive(&c->uv.tcp, 1, KEEPALIVE_S);
}

static void turn_away(struct conn *c)
{
    stats_of(c)->refused++;
    buf_add(conn_out(c), bytes_str(c->door->full_text));
    conn_end(c, CLOSE_LIMIT);
}

bool conn_accept(struct conns *all, uv_stream_t *listener, const struct door *door, void *ctx,
                 const struct tls_keys *keys)
{
    struct conn *c = conn_new(all, door, ctx);
    if (!c) return false;
    if (keys) c->tls = tls_new(keys, door->alpn, all->limits.out_bytes_max);
    if ((keys && !c->tls) || init_handle(c, listener) < 0) {
        tls_free(c->tls);
        free(c);
        return false;
    }
    list_append(&all->open, &c->link);
    all->count++;
    c->id = ++all->ids;
    stats_of(c)->accepted++;
    stats_of(c)->open++;
    door->on_opened(c);
    if (uv_accept(listener, &c->uv.stream) < 0) {
        conn_close(c, CLOSE_BROKEN);
        return true;
    }
    tune(c);
    c->since_ms = all->loop->now_ms;
    if (all->count > all->count_max) turn_away(c);
    touch(c);
    return true;
}
