/* postgres_guess.c - see postgres_guess.h. */
#include "store/postgres_guess.h"

#include "store/postgres_db.h"

enum {
    ANCHOR_MS = 500, /* how long the server's clock may be reckoned from ours */
    NEW_ALL = 256,
    SURE_PAUSE_MAX = 255,
};

/* A running average. */
void guess_note(struct guess *g, bool new)
{
    g->news = (g->news * 15 + (new ? NEW_ALL : 0) + 8) / 16;
}

bool guess_new(const struct guess *g)
{
    return g->news > NEW_ALL / 2;
}

void guess_anchor(struct guess *g, int64_t server_ms)
{
    g->read_ms = server_ms;
    g->read_mono_ms = pgdb_now_ms();
}

bool guess_now_ms(const struct guess *g, bool however_old, int64_t *ret_now_ms)
{
    int64_t since_ms = pgdb_now_ms() - g->read_mono_ms;
    if (g->read_mono_ms == 0 || (since_ms > ANCHOR_MS && !however_old)) return false;
    *ret_now_ms = g->read_ms + (since_ms > 0 ? since_ms - 1 : 0);
    return true;
}

void guess_pace(struct guess *g, bool taken)
{
    if (g->sure_after) {
        g->sure_after--;
    } else if (taken) {
        g->sure_pause = g->sure_pause < SURE_PAUSE_MAX ? g->sure_pause * 2 + 1 : SURE_PAUSE_MAX;
        g->sure_after = g->sure_pause;
    } else {
        g->sure_pause /= 2;
    }
}
