/* trigger.c - once trigger: a run of a task; the same key, the same run. */
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/input.h"
#include "cli/run_show.h"

#include <string.h>

enum {
    TRIGGER_ENV,
    TRIGGER_KEY,
    TRIGGER_KEY_TTL,
    TRIGGER_DELAY,
    TRIGGER_TAG,
    TRIGGER_QUEUE,
    TRIGGER_ORDERING_KEY,
    TRIGGER_MAX_ATTEMPTS,
    TRIGGER_ID,
    TRIGGER_METADATA,
    TRIGGER_ON_MISMATCH,
    TRIGGER_WAIT,
    TRIGGER_END
};

static const struct option trigger_options[] = {
    [TRIGGER_ENV] = { "env", 'e', OPTION_TEXT, .value = "ENV", .fallback = "default",
                      .help = "runs of different envs never meet" },
    [TRIGGER_KEY] = { "key", 'k', OPTION_TEXT, .value = "KEY",
                      .help = "same task and key, same run" },
    [TRIGGER_KEY_TTL] = { "key-ttl", .kind = OPTION_DURATION, .value = "D", .fallback = "30d",
                          .help = "how long the key leads to this run" },
    [TRIGGER_DELAY] = { "delay", 'd', OPTION_DURATION, .value = "D", .fallback = "0",
                        .help = "not to be worked on before" },
    [TRIGGER_TAG] = { "tag", 't', OPTION_LIST, .value = "TAG",
                      .help = "to find it by; repeat for more, up to 10" },
    [TRIGGER_QUEUE] = { "queue", .kind = OPTION_TEXT, .value = "QUEUE",
                        .help = "who works on it (default: the task)" },
    [TRIGGER_ORDERING_KEY] = { "ordering-key", .kind = OPTION_TEXT, .value = "KEY",
                               .help = "runs of one are done one at a time, in order" },
    [TRIGGER_MAX_ATTEMPTS] = { "max-attempts", .kind = OPTION_COUNT, .value = "N",
                               .fallback = "3", .help = "so often before it is FAILED" },
    [TRIGGER_ID] = { "id", .kind = OPTION_TEXT, .value = "ID",
                     .help = "of your own making, run_...: repeating the call is safe" },
    [TRIGGER_METADATA] = { "metadata", .kind = OPTION_TEXT, .value = "JSON",
                           .help = "an object that may change while it runs" },
    [TRIGGER_ON_MISMATCH] = { "on-mismatch", .kind = OPTION_CHOICE, .value = "WHAT",
                              .fallback = "error", .choices = { "error", "return" },
                              .help = "another payload under a live key: refuse it, or "
                                      "return its run" },
    [TRIGGER_WAIT] = { "wait", 'w', OPTION_DURATION, .value = "D", .fallback = "5s",
                       .help = "for somebody who is triggering the same key" },
    [TRIGGER_END] = { 0 },
};

static struct once_bytes text_of(const struct option_value *value)
{
    return once_str(value->text); /* NULL: it was not given */
}

static int print_answer(const struct cli *cli, const struct once_run_answer *a)
{
    if (!cli->json) {
        puts(a->run->id);
        return STATUS_OK;
    }
    return print_json(stdout,
                      json_pack("{s:s, s:b, s:s, s:s, s:b, s:I}", "id", a->run->id, "isCached",
                                a->outcome == ONCE_CACHED, "status", a->run->status_name,
                                "source", a->buffered ? "buffer" : "ledger", "degraded",
                                a->degraded, "waited_ms", (json_int_t)a->waited_ms));
}

static int trigger_ask(struct cli *cli, const struct once_trigger *in)
{
    struct once_config config = ONCE_CONFIG_INIT;
    struct once_run_answer answer = { 0 };
    struct once *once;
    config.flags = ONCE_RUNS;
    int status = cli_open(cli, &config, &once);
    if (status) return status;
    int r = once_trigger(once, in, &answer);
    once_close(once);
    status = run_answer_status(cli, r, &answer);
    if (!status) status = print_answer(cli, &answer);
    once_run_answer_clear(&answer);
    return status;
}

static int trigger_stdin(struct cli *cli, struct once_trigger *in)
{
    const struct once_config limits = ONCE_CONFIG_INIT;
    struct buf payload;
    buf_init(&payload, (size_t)limits.value_bytes_max);
    int status = input_read(cli, "payload", &payload);
    in->payload = once_bytes(payload.data, payload.len);
    if (!status) status = trigger_ask(cli, in);
    buf_fini(&payload);
    return status;
}

static int trigger_run(struct cli *cli, const struct args *args)
{
    struct once_trigger in = ONCE_TRIGGER_INIT;
    struct once_bytes tags[OPTION_TEXTS_MAX];
    const struct option_value *values = args->values, *tag = &values[TRIGGER_TAG];
    const char *payload = args->operand_count > 1 ? args->operands[1] : "";
    for (size_t i = 0; i < tag->count; i++) tags[i] = once_str(tag->texts[i]);
    in.env = text_of(&values[TRIGGER_ENV]);
    in.task = once_str(args->operands[0]);
    in.payload = once_str(payload);
    in.key = text_of(&values[TRIGGER_KEY]);
    in.queue = text_of(&values[TRIGGER_QUEUE]);
    in.ordering_key = text_of(&values[TRIGGER_ORDERING_KEY]);
    in.metadata = text_of(&values[TRIGGER_METADATA]);
    in.tags = tags;
    in.tag_count = tag->count;
    in.id = values[TRIGGER_ID].text;
    in.key_ms = values[TRIGGER_KEY_TTL].number;
    in.delay_ms = values[TRIGGER_DELAY].number;
    in.wait_ms = values[TRIGGER_WAIT].number;
    in.attempts_max = (uint32_t)values[TRIGGER_MAX_ATTEMPTS].number;
    if (strcmp(values[TRIGGER_ON_MISMATCH].text, "return") == 0)
        in.flags |= ONCE_RETURN_MISMATCH;
    return strcmp(payload, "-") == 0 ? trigger_stdin(cli, &in) : trigger_ask(cli, &in);
}

const struct command trigger_command = {
    .name = "trigger",
    .summary = "Trigger a run of a task; the same key, the same run",
    .operands = "TASK [PAYLOAD|-]",
    .operands_min = 1,
    .operands_max = 2,
    .options = trigger_options,
    .details =
        "Prints the id of the run. PAYLOAD is JSON, kept byte for byte; '-' reads it from\n"
        "stdin, up to 1 MiB. Whoever works on the queue gets it: see once work.\n\n"
        "With --key, every trigger of this task with this key is answered with the same run,\n"
        "until the key's time is over, or its run has FAILED. Another payload under the same\n"
        "key is refused (3), and so is a key that is empty (2).\n\n"
        "  once trigger send-receipt '{\"order\": \"o-17\"}' --key o-17 --tag shop\n",
    .run = trigger_run,
};
