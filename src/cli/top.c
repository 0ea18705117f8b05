/* top.c - once top: what a daemon does, as a table that is drawn again and again.
 *
 * Everything comes from /metrics: rates from two readings, times from what the histograms counted
 * between them. `--once` is one table for scripts: averages since the daemon started. Data to
 * stdout; at a terminal plain ANSI, and the screen is given back as it was. */
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/fetch.h"
#include "cli/format.h"
#include "cli/scrape.h"

#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

enum { TOP_URL, TOP_INTERVAL, TOP_ONCE, TOP_END };

enum { FETCH_MS = 5000, LABEL_BYTES = 80, TIME_BYTES = 16 };

static const struct option top_options[] = {
    [TOP_URL] = { "url", .kind = OPTION_TEXT, .value = "URL",
                  .fallback = "http://127.0.0.1:6623",
                  .help =
                      "the HTTP door of the daemon: http://HOST:PORT, https://..., unix:PATH" },
    [TOP_INTERVAL] = { "interval", .kind = OPTION_DURATION, .value = "D", .fallback = "1s",
                       .help = "between two looks" },
    [TOP_ONCE] = { "once", .help = "one table: averages since the daemon started" },
    [TOP_END] = { 0 },
};

/* Two readings, and what is between them. */
struct view {
    const char *url;
    struct scrape now, before; /* before: empty: since the start */
    int64_t now_us, before_us;
    double seconds;
    FILE *to;
};

/* ---- numbers as people read them ---- */

static double rate(const struct view *v, const char *name, const char *label)
{
    double delta = scrape_delta(&v->now, &v->before, name, label);
    return v->seconds > 0 && delta > 0 ? delta / v->seconds : 0;
}

static const char *time_text(double seconds, char out[TIME_BYTES])
{
    if (seconds < 0)
        snprintf(out, TIME_BYTES, "-");
    else if (seconds < 0.001)
        snprintf(out, TIME_BYTES, "%.0fus", seconds * 1e6);
    else if (seconds < 1)
        snprintf(out, TIME_BYTES, "%.3gms", seconds * 1e3);
    else
        snprintf(out, TIME_BYTES, "%.3gs", seconds);
    return out;
}

static void put_times(const struct view *v, const char *histogram, const char *label)
{
    char half[TIME_BYTES], most[TIME_BYTES];
    fprintf(v->to, " %9s %9s",
            time_text(scrape_quantile(&v->now, &v->before, histogram, label, 0.5), half),
            time_text(scrape_quantile(&v->now, &v->before, histogram, label, 0.99), most));
}

static double gauge(const struct view *v, const char *name, const char *label)
{
    return scrape_sum(&v->now, name, label);
}

/* ---- the table ---- */

static void put_head(const struct view *v)
{
    char up[DURATION_TEXT_BYTES], rss[SIZE_TEXT_BYTES];
    struct clock wall = clock_wall();
    const struct sample *build = scrape_find(&v->now, "once_build_info", NULL);
    const char *version = build ? strchr(build->labels, '"') : NULL;
    double started = gauge(v, "process_start_time_seconds", NULL);
    fprintf(v->to, "once %.*s at %s   up %s   cpu %.0f%%   rss %s   fds %.0f of %.0f\n",
            version ? (int)strcspn(version + 1, "\"") : 0, version ? version + 1 : "", v->url,
            format_duration(clock_now_ms(&wall) - (int64_t)(started * 1000), up),
            100 * rate(v, "process_cpu_seconds_total", NULL),
            format_size((uint64_t)gauge(v, "process_resident_memory_bytes", NULL), rss),
            gauge(v, "process_open_fds", NULL), gauge(v, "process_max_fds", NULL));
}

static void put_claims(const struct view *v)
{
    static const char *const outcomes[] = { "claimed",   "cached",       "in_progress",
                                            "timed_out", "already_done", "mismatch" };
    fprintf(v->to, "\nclaims/s  %10.1f  ", rate(v, "once_claims_total", NULL));
    for (size_t i = 0; i < sizeof outcomes / sizeof outcomes[0]; i++) {
        char label[LABEL_BYTES];
        snprintf(label, sizeof label, "outcome=\"%s\"", outcomes[i]);
        fprintf(v->to, "  %s %.1f", outcomes[i], rate(v, "once_claims_total", label));
    }
    fprintf(v->to, "\nevents/s  ");
    static const struct {
        const char *shown, *name;
    } events[] = {
        { "takeovers", "once_takeovers_total" },       { "lost", "once_lost_total" },
        { "degraded", "once_degraded_answers_total" }, { "failed", "once_failed_calls_total" },
        { "ambiguous", "once_ambiguous_total" },       { "renewals", "once_renewals_total" }
    };
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        fprintf(v->to, "  %s %.1f", events[i].shown, rate(v, events[i].name, NULL));
}

static void put_now(const struct view *v)
{
    char size[SIZE_TEXT_BYTES], age[DURATION_TEXT_BYTES];
    fprintf(v->to, "\nnow         waiters %.0f  held leases %.0f  bound claims %.0f",
            gauge(v, "once_waiters", NULL), gauge(v, "once_held_leases", NULL),
            gauge(v, "once_bound_claims", NULL));
    if (!scrape_find(&v->now, "once_records", NULL)) {
        fprintf(v->to, "\nrecords     not counted yet\n");
        return;
    }
    fprintf(
        v->to, "\nrecords     pending %.0f  lapsed %.0f  done %.0f  gone %.0f  %s  (%s ago)\n",
        gauge(v, "once_records", "state=\"pending\""),
        gauge(v, "once_records", "state=\"lapsed\""),
        gauge(v, "once_records", "state=\"done\""), gauge(v, "once_records", "state=\"gone\""),
        format_size((uint64_t)gauge(v, "once_records_bytes", NULL), size),
        format_duration((int64_t)(gauge(v, "once_records_age_seconds", NULL) * 1000), age));
}

static void put_calls(const struct view *v)
{
    static const char *const verbs[] = { "claim", "publish", "renew", "release", "peek" };
    fprintf(v->to, "\n%-10s %10s %9s %9s\n", "call", "per s", "p50", "p99");
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        char label[LABEL_BYTES];
        snprintf(label, sizeof label, "verb=\"%s\"", verbs[i]);
        fprintf(v->to, "%-10s %10.1f", verbs[i],
                rate(v, "once_call_duration_seconds_count", label));
        put_times(v, "once_call_duration_seconds", label);
        fprintf(v->to, "\n");
    }
    fprintf(v->to, "%-10s %10.1f", "wait", rate(v, "once_wait_duration_seconds_count", NULL));
    put_times(v, "once_wait_duration_seconds", NULL);
    fprintf(v->to, "\n");
}

static void put_planes(const struct view *v)
{
    static const char *const planes[] = { "coord", "ledger" };
    fprintf(v->to, "\n%-10s %10s %9s %9s %8s %8s %8s %9s\n", "plane", "ops/s", "p50", "p99",
            "pending", "watches", "failed/s", "state");
    for (size_t i = 0; i < 2; i++) {
        char label[LABEL_BYTES];
        snprintf(label, sizeof label, "plane=\"%s\"", planes[i]);
        if (!scrape_find(&v->now, "once_plane_up", label)) continue;
        bool open = gauge(v, "once_plane_breaker_open", label) > 0;
        bool up = gauge(v, "once_plane_up", label) > 0;
        fprintf(v->to, "%-10s %10.1f", planes[i], rate(v, "once_plane_ops_total", label));
        put_times(v, "once_plane_op_duration_seconds", label);
        fprintf(v->to, " %8.0f %8.0f %8.1f %9s\n", gauge(v, "once_plane_pending_ops", label),
                gauge(v, "once_plane_watches", label),
                rate(v, "once_plane_failed_ops_total", label),
                open ? "breaker"
                : up ? "up"
                     : "down");
    }
}

static void put_doors(const struct view *v)
{
    static const char *const doors[] = { "http", "resp" };
    fprintf(v->to, "\n%-10s %10s %9s %9s %8s %8s %8s\n", "door", "requests/s", "open", "new/s",
            "in B/s", "out B/s", "refused");
    for (size_t i = 0; i < 2; i++) {
        char label[LABEL_BYTES], in[SIZE_TEXT_BYTES], out[SIZE_TEXT_BYTES];
        snprintf(label, sizeof label, "door=\"%s\"", doors[i]);
        fprintf(v->to, "%-10s %10.1f %9.0f %9.1f %8s %8s %8.0f\n", doors[i],
                rate(v, "once_requests_total", label), gauge(v, "once_connections", label),
                rate(v, "once_connections_accepted_total", label),
                format_size((uint64_t)rate(v, "once_received_bytes_total", label), in),
                format_size((uint64_t)rate(v, "once_sent_bytes_total", label), out),
                gauge(v, "once_connections_refused_total", label));
    }
}

static void put_table(const struct view *v)
{
    put_head(v);
    put_claims(v);
    put_now(v);
    put_calls(v);
    put_planes(v);
    put_doors(v);
}

/* ---- readings ---- */

static double uptime_s(const struct scrape *s)
{
    struct clock wall = clock_wall();
    return (double)clock_now_ms(&wall) / 1000 -
           scrape_sum(s, "process_start_time_seconds", NULL);
}

static int look(struct view *v, struct err *reterr)
{
    struct fetch fetch = {
        .url = v->url, .path = "/metrics", .token = getenv("ONCE_TOKEN"), .timeout_ms = FETCH_MS
    };
    struct scrape next;
    char *text;
    int r = fetch_text(&fetch, &text, reterr);
    if (!r) r = scrape_parse(text, &next, reterr);
    if (r) return r;
    scrape_free(&v->before);
    v->before = v->now;
    v->before_us = v->now_us;
    v->now = next;
    v->now_us = clock_measure_us();
    bool restarted = scrape_sum(&v->now, "process_start_time_seconds", NULL) !=
                     scrape_sum(&v->before, "process_start_time_seconds", NULL);
    if (restarted) scrape_free(&v->before); /* its counters began again */
    v->seconds = restarted ? uptime_s(&v->now) : (double)(v->now_us - v->before_us) / 1e6;
    return 0;
}

/* ---- the screen ---- */

struct screen {
    struct termios was;
    bool raw;
    int signals;
};

static void screen_open(struct screen *s)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGWINCH);
    sigprocmask(SIG_BLOCK, &set, NULL);
    s->signals = signalfd(-1, &set, SFD_CLOEXEC);
    s->raw = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &s->was) == 0;
    struct termios quiet = s->was;
    quiet.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    if (s->raw) tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
    fputs("\033[?1049h\033[?25l", stdout);
}

static void screen_close(struct screen *s)
{
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (s->raw) tcsetattr(STDIN_FILENO, TCSANOW, &s->was);
    if (s->signals >= 0) close(s->signals);
}

/* As much of the text as there is room for: no line may wrap, or the next frame is off by one. */
static void draw(const char *text)
{
    struct winsize size = { 0 };
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    if (!size.ws_row || !size.ws_col) size = (struct winsize){ .ws_row = 24, .ws_col = 80 };
    fputs("\033[H", stdout);
    for (unsigned row = 1; *text && row < size.ws_row; row++) {
        int len = (int)strcspn(text, "\n");
        printf("%.*s\033[K\n", len < size.ws_col ? len : size.ws_col, text);
        text += len + (text[len] == '\n');
    }
    fputs("q quits\033[K\033[J", stdout);
    fflush(stdout);
}

static void draw_view(struct view *v, int r, const struct err *err)
{
    char *text = NULL;
    size_t len;
    v->to = open_memstream(&text, &len);
    if (!v->to) return;
    if (r) fprintf(v->to, "%s\nWhat follows is from before.\n\n", err->text);
    put_table(v);
    fclose(v->to);
    draw(text);
    free(text);
}

/* Until the next look. False: it is over. */
static bool pause_for(const struct screen *s, int64_t ms)
{
    int64_t until_us = clock_measure_us() + ms * 1000;
    for (;;) {
        int64_t left_ms = (until_us - clock_measure_us()) / 1000;
        struct pollfd fds[2] = { { .fd = s->signals, .events = POLLIN },
                                 { .fd = s->raw ? STDIN_FILENO : -1, .events = POLLIN } };
        int n = poll(fds, 2, left_ms > 0 ? (int)left_ms : 0);
        if (n <= 0) return true;
        struct signalfd_siginfo signal;
        if (fds[0].revents && read(s->signals, &signal, sizeof signal) > 0)
            return signal.ssi_signo == SIGWINCH;
        char key = 'q'; /* the end of the input is one, too */
        if (fds[1].revents && (read(STDIN_FILENO, &key, 1) < 1 || key == 'q')) return false;
    }
}

static void watch(struct view *v, int64_t interval_ms)
{
    struct screen screen;
    struct err err;
    int r = 0;
    screen_open(&screen);
    do {
        draw_view(v, r, &err);
        if (!pause_for(&screen, interval_ms)) break;
        r = look(v, &err);
    } while (true);
    screen_close(&screen);
}

/* ---- the command ---- */

static int print_samples(const struct scrape *s)
{
    json_t *object = json_object();
    for (size_t i = 0; i < s->count; i++) {
        char name[400];
        const struct sample *at = &s->samples[i];
        snprintf(name, sizeof name, *at->labels ? "%s{%s}" : "%s%s", at->name, at->labels);
        json_object_set_new(object, name, json_real(at->value));
    }
    return print_json(stdout, object);
}

static int top_run(struct cli *cli, const struct args *args)
{
    struct view v = { .url = args->values[TOP_URL].text, .to = stdout };
    struct err err;
    signal(SIGPIPE, SIG_IGN); /* a daemon that goes away is an error of its own */
    int status = STATUS_OK, r = look(&v, &err);
    if (r) return cli_fail(cli, r, err.text);
    if (cli->json)
        status = print_samples(&v.now);
    else if (args->values[TOP_ONCE].given || !isatty(STDOUT_FILENO))
        put_table(&v);
    else
        watch(&v, args->values[TOP_INTERVAL].number);
    scrape_free(&v.now);
    scrape_free(&v.before);
    return status;
}

const struct command top_command = {
    .name = "top",
    .summary = "What a daemon does, live",
    .options = top_options,
    .details =
        "Reads /metrics of a daemon and shows rates and times between two readings; q quits.\n"
        "Where the daemon wants tokens, ONCE_TOKEN is one that may read metrics. With --once,\n"
        "or where stdout is not a terminal: one table, averages since the daemon started. "
        "With\n"
        "--json: the samples of one reading.\n",
    .run = top_run,
};
