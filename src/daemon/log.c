/* log.c - see log.h. */
#include "daemon/log.h"

#include "base/check.h"
#include "base/err.h"
#include "base/text.h"
#include "proto/json.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES_MAX = 4096, STAMP_BYTES = 32 };

const char *const log_level_names[LOG_LEVELS + 1] = { "error", "warn", "info", "debug" };
const char *const log_format_names[LOG_FORMATS + 1] = { "logfmt", "json" };

int log_name_find(const char *const *names, const char *name)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

/* ---- a line ---- */

static void write_stamp(int64_t wall_ms, char out[STAMP_BYTES])
{
    time_t s = (time_t)(wall_ms / 1000);
    struct tm tm;
    char seconds[24];
    gmtime_r(&s, &tm);
    strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out, STAMP_BYTES, "%s.%03dZ", seconds, (int)(wall_ms % 1000));
}

static bool is_bare(const char *text)
{
    if (!*text) return false;
    for (; *text; text++)
        if (*text <= ' ' || *text == '"' || *text == '=' || *text == '\\' || *text == 0x7f)
            return false;
    return true;
}

static void put_quoted(struct buf *line, const char *text)
{
    buf_byte(line, '"');
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            buf_printf(line, "\\%c", c);
        else if (c < ' ' || c == 0x7f)
            buf_printf(line, "\\x%02x", c);
        else
            buf_byte(line, c);
    }
    buf_byte(line, '"');
}

static void put_logfmt(struct buf *line, const struct log_field *f)
{
    buf_printf(line, "%s%s=", line->len ? " " : "", f->name);
    if (f->is_number)
        buf_printf(line, "%lld", (long long)f->number);
    else if (is_bare(f->text))
        buf_add(line, bytes_str(f->text));
    else
        put_quoted(line, f->text);
}

static void put_json(struct json_writer *w, const struct log_field *f)
{
    json_put_key(w, f->name);
    if (f->is_number)
        json_put_integer(w, f->number);
    else
        json_put_cstring(w, f->text);
}

/* What every line begins with, then its own. */
static void format_line(const struct log *l, struct buf *line, const struct log_field *head,
                        const struct log_field *fields)
{
    const struct log_field *rows[] = { head, fields };
    struct json_writer w;
    bool json = l->format == LOG_JSON;
    json_start(&w, line);
    if (json) json_put_object(&w);
    for (int i = 0; i < 2; i++)
        for (const struct log_field *f = rows[i]; f && f->name; f++) {
            if (!f->is_number && !f->text) continue;
            if (json)
                put_json(&w, f);
            else
                put_logfmt(line, f);
        }
    if (json) json_end_object(&w);
    buf_byte(line, '\n');
}

static void put_line(struct log *l, enum log_level level, const char *event,
                     const struct log_field *fields)
{
    struct buf line;
    char stamp[STAMP_BYTES];
    write_stamp(clock_now_ms(&l->wall), stamp);
    const struct log_field head[] = { LOG_TEXT("ts", stamp),
                                      LOG_TEXT("level", log_level_names[level]),
                                      LOG_TEXT("event", event),
                                      { 0 } };
    buf_init(&line, LINE_BYTES_MAX);
    format_line(l, &line, head, fields);
    ssize_t n = -1;
    if (!buf_failed(&line)) do
            n = write(l->fd, line.data, line.len);
        while (n < 0 && errno == EINTR);
    if (n < 0)
        l->failed++;
    else
        l->lines++;
    buf_fini(&line);
}

/* ---- not too many of them ---- */

static void tell_left_out(struct log *l, struct log_limit *limit)
{
    if (limit->left_out)
        put_line(l, LOG_INFO, "left_out",
                 (struct log_field[]){ LOG_TEXT("of", limit->event),
                                       LOG_NUMBER("lines", limit->left_out),
                                       { 0 } });
    limit->left_out = 0;
}

/* What is over is said before anything newer is. */
static void end_windows(struct log *l, int64_t now_ms)
{
    for (size_t i = 0; i < LOG_LIMITS_MAX; i++) {
        struct log_limit *limit = &l->limits[i];
        if (!limit->event || now_ms - limit->since_ms < LOG_LIMIT_MS) continue;
        tell_left_out(l, limit);
        limit->event = NULL;
    }
}

/* NULL: so many different events at once that nobody counts this one. */
static struct log_limit *limit_of(struct log *l, const char *event, int64_t now_ms)
{
    struct log_limit *unused = NULL;
    for (size_t i = 0; i < LOG_LIMITS_MAX; i++) {
        struct log_limit *limit = &l->limits[i];
        if (limit->event == event) return limit;
        if (!limit->event) unused = limit;
    }
    if (unused) *unused = (struct log_limit){ .event = event, .since_ms = now_ms };
    return unused;
}

static bool is_too_much(struct log *l, const char *event)
{
    int64_t now_ms = clock_now_ms(&l->clock);
    end_windows(l, now_ms);
    if (l->level == LOG_DEBUG) return false;
    struct log_limit *limit = limit_of(l, event, now_ms);
    if (!limit || limit->said++ < LOG_LIMIT_LINES) return false;
    limit->left_out++;
    l->left_out++;
    return true;
}

void log_say(struct log *l, enum log_level level, const char *event,
             const struct log_field *fields)
{
    if (level <= l->level) put_line(l, level, event, fields);
}

void log_often(struct log *l, enum log_level level, const char *event,
               const struct log_field *fields)
{
    if (level <= l->level && !is_too_much(l, event)) put_line(l, level, event, fields);
}

void log_end(struct log *l)
{
    for (size_t i = 0; i < LOG_LIMITS_MAX; i++)
        if (l->limits[i].event) tell_left_out(l, &l->limits[i]);
}

/* ---- what the engine, the stores and the connections tell ---- */

void log_key(struct bytes scope, struct bytes key, char out[LOG_KEY_BYTES])
{
    uint8_t digest[EVP_MAX_MD_SIZE] = { 0 };
    struct buf framed;
    buf_init(&framed, scope.len + key.len + 16);
    buf_u64(&framed, scope.len);
    buf_add(&framed, scope);
    buf_u64(&framed, key.len);
    buf_add(&framed, key);
    if (!buf_failed(&framed))
        EVP_Digest(framed.data, framed.len, digest, NULL, EVP_sha256(), NULL);
    buf_fini(&framed);
    hex_encode(bytes_of(digest, (LOG_KEY_BYTES - 1) / 2), out);
}

/* What number and text of an event are called; NULL: they say nothing here. */
static const struct {
    enum log_level level;
    const char *number, *text;
} trace_rows[TRACE_KINDS] = {
    [TRACE_OP] = { LOG_DEBUG, "ms", "op" },
    [TRACE_CALL] = { LOG_DEBUG, NULL, "state" },
    [TRACE_TAKEOVER] = { LOG_WARN, "fence", NULL },
    [TRACE_LOST] = { LOG_WARN, "fence", "verb" },
    [TRACE_PROMOTED] = { LOG_DEBUG, "waited_ms", NULL },
    [TRACE_WAITERS_FULL] = { LOG_WARN, "waiters", NULL },
    [TRACE_RENEW_FAILED] = { LOG_WARN, NULL, "error" },
    [TRACE_AMBIGUOUS] = { LOG_WARN, NULL, "verb" },
    [TRACE_DEGRADED] = { LOG_DEBUG, NULL, "error" }, /* the breaker says when it lasts */
    [TRACE_BREAKER] = { LOG_WARN, NULL, "state" },
    [TRACE_AMNESIA] = { LOG_WARN, NULL, NULL },
    [TRACE_FORGOT] = { LOG_INFO, NULL, "outcome" },
    [TRACE_SWEPT] = { LOG_DEBUG, "records", NULL },
    [TRACE_MARKERS_SWEPT] = { LOG_DEBUG, "markers", NULL },
    [TRACE_MARKERS_FAILED] = { LOG_WARN, "batch", "error" },
    [TRACE_CLOSED] = { LOG_DEBUG, "connection", "reason" },
    [TRACE_DROPPED] = { LOG_WARN, "connection", "reason" },
    [TRACE_LOGIN_FAILED] = { LOG_WARN, "failures", NULL },
    [TRACE_SERVER] = { LOG_INFO, NULL, "state" },
    [TRACE_ALIAS] = { LOG_WARN, NULL, NULL },
    [TRACE_POISON] = { LOG_WARN, NULL, "error" },
    [TRACE_DRAIN_AWAY] = { LOG_WARN, NULL, "error" },
    [TRACE_SPOOL] = { LOG_WARN, NULL, "what" },
};

static void on_trace(void *ctx, const struct trace_event *event)
{
    char key[LOG_KEY_BYTES] = "";
    if (event->key.len) log_key(event->scope, event->key, key);
    struct log_field fields[5];
    size_t count = 0;
    if (*key) fields[count++] = (struct log_field)LOG_TEXT("key", key);
    if (trace_rows[event->kind].text)
        fields[count++] = (struct log_field)LOG_TEXT(trace_rows[event->kind].text, event->text);
    if (trace_rows[event->kind].number)
        fields[count++] =
            (struct log_field)LOG_NUMBER(trace_rows[event->kind].number, event->number);
    if (event->detail) fields[count++] = (struct log_field)LOG_TEXT("reason", event->detail);
    fields[count] = (struct log_field){ 0 };
    log_often(ctx, trace_rows[event->kind].level, trace_name(event->kind), fields);
}

void log_set_level(struct log *l, enum log_level level)
{
    l->level = level;
    l->trace.mute = 0;
    for (int k = 0; k < TRACE_KINDS; k++)
        if (trace_rows[k].level > level) l->trace.mute |= BIT(k);
}

void log_init(struct log *l, int fd, enum log_format format, enum log_level level)
{
    *l = (struct log){ .fd = fd,
                       .format = format,
                       .wall = clock_wall(),
                       .clock = clock_monotonic(),
                       .trace = { .emit = on_trace, .ctx = l } };
    log_set_level(l, level);
}
