/* run_tail.c - see run_tail.h. */
#include "cli/run_tail.h"

#include "cli/now.h"
#include "cli/run_show.h"

#include <poll.h>
#include <string.h>

enum {
    PAUSE_MS_MIN = 100,
    PAUSE_MS_MAX = 2000,
    PAGES_MAX = 10,  /* of news at one look; older ones are not news */
    OPEN_MAX = 1000, /* runs that are followed at a time, the newest */
};

struct seen {
    char id[31];
    int status;
};

struct tail {
    const struct cli *cli;
    struct once *once;
    struct once_run_query query; /* without the statuses: they are looked at here */
    unsigned statuses;
    char newest[31];
    struct seen open[OPEN_MAX]; /* not over; the oldest first */
    size_t open_count;
    bool heading_shown;
    size_t told; /* lines of this look */
};

static bool is_final(const struct once_run *run)
{
    return run->status >= ONCE_RUN_COMPLETED && run->status <= ONCE_RUN_CANCELED;
}

static int tell(struct tail *t, const struct once_run *run)
{
    t->told++;
    if (t->statuses && !(t->statuses & 1u << run->status)) return STATUS_OK;
    if (t->cli->json) return run_print_json(stdout, run);
    if (!t->heading_shown) run_print_heading();
    t->heading_shown = true;
    run_print_row(t->cli, run, now_wall_ms());
    return STATUS_OK;
}

static void forget(struct tail *t, size_t i)
{
    memmove(&t->open[i], &t->open[i + 1], (t->open_count - i - 1) * sizeof t->open[0]);
    t->open_count--;
}

static void follow(struct tail *t, const struct once_run *run)
{
    if (is_final(run)) return;
    if (t->open_count == OPEN_MAX) forget(t, 0);
    struct seen *s = &t->open[t->open_count++];
    memcpy(s->id, run->id, sizeof s->id);
    s->status = run->status;
}

/* ---- one look ---- */

/* The changes of what is not over. */
static int look_at_open(struct tail *t)
{
    for (size_t i = 0; i < t->open_count;) {
        struct once_run_args in = ONCE_RUN_ARGS_INIT;
        struct once_run_answer answer = { 0 };
        in.env = t->query.env;
        in.id = t->open[i].id;
        int r = once_run_get(t->once, &in, &answer), status = STATUS_OK;
        if (r < 0) return once_retryable(r) ? STATUS_OK : run_answer_status(t->cli, r, &answer);
        bool changed = answer.run && answer.run->status != t->open[i].status;
        bool over = !answer.run || is_final(answer.run);
        if (changed) status = tell(t, answer.run);
        if (changed) t->open[i].status = answer.run->status;
        once_run_answer_clear(&answer);
        if (status) return status;
        if (over)
            forget(t, i);
        else
            i++;
    }
    return STATUS_OK;
}

struct news {
    struct once_run_answer pages[PAGES_MAX];
    size_t count;
};

/* Pages from the newest down to what is known, or until there are `limit` of them. */
static int read_news(struct tail *t, size_t limit, struct news *news)
{
    char before[sizeof t->newest] = "";
    size_t have = 0;
    for (bool more = true; more && news->count < PAGES_MAX;) {
        struct once_run_answer *page = &news->pages[news->count++];
        t->query.before = *before ? before : NULL;
        int r = once_run_list(t->once, &t->query, page);
        if (r < 0) return r;
        memcpy(before, page->next, sizeof before);
        have += page->count;
        more = *before && strcmp(before, t->newest) > 0 && have < limit;
    }
    return 0;
}

/* The oldest first, and of what is new at most `limit`. */
static int tell_news(struct tail *t, const struct news *news, size_t limit)
{
    size_t fresh = 0;
    int status = STATUS_OK;
    for (size_t p = 0; p < news->count; p++)
        for (size_t i = 0; i < news->pages[p].count; i++)
            if (strcmp(news->pages[p].runs[i]->id, t->newest) > 0) fresh++;
    for (size_t p = news->count; p-- > 0;) {
        for (size_t i = news->pages[p].count; i-- > 0 && !status;) {
            const struct once_run *run = news->pages[p].runs[i];
            if (strcmp(run->id, t->newest) <= 0) continue;
            if (fresh-- <= limit) status = tell(t, run);
            follow(t, run);
            memcpy(t->newest, run->id, sizeof t->newest);
        }
    }
    return status;
}

static int look(struct tail *t, size_t limit)
{
    struct news news = { 0 };
    t->told = 0;
    int status = look_at_open(t);
    int r = status ? 0 : read_news(t, limit, &news);
    if (r < 0 && !once_retryable(r))
        status = run_answer_status(t->cli, r, &news.pages[news.count - 1]);
    if (!r && !status) status = tell_news(t, &news, limit);
    for (size_t p = 0; p < news.count; p++) once_run_answer_clear(&news.pages[p]);
    fflush(stdout); /* that it failed is seen at the end, by ferror() */
    return status;
}

int run_tail(const struct cli *cli, struct once *once, const struct once_run_query *query,
             size_t before)
{
    static struct tail t; /* large, and there is one */
    t = (struct tail){ .cli = cli, .once = once, .query = *query, .statuses = query->statuses };
    t.query.statuses = 0;
    int status = look(&t, before);
    for (int64_t ms = PAUSE_MS_MIN; !status && !ferror(stdout);) {
        poll(NULL, 0, (int)ms);
        status = look(&t, SIZE_MAX);
        ms = t.told ? PAUSE_MS_MIN : ms * 2 < PAUSE_MS_MAX ? ms * 2 : PAUSE_MS_MAX;
    }
    return status;
}
