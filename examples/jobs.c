/* jobs.c - triggers runs, and works on them until nothing is due.
 *
 *     cc jobs.c -o jobs $(pkg-config --cflags --libs once)
 *     ./jobs /tmp/shop     # sends two receipts: one of them is tried twice, none is sent twice
 *     ./jobs /tmp/shop     # both were sent: nothing to do
 */
#include <once/once.h>

#include <stdio.h>

static int refuse(const char *what, const struct once_error *error)
{
    fprintf(stderr, "%s: %s\n", what, error->text);
    return 1;
}

/* However often it is called for an order, there is one run. Its id is for whoever asks later. */
static int trigger(struct once *o, const char *order, char id[31])
{
    struct once_trigger in = ONCE_TRIGGER_INIT;
    struct once_run_answer answer;
    in.task = once_str("send-receipt");
    in.payload = once_str("{\"copies\": 1}");
    in.key = once_str(order);
    if (once_trigger(o, &in, &answer) < 0) return refuse("trigger", &answer.error);
    if (!answer.run) return 1;
    printf(answer.outcome == ONCE_OK ? "triggered %s\n" : "%s is there already\n", order);
    snprintf(id, 31, "%s", answer.run->id);
    once_run_answer_clear(&answer);
    return 0;
}

/* The work itself. The mail server is down when o-18 is first tried. */
static int send_receipt(const struct once_run *run)
{
    const char *key = run->key.data;
    return key[run->key.len - 1] == '8' && run->attempts == 1 ? -1 : 0;
}

/* What takes longer than a third of its lease would call once_run_heartbeat() meanwhile. */
static int work_on(struct once *o, const struct once_run *run)
{
    struct once_run_args in = ONCE_RUN_ARGS_INIT;
    struct once_run_answer answer;
    in.id = run->id;
    in.token = run->token;
    int sent = send_receipt(run) == 0, r;
    if (sent) {
        in.value = once_str("{\"sent\":true}");
        r = once_run_complete(o, &in, &answer);
    } else {
        in.value = once_str("\"the mail server is down\"");
        in.retry_ms = 100;
        r = once_run_fail(o, &in, &answer);
        printf("%.*s: failed, to be tried again\n", (int)run->key.len,
               (const char *)run->key.data);
    }
    if (r < 0) return refuse("settle", &answer.error);
    once_run_answer_clear(&answer); /* ONCE_LOST: somebody else has it; that one counts */
    return 0;
}

static int work(struct once *o)
{
    for (;;) {
        struct once_run_lease in = ONCE_RUN_LEASE_INIT;
        struct once_run_answer answer;
        in.queue = once_str("send-receipt");
        in.count = 10;
        in.wait_ms = 1000;
        if (once_run_lease(o, &in, &answer) < 0) return refuse("lease", &answer.error);
        size_t count = answer.count;
        int failed = 0;
        for (size_t i = 0; i < count && !failed; i++) failed = work_on(o, answer.runs[i]);
        once_run_answer_clear(&answer);
        if (failed || count == 0) return failed;
    }
}

static int show(struct once *o, const char *id)
{
    struct once_run_args in = ONCE_RUN_ARGS_INIT;
    struct once_run_answer answer;
    in.id = id;
    if (once_run_get(o, &in, &answer) < 0) return refuse("get", &answer.error);
    if (answer.run)
        printf("%.*s: %s %.*s\n", (int)answer.run->key.len, (const char *)answer.run->key.data,
               answer.run->status_name, (int)answer.run->output.len,
               (const char *)answer.run->output.data);
    once_run_answer_clear(&answer);
    return 0;
}

int main(int argc, char **argv)
{
    struct once_config config = ONCE_CONFIG_INIT;
    struct once_error error;
    struct once *o;
    char ids[2][31];
    if (argc != 2) {
        fprintf(stderr, "usage: jobs DIRECTORY\n");
        return 2;
    }
    config.data_dir = argv[1];
    config.flags = ONCE_RUNS;
    if (once_open(&config, &o, &error) < 0) return refuse("open", &error);
    int failed = trigger(o, "o-17", ids[0]) || trigger(o, "o-17", ids[0]) ||
                 trigger(o, "o-18", ids[1]) || work(o) || show(o, ids[0]) || show(o, ids[1]);
    once_close(o);
    return failed;
}
