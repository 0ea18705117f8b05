/* remote_runs.c - questions about runs as commands of the RESP door, and its pushes as answers.
 *
 * They go with RAW: the daemon says OK at once and tells the answer later, by a push that has each
 * run as run_encode() makes it, so that nothing is lost in translation and nobody waits for who
 * waits. */
#include "store/remote.h"

#include "base/check.h"

#include <stdio.h>

/* ---- questions ---- */

static void add_option(struct words *w, const char *name, struct bytes value)
{
    if (value.len == 0) return;
    words_text(w, name);
    words_add(w, value);
}

static void add_id_option(struct words *w, const char *name, const struct run_id *id)
{
    add_option(w, name, run_id_bytes(id));
}

static void add_tags(struct words *w, const char *name, struct bytes tags)
{
    struct bytes tag;
    while (tags_next(&tags, &tag)) {
        if (name) words_text(w, name);
        words_add(w, tag);
    }
}

/* What every command has. */
static void add_common(struct words *w, const struct run_args *a, int64_t id)
{
    words_text(w, "ENV");
    words_add(w, a->env);
    words_text(w, "RAW");
    words_number(w, (uint64_t)id);
}

static void trigger_words(struct words *w, const struct run_args *a, int64_t id)
{
    bool at = a->delay_ms < 0 && a->run.delay_until_ms > 0;
    words_text(w, "ONCE.TRIGGER");
    words_add(w, a->run.task);
    words_add(w, a->run.payload);
    add_common(w, a, id);
    add_option(w, "KEY", a->run.key);
    words_ms(w, "KEYTTL", a->key_ms);
    words_ms(w, "DELAY", a->delay_ms);
    if (at) words_ms(w, "AT", a->run.delay_until_ms);
    add_tags(w, "TAG", a->run.tags);
    add_option(w, "QUEUE", a->run.queue);
    add_option(w, "ORDER", a->run.ordering_key);
    if (a->run.attempts_max) words_ms(w, "ATTEMPTS", a->run.attempts_max);
    add_option(w, "METADATA", a->run.metadata);
    add_id_option(w, "ID", &a->run.id);
    if (a->id_is_new) words_text(w, "NEWID");
    if (a->mismatch_returns) {
        words_text(w, "ONMISMATCH");
        words_text(w, "RETURN");
    }
    words_ms(w, "WAIT", a->wait_ms);
}

static void about_run(struct words *w, const char *what, const struct run_id *id)
{
    words_text(w, "ONCE.RUN");
    words_text(w, what);
    words_add(w, run_id_bytes(id));
}

static void get_words(struct words *w, const struct run_args *a, int64_t id)
{
    about_run(w, "GET", &a->id);
    add_common(w, a, id);
}

static void list_words(struct words *w, const struct run_args *a, int64_t id)
{
    words_text(w, "ONCE.RUN");
    words_text(w, "LIST");
    add_common(w, a, id);
    add_option(w, "TASK", a->task);
    add_option(w, "QUEUE", a->queue);
    for (int s = RUN_QUEUED; s <= RUN_CANCELED; s++) {
        struct run r = { .state = (enum run_state)s };
        if (a->states & BIT(s)) add_option(w, "STATUS", bytes_str(run_status(&r, 0)));
    }
    add_option(w, "TAG", a->tag);
    add_id_option(w, "BEFORE", &a->before);
    words_text(w, "COUNT");
    words_number(w, a->limit);
}

static void replay_words(struct words *w, const struct run_args *a, int64_t id)
{
    about_run(w, "REPLAY", &a->id);
    add_common(w, a, id);
    add_id_option(w, "ID", &a->run.id);
}

static void reset_words(struct words *w, const struct run_args *a, int64_t id)
{
    words_text(w, "ONCE.RUN");
    words_text(w, "RESET");
    words_add(w, a->task);
    words_add(w, a->key);
    add_common(w, a, id);
}

static void lease_words(struct words *w, const struct run_args *a, int64_t id)
{
    words_text(w, "ONCE.PULL");
    words_add(w, a->queue);
    add_common(w, a, id);
    words_text(w, "COUNT");
    words_number(w, a->limit);
    words_ms(w, "LEASE", a->lease_ms);
    words_ms(w, "WAIT", a->wait_ms);
}

/* ---- changes ---- */

static void tag_words(struct words *w, const struct run_args *a, int64_t id)
{
    about_run(w, "TAG", &a->id);
    add_common(w, a, id); /* first: what follows is a tag, whatever it is called */
    add_tags(w, NULL, a->change.body);
}

static void metadata_words(struct words *w, const struct run_args *a, int64_t id)
{
    about_run(w, "METADATA", &a->id);
    words_add(w, a->change.body);
    add_common(w, a, id);
    if (a->change.version == RUN_ANY_VERSION) return;
    words_text(w, "VERSION");
    words_number(w, a->change.version);
}

static void operate_words(struct words *w, const struct run_args *a, int64_t id)
{
    about_run(w, "OPERATE", &a->id);
    words_add(w, a->change.body);
    add_common(w, a, id);
}

static void reschedule_words(struct words *w, const struct run_args *a, int64_t id)
{
    about_run(w, "RESCHEDULE", &a->id);
    words_number(w, (uint64_t)a->change.at_ms);
    add_common(w, a, id);
}

static void cancel_words(struct words *w, const struct run_args *a, int64_t id)
{
    about_run(w, "CANCEL", &a->id);
    add_common(w, a, id);
    add_option(w, "ERROR", a->change.body);
}

static void held(struct words *w, const char *command, const struct run_args *a)
{
    words_text(w, command);
    words_add(w, run_id_bytes(&a->id));
    words_token(w, &a->change.token);
}

static void beat_words(struct words *w, const struct run_args *a, int64_t id)
{
    held(w, "ONCE.BEAT", a);
    add_common(w, a, id);
    words_ms(w, "LEASE", a->change.lease_ms);
}

static void complete_words(struct words *w, const struct run_args *a, int64_t id)
{
    held(w, "ONCE.ACK", a);
    if (a->change.body.len) words_add(w, a->change.body);
    add_common(w, a, id);
}

static void fail_words(struct words *w, const struct run_args *a, int64_t id)
{
    held(w, "ONCE.NACK", a);
    words_add(w, a->change.body);
    add_common(w, a, id);
    words_ms(w, "RETRY", a->change.retry_ms);
}

static void return_words(struct words *w, const struct run_args *a, int64_t id)
{
    held(w, "ONCE.NACK", a);
    words_text(w, "RETURN");
    add_common(w, a, id);
}

typedef void run_words(struct words *w, const struct run_args *a, int64_t id);

static run_words *const words_of_change[] = {
    [RUN_ADD_TAGS] = tag_words,      [RUN_SET_METADATA] = metadata_words,
    [RUN_OPERATE] = operate_words,   [RUN_RESCHEDULE] = reschedule_words,
    [RUN_CANCEL] = cancel_words,     [RUN_HEARTBEAT] = beat_words,
    [RUN_COMPLETE] = complete_words, [RUN_FAIL] = fail_words,
    [RUN_RETURN] = return_words,
};

static run_words *const words_of_question[RUN_QUESTIONS] = {
    [ASK_TRIGGER] = trigger_words, [ASK_GET] = get_words,     [ASK_LIST] = list_words,
    [ASK_REPLAY] = replay_words,   [ASK_RESET] = reset_words, [ASK_LEASE] = lease_words,
};

/* NULL: there is no command for it. */
static run_words *words_of_call(const struct run_args *a)
{
    size_t kind = (size_t)a->change.kind;
    if (a->question != ASK_CHANGE) return words_of_question[a->question];
    if (kind >= sizeof words_of_change / sizeof words_of_change[0]) return NULL;
    return words_of_change[kind];
}

bool wire_run_call(struct buf *out, const struct run_args *args, int64_t id)
{
    struct words w;
    words_start(&w);
    words_of_call(args)(&w, args, id);
    return words_write(out, &w);
}

int64_t wire_run_wait_ms(const struct run_args *args)
{
    bool waits = args->question == ASK_TRIGGER || args->question == ASK_LEASE;
    return waits && args->wait_ms > 0 ? args->wait_ms : 0;
}

/* Something that is far too long would end the connection, for everybody on it. */
int wire_run_check(const struct run_args *a, const struct remote_hello *hello,
                   struct err *reterr)
{
    size_t bytes = a->run.payload.len + a->run.metadata.len + a->run.key.len +
                   a->run.ordering_key.len + a->key.len + a->change.body.len;
    if (!words_of_call(a))
        return err_set(reterr, ERR_UNSUPPORTED, "a daemon cannot be asked that");
    if (bytes > 2 * (uint64_t)hello->value_bytes_max + METADATA_BYTES_MAX)
        return err_set(reterr, ERR_LIMIT, "that is more than the daemon keeps");
    bool tags = a->question == ASK_CHANGE && a->change.kind == RUN_ADD_TAGS;
    if (tags_count(tags ? a->change.body : a->run.tags) > TAGS_MAX)
        return err_set(reterr, ERR_LIMIT, "a run has at most %d tags", TAGS_MAX);
    return 0;
}

/* ---- answers: [outcome, reason, buffered, degraded, now_ms, more, [run, ...]] ---- */

static bool is_yes(const struct reply_node *n)
{
    return n->type == REPLY_BOOLEAN && n->number;
}

static bool take_runs(const struct heard *h, const struct reply_node *list,
                      struct run_rows *rows)
{
    const struct reply_node *n;
    if (list->type != REPLY_ARRAY) return false;
    for (size_t i = 0; (n = reply_element(h->nodes, list, i)); i++) {
        struct run r;
        if (n->type != REPLY_TEXT || !run_decode(reply_bytes(n, h->in), &r)) return false;
        if (run_rows_add(rows, &r)) return false;
    }
    return true;
}

/* Is there the run that such an answer is about? */
static bool is_whole(const struct run_args *args, const struct run_answer *a)
{
    bool found = a->outcome == OUTCOME_OK || a->outcome == OUTCOME_CACHED;
    bool one = args->question == ASK_TRIGGER || args->question == ASK_GET ||
               args->question == ASK_REPLAY;
    return !found || !one || a->rows.count == 1;
}

bool wire_run_told(struct op *op, const struct heard *h, const struct reply_node *news)
{
    enum { PARTS = 7 };
    const struct reply_node *at[PARTS];
    struct run_call_ask *call = op->call;
    struct run_answer *a = &call->answer;
    if (news->type != REPLY_ARRAY) return false;
    for (size_t i = 0; i < PARTS; i++)
        if (!(at[i] = reply_element(h->nodes, news, i))) return false;
    if (!wire_outcome(h, at[0], &a->outcome)) return false;
    if (at[1]->type == REPLY_TEXT) {
        struct bytes reason = reply_bytes(at[1], h->in);
        snprintf(call->reason, sizeof call->reason, "%.*s", (int)reason.len,
                 (const char *)reason.data);
        a->reason = call->reason;
    }
    a->buffered = is_yes(at[2]);
    a->degraded = is_yes(at[3]);
    a->now_ms = at[4]->number;
    if (!take_runs(h, at[6], &a->rows) || !is_whole(call->args, a)) return false;
    a->rows.more = is_yes(at[5]);
    op->out.outcome = a->outcome;
    op->out.degraded = a->degraded;
    return true;
}
