/* leases.c - what the keeper thread does while the callers' threads work. */
#include "tests/threads/threads.h"

#include <stdio.h>
#include <string.h>

struct loser {
    struct once *once;
    struct gauge told;   /* certain callbacks that have begun */
    struct gauge helped; /* rounds in which the helper has done its part */
    struct gauge left;   /* callbacks that have ended */
    unsigned rounds, round;
    char token[33];
};

/* Runs on the keeper's thread, with the handle unlocked: it makes calls of its own and waits
 * for another thread that does. */
static void on_lost(void *ctx, const struct once_lease *lease, int certain)
{
    struct loser *l = ctx;
    struct once_answer answer;
    struct once_owned in = owned_of("lost", lease->token);
    EXPECT(strcmp(lease->token, l->token) == 0);
    EXPECT(once_peek(l->once, &in, &answer) == 0);
    once_answer_clear(&answer);
    if (!certain) return;
    in.value = once_str("too late");
    EXPECT(once_publish(l->once, &in, &answer) == 0);
    EXPECT(answer.outcome == ONCE_LOST);
    once_answer_clear(&answer);
    gauge_add(&l->told, 1);
    gauge_await(&l->helped, l->round + 1);
    gauge_add(&l->left, 1);
}

static void help(struct loser *l)
{
    for (unsigned round = 0; round < l->rounds; round++) {
        char key[32];
        snprintf(key, sizeof key, "help-%u", round);
        struct once_claim in = claim_of(key);
        struct once_answer answer;
        gauge_await(&l->told, round + 1);
        EXPECT(once_claim(l->once, &in, &answer) == 0 && answer.outcome == ONCE_CLAIMED);
        put_value(l->once, key, answer.lease.token, key);
        once_answer_clear(&answer);
        gauge_add(&l->helped, 1);
    }
}

/* A lease of a millisecond is taken over before it is renewed: its owner hears of it then. */
static void lose_one(struct loser *l)
{
    struct once_claim in = claim_of("lost");
    struct once_answer first, second, renewed;
    in.on_lost = on_lost;
    in.on_lost_ctx = l;
    in.retain_ms = 0;
    EXPECT(once_claim(l->once, &in, &first) == 0);
    EXPECT(first.outcome == ONCE_CLAIMED);
    memcpy(l->token, first.lease.token, sizeof l->token);

    struct once_owned mine = owned_of("lost", first.lease.token);
    mine.lease_ms = 1;
    EXPECT(once_renew(l->once, &mine, &renewed) == 0 && renewed.outcome == ONCE_OK);
    struct once_claim other = claim_of("lost");
    other.retain_ms = 0;
    EXPECT(once_claim(l->once, &other, &second) == 0);
    EXPECT(second.outcome == ONCE_CLAIMED && second.taken_over);
    EXPECT(second.lease.fence > first.lease.fence);
    gauge_await(&l->left, l->round + 1);
    put_value(l->once, "lost", second.lease.token, "done by the second");
    once_answer_clear(&first);
    once_answer_clear(&second);
    once_answer_clear(&renewed);
}

static void lose_and_help(struct crew *crew, unsigned me)
{
    struct loser *l = crew->ctx;
    if (me == 1) help(l);
    if (me == 0)
        for (l->round = 0; l->round < l->rounds; l->round++) lose_one(l);
}

void test_lost(const struct place *p)
{
    struct loser l = { .once = place_open(p, 0),
                       .told = GAUGE_INIT,
                       .helped = GAUGE_INIT,
                       .left = GAUGE_INIT,
                       .rounds = 5 * p->scale };
    crew_run(&(struct crew){ .count = 2, .work = lose_and_help, .ctx = &l });
    EXPECT(gauge_read(&l.left) == l.rounds);
    once_close(l.once);
}

/* ---- opening and closing ---- */

static void open_close(struct crew *crew, unsigned me)
{
    const struct place *p = crew->ctx;
    for (unsigned i = 0; i < 5 * p->scale; i++) {
        struct once *o = place_open(p, 0);
        char key[32];
        snprintf(key, sizeof key, "open-%u-%u", me, i);
        struct once_claim in = claim_of(key);
        struct once_answer answer;
        if (i % 2) {
            EXPECT(once_claim(o, &in, &answer) == 0);
            EXPECT(answer.outcome == ONCE_CLAIMED);
            if (i % 4 == 1) put_value(o, key, answer.lease.token, "x");
            once_answer_clear(&answer);
        }
        once_close(o);
    }
}

void test_open_close(const struct place *p)
{
    crew_run(&(struct crew){ .count = 4, .work = open_close, .ctx = (void *)(uintptr_t)p });
}

/* A claim that is owned when its handle is closed stays: its owner may be another program. */
void test_close_with_leases(const struct place *p)
{
    struct once *o = place_open(p, 0);
    char token[33] = "";
    for (unsigned i = 0; i < 20; i++) {
        char key[32];
        snprintf(key, sizeof key, "held-%u", i);
        struct once_claim in = claim_of(key);
        struct once_answer answer;
        EXPECT(once_claim(o, &in, &answer) == 0 && answer.outcome == ONCE_CLAIMED);
        memcpy(token, answer.lease.token, sizeof token);
        once_answer_clear(&answer);
    }
    once_close(o);
    if (!p->durable) return;
    o = place_open(p, 0);
    put_value(o, "held-19", token, "from another handle");
    once_close(o);
}

/* ---- two handles ---- */

struct pair {
    struct once *once[2];
    struct gauge claimed, parked[2];
    unsigned rounds;
};

static void count_parked(void *ctx, const struct once_event *event)
{
    if (strcmp(event->name, "call") == 0 && strcmp(event->text, "parked") == 0)
        gauge_add(ctx, 1);
}

static void serve(struct pair *p, unsigned me, const char *key)
{
    struct once_claim in = claim_of(key);
    struct once_answer answer;
    uint64_t parked = gauge_read(&p->parked[!me]);
    EXPECT(once_claim(p->once[me], &in, &answer) == 0);
    EXPECT(answer.outcome == ONCE_CLAIMED);
    gauge_add(&p->claimed, 1);
    gauge_await(&p->parked[!me], parked + 1);
    put_value(p->once[me], key, answer.lease.token, key);
    once_answer_clear(&answer);
}

static void receive(struct pair *p, unsigned me, unsigned round, const char *key)
{
    struct once_claim in = claim_of(key);
    struct once_answer answer;
    gauge_await(&p->claimed, round + 1);
    EXPECT(once_claim(p->once[me], &in, &answer) == 0);
    EXPECT(answer.outcome == ONCE_CACHED && answer.value.len == strlen(key));
    once_answer_clear(&answer);
}

static void ping_pong(struct crew *crew, unsigned me)
{
    struct pair *p = crew->ctx;
    for (unsigned round = 0; round < p->rounds; round++) {
        char key[32];
        snprintf(key, sizeof key, "round-%u", round);
        if (round % 2 == me)
            serve(p, me, key);
        else
            receive(p, me, round, key);
    }
}

void test_ping_pong(const struct place *p)
{
    struct pair pair = { .claimed = GAUGE_INIT,
                         .parked = { GAUGE_INIT, GAUGE_INIT },
                         .rounds = 20 * p->scale };
    for (unsigned i = 0; i < 2; i++) {
        struct once_config config = ONCE_CONFIG_INIT;
        config.on_event = count_parked;
        config.on_event_ctx = &pair.parked[i];
        pair.once[i] = place_open_with(p, &config);
    }
    crew_run(&(struct crew){ .count = 2, .work = ping_pong, .ctx = &pair });
    for (unsigned i = 0; i < 2; i++) once_close(pair.once[i]);
}
