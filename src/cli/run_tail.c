/* run_tail.c - see run_tail.h.
 *
 * A look goes through the list by pages, from the newest down to what is known, and remembers which pages
 * have something new. They are asked for once more, the oldest first, and told: so memory is one page,
 * however much there is. What was met is remembered by its id as long as it is not over, or could be met
 * again. What is older than that is not in the list any more that is looked at: it is asked for by its
 * id, some at every look. */
#include "cli/run_tail.h"

#include "cli/now.h"
#include "cli/run_show.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAUSE_MS_MIN = 100,
    PAUSE_MS_MAX = 2000,
    BACK_MS = 10000, /* how late a run may come: a trigger has its id, and then waits */
    BACK_EVERY_MS = 1000,
    OVERLAP_MS = 200, /* of every other look */
    PAGE_RUNS = 500,
    PAGES_MAX = 40, /* with something new, at one look */
    SEEN_MAX = 50000,
    DROPPED = 500,  /* of them, the oldest, when there is no room */
    OPEN_MAX = 200, /* asked for by their id, at one look */
    ID_BYTES = 31,
};

struct seen {
    char id[ID_BYTES];
    uint8_t status;
};

struct tail {
    const struct cli *cli;
    struct once *once;
    struct once_run_query query; /* without the statuses: they are looked at here */
    unsigned statuses;
    struct seen seen[SEEN_MAX]; /* in the order of their ids */
    size_t seen_count;
    char floor[ID_BYTES]; /* nothing up to it is new */
    size_t open_at;       /* where to go on with those that are asked for */
    int64_t back_at_ms;   /* when to look back again */
    bool heading_shown;
    size_t told, skipped, dropped; /* of this look */
};

/* Pages that have something new, the newest first: behind which id each begins. */
struct news {
    size_t limit; /* more of them are not new */
    bool is_first;
    size_t fresh; /* met so far */
    char before[PAGES_MAX][ID_BYTES];
    size_t count;
    struct once_run_answer first; /* the first of them, as it was */
    char skipped_from[ID_BYTES];
};

/* ---- ids have their time in them ---- */

static const char digits[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
enum { ID_TIME_AT = 4, ID_TIME_DIGITS = 10 };

static int64_t id_ms(const char *id)
{
    int64_t ms = 0;
    for (size_t i = 0; i < ID_TIME_DIGITS; i++)
        ms = ms << 5 | (strchr(digits, id[ID_TIME_AT + i]) - digits);
    return ms;
}

/* The smallest id of that time. */
static void id_at(int64_t ms, char ret_id[ID_BYTES])
{
    memcpy(ret_id, "run_00000000000000000000000000", ID_BYTES);
    for (size_t i = ID_TIME_DIGITS; i-- > 0 && ms > 0; ms >>= 5)
        ret_id[ID_TIME_AT + i] = digits[ms & 31];
}

/* An id of the future, which a caller has made, is no reason not to look at what is made now. */
static void id_back(const char *newest, int64_t ms, char ret_id[ID_BYTES])
{
    int64_t now_ms = now_wall_ms(), newest_ms = id_ms(newest);
    id_at((newest_ms < now_ms ? newest_ms : now_ms) - ms, ret_id);
}

/* ---- what was met ---- */

static bool is_final(int status)
{
    return status >= ONCE_RUN_COMPLETED && status <= ONCE_RUN_CANCELED;
}

/* Where it is, or would be. */
static size_t seen_place(const struct tail *t, const char *id)
{
    size_t from = 0, to = t->seen_count;
    while (from < to) {
        size_t middle = (from + to) / 2;
        if (strcmp(t->seen[middle].id, id) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static struct seen *seen_find(struct tail *t, const char *id)
{
    size_t i = seen_place(t, id);
    return i < t->seen_count && strcmp(t->seen[i].id, id) == 0 ? &t->seen[i] : NULL;
}

/* More than one, so that it is not done for each. */
static void drop_oldest(struct tail *t)
{
    const char *last = t->seen[DROPPED - 1].id;
    for (size_t i = 0; i < DROPPED; i++) t->dropped += !is_final(t->seen[i].status);
    if (strcmp(last, t->floor) > 0) memcpy(t->floor, last, ID_BYTES);
    t->seen_count -= DROPPED;
    memmove(&t->seen[0], &t->seen[DROPPED], t->seen_count * sizeof t->seen[0]);
}

static void remember(struct tail *t, const struct once_run *run)
{
    if (t->seen_count == SEEN_MAX) drop_oldest(t);
    size_t i = seen_place(t, run->id);
    memmove(&t->seen[i + 1], &t->seen[i], (t->seen_count++ - i) * sizeof t->seen[0]);
    memcpy(t->seen[i].id, run->id, ID_BYTES);
    t->seen[i].status = (uint8_t)run->status;
}

/* What is over and will not be met again is forgotten. */
static void forget_old(struct tail *t)
{
    char back[ID_BYTES];
    size_t kept = 0;
    if (!t->seen_count) return;
    id_back(t->seen[t->seen_count - 1].id, BACK_MS, back);
    if (strcmp(back, t->floor) > 0) memcpy(t->floor, back, ID_BYTES);
    for (size_t i = 0; i < t->seen_count; i++) {
        if (is_final(t->seen[i].status) && strcmp(t->seen[i].id, t->floor) <= 0) continue;
        if (kept != i) t->seen[kept] = t->seen[i];
        kept++;
    }
    t->seen_count = kept;
}

/* ---- telling ---- */

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

static int tell_change(struct tail *t, struct seen *s, const struct once_run *run)
{
    if (s->status == run->status) return STATUS_OK;
    s->status = (uint8_t)run->status;
    return tell(t, run);
}

static void tell_missed(const struct tail *t)
{
    if (t->skipped)
        cli_note(t->cli, "%zu skipped: more than %d are new since the last look", t->skipped,
                 PAGES_MAX * PAGE_RUNS);
    if (t->dropped)
        cli_note(t->cli, "%zu are not followed any more: more than %d are not over", t->dropped,
                 SEEN_MAX);
}

/* What passes is waited for. */
static int failed(const struct tail *t, int r, const struct once_run_answer *answer)
{
    return once_retryable(r) ? STATUS_OK : run_answer_status(t->cli, r, answer);
}

/* ---- what is not over, and older than what is looked at ---- */

static int ask_for(struct tail *t, struct seen *s)
{
    struct once_run_args in = ONCE_RUN_ARGS_INIT;
    struct once_run_answer answer = { 0 };
    in.env = t->query.env;
    in.id = s->id;
    int r = once_run_get(t->once, &in, &answer), status = STATUS_OK;
    if (r < 0)
        status = failed(t, r, &answer);
    else if (!answer.run)
        s->status = ONCE_RUN_CANCELED; /* it is gone; nothing is told of it any more */
    else
        status = tell_change(t, s, answer.run);
    once_run_answer_clear(&answer);
    return status;
}

static int look_at_open(struct tail *t)
{
    size_t asked = 0, old = seen_place(t, t->floor);
    int status = STATUS_OK;
    for (size_t i = 0; i < old && asked < OPEN_MAX && !status; i++) {
        struct seen *s = &t->seen[t->open_at++ % old];
        if (is_final(s->status)) continue;
        status = ask_for(t, s);
        asked++;
    }
    t->open_at = old ? t->open_at % old : 0;
    return status;
}

/* ---- what is new ---- */

/* A page on the way down: its changes are told, what is new is counted. At the first look, what is behind
 * the newest so many is not new. */
static int meet_page(struct tail *t, struct news *news, const struct once_run_answer *page,
                     size_t *ret_fresh)
{
    size_t fresh = 0;
    int status = STATUS_OK;
    for (size_t i = 0; i < page->count && !status; i++) {
        const struct once_run *run = page->runs[i];
        struct seen *s = seen_find(t, run->id);
        if (s)
            status = tell_change(t, s, run);
        else if (strcmp(run->id, t->floor) <= 0)
            continue;
        else if (news->fresh + fresh == news->limit)
            remember(t, run);
        else
            fresh++;
    }
    news->fresh += fresh;
    *ret_fresh = fresh;
    return status;
}

/* Is it to be told of? If there is no room for it: it and what is older are not new any more. */
static void keep_page(struct tail *t, struct news *news, const char *before,
                      struct once_run_answer *page, size_t fresh)
{
    if (fresh && news->count == PAGES_MAX && !t->skipped)
        memcpy(news->skipped_from, page->runs[0]->id, ID_BYTES);
    if (fresh && news->count == PAGES_MAX) t->skipped += fresh;
    bool keeps = fresh && news->count < PAGES_MAX;
    if (keeps) memcpy(news->before[news->count], before, ID_BYTES);
    if (keeps && news->count++ == 0)
        news->first = *page;
    else
        once_run_answer_clear(page);
}

static int read_page(struct tail *t, const char *before, struct once_run_answer *ret_page)
{
    t->query.before = *before ? before : NULL;
    return once_run_list(t->once, &t->query, ret_page);
}

/* Down to what was made before `until`. The first time that is not known before there is a page, and
 * enough of them are wanted. */
static int read_news(struct tail *t, char until[ID_BYTES], struct news *news)
{
    char before[ID_BYTES] = "";
    bool more = true;
    int status = STATUS_OK;
    while (more && !status) {
        struct once_run_answer page = { 0 };
        char next[ID_BYTES];
        size_t fresh;
        int r = read_page(t, before, &page);
        if (r < 0) { /* what is older must be told first: the next look has all of it */
            news->count = t->skipped = 0;
            return failed(t, r, &page);
        }
        memcpy(next, page.next, sizeof next);
        if (news->is_first && !*until && page.count) id_back(page.runs[0]->id, BACK_MS, until);
        status = meet_page(t, news, &page, &fresh);
        keep_page(t, news, before, &page, fresh);
        memcpy(before, next, sizeof before);
        more =
            *next && (strcmp(next, until) > 0 || (news->is_first && news->fresh < news->limit));
    }
    return status;
}

static int tell_page(struct tail *t, const struct once_run_answer *page)
{
    int status = STATUS_OK;
    for (size_t i = page->count; i-- > 0 && !status;) {
        const struct once_run *run = page->runs[i];
        if (strcmp(run->id, t->floor) <= 0 || seen_find(t, run->id)) continue;
        status = tell(t, run);
        remember(t, run);
    }
    return status;
}

/* The oldest first. What has come into a page meanwhile pushes out its last: the next look has that. */
static int tell_news(struct tail *t, const struct news *news)
{
    int status = STATUS_OK;
    for (size_t p = news->count; p-- > 1 && !status;) {
        struct once_run_answer page = { 0 };
        int r = read_page(t, news->before[p], &page);
        if (r < 0) return failed(t, r, &page);
        status = tell_page(t, &page);
        once_run_answer_clear(&page);
    }
    return status ? status : tell_page(t, &news->first);
}

/* ---- one look ---- */

static void until_where(struct tail *t, char ret_id[ID_BYTES])
{
    int64_t now_ms = now_monotonic_ms();
    bool back = now_ms >= t->back_at_ms;
    if (back) t->back_at_ms = now_ms + BACK_EVERY_MS;
    if (t->seen_count)
        id_back(t->seen[t->seen_count - 1].id, back ? BACK_MS : OVERLAP_MS, ret_id);
    else
        *ret_id = '\0';
}

static int look(struct tail *t, struct news *news)
{
    char until[ID_BYTES];
    t->told = t->skipped = t->dropped = 0;
    until_where(t, until);
    int status = read_news(t, until, news);
    if (t->skipped && strcmp(news->skipped_from, t->floor) > 0)
        memcpy(t->floor, news->skipped_from, ID_BYTES);
    if (!status && news->count) status = tell_news(t, news);
    once_run_answer_clear(&news->first);
    if (!status) status = look_at_open(t);
    forget_old(t);
    tell_missed(t);
    fflush(stdout); /* that it failed is seen at the end, by ferror() */
    return status;
}

int run_tail(const struct cli *cli, struct once *once, const struct once_run_query *query,
             size_t before)
{
    static struct tail t; /* large, and there is one */
    t = (struct tail){ .cli = cli, .once = once, .query = *query, .statuses = query->statuses };
    t.query.statuses = 0;
    t.query.limit = PAGE_RUNS;
    int status = look(&t, &(struct news){ .limit = before, .is_first = true });
    for (int64_t ms = PAUSE_MS_MIN; !status && !ferror(stdout);) {
        poll(NULL, 0, (int)ms);
        status = look(&t, &(struct news){ .limit = SIZE_MAX });
        ms = t.told ? PAUSE_MS_MIN : ms * 2 < PAUSE_MS_MAX ? ms * 2 : PAUSE_MS_MAX;
    }
    return status;
}
