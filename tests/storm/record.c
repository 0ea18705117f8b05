/* record.c - what was asked, when, and what was answered: a line each.
 *
 *   act begin end id what token outcome flags
 *
 * and, of the run in the answer: id canonical status counter tags fence token output key payload
 * queue ordering-key. Tabs between them, "-" is nothing. Times are microseconds of the machine's
 * monotonic clock. An outcome that starts with "!" is an error. Flags: b by the buffer, d degraded,
 * f when all was over. Every line is one write() to a file that is appended to. */
#include "tests/storm/storm.h"

#include "base/check.h"
#include "base/err.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES_MAX = 1200 };

int64_t now_us(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static long counter_of(const struct once_run *r)
{
    char text[64];
    size_t len = r->metadata.len < sizeof text - 1 ? r->metadata.len : sizeof text - 1;
    if (len) memcpy(text, r->metadata.data, len);
    text[len] = '\0';
    const char *at = strstr(text, "\"n\":");
    return at ? strtol(at + 4, NULL, 10) : 0;
}

static int put_tags(char *out, const struct once_run *r)
{
    int len = 0;
    for (size_t i = 0; i < r->tag_count; i++)
        len += sprintf(out + len, "%s%.*s", i ? "," : "", (int)r->tags[i].len,
                       (const char *)r->tags[i].data);
    if (!r->tag_count) len = sprintf(out, "-");
    return len;
}

static const char *or_dash(const char *text)
{
    return text && *text ? text : "-";
}

#define WORD(b) (b).len ? (int)(b).len : 1, (b).len ? (const char *)(b).data : "-"

void record(const struct storm *s, const struct asked *a, int r,
            const struct once_run_answer *answer, const struct once_run *run)
{
    char line[LINE_BYTES_MAX], tags[300] = "-";
    int len = snprintf(
        line, sizeof line, "%s\t%" PRId64 "\t%" PRId64 "\t%s\t%s\t%s\t%s%s\t.%s%s%s", a->act,
        a->begin_us, now_us(), or_dash(a->id), or_dash(a->what), or_dash(a->token),
        r ? "!" : "", r ? err_name(r) : once_outcome_name(answer->outcome),
        !r && answer->buffered ? "b" : "", !r && answer->degraded ? "d" : "",
        a->final ? "f" : "");
    if (run) {
        put_tags(tags, run);
        len +=
            snprintf(line + len, sizeof line - (size_t)len,
                     "\t%s\t%s\t%s\t%ld\t%s\t%" PRIu64 "\t%s\t%.*s\t%.*s\t%.*s\t%.*s\t%.*s",
                     run->id, or_dash(run->canonical_id), run->status_name, counter_of(run),
                     tags, run->fence, or_dash(run->token), WORD(run->output), WORD(run->key),
                     WORD(run->payload), WORD(run->queue), WORD(run->ordering_key));
    }
    CHECK(len > 0 && (size_t)len < sizeof line - 1);
    line[len++] = '\n';
    CHECK(write(s->fd, line, (size_t)len) == len);
}
