/* gate.h - what an operator says about the gate of an env, and how that is kept: the answer of the
 * key ENV in the scope once/gate, "on 500 200 500 1". Daemons look there every two seconds. */
#ifndef CLI_GATE_H
#define CLI_GATE_H

#include "base/bytes.h"
#include "base/err.h"

#define GATE_SCOPE "once/gate"

enum {
    GATE_MODE_BYTES = 8,
    GATE_TEXT_BYTES = 80,
    GATE_ENV_BYTES_MAX = 64,
    GATE_SETTING_THRESHOLD_MAX = 100000,
    GATE_SETTING_MS_MAX = 3600000,
    GATE_SETTING_WEIGHT_MAX = 100
};

struct gate_setting {
    char mode[GATE_MODE_BYTES]; /* on, shadow, off */
    int64_t threshold, window_ms, hold_ms, weight;
};
#define GATE_SETTING_INIT                                                                      \
    {                                                                                          \
        .mode = "on", .threshold = 100, .window_ms = 200, .hold_ms = 500, .weight = 1          \
    }

/* Could a daemon use it? If not, the text names the option. */
int gate_setting_check(const struct gate_setting *s, struct err *reterr);
int gate_env_check(struct bytes env, struct err *reterr);

const char *gate_setting_write(const struct gate_setting *s, char out[GATE_TEXT_BYTES]);
bool gate_setting_read(struct bytes text, struct gate_setting *ret); /* false: it is none */

#endif
