/* job.h - one run that we have leased, and the command that works on it.
 *
 *   FREE --leased--> WORKING --the command and its outputs ended--> SETTLING --answered--> FREE
 *
 * Guarantees: the lease is extended every third of it until the run is settled, whatever the command
 * and our readers do; when the run is lost, the command and everything it has started are ended
 * (SIGTERM, five seconds later SIGKILL) and nothing more is said about it; what cannot be said
 * now is said again for a minute. A job is free when none of its calls is under way. */
#ifndef CLI_JOB_H
#define CLI_JOB_H

#include "base/buf.h"
#include "cli/child.h"
#include "cli/cli.h"
#include "cli/signals.h"
#include "cli/tee.h"

enum { JOB_STDERR_BYTES = 4096, JOB_FDS = 3 };

enum job_state { JOB_FREE, JOB_WORKING, JOB_SETTLING };

enum job_end { JOB_NO_END, JOB_COMPLETED, JOB_FAILED, JOB_RETURNED, JOB_LOST, JOB_UNKNOWN };

/* What all jobs of a worker have in common. */
struct job_plan {
    const struct cli *cli;
    struct once *once;
    const struct signals *signals;
    char *const *argv;
    int64_t lease_ms;
    size_t output_bytes_max;
};

struct job {
    const struct job_plan *plan;
    enum job_state state;
    enum job_end end; /* SETTLING: what is to be said; then, what came of it */

    char id[31], token[33], env[65], task[129];
    uint64_t fence;
    unsigned attempt, attempts_max;

    struct child child;
    struct buf payload;
    size_t fed; /* bytes of the payload that the command has got */
    struct tee out, err;
    struct buf output;
    bool output_overflowed;
    uint8_t last_words[JOB_STDERR_BYTES]; /* the end of its stderr */
    size_t last_words_len;
    int64_t started_ms, took_ms;
    int64_t kill_at_ms; /* when to stop asking it nicely; 0: not asked */

    struct once_call *beat; /* the heartbeat under way */
    int64_t beat_at_ms;
    struct once_call *settle; /* what ends the run, under way */
    int64_t settle_at_ms, settle_until_ms, settle_back_off_ms;
    bool maybe_settled; /* an earlier try may have counted */
    char *body;         /* the JSON that goes with it; NULL: none */
    int settle_error;   /* JOB_UNKNOWN: why */
    char settle_text[188];
};

/* Takes the run over and starts the command. Returns 0; or an errno: the command could not be
 * executed; or a negative ERR_... In both cases the run is being given back. */
int job_start(struct job *j, const struct job_plan *plan, const struct once_run *run,
              struct err *reterr);
void job_fini(struct job *j); /* also of one that is free, or all zero */

/* Ends the command at once; the run is given back. */
void job_kill(struct job *j);
void job_reap(struct job *j); /* after SIGCHLD */

/* For the loop: descriptors, the time of the next turn (INT64_MAX: no such time), the turn. True:
 * the job has just become free, and j->end says how. */
void job_poll(const struct job *j, struct pollfd fds[JOB_FDS]);
int64_t job_wake_at_ms(const struct job *j);
bool job_turn(struct job *j, const struct pollfd fds[JOB_FDS]);

/* ---- what is said of an ending; NULL: out of memory ---- */

/* stdout as JSON: as it is if it is JSON, else as a string. */
char *job_output_json(struct bytes output);
char *job_error_json(int exit_status, struct bytes last_words);

#endif
