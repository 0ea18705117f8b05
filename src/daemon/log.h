/* log.h - what the daemon says while it runs: one line per event, logfmt or JSON.
 *
 *   ts=2026-11-16T06:17:18.123Z level=warn event=takeover key=9f86d081884c fence=1763274
 *
 * Guarantees:
 *   L1 One write per line, so that lines never mix. A line that cannot be written is counted, and
 *      nobody waits for it more than a write to the descriptor does.
 *   L2 Never a value, never a token, never a key: keys are named by the start of a hash, the one
 *      that `once --verbose` shows for the same key.
 *   L3 Lines of what others can make happen are limited by event; how many were left out is said
 *      before the next line, once it is over. At the level debug nothing is left out.
 *   L4 What nobody wants to hear costs a test of a bit: the trace is muted by kind.
 *
 * Its `trace` is for the engine, the stores and the connections. Which event has which level is a
 * table in log.c. */
#ifndef DAEMON_LOG_H
#define DAEMON_LOG_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/trace.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_LEVELS };
enum log_format { LOG_LOGFMT, LOG_JSON, LOG_FORMATS };

extern const char *const log_level_names[LOG_LEVELS + 1]; /* ends with NULL */
extern const char *const log_format_names[LOG_FORMATS + 1];

/* The place of a name in such a row; -1: it is not in it. */
int log_name_find(const char *const *names, const char *name);

/* How many lines of one event a window may have. */
enum { LOG_LIMIT_LINES = 10, LOG_LIMIT_MS = 1000, LOG_LIMITS_MAX = 32 };

struct log_limit {
    const char *event; /* NULL: unused */
    int64_t since_ms;
    unsigned said, left_out;
};

struct log {
    int fd;
    enum log_format format;
    enum log_level level;
    struct clock wall, clock; /* clock: monotonic, for the limits */
    struct trace trace;
    uint64_t lines, left_out, failed; /* so far */
    struct log_limit limits[LOG_LIMITS_MAX];
};

/* One thing that a line says. Rows end with one without a name; a text of NULL is left out. */
struct log_field {
    const char *name, *text;
    int64_t number;
    bool is_number;
};

#define LOG_TEXT(field_name, content)                                                          \
    {                                                                                          \
        .name = (field_name), .text = (content)                                                \
    }
#define LOG_NUMBER(field_name, value)                                                          \
    {                                                                                          \
        .name = (field_name), .number = (int64_t)(value), .is_number = true                    \
    }

void log_init(struct log *l, int fd, enum log_format format, enum log_level level);
void log_set_level(struct log *l, enum log_level level);
void log_end(struct log *l); /* says what was left out */

/* What happens a few times in a life. */
void log_say(struct log *l, enum log_level level, const char *event,
             const struct log_field *fields);
/* What others can make happen: limited (L3). `event` is static. */
void log_often(struct log *l, enum log_level level, const char *event,
               const struct log_field *fields);

/* The name of a key where the key itself must not be seen. */
enum { LOG_KEY_BYTES = 13 };
void log_key(struct bytes scope, struct bytes key, char out[LOG_KEY_BYTES]);

#endif
