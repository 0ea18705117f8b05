/* metrics_test.c - the text that is served, read by a parser that forgives nothing. */
#include "daemon/metrics.h"

#include "tests/support/caller.h"
#include "tests/support/faulty.h"
#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the parser ---- */

enum { SERIES_MAX = 1024, NAME_BYTES = 160, LINE_BYTES = 512 };

struct series {
    char name[NAME_BYTES]; /* with its labels, as written */
    double value;
    bool grows;
};

struct page {
    struct series series[SERIES_MAX];
    size_t count;
    char family[NAME_BYTES], kind[16], families[SERIES_MAX / 8][NAME_BYTES];
    size_t family_count;
    double bucket, bound; /* of the histogram that is being read */
};

static size_t name_len(const char *s)
{
    size_t len = 0;
    while (isalnum((unsigned char)s[len]) || s[len] == '_' || s[len] == ':') len++;
    cr_assert(len > 0 && !isdigit((unsigned char)s[0]), "not a name: %s", s);
    return len;
}

/* {a="b",c="d"}; the length. */
static size_t labels_len(const char *s)
{
    const char *p = s;
    cr_assert(*p == '{');
    do {
        p++;
        p += name_len(p);
        cr_assert(p[0] == '=' && p[1] == '"', "%s", s);
        for (p += 2; *p != '"'; p++) {
            cr_assert(*p, "%s", s);
            if (*p == '\\') cr_assert(strchr("\\\"n", *++p), "%s", s);
        }
        p++;
    } while (*p == ',');
    cr_assert(*p == '}', "%s", s);
    return (size_t)(p + 1 - s);
}

static bool ends_with(const char *s, const char *end)
{
    size_t a = strlen(s), b = strlen(end);
    return a >= b && strcmp(s + a - b, end) == 0;
}

static void read_help(struct page *p, const char *line)
{
    char name[NAME_BYTES];
    cr_assert(sscanf(line, "# HELP %159s ", name) == 1);
    cr_assert(strlen(line) > strlen("# HELP  ") + strlen(name), "no help: %s", line);
    for (size_t i = 0; i < p->family_count; i++)
        cr_assert(strcmp(p->families[i], name) != 0, "twice: %s", name);
    strcpy(p->families[p->family_count++], name);
    strcpy(p->family, name);
    p->kind[0] = '\0';
}

static void read_type(struct page *p, const char *line)
{
    char name[NAME_BYTES];
    cr_assert(sscanf(line, "# TYPE %159s %15s", name, p->kind) == 2);
    cr_assert(strcmp(name, p->family) == 0, "TYPE without HELP before it: %s", line);
    bool counter = strcmp(p->kind, "counter") == 0;
    cr_assert(counter == ends_with(name, "_total"), "%s", line);
    cr_assert(counter || strcmp(p->kind, "gauge") == 0 || strcmp(p->kind, "histogram") == 0);
}

static void check_bucket(struct page *p, const char *labels, double value)
{
    const char *le = strstr(labels, "le=\"");
    cr_assert(le, "a bucket without a bound");
    double bound = strncmp(le + 4, "+Inf", 4) == 0 ? 1e300 : strtod(le + 4, NULL);
    if (bound > p->bound) {
        cr_assert(value >= p->bucket, "%s: buckets are cumulative", labels);
    } else {
        cr_assert(p->bound == 1e300 || p->bound == 0, "%s: +Inf is missing", labels);
    }
    p->bound = bound;
    p->bucket = value;
}

static void check_histogram(struct page *p, const char *line, size_t len, double value)
{
    size_t family = strlen(p->family);
    const char *suffix = line + family;
    if (strncmp(suffix, "_bucket", len - family) == 0)
        check_bucket(p, line + len, value);
    else if (strncmp(suffix, "_count", len - family) == 0)
        cr_assert(value == p->bucket && p->bound == 1e300, "%s", line);
    else
        cr_assert(strncmp(suffix, "_sum", len - family) == 0, "%s", line);
}

static void read_sample(struct page *p, const char *line)
{
    size_t len = name_len(line), labels = line[len] == '{' ? labels_len(line + len) : 0;
    size_t family = strlen(p->family);
    char *end;
    cr_assert(p->kind[0] && len >= family && strncmp(line, p->family, family) == 0, "%s", line);
    cr_assert(line[len + labels] == ' ', "%s", line);
    double value = strtod(line + len + labels + 1, &end);
    cr_assert(*end == '\0' && value >= 0, "%s", line);
    bool histogram = strcmp(p->kind, "histogram") == 0;
    if (histogram)
        check_histogram(p, line, len, value);
    else
        cr_assert(len == family, "%s", line);
    cr_assert(p->count < SERIES_MAX && len + labels < NAME_BYTES);
    struct series *s = &p->series[p->count++];
    snprintf(s->name, NAME_BYTES, "%.*s", (int)(len + labels), line);
    for (size_t i = 0; i + 1 < p->count; i++)
        cr_assert(strcmp(p->series[i].name, s->name) != 0, "twice: %s", s->name);
    s->value = value;
    s->grows = histogram || strcmp(p->kind, "counter") == 0;
}

static void read_page(struct page *p, struct bytes text)
{
    const char *at = (const char *)text.data, *end = at + text.len;
    memset(p, 0, sizeof *p);
    while (at < end) {
        char line[LINE_BYTES];
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        cr_assert(stop && stop > at && stop - at < LINE_BYTES, "a line has no end, or nothing");
        snprintf(line, sizeof line, "%.*s", (int)(stop - at), at);
        if (strncmp(line, "# HELP ", 7) == 0)
            read_help(p, line);
        else if (strncmp(line, "# TYPE ", 7) == 0)
            read_type(p, line);
        else
            read_sample(p, line);
        at = stop + 1;
    }
}

static const struct series *find(const struct page *p, const char *name)
{
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->series[i].name, name) == 0) return &p->series[i];
    return NULL;
}

static double value(const struct page *p, const char *name)
{
    const struct series *s = find(p, name);
    cr_assert(s, "there is no %s", name);
    return s->value;
}

/* ---- the scene ---- */

static const struct trace trace = { 0 };
static struct world world;
static struct store *coord, *store;
static struct engine *engine;
static struct metrics metrics;
static struct conns conns;
static struct page first, second;

static struct store *traced(struct store *inner)
{
    struct store *s;
    struct err err;
    cr_assert(traced_open(inner, &world.env, &s, &err) == 0);
    return s;
}

static void setup(void)
{
    struct tiered_options options = TIERED_OPTIONS_INIT;
    struct engine_config config = ENGINE_CONFIG_INIT;
    struct err err;
    config.sweep_ms = 0;
    world_init(&world, 1);
    world.env.trace = &trace;
    coord = faulty_open(world_open(&world, "memory"), &world.env);
    struct store *ledger = traced(world_open(&world, "memory"));
    cr_assert(tiered_open(traced(coord), ledger, &options, &world.env, &store, &err) == 0);
    cr_assert(engine_open(store, &world.env, &config, &engine, &err) == 0);
    conns.stats[DOOR_RESP] = (struct door_stats){ .accepted = 5, .open = 3 };
    conns.stats[DOOR_RESP].closed[CLOSE_SLOW_INPUT] = 2;
    metrics = (struct metrics){ .loop = &world.loop,
                                .engine = engine,
                                .store = store,
                                .plane = "ledger",
                                .conns = &conns };
    metrics_init(&metrics, &world.env.wall);
}

static void teardown(void)
{
    engine_stop(engine);
    world_settle(&world);
    engine_free(engine);
    world_close(&world, store);
    world_fini(&world);
}

TestSuite(metrics, .init = setup, .fini = teardown);

static void scrape(struct page *page)
{
    struct buf text;
    buf_init(&text, METRICS_BYTES_MAX);
    metrics_write(&metrics, &text);
    cr_assert(!buf_failed(&text));
    read_page(page, buf_bytes(&text));
    buf_fini(&text);
    world_settle(&world);
}

static struct token claim(const char *key, int64_t wait_ms)
{
    static struct caller c[64];
    static size_t used;
    struct caller *next = &c[used++];
    caller_claim(next, engine, key, wait_ms);
    world_settle(&world);
    return next->token;
}

/* ---- tests ---- */

Test(metrics, before_anything_everything_is_there)
{
    scrape(&first);
    cr_expect(value(&first, "once_claims_total{outcome=\"claimed\"}") == 0);
    cr_expect(value(&first, "once_waiters") == 0);
    cr_expect(value(&first, "once_connections{door=\"resp\"}") == 3);
    cr_expect(value(&first,
                    "once_connections_closed_total{door=\"resp\",reason=\"slow_input\"}") == 2);
    cr_expect(value(&first, "once_plane_up{plane=\"coord\"}") == 1);
    cr_expect(value(&first, "process_resident_memory_bytes") > 0);
    cr_expect(value(&first, "process_open_fds") > 2);
}

Test(metrics, what_happened_is_in_it_and_counters_only_grow)
{
    struct caller p;
    struct token owner = claim("k", 0);
    scrape(&first);
    claim("k", 0);
    claim("k", 60000);
    world_advance(&world, 20);
    caller_publish(&p, engine, "k", &owner, "A");
    world_settle(&world);
    claim("k", 0);
    scrape(&second);
    cr_expect(value(&second, "once_claims_total{outcome=\"claimed\"}") == 1);
    cr_expect(value(&second, "once_claims_total{outcome=\"in_progress\"}") == 1);
    cr_expect(value(&second, "once_claims_total{outcome=\"cached\"}") == 2);
    cr_expect(value(&second, "once_wait_duration_seconds_count") == 1);
    cr_expect(value(&second, "once_wait_duration_seconds_sum") == 0.02);
    cr_expect(value(&second, "once_call_duration_seconds_count{verb=\"claim\"}") == 3);
    cr_expect(value(&second, "once_call_duration_seconds_count{verb=\"publish\"}") == 1);
    cr_expect(value(&second, "once_plane_ops_total{plane=\"ledger\",verb=\"publish\"}") == 1);
    cr_expect(first.count <= second.count);
    for (size_t i = 0; i < first.count; i++) {
        const struct series *was = &first.series[i];
        if (was->grows) cr_expect(value(&second, was->name) >= was->value, "%s", was->name);
    }
}

Test(metrics, a_plane_that_is_away_shows)
{
    faulty_set(coord, VERBS, FAULT_REFUSE, FAULTY_ALWAYS);
    for (int i = 0; i < 3; i++) claim("k", 0);
    scrape(&first);
    cr_expect(value(&first, "once_plane_up{plane=\"coord\"}") == 0);
    cr_expect(value(&first, "once_plane_up{plane=\"ledger\"}") == 1);
    cr_expect(value(&first, "once_plane_breaker_open{plane=\"coord\"}") == 1);
    cr_expect(value(&first, "once_degraded_answers_total") == 3);
}

Test(metrics, records_are_counted_in_the_background_and_not_for_every_reader)
{
    claim("a", 0);
    scrape(&first);
    cr_expect(!find(&first, "once_records{state=\"pending\"}"), "nobody had counted them");
    claim("b", 0);
    world_advance(&world, 1500);
    scrape(&first);
    cr_expect(value(&first, "once_records{state=\"pending\"}") == 1);
    cr_expect(value(&first, "once_records_age_seconds") == 1.5);
    world_advance(&world, 3500);
    scrape(&first); /* has them counted again */
    scrape(&first);
    cr_expect(value(&first, "once_records{state=\"pending\"}") == 2);
    cr_expect(value(&first, "once_records_age_seconds") == 0);
}

Test(metrics, a_buffer_that_is_too_small_is_no_disaster)
{
    struct buf text;
    buf_init(&text, 100);
    metrics_write(&metrics, &text);
    cr_expect(buf_failed(&text));
    buf_fini(&text);
    world_settle(&world);
}
