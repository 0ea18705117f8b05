/* owned.c - publish, release, renew: what the holder of a token may do. */
#include "cli/answer.h"
#include "cli/commands.h"
#include "cli/input.h"

#include <string.h>

typedef int owned_call(struct once *, const struct once_owned *, struct once_answer *);

/* Opens, makes one call, reports. A `lost` that knows the canonical answer prints it. */
static int owned_finish(struct cli *cli, struct once_owned *in, owned_call *call,
                        const char *did)
{
    struct once_config config = ONCE_CONFIG_INIT;
    struct once_answer answer = { 0 };
    struct once *once;
    int status = cli_open(cli, &config, &once);
    if (status) return status;
    int r = call(once, in, &answer);
    once_close(once);
    bool canonical = r == 0 && answer.outcome == ONCE_LOST && answer.has_value;
    if (canonical && !cli->json) answer_print_value(answer.value);
    if (r == 0 && !cli->json && answer.outcome == ONCE_OK) cli_note(cli, "%s", did);
    return answer_finish(cli, r, &answer);
}

static struct once_owned owned_of(const struct args *args)
{
    struct once_owned in = ONCE_OWNED_INIT;
    in.scope = once_str(args->operands[0]);
    in.key = once_str(args->operands[1]);
    in.token = args->operands[2];
    return in;
}

/* ---- publish ---- */

enum { PUBLISH_OMIT, PUBLISH_END };

static const struct option publish_options[] = {
    [PUBLISH_OMIT] = { "omit-value", .kind = OPTION_FLAG,
                       .help = "it was done, but keep no answer: others get already_done" },
    [PUBLISH_END] = { 0 },
};

static int publish_stdin(struct cli *cli, struct once_owned *in)
{
    const struct once_config limits = ONCE_CONFIG_INIT;
    struct buf value;
    buf_init(&value, (size_t)limits.value_bytes_max);
    int status = input_read(cli, "value", &value);
    in->value = once_bytes(value.data, value.len);
    if (!status) status = owned_finish(cli, in, once_publish, "published");
    buf_fini(&value);
    return status;
}

static int publish_run(struct cli *cli, const struct args *args)
{
    struct once_owned in = owned_of(args);
    const char *value = args->operand_count > 3 ? args->operands[3] : NULL;
    in.omit_value = args->values[PUBLISH_OMIT].given;
    if (in.omit_value == (value != NULL)) {
        cli_error(value ? "a VALUE and --omit-value exclude each other"
                        : "a VALUE is missing; '-' reads it from stdin");
        return STATUS_USAGE;
    }
    if (value && strcmp(value, "-") == 0) return publish_stdin(cli, &in);
    in.value = once_str(value);
    return owned_finish(cli, &in, once_publish, "published");
}

const struct command publish_command = {
    .name = "publish",
    .summary = "Publish the answer of a claim",
    .operands = "SCOPE KEY TOKEN VALUE|-",
    .operands_min = 3,
    .operands_max = 4,
    .options = publish_options,
    .details =
        "Everybody who asks for the key gets this value, from now until its retention\n"
        "ends. '-' reads it from stdin, up to 1 MiB. Publishing the same value with the\n"
        "same token again is fine. If the claim is no longer yours, nothing changes, the\n"
        "exit status is 5 and the canonical answer, if there is one, is printed.\n",
    .run = publish_run,
};

/* ---- release ---- */

static int release_run(struct cli *cli, const struct args *args)
{
    struct once_owned in = owned_of(args);
    return owned_finish(cli, &in, once_release, "released");
}

const struct command release_command = {
    .name = "release",
    .summary = "Give a claim up, so that the next caller can have it",
    .operands = "SCOPE KEY TOKEN",
    .operands_min = 3,
    .operands_max = 3,
    .run = release_run,
};

/* ---- renew ---- */

enum { RENEW_LEASE, RENEW_END };

static const struct option renew_options[] = {
    [RENEW_LEASE] = { "lease", 'l', OPTION_DURATION, .value = "D",
                      .help =
                          "how long the key stays yours, from now; as granted if not given" },
    [RENEW_END] = { 0 },
};

static int renew_run(struct cli *cli, const struct args *args)
{
    struct once_owned in = owned_of(args);
    if (args->values[RENEW_LEASE].given) in.lease_ms = args->values[RENEW_LEASE].number;
    return owned_finish(cli, &in, once_renew, "renewed");
}

const struct command renew_command = {
    .name = "renew",
    .summary = "Start the lease of a claim again, from now",
    .operands = "SCOPE KEY TOKEN",
    .operands_min = 3,
    .operands_max = 3,
    .options = renew_options,
    .run = renew_run,
};
