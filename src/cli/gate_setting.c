/* gate_setting.c - see gate.h. */
#include "cli/gate.h"

#include <stdio.h>
#include <string.h>

static int check_ms(int64_t ms, const char *option, struct err *reterr)
{
    if (ms >= 1 && ms <= GATE_SETTING_MS_MAX) return 0;
    return err_set(reterr, ERR_INVALID, "--%s: from 1ms to 1h", option);
}

static bool is_mode(const char *text)
{
    static const char *const modes[] = { "on", "shadow", "off" };
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        if (strcmp(text, modes[i]) == 0) return true;
    return false;
}

int gate_setting_check(const struct gate_setting *s, struct err *reterr)
{
    if (!is_mode(s->mode)) return err_set(reterr, ERR_INVALID, "--mode: on, shadow or off");
    if (s->threshold < 1 || s->threshold > GATE_SETTING_THRESHOLD_MAX)
        return err_set(reterr, ERR_INVALID, "--threshold: from 1 to %d",
                       GATE_SETTING_THRESHOLD_MAX);
    if (s->weight < 1 || s->weight > GATE_SETTING_WEIGHT_MAX)
        return err_set(reterr, ERR_INVALID, "--weight: from 1 to %d", GATE_SETTING_WEIGHT_MAX);
    int r = check_ms(s->window_ms, "window", reterr);
    return r ? r : check_ms(s->hold_ms, "hold", reterr);
}

static bool env_byte(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("0123456789._:/-", c));
}

int gate_env_check(struct bytes env, struct err *reterr)
{
    bool fits = env.len >= 1 && env.len <= GATE_ENV_BYTES_MAX;
    for (size_t i = 0; fits && i < env.len; i++) fits = env_byte(env.data[i]);
    if (fits) return 0;
    return err_set(reterr, ERR_INVALID, "an env is 1 to %d bytes of A-Z a-z 0-9 . _ : / -",
                   GATE_ENV_BYTES_MAX);
}

const char *gate_setting_write(const struct gate_setting *s, char out[GATE_TEXT_BYTES])
{
    snprintf(out, GATE_TEXT_BYTES, "%s %lld %lld %lld %lld", s->mode, (long long)s->threshold,
             (long long)s->window_ms, (long long)s->hold_ms, (long long)s->weight);
    return out;
}

bool gate_setting_read(struct bytes text, struct gate_setting *ret)
{
    char line[GATE_TEXT_BYTES];
    long long threshold, window_ms, hold_ms, weight = 1;
    struct gate_setting s;
    struct err ignored;
    if (text.len >= sizeof line) return false;
    memcpy(line, text.data ? text.data : (const uint8_t *)"", text.len);
    line[text.len] = '\0';
    int read = sscanf(line, "%7s %lld %lld %lld %lld", s.mode, &threshold, &window_ms, &hold_ms,
                      &weight);
    if (read < 4) return false; /* without a weight: 1 */
    s.threshold = threshold;
    s.window_ms = window_ms;
    s.hold_ms = hold_ms;
    s.weight = weight;
    if (gate_setting_check(&s, &ignored)) return false;
    *ret = s;
    return true;
}
