/* scrape.c - see scrape.h. */
#include "cli/scrape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 128 };

/* ---- reading the text ---- */

/* One line, which ends with a NUL; false: it is not a sample. */
static bool parse_sample(char *line, struct sample *ret)
{
    char *end = line + strcspn(line, "{ "), *labels = end;
    if (end == line || !*end) return false;
    if (*end == '{') {
        bool quoted = false;
        for (labels = ++end; *end && (quoted || *end != '}'); end++) {
            if (quoted && *end == '\\' && end[1])
                end++;
            else if (*end == '"')
                quoted = !quoted;
        }
        if (!*end || end[1] != ' ') return false;
        labels[-1] = '\0';
        *end++ = '\0';
    } else {
        *labels = '\0';
    }
    char *number = end + 1, *stop;
    double value = strtod(number, &stop);
    if (stop == number || *stop) return false;
    *ret = (struct sample){ .name = line, .labels = labels, .value = value };
    return true;
}

static size_t count_lines(const char *text)
{
    size_t count = 1;
    for (; *text; text++) count += *text == '\n';
    return count;
}

int scrape_parse(char *text, struct scrape *ret_scrape, struct err *reterr)
{
    struct scrape s = { .text = text };
    s.samples = calloc(count_lines(text), sizeof *s.samples);
    if (!s.samples) {
        scrape_free(&s);
        return err_set(reterr, ERR_NOMEM, "out of memory");
    }
    for (char *line = text, *next; *line; line = next) {
        next = line + strcspn(line, "\n");
        if (*next) *next++ = '\0';
        if (*line == '#' || !*line) continue;
        if (parse_sample(line, &s.samples[s.count++])) continue;
        err_set(reterr, ERR_INVALID, "not metrics: %.60s", line);
        scrape_free(&s);
        return reterr->code;
    }
    *ret_scrape = s;
    return 0;
}

void scrape_free(struct scrape *s)
{
    free(s->text);
    free(s->samples);
    *s = (struct scrape){ 0 };
}

/* ---- looking up ---- */

static bool has(const struct sample *s, const char *name, const char *label)
{
    return strcmp(s->name, name) == 0 && (!label || strstr(s->labels, label));
}

const struct sample *scrape_find(const struct scrape *s, const char *name, const char *label)
{
    for (size_t i = 0; i < s->count; i++)
        if (has(&s->samples[i], name, label)) return &s->samples[i];
    return NULL;
}

double scrape_sum(const struct scrape *s, const char *name, const char *label)
{
    double sum = 0;
    for (size_t i = 0; i < s->count; i++)
        if (has(&s->samples[i], name, label)) sum += s->samples[i].value;
    return sum;
}

double scrape_delta(const struct scrape *now, const struct scrape *before, const char *name,
                    const char *label)
{
    return scrape_sum(now, name, label) - scrape_sum(before, name, label);
}

/* As histogram_quantile() of Prometheus: even within a bucket; above the last bound, that. */
double scrape_quantile(const struct scrape *now, const struct scrape *before,
                       const char *histogram, const char *label, double q)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s_count", histogram);
    double rank = q * scrape_delta(now, before, name, label), below = 0, bound = 0;
    if (rank <= 0) return -1;
    snprintf(name, sizeof name, "%s_bucket", histogram);
    for (size_t i = 0; i < now->count; i++) {
        const struct sample *s = &now->samples[i];
        const char *le = strstr(s->labels, "le=\"");
        if (!has(s, name, label) || !le) continue;
        const struct sample *was = scrape_find(before, name, s->labels);
        double count = s->value - (was ? was->value : 0);
        if (strncmp(le + 4, "+Inf", 4) == 0) return bound;
        double upper = strtod(le + 4, NULL);
        if (count >= rank) return bound + (upper - bound) * (rank - below) / (count - below);
        below = count;
        bound = upper;
    }
    return bound;
}
