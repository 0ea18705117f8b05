/* claim.c - once claim: become the owner of a key, or get its answer. */
#include "cli/answer.h"
#include "cli/commands.h"
#include "cli/fingerprint.h"
#include "cli/format.h"

enum { CLAIM_LEASE, CLAIM_WAIT, CLAIM_RETAIN, CLAIM_FINGERPRINT, CLAIM_END };

static const struct option claim_options[] = {
    [CLAIM_LEASE] = { "lease", 'l', OPTION_DURATION, .value = "D", .fallback = "30s",
                      .help = "how long the key is yours, from now" },
    [CLAIM_WAIT] = { "wait", 'w', OPTION_DURATION, .value = "D", .fallback = "5s",
                     .help = "how long to wait for the current owner; 0: not at all" },
    [CLAIM_RETAIN] = { "retain", 'r', OPTION_DURATION, .value = "D", .fallback = "24h",
                       .help = "how long the answer is kept, from its publish on" },
    [CLAIM_FINGERPRINT] = { "fingerprint", 'f', OPTION_TEXT, .value = "TEXT",
                            .help =
                                "of the request: another one under this key is a mismatch" },
    [CLAIM_END] = { 0 },
};

static void print_claim(const struct once_answer *a)
{
    char lease[DURATION_TEXT_BYTES];
    puts(once_outcome_name(a->outcome));
    if (a->outcome == ONCE_CACHED) {
        answer_print_value(a->value);
        return;
    }
    printf("token %s\nfence %llu\nlease %s\n", a->lease.token,
           (unsigned long long)a->lease.fence, format_duration(a->lease.lease_ms, lease));
}

static int claim_run(struct cli *cli, const struct args *args)
{
    struct once_config config = ONCE_CONFIG_INIT;
    struct once_claim in = ONCE_CLAIM_INIT;
    struct once_answer answer = { 0 };
    struct fingerprint fingerprint = { 0 };
    struct once *once;
    if (args->values[CLAIM_FINGERPRINT].given &&
        fingerprint_text(args->values[CLAIM_FINGERPRINT].text, &fingerprint) < 0)
        return cli_fail(cli, ONCE_ENOMEM, NULL);
    in.scope = once_str(args->operands[0]);
    in.key = once_str(args->operands[1]);
    in.fingerprint = once_bytes(fingerprint.bytes, fingerprint.len);
    in.lease_ms = args->values[CLAIM_LEASE].number;
    in.wait_ms = args->values[CLAIM_WAIT].number;
    in.retain_ms = args->values[CLAIM_RETAIN].number;
    in.flags = ONCE_NO_RENEW; /* this process ends now; its owner is whoever has the token */
    int status = cli_open(cli, &config, &once);
    if (status) return status;
    int r = once_claim(once, &in, &answer);
    once_close(once);
    if (r == 0 && !cli->json && once_outcome_exit_status(answer.outcome) == STATUS_OK)
        print_claim(&answer);
    return answer_finish(cli, r, &answer);
}

const struct command claim_command = {
    .name = "claim",
    .summary = "Claim a key, or get its answer",
    .operands = "SCOPE KEY",
    .operands_min = 2,
    .operands_max = 2,
    .options = claim_options,
    .details =
        "Prints the outcome on the first line. After 'claimed': token, fence and lease,\n"
        "one per line. After 'cached': the value, byte for byte.\n\n"
        "The lease runs from now and nobody renews it: publish, renew or release before\n"
        "it ends, or the next caller takes over. Give the fence to whatever you write to\n"
        "and let it refuse smaller ones. Whoever has the token can publish: keep it out\n"
        "of logs.\n",
    .run = claim_run,
};
