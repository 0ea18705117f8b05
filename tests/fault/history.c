/* history.c - what was asked, when, and what was answered, in lines.
 *
 *   B call time act key token fingerprint lease_ms flags value      a call begins
 *   E call time outcome token fence flags value                     it is answered
 *
 * Times are microseconds of the machine's monotonic clock. "-" is nothing. An outcome that
 * starts with "!" is an error. Flags: f final, w waits, b bad: it must meet the error that stands
 * in the place of the fingerprint, m the store was asked again after an answer was lost. Every line is one write() to a file that is appended to, so that a process
 * that is killed leaves everything up to its last call. */
#include "base/check.h"
#include "base/err.h"
#include "tests/fault/fault.h"

#include <once/once.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES_MAX = 600 };

const char *const act_name[ACTS] = { "claim", "publish", "release", "renew",
                                     "peek",  "forget",  "amnesia", "rollback" };

int64_t now_us(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* ---- writing ---- */

bool scribe_open(struct scribe *s, const char *path)
{
    s->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    s->calls = 0;
    return s->fd >= 0;
}

static const char *or_dash(const char *text)
{
    return text && *text ? text : "-";
}

static void line_write(const struct scribe *s, const char *line, int len)
{
    CHECK(len > 0 && len < LINE_BYTES_MAX);
    CHECK(write(s->fd, line, (size_t)len) == len);
}

uint64_t scribe_begin(struct scribe *s, const struct begun *b)
{
    char line[LINE_BYTES_MAX];
    uint64_t call = ++s->calls;
    const char *print = b->refused ? err_name(b->refused) : or_dash(b->fingerprint);
    int len = snprintf(
        line, sizeof line, "B %" PRIu64 " %" PRId64 " %s %s %s %s %" PRId64 " .%s%s%s %s\n",
        call, now_us(), act_name[b->act], b->key, or_dash(b->token), print, b->lease_ms,
        b->final ? "f" : "", b->waits ? "w" : "", b->refused ? "b" : "", or_dash(b->value));
    line_write(s, line, len);
    return call;
}

void scribe_end(struct scribe *s, uint64_t call, const struct ended *e)
{
    char line[LINE_BYTES_MAX];
    int len =
        snprintf(line, sizeof line, "E %" PRIu64 " %" PRId64 " %s%s %s %" PRIu64 " .%s %s\n",
                 call, now_us(), e->error ? "!" : "",
                 e->error ? err_name(e->error) : once_outcome_name(e->outcome),
                 or_dash(e->token), e->fence, e->maybe ? "m" : "", or_dash(e->value));
    line_write(s, line, len);
}

int note_main(int argc, char **argv)
{
    struct scribe s;
    struct begun b = { .act = ACTS, .key = "*" };
    for (enum act a = 0; argc == 4 && a < ACTS; a++)
        if (strcmp(argv[2], act_name[a]) == 0) b.act = a;
    bool begins = argc == 4 && strcmp(argv[3], "begin") == 0;
    if (b.act == ACTS || !scribe_open(&s, argv[1])) {
        fprintf(stderr, "usage: fault note FILE ACT begin|end\n");
        return 2;
    }
    if (begins)
        scribe_begin(&s, &b);
    else
        scribe_end(&s, 1, &(struct ended){ .outcome = ONCE_OK });
    return 0;
}

/* ---- words ---- */

void history_init(struct history *h)
{
    *h = (struct history){ 0 };
    history_word(h, "-");
}

void history_fini(struct history *h)
{
    free(h->deeds);
    free(h->words);
}

/* Looked up from the end: most words were seen shortly before. */
int history_word(struct history *h, const char *word)
{
    for (size_t i = h->word_count; i-- > 0;)
        if (strcmp(h->words[i], word) == 0) return (int)i;
    if (h->word_count == h->word_cap) {
        h->word_cap = h->word_cap ? h->word_cap * 2 : 1024;
        h->words = realloc(h->words, h->word_cap * sizeof *h->words);
        CHECK(h->words);
    }
    snprintf(h->words[h->word_count], WORD_BYTES_MAX, "%s", word);
    return (int)h->word_count++;
}

const char *history_name(const struct history *h, int word)
{
    return word == KEY_ALL ? "*" : h->words[word];
}

struct deed *history_add(struct history *h)
{
    if (h->count == h->cap) {
        h->cap = h->cap ? h->cap * 2 : 1024;
        h->deeds = realloc(h->deeds, h->cap * sizeof *h->deeds);
        CHECK(h->deeds);
    }
    struct deed *d = &h->deeds[h->count++];
    *d = (struct deed){ .end_us = NEVER };
    return d;
}

/* ---- reading ---- */

struct reading {
    struct history *history;
    size_t first;    /* deed of this file */
    size_t *deed_of; /* by the number of the call */
    size_t calls, cap;
};

static void call_began(struct reading *r, uint64_t call)
{
    CHECK(call < 100000000);
    if (call >= r->cap) {
        size_t cap = r->cap ? r->cap * 2 : 1024;
        while (cap <= call) cap *= 2;
        r->deed_of = realloc(r->deed_of, cap * sizeof *r->deed_of);
        CHECK(r->deed_of);
        for (size_t i = r->cap; i < cap; i++) r->deed_of[i] = SIZE_MAX;
        r->cap = cap;
    }
    r->deed_of[call] = r->history->count - 1;
}

static bool act_parse(const char *name, enum act *ret_act)
{
    for (enum act a = 0; a < ACTS; a++) {
        if (strcmp(name, act_name[a]) != 0) continue;
        *ret_act = a;
        return true;
    }
    return false;
}

static int outcome_parse(const char *name)
{
    for (int o = ONCE_CLAIMED; o <= ONCE_ABSENT; o++)
        if (strcmp(once_outcome_name(o), name) == 0) return o;
    return 0;
}

static int error_parse(const char *name)
{
    for (int e = ONCE_EINVAL; e >= ONCE_EUNSUPPORTED; e--)
        if (strcmp(err_name(e), name) == 0) return e;
    return 0;
}

static bool read_begin(struct reading *r, const char *line)
{
    struct history *h = r->history;
    uint64_t call;
    int64_t at_us, lease_ms;
    char act[16], key[WORD_BYTES_MAX], token[WORD_BYTES_MAX], print[WORD_BYTES_MAX], flags[16],
        value[WORD_BYTES_MAX];
    int n = sscanf(line, "B %" SCNu64 " %" SCNd64 " %15s %95s %95s %95s %" SCNd64 " %15s %95s",
                   &call, &at_us, act, key, token, print, &lease_ms, flags, value);
    enum act what;
    if (n != 9 || !act_parse(act, &what)) return false;
    struct deed *d = history_add(h);
    d->act = what;
    d->file = h->files;
    d->begin_us = at_us;
    d->lease_ms = lease_ms;
    d->key = strcmp(key, "*") == 0 ? KEY_ALL : history_word(h, key);
    d->owner = history_word(h, token);
    d->fingerprint = history_word(h, print);
    d->sent = history_word(h, value);
    d->final = strchr(flags, 'f');
    d->waits = strchr(flags, 'w');
    d->refused = strchr(flags, 'b') ? error_parse(print) : 0;
    call_began(r, call);
    return true;
}

static bool read_end(struct reading *r, const char *line)
{
    struct history *h = r->history;
    uint64_t call, fence;
    int64_t at_us;
    char outcome[32], token[WORD_BYTES_MAX], flags[16], value[WORD_BYTES_MAX];
    int n = sscanf(line, "E %" SCNu64 " %" SCNd64 " %31s %95s %" SCNu64 " %15s %95s", &call,
                   &at_us, outcome, token, &fence, flags, value);
    if (n != 7 || call >= r->cap || r->deed_of[call] == SIZE_MAX) return false;
    struct deed *d = &h->deeds[r->deed_of[call]];
    d->end_us = at_us;
    d->fence = fence;
    d->maybe = strchr(flags, 'm');
    d->told = history_word(h, value);
    if (d->act == ACT_CLAIM) d->owner = history_word(h, token);
    if (outcome[0] == '!')
        d->error = error_parse(outcome + 1);
    else
        d->outcome = outcome_parse(outcome);
    return d->error || d->outcome;
}

bool history_read(struct history *h, const char *path)
{
    char line[LINE_BYTES_MAX];
    FILE *in = fopen(path, "re");
    if (!in) {
        perror(path);
        return false;
    }
    struct reading r = { .history = h };
    h->files++;
    bool ok = true;
    for (unsigned n = 1; ok && fgets(line, sizeof line, in); n++) {
        ok = line[0] == 'B' ? read_begin(&r, line) : read_end(&r, line);
        if (!ok) fprintf(stderr, "%s:%u: not a line of a history: %s", path, n, line);
    }
    fclose(in);
    free(r.deed_of);
    return ok;
}

const char *deed_text(const struct history *h, const struct deed *d)
{
    static char text[400];
    char answer[160] = "no answer";
    if (d->error)
        snprintf(answer, sizeof answer, "error %s", err_name(d->error));
    else if (d->outcome)
        snprintf(answer, sizeof answer, "%s fence %" PRIu64 " value %s",
                 once_outcome_name(d->outcome), d->fence, history_name(h, d->told));
    snprintf(text, sizeof text,
             "%s %s by %d at %.6f..%.6f token %.8s print %s lease %" PRId64 " sent %s: %s%s",
             act_name[d->act], history_name(h, d->key), d->file, (double)d->begin_us / 1e6,
             d->end_us == NEVER ? 0 : (double)d->end_us / 1e6, history_name(h, d->owner),
             history_name(h, d->fingerprint), d->lease_ms, history_name(h, d->sent), answer,
             d->maybe ? " (asked again)" : "");
    return text;
}
