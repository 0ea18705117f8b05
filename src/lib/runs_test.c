/* runs_test.c - runs as a C program meets them: requests that are refused, what answers show, and
 * each call in both of its forms, on a real ledger. */
#include <once/once.h>

#include <criterion/criterion.h>
#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[64];
static struct once *once;

static void open_handle(unsigned flags)
{
    struct once_config config = ONCE_CONFIG_INIT;
    struct once_error error;
    config.data_dir = dir;
    config.flags = flags;
    cr_assert(once_open(&config, &once, &error) == 0, "%s", error.text);
}

static void setup(void)
{
    snprintf(dir, sizeof dir, "/tmp/once-runs-XXXXXX");
    cr_assert(mkdtemp(dir));
    open_handle(ONCE_RUNS);
}

static void teardown(void)
{
    once_close(once);
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    cr_expect(rmdir(dir) == 0);
}

TestSuite(lib_runs, .init = setup, .fini = teardown);

/* ---- helpers ---- */

static struct once_trigger task(const char *name)
{
    struct once_trigger in = ONCE_TRIGGER_INIT;
    in.task = once_str(name);
    in.payload = once_str("{\"n\": 1}");
    return in;
}

struct id {
    char text[31];
};

static struct id triggered(const struct once_trigger *in)
{
    struct once_run_answer a;
    struct id id;
    cr_assert(once_trigger(once, in, &a) == 0, "%s", a.error.text);
    cr_assert(a.run);
    memcpy(id.text, a.run->id, sizeof id.text);
    once_run_answer_clear(&a);
    return id;
}

static struct once_run_args about(const struct id *id)
{
    struct once_run_args in = ONCE_RUN_ARGS_INIT;
    in.id = id->text;
    return in;
}

static int status_of(const struct id *id)
{
    struct once_run_args in = about(id);
    struct once_run_answer a;
    cr_assert(once_run_get(once, &in, &a) == 0 && a.outcome == ONCE_OK);
    int status = a.run->status;
    once_run_answer_clear(&a);
    return status;
}

static bool text_is(struct once_bytes b, const char *text)
{
    return b.len == strlen(text) && memcmp(b.data, text, b.len) == 0;
}

typedef int verb(struct once *, const struct once_run_args *, struct once_run_answer *);

static int outcome_of(verb *v, const struct once_run_args *in)
{
    struct once_run_answer a;
    cr_assert(v(once, in, &a) == 0, "%s", a.error.text);
    int outcome = a.outcome;
    once_run_answer_clear(&a);
    return outcome;
}

/* One run of the queue; the answer is the caller's. */
static const struct once_run *lease(const char *queue, struct once_run_answer *a)
{
    struct once_run_lease in = ONCE_RUN_LEASE_INIT;
    in.queue = once_str(queue);
    in.wait_ms = 0;
    cr_assert(once_run_lease(once, &in, a) == 0, "%s", a->error.text);
    cr_assert(a->outcome == ONCE_OK);
    return a->run;
}

/* ---- what is refused ---- */

Test(lib_runs, a_handle_that_is_not_for_runs_refuses_all_of_them)
{
    struct once_trigger in = task("t");
    struct once_run_query query = ONCE_RUN_QUERY_INIT;
    struct once_run_answer a;
    struct once_error error;
    once_close(once);
    open_handle(0);
    cr_expect(once_trigger(once, &in, &a) == ONCE_EUNSUPPORTED);
    cr_expect(a.outcome == 0 && strstr(a.error.text, "ONCE_RUNS"));
    in.task = once_str("no such task"); /* what is asked is not even looked at */
    cr_expect(once_trigger(once, &in, &a) == ONCE_EUNSUPPORTED);
    cr_expect(once_run_list(once, &query, &a) == ONCE_EUNSUPPORTED);
    once_close(once);
    open_handle(ONCE_HOSTED);
    cr_expect(once_run_list_start(once, &query, NULL, NULL, NULL, &error) == ONCE_EUNSUPPORTED);
    cr_expect(strstr(error.text, "ONCE_RUNS"));
    once_close(once);
    open_handle(ONCE_RUNS);
    cr_expect(once_run_list(once, &query, &a) == 0 && a.count == 0);
    once_run_answer_clear(&a);
}

static bool has_file(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

Test(lib_runs, only_a_handle_for_runs_has_a_buffer)
{
    cr_expect(has_file("once.db-buffer"));
    teardown();
    snprintf(dir, sizeof dir, "/tmp/once-runs-XXXXXX");
    cr_assert(mkdtemp(dir));
    open_handle(0);
    cr_expect(has_file("once.db") && !has_file("once.db-buffer"));
}

static void trigger_refused(const struct once_trigger *in, int code, const char *why)
{
    struct once_run_answer a;
    cr_expect(once_trigger(once, in, &a) == code);
    cr_expect(a.outcome == 0 && a.error.code == code);
    cr_expect(strstr(a.error.text, why), "%s", a.error.text);
    once_run_answer_clear(&a);
}

Test(lib_runs, triggers_that_make_no_sense_are_refused)
{
    struct once_trigger in = task("t");
    in.size = 0;
    trigger_refused(&in, ONCE_EINVAL, "ONCE_TRIGGER_INIT");
    in = task("t"), in.flags = 1u << 30;
    trigger_refused(&in, ONCE_EINVAL, "flags");
    in = task("t"), in.delay_ms = 1, in.delay_until_ms = 1;
    trigger_refused(&in, ONCE_EINVAL, "exclude");
    in = task("t"), in.delay_ms = -1;
    trigger_refused(&in, ONCE_EINVAL, "negative");
    in = task("t"), in.wait_ms = -1;
    trigger_refused(&in, ONCE_EINVAL, "negative");
    in = task("t"), in.key_ms = -1;
    trigger_refused(&in, ONCE_EINVAL, "negative");
    in = task("t"), in.attempts_max = 0;
    trigger_refused(&in, ONCE_EINVAL, "attempts_max");
    in = task("t"), in.id = "run_x";
    trigger_refused(&in, ONCE_EINVAL, "id");
    in = task("t"), in.key = once_str("");
    trigger_refused(&in, ONCE_EINVAL, "the key is empty");
    in = task("t"), in.ordering_key = once_str("");
    trigger_refused(&in, ONCE_EINVAL, "the ordering key is empty");
    in = task("a b");
    trigger_refused(&in, ONCE_EINVAL, "task");
    in = task("t"), in.payload = once_str("{");
    trigger_refused(&in, ONCE_EINVAL, "payload");
}

/* What was not set is none; what was set and has nothing in it is a mistake. */
Test(lib_runs, no_key_is_not_an_empty_one)
{
    struct once_trigger in = task("t");
    in.key = in.ordering_key = once_str(NULL);
    struct id first = triggered(&in), second = triggered(&in);
    cr_expect_str_neq(first.text, second.text);
    struct once_run_args reset = ONCE_RUN_ARGS_INIT;
    struct once_run_answer a;
    reset.task = once_str("t");
    cr_expect(once_key_reset(once, &reset, &a) == ONCE_EINVAL);
    cr_expect(strstr(a.error.text, "the key is empty"), "%s", a.error.text);
    once_run_answer_clear(&a);
}

Test(lib_runs, tags_have_limits)
{
    static char long_tag[129];
    memset(long_tag, 'x', sizeof long_tag);
    struct once_bytes tags[11];
    struct once_trigger in = task("t");
    in.tags = tags;
    in.tag_count = 1;
    tags[0] = once_str("");
    trigger_refused(&in, ONCE_EINVAL, "empty");
    tags[0] = once_bytes(long_tag, sizeof long_tag);
    trigger_refused(&in, ONCE_ELIMIT, "128");
    for (size_t i = 0; i < 11; i++) tags[i] = once_bytes(long_tag, i + 1);
    in.tag_count = 11;
    trigger_refused(&in, ONCE_ELIMIT, "10");
    in.tag_count = 10;
    triggered(&in);
}

Test(lib_runs, changes_need_an_id_and_workers_a_token)
{
    struct once_run_args in = ONCE_RUN_ARGS_INIT;
    struct once_run_answer a;
    cr_expect(once_run_get(once, &in, &a) == ONCE_EINVAL);
    cr_expect(strstr(a.error.text, "id"));
    in.id = "run_01HZZZZZZZZZZZZZZZZZZZZZZZ";
    cr_expect(once_run_complete(once, &in, &a) == ONCE_EINVAL);
    cr_expect(strstr(a.error.text, "token"));
    in.token = "00000000000000000000000000000000";
    cr_expect(outcome_of(once_run_complete, &in) == ONCE_ABSENT);
    cr_expect(outcome_of(once_run_get, &in) == ONCE_ABSENT);
    in.lease_ms = -2;
    cr_expect(once_run_heartbeat(once, &in, &a) == ONCE_EINVAL);
    once_run_answer_clear(&a);
}

Test(lib_runs, a_lease_of_no_time_is_refused)
{
    struct once_run_lease in = ONCE_RUN_LEASE_INIT;
    struct once_run_answer a;
    in.queue = once_str("t");
    in.lease_ms = 0;
    cr_expect(once_run_lease(once, &in, &a) == ONCE_EINVAL);
    cr_expect(strstr(a.error.text, "lease"), "%s", a.error.text);
    once_run_answer_clear(&a);
}

/* An older program knows a shorter struct: what it does not know keeps its default. */
Test(lib_runs, a_shorter_struct_is_taken)
{
    struct once_trigger in = task("t");
    in.size = offsetof(struct once_trigger, attempts_max);
    in.attempts_max = 99;
    struct id id = triggered(&in);
    struct once_run_args get = about(&id);
    struct once_run_answer a;
    cr_assert(once_run_get(once, &get, &a) == 0);
    cr_expect(a.run->attempts_max == 3);
    once_run_answer_clear(&a);
}

/* ---- trigger and read ---- */

Test(lib_runs, the_same_key_leads_to_the_same_run)
{
    struct once_trigger in = task("t");
    struct once_run_answer a;
    in.key = once_str("k");
    cr_assert(once_trigger(once, &in, &a) == 0 && a.outcome == ONCE_OK);
    struct id id;
    memcpy(id.text, a.run->id, sizeof id.text);
    once_run_answer_clear(&a);
    cr_assert(once_trigger(once, &in, &a) == 0 && a.outcome == ONCE_CACHED);
    cr_expect_str_eq(a.run->id, id.text);
    once_run_answer_clear(&a);
    in.payload = once_str("2");
    cr_assert(once_trigger(once, &in, &a) == 0 && a.outcome == ONCE_MISMATCH);
    once_run_answer_clear(&a);
    in.flags = ONCE_RETURN_MISMATCH;
    cr_assert(once_trigger(once, &in, &a) == 0 && a.outcome == ONCE_CACHED);
    cr_expect_str_eq(a.run->id, id.text);
    once_run_answer_clear(&a);
    struct once_run_args reset = ONCE_RUN_ARGS_INIT;
    reset.task = in.task;
    reset.key = in.key;
    cr_expect(outcome_of(once_key_reset, &reset) == ONCE_OK);
    cr_expect(outcome_of(once_key_reset, &reset) == ONCE_ABSENT);
    cr_assert(once_trigger(once, &in, &a) == 0 && a.outcome == ONCE_OK);
    cr_expect_str_neq(a.run->id, id.text);
    once_run_answer_clear(&a);
}

Test(lib_runs, a_run_shows_what_it_was_made_of)
{
    const struct once_bytes tags[] = { once_str("a"), once_str("b"), once_str("a") };
    struct once_trigger in = task("t");
    struct once_run_answer a;
    in.queue = once_str("q");
    in.ordering_key = once_str("o");
    in.metadata = once_str("{\"m\":1}");
    in.key = once_str("k");
    in.tags = tags;
    in.tag_count = 3;
    in.delay_ms = 3600000;
    struct id id = triggered(&in);
    struct once_run_args get = about(&id);
    cr_assert(once_run_get(once, &get, &a) == 0 && a.count == 1);
    const struct once_run *r = a.run;
    cr_expect(r->status == ONCE_RUN_DELAYED);
    cr_expect_str_eq(r->status_name, "DELAYED");
    cr_expect(text_is(r->env, "default") && text_is(r->task, "t") && text_is(r->queue, "q"));
    cr_expect(text_is(r->payload, "{\"n\": 1}") && text_is(r->ordering_key, "o"));
    cr_expect(text_is(r->key, "k") && r->key_held && r->key_until_ms > r->created_at_ms);
    cr_expect(text_is(r->metadata, "{\"m\":1}"));
    cr_expect(r->tag_count == 2 && text_is(r->tags[0], "a") && text_is(r->tags[1], "b"));
    cr_expect(r->delay_until_ms == r->created_at_ms + 3600000);
    cr_expect(r->attempts == 0 && r->attempts_max == 3 && !r->started_at_ms);
    cr_expect_str_eq(r->canonical_id, "");
    once_run_answer_clear(&a);
    once_run_answer_clear(&a);
    cr_expect(!a.run && !a.owner);
}

Test(lib_runs, a_list_goes_on_behind_its_last)
{
    struct once_run_query in = ONCE_RUN_QUERY_INIT;
    struct once_run_answer a;
    struct once_trigger trigger = task("t");
    char last[31] = "~", before[31];
    size_t seen = 0;
    for (int i = 0; i < 5; i++) triggered(&trigger);
    in.limit = 2;
    do {
        cr_assert(once_run_list(once, &in, &a) == 0, "%s", a.error.text);
        cr_expect(a.count <= 2);
        for (size_t i = 0; i < a.count; i++, seen++) {
            cr_expect(strcmp(a.runs[i]->id, last) < 0);
            memcpy(last, a.runs[i]->id, sizeof last);
        }
        memcpy(before, a.next, sizeof before);
        in.before = before;
        once_run_answer_clear(&a);
    } while (*before);
    cr_expect(seen == 5);
}

static size_t listed(unsigned statuses)
{
    struct once_run_query in = ONCE_RUN_QUERY_INIT;
    struct once_run_answer a;
    in.statuses = statuses;
    cr_assert(once_run_list(once, &in, &a) == 0, "%s", a.error.text);
    size_t count = a.count;
    once_run_answer_clear(&a);
    return count;
}

Test(lib_runs, a_list_tells_delayed_from_queued)
{
    struct once_trigger in = task("t");
    triggered(&in);
    in.delay_ms = 3600000;
    triggered(&in);
    triggered(&in);
    cr_expect(listed(0) == 3);
    cr_expect(listed(1u << ONCE_RUN_QUEUED) == 1);
    cr_expect(listed(1u << ONCE_RUN_DELAYED) == 2);
    cr_expect(listed(1u << ONCE_RUN_DELAYED | 1u << ONCE_RUN_QUEUED) == 3);
    cr_expect(listed(1u << ONCE_RUN_FAILED) == 0);
    struct once_run_query query = ONCE_RUN_QUERY_INIT;
    struct once_run_answer a;
    query.statuses = 1u << 7;
    cr_expect(once_run_list(once, &query, &a) == ONCE_EINVAL);
}

/* ---- changes ---- */

Test(lib_runs, metadata_is_changed_by_its_version_or_by_operations)
{
    struct once_trigger trigger = task("t");
    struct id id = triggered(&trigger);
    struct once_run_args in = about(&id);
    struct once_run_answer a;
    in.value = once_str("{\"n\":1}");
    in.version = 0;
    cr_expect(outcome_of(once_run_set_metadata, &in) == ONCE_OK);
    cr_assert(once_run_set_metadata(once, &in, &a) == 0 && a.outcome == ONCE_CONFLICT);
    cr_expect(a.reason && a.run->metadata_version == 1);
    once_run_answer_clear(&a);
    in.value = once_str("[{\"type\":\"increment\",\"key\":\"n\",\"value\":2}]");
    cr_assert(once_run_operate(once, &in, &a) == 0 && a.outcome == ONCE_OK, "%s", a.error.text);
    cr_expect(text_is(a.run->metadata, "{\"n\":3}"));
    once_run_answer_clear(&a);
    in.value = once_str("[{\"type\":\"explode\",\"key\":\"n\"}]");
    cr_expect(once_run_operate(once, &in, &a) == ONCE_EINVAL);
    once_run_answer_clear(&a);
}

Test(lib_runs, tags_times_and_cancel)
{
    const struct once_bytes tags[] = { once_str("new") };
    struct once_trigger trigger = task("t");
    struct once_run_answer a;
    struct id now = triggered(&trigger);
    trigger.delay_ms = 3600000;
    struct id later = triggered(&trigger);
    struct once_run_args in = about(&later);
    in.tags = tags;
    in.tag_count = 1;
    cr_assert(once_run_add_tags(once, &in, &a) == 0 && a.outcome == ONCE_OK);
    cr_expect(a.run->tag_count == 1 && text_is(a.run->tags[0], "new"));
    once_run_answer_clear(&a);
    in.at_ms = 1;
    cr_expect(outcome_of(once_run_reschedule, &in) == ONCE_OK);
    cr_expect(status_of(&later) == ONCE_RUN_QUEUED);
    in = about(&now);
    in.at_ms = 1;
    cr_expect(outcome_of(once_run_reschedule, &in) == ONCE_REFUSED);
    in.value = once_str("\"enough\"");
    cr_expect(outcome_of(once_run_cancel, &in) == ONCE_OK);
    cr_expect(status_of(&now) == ONCE_RUN_CANCELED);
    cr_assert(once_run_replay(once, &in, &a) == 0 && a.outcome == ONCE_OK);
    cr_expect(a.run->status == ONCE_RUN_QUEUED && text_is(a.run->payload, "{\"n\": 1}"));
    once_run_answer_clear(&a);
}

/* ---- workers ---- */

Test(lib_runs, a_worker_completes_a_run)
{
    struct once_trigger trigger = task("t");
    struct once_run_answer leased, a;
    struct id id = triggered(&trigger);
    const struct once_run *run = lease("t", &leased);
    cr_assert(run && leased.count == 1);
    cr_expect_str_eq(run->id, id.text);
    cr_expect(run->status == ONCE_RUN_EXECUTING && run->attempts == 1 && run->fence > 0);
    cr_expect(strlen(run->token) == 32);
    struct once_run_args in = about(&id);
    cr_assert(once_run_get(once, &in, &a) == 0);
    cr_expect_str_eq(a.run->token, "", "a token is for its worker only");
    once_run_answer_clear(&a);
    in.token = run->token;
    cr_expect(outcome_of(once_run_heartbeat, &in) == ONCE_OK);
    in.value = once_str("{\"done\":true}");
    cr_assert(once_run_complete(once, &in, &a) == 0 && a.outcome == ONCE_OK);
    cr_expect(a.run->status == ONCE_RUN_COMPLETED && text_is(a.run->output, "{\"done\":true}"));
    cr_expect_str_eq(a.run->token, "");
    once_run_answer_clear(&a);
    cr_expect(outcome_of(once_run_heartbeat, &in) == ONCE_LOST);
    once_run_answer_clear(&leased);
    cr_expect(!lease("t", &leased) && leased.count == 0);
    once_run_answer_clear(&leased);
}

Test(lib_runs, a_failed_attempt_is_tried_again_until_none_is_left)
{
    struct once_trigger trigger = task("t");
    struct once_run_answer leased;
    trigger.attempts_max = 2;
    struct id id = triggered(&trigger);
    struct once_run_args in = about(&id);
    in.value = once_str("\"no\"");
    in.retry_ms = 0;
    for (unsigned attempt = 1; attempt <= 2; attempt++) {
        const struct once_run *run = lease("t", &leased);
        cr_assert(run && run->attempts == attempt);
        in.token = run->token;
        cr_expect(outcome_of(once_run_fail, &in) == ONCE_OK);
        once_run_answer_clear(&leased);
    }
    cr_expect(status_of(&id) == ONCE_RUN_FAILED);
}

Test(lib_runs, what_is_given_back_is_not_an_attempt)
{
    struct once_trigger trigger = task("t");
    struct once_run_answer leased;
    struct id id = triggered(&trigger);
    for (int i = 0; i < 2; i++) {
        const struct once_run *run = lease("t", &leased);
        cr_assert(run && run->attempts == 1);
        struct once_run_args in = about(&id);
        in.token = run->token;
        cr_expect(outcome_of(once_run_return, &in) == ONCE_OK);
        once_run_answer_clear(&leased);
    }
    cr_expect(status_of(&id) == ONCE_RUN_QUEUED);
}

/* ---- a foreign loop ---- */

struct told {
    int calls, result, outcome;
    struct id id;
};

static void tell(void *ctx, int result, struct once_run_answer *answer)
{
    struct told *t = ctx;
    t->calls++;
    t->result = result;
    t->outcome = answer->outcome;
    if (answer->run) memcpy(t->id.text, answer->run->id, sizeof t->id.text);
    once_run_answer_clear(answer);
}

static void drive_until_told(const struct told *t)
{
    while (!t->calls) {
        struct pollfd fd = { .fd = once_fd(once), .events = POLLIN };
        poll(&fd, 1, (int)once_timeout_ms(once));
        once_process(once);
    }
}

static void reopen_hosted(void)
{
    once_close(once);
    open_handle(ONCE_HOSTED | ONCE_RUNS);
}

Test(lib_runs, asynchronous_calls_need_a_hosted_handle)
{
    struct once_trigger in = task("t");
    struct once_error error;
    struct told t = { 0 };
    cr_expect(once_trigger_start(once, &in, tell, &t, NULL, &error) == ONCE_EUNSUPPORTED);
    cr_expect(strstr(error.text, "ONCE_HOSTED") && t.calls == 0);
}

Test(lib_runs, a_call_is_told_once_and_never_inside_its_start)
{
    struct once_trigger in = task("t");
    struct once_error error;
    struct told trigger = { 0 }, get = { 0 };
    reopen_hosted();
    cr_assert(once_trigger_start(once, &in, tell, &trigger, NULL, &error) == 0);
    cr_expect(trigger.calls == 0);
    drive_until_told(&trigger);
    cr_expect(trigger.calls == 1 && trigger.result == 0 && trigger.outcome == ONCE_OK);
    struct once_run_args args = about(&trigger.id);
    cr_assert(once_run_get_start(once, &args, tell, &get, NULL, &error) == 0);
    drive_until_told(&get);
    cr_expect_str_eq(get.id.text, trigger.id.text);
    args.id = "nonsense";
    cr_expect(once_run_get_start(once, &args, tell, &get, NULL, &error) == ONCE_EINVAL);
    cr_expect(get.calls == 1);
}

/* ---- bursts ---- */

enum { BURST = 150 };

struct burst {
    size_t told, buffered;
    struct id ids[BURST];
};

static void tell_burst(void *ctx, int result, struct once_run_answer *answer)
{
    struct burst *b = ctx;
    cr_assert(result == 0 && answer->outcome == ONCE_OK, "%s", answer->error.text);
    memcpy(b->ids[b->told].text, answer->run->id, sizeof b->ids[0].text);
    b->told++;
    b->buffered += answer->buffered != 0;
    once_run_answer_clear(answer);
}

static bool is_buffered(const struct id *id)
{
    struct once_run_args in = about(id);
    struct once_run_answer a;
    cr_assert(once_run_get(once, &in, &a) == 0 && a.outcome == ONCE_OK);
    bool buffered = a.buffered;
    once_run_answer_clear(&a);
    return buffered;
}

Test(lib_runs, a_burst_is_buffered_and_draining_moves_all_of_it)
{
    struct once_trigger in = task("t");
    struct burst b = { 0 };
    struct once_error error;
    uint64_t drained = 0;
    reopen_hosted();
    for (int i = 0; i < BURST; i++)
        cr_assert(once_trigger_start(once, &in, tell_burst, &b, NULL, &error) == 0);
    while (b.told < BURST) {
        struct pollfd p = { .fd = once_fd(once), .events = POLLIN };
        poll(&p, 1, (int)once_timeout_ms(once));
        once_process(once);
    }
    cr_expect(b.buffered == BURST - 100);
    cr_assert(once_drain(once, &drained, &error) == 0, "%s", error.text);
    cr_expect(drained <= b.buffered);
    for (int i = 0; i < BURST; i++) cr_expect(!is_buffered(&b.ids[i]));
    cr_assert(once_drain(once, &drained, &error) == 0);
    cr_expect(drained == 0);
}

Test(lib_runs, draining_needs_a_buffer)
{
    struct once_config config = ONCE_CONFIG_INIT;
    struct once_error error;
    once_close(once);
    open_handle(0);
    cr_expect(once_drain(once, NULL, &error) == ONCE_EUNSUPPORTED);
    cr_expect(strstr(error.text, "ONCE_RUNS"));
    once_close(once);
    config.url = "once://127.0.0.1:1";
    cr_assert(once_open(&config, &once, &error) == 0);
    cr_expect(once_drain(once, NULL, &error) == ONCE_EUNSUPPORTED);
    cr_expect(strstr(error.text, "by itself"));
}

Test(lib_runs, a_waiting_lease_can_be_canceled)
{
    struct once_run_lease in = ONCE_RUN_LEASE_INIT;
    struct once_call *call;
    struct once_error error;
    struct told t = { 0 };
    reopen_hosted();
    in.queue = once_str("empty");
    in.wait_ms = 60000;
    cr_assert(once_run_lease_start(once, &in, tell, &t, &call, &error) == 0);
    once_process(once);
    cr_expect(t.calls == 0);
    once_cancel(once, call);
    drive_until_told(&t);
    cr_expect(t.calls == 1 && t.result == ONCE_ECANCELED);
}

Test(lib_runs, closing_ends_a_waiting_lease)
{
    struct once_run_lease in = ONCE_RUN_LEASE_INIT;
    struct once_error error;
    struct told t = { 0 };
    reopen_hosted();
    in.queue = once_str("empty");
    in.wait_ms = 60000;
    cr_assert(once_run_lease_start(once, &in, tell, &t, NULL, &error) == 0);
    once_close(once);
    cr_expect(t.calls == 1 && t.result == ONCE_ECANCELED);
    open_handle(ONCE_RUNS);
}
