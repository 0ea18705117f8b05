/* gate.c - see gate.h. */
#include "core/gate.h"

/* Is one more at `now_ms` too many? */
static bool over(const struct gate *g, const struct gate_config *c, int64_t now_ms)
{
    if (g->count < (size_t)c->threshold) return false;
    return g->times[g->first] > now_ms - c->window_ms;
}

static void remember(struct gate *g, const struct gate_config *c, int64_t now_ms)
{
    size_t room = (size_t)c->threshold;
    if (g->count < room) {
        g->times[(g->first + g->count++) % room] = now_ms;
        return;
    }
    g->times[g->first] = now_ms;
    g->first = (g->first + 1) % room;
}

size_t gate_pass(struct gate *g, const struct gate_config *config, size_t count, int64_t now_ms)
{
    size_t passed = 0;
    for (size_t i = 0; i < count; i++) {
        bool too_many = over(g, config, now_ms);
        if (too_many) g->tripped_until_ms = now_ms + config->hold_ms;
        remember(g, config, now_ms);
        passed += !too_many && now_ms >= g->tripped_until_ms;
    }
    return passed;
}

int gate_check(const struct gate_config *g, struct err *reterr)
{
    if (g->threshold < 1 || g->threshold > GATE_THRESHOLD_MAX)
        return err_set(reterr, ERR_INVALID, "a gate's threshold is from 1 to %d",
                       GATE_THRESHOLD_MAX);
    if (g->window_ms < 1 || g->window_ms > GATE_MS_MAX || g->hold_ms < 1 ||
        g->hold_ms > GATE_MS_MAX)
        return err_set(reterr, ERR_INVALID,
                       "a gate's window and hold are from 1 ms to an hour");
    return 0;
}
