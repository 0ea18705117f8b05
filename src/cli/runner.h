/* runner.h - the loop of once run: one poll over the claim, the signals and the command.
 *
 *   CLAIMING --granted--> WORKING --the command ended--> SETTLING
 *
 * Guarantees: the lease is renewed as long as the command runs, whatever its readers do; the
 * signals that end a program reach the command; when the key is certainly lost, the command is
 * ended (SIGTERM, five seconds later SIGKILL). Does not decide what an ending means: run.c. */
#ifndef CLI_RUNNER_H
#define CLI_RUNNER_H

#include "cli/child.h"
#include "cli/cli.h"
#include "cli/signals.h"
#include "cli/tee.h"

enum runner_phase { RUNNER_CLAIMING, RUNNER_WORKING, RUNNER_SETTLING };

struct runner {
    enum runner_phase phase;
    struct once *once;

    struct signals signals;
    int interrupted_by; /* the first signal that asked us to end; 0: none */

    struct once_call *call; /* the one under way, NULL when it is answered */
    int result;
    struct once_answer answer; /* of the last call */

    struct child child;
    struct tee out, err;
    struct result_writer captured;
    bool lost;          /* somebody else owns the key */
    int64_t kill_at_ms; /* when to stop asking the command nicely; 0: not asked */
};

/* Blocks the signals. Before once_open(): its threads must inherit that. */
int runner_init(struct runner *r, struct err *reterr);
void runner_fini(struct runner *r);

/* The claim; the answer is in r->answer. ERR_CANCELED: a signal came first. */
int runner_claim(struct runner *r, struct once_claim *in);

/* Runs the command to its end, and its outputs to theirs. Returns as child_start(). */
int runner_work(struct runner *r, char *const *argv, char *const *env, size_t result_bytes_max,
                struct err *reterr);

typedef int runner_start_fn(struct once *, const struct once_owned *, once_done_fn *, void *,
                            struct once_call **, struct once_error *);

/* Publish or release; signals no longer count. */
int runner_settle(struct runner *r, runner_start_fn *start, const struct once_owned *in);

#endif
