/* gate.c - see gate.h. */
#include "core/gate.h"

#include "base/check.h"

/* Is one more at `now_ms` too many? A time that has not come yet was told by a clock that went back:
 * it does not count, or the gate would stay shut until that time comes again. */
static bool over(const struct gate *g, const struct gate_config *c, int64_t now_ms)
{
    if (g->count < (size_t)c->threshold) return false;
    int64_t oldest_ms = g->times[g->first];
    return oldest_ms > now_ms - c->window_ms && oldest_ms <= now_ms;
}

static bool tripped(const struct gate *g, const struct gate_config *c, int64_t now_ms)
{
    int64_t left_ms = g->tripped_until_ms - now_ms;
    return left_ms > 0 && left_ms <= c->hold_ms;
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
    CHECK(config->threshold >= 1 && config->threshold <= GATE_THRESHOLD_MAX);
    for (size_t i = 0; i < count; i++) {
        bool too_many = over(g, config, now_ms);
        if (too_many) g->tripped_until_ms = now_ms + config->hold_ms;
        remember(g, config, now_ms);
        passed += !too_many && !tripped(g, config, now_ms);
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
    if (g->weight < 0 || g->weight > GATE_WEIGHT_MAX)
        return err_set(reterr, ERR_INVALID, "an env's weight is from 1 to %d", GATE_WEIGHT_MAX);
    return 0;
}
