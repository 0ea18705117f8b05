/* clients.c - claims as fast as a handle takes them, through the public interface. */
#include "bench/bench.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

const char load_value[VALUE_BYTES] = "thirty-two bytes of canonical an";

struct once *open_memory(void)
{
    struct once *o;
    struct once_config config = ONCE_CONFIG_INIT;
    config.flags = ONCE_HOSTED | ONCE_EPHEMERAL;
    must(once_open(&config, &o, NULL) == 0, "open a handle in memory");
    return o;
}

struct once *open_ledger(const char *url)
{
    struct once *o;
    struct once_config config = ONCE_CONFIG_INIT;
    config.flags = ONCE_HOSTED;
    config.ledger = url;
    must(once_open(&config, &o, NULL) == 0, "open a handle on SQLite");
    return o;
}

void process_for(struct once *o, int at_most_ms)
{
    struct pollfd fd = { .fd = once_fd(o), .events = POLLIN };
    int64_t timeout_ms = once_timeout_ms(o);
    poll(&fd, 1, timeout_ms < 0 || timeout_ms > at_most_ms ? at_most_ms : (int)timeout_ms);
    once_process(o);
}

void process(struct once *o)
{
    process_for(o, 1000);
}

/* Spread over the index, as the identifiers of real requests are: a multiplicative walk over
 * all 64-bit numbers visits none twice. */
size_t load_key(char *out, uint64_t n)
{
    static const char digits[] = "0123456789abcdef";
    memcpy(out, "order-", 6);
    n *= 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < 16; i++, n >>= 4) out[6 + i] = digits[n & 15];
    return 22;
}

static struct once_claim claim_of(const char *key, size_t len)
{
    struct once_claim in = ONCE_CLAIM_INIT;
    in.scope = once_bytes("bench", 5);
    in.key = once_bytes(key, len);
    return in;
}

static struct once_owned owned_of(const char *key, size_t len, const char *token)
{
    struct once_owned in = ONCE_OWNED_INIT;
    in.scope = once_bytes("bench", 5);
    in.key = once_bytes(key, len);
    in.token = token;
    in.value = once_bytes(load_value, sizeof load_value);
    return in;
}

void claim_key(struct once *o, const char *key, char *ret_token)
{
    struct once_answer answer;
    struct once_claim in = claim_of(key, strlen(key));
    must(once_claim(o, &in, &answer) == 0 && answer.outcome == ONCE_CLAIMED, "claim a new key");
    memcpy(ret_token, answer.lease.token, sizeof answer.lease.token);
    once_answer_clear(&answer);
}

/* ---- blocking ---- */

static void one_blocking(struct once *o, enum work work, uint64_t n)
{
    char key[KEY_ROOM];
    size_t len = load_key(key, n);
    struct once_answer answer;
    struct once_claim in = claim_of(key, len);
    int expected = work == WORK_REPLAY ? ONCE_CACHED : ONCE_CLAIMED;
    must(once_claim(o, &in, &answer) == 0 && answer.outcome == expected, "claim");
    if (work == WORK_CLAIM_PUBLISH) {
        struct once_owned out = owned_of(key, len, answer.lease.token);
        must(once_publish(o, &out, &answer) == 0 && answer.outcome == ONCE_OK, "publish");
    }
    once_answer_clear(&answer);
}

double load_blocking(struct once *o, enum work work, uint64_t first, uint64_t count)
{
    int64_t start_ns = now_ns();
    for (uint64_t i = 0; i < count; i++) one_blocking(o, work, first + i);
    return per_second(count, start_ns);
}

/* ---- asynchronous ---- */

enum { IN_FLIGHT_MAX = 1024 };

struct load {
    struct once *once;
    enum work work;
    uint64_t next, end, finished;
    int64_t until_ns;
    size_t in_flight;
    size_t idle_count;
    struct latencies *latencies; /* NULL: nobody looks at the clock */
    struct client {
        struct load *load;
        int64_t start_ns;
        char key[KEY_ROOM];
        size_t key_len;
    } clients[IN_FLIGHT_MAX], *idle[IN_FLIGHT_MAX];
};

static void client_done(struct client *c)
{
    struct load *l = c->load;
    if (l->latencies) latencies_add(l->latencies, now_ns() - c->start_ns);
    l->finished++;
    l->in_flight--;
    l->idle[l->idle_count++] = c;
}

static void on_published(void *ctx, int result, struct once_answer *answer)
{
    must(result == 0 && answer->outcome == ONCE_OK, "publish");
    once_answer_clear(answer);
    client_done(ctx);
}

static void on_claimed(void *ctx, int result, struct once_answer *answer)
{
    struct client *c = ctx;
    int expected = c->load->work == WORK_REPLAY ? ONCE_CACHED : ONCE_CLAIMED;
    must(result == 0 && answer->outcome == expected, "claim");
    if (c->load->work != WORK_CLAIM_PUBLISH) {
        client_done(c);
    } else {
        struct once_owned in = owned_of(c->key, c->key_len, answer->lease.token);
        must(once_publish_start(c->load->once, &in, on_published, c, NULL, NULL) == 0,
             "start a publish");
    }
    once_answer_clear(answer);
}

static void start_all(struct load *l)
{
    while (l->idle_count && l->next < l->end) {
        struct client *c = l->idle[--l->idle_count];
        c->key_len = load_key(c->key, l->next++);
        struct once_claim in = claim_of(c->key, c->key_len);
        l->in_flight++;
        if (l->latencies) c->start_ns = now_ns();
        must(once_claim_start(l->once, &in, on_claimed, c, NULL, NULL) == 0, "start a claim");
    }
}

double load_timed(struct once *o, enum work work, size_t in_flight, uint64_t first,
                  uint64_t count, int64_t at_most_ns, struct latencies *latencies)
{
    static struct load l;
    must(in_flight <= IN_FLIGHT_MAX, "have that many in flight");
    l = (struct load){ .once = o, .work = work, .next = first, .end = first + count };
    l.latencies = latencies;
    for (; l.idle_count < in_flight; l.idle_count++) {
        l.clients[l.idle_count].load = &l;
        l.idle[l.idle_count] = &l.clients[l.idle_count];
    }
    int64_t start_ns = now_ns();
    for (start_all(&l); l.in_flight; start_all(&l)) {
        process(o);
        if (now_ns() - start_ns >= at_most_ns)
            l.end = l.next; /* let them finish, start no more */
    }
    return per_second(l.finished, start_ns);
}

double load_async(struct once *o, enum work work, size_t in_flight, uint64_t first,
                  uint64_t count, int64_t at_most_ns)
{
    return load_timed(o, work, in_flight, first, count, at_most_ns, NULL);
}
