/* worker.h - the loop of once work: one poll over the ledger, the signals and every command.
 *
 * Leases as many runs as there are free places. The first signal that asks us to end stops the
 * leasing: what runs is finished. The second one kills what runs and gives the runs back. */
#ifndef CLI_WORKER_H
#define CLI_WORKER_H

#include "cli/job.h"

enum { WORKER_JOBS_MAX = 256 };

struct worker_counts {
    uint64_t completed, failed, returned, lost, unknown;
};

struct worker {
    struct job_plan plan;
    const char *env, *queue;
    size_t job_count; /* places */
    bool only_one;    /* one run, then end */
    bool drain;       /* end when nothing is due */
    struct signals signals;

    struct job *jobs;
    struct pollfd *fds;
    size_t taken, running;
    struct worker_counts counts;
    struct once_call *leasing; /* the call under way */
    int64_t lease_at_ms, lease_back_off_ms;
    bool leased_ever, dry; /* dry: nothing was due when we last looked */
    int interrupted_by;    /* the first signal */
    int killed_by;         /* the second one */
    bool ending;           /* lease no more */
    int status;            /* why it ended, for exit() */
    bool line_shown;       /* on a terminal: done, failed, running */
};

/* Until there is nothing to do any more, or a signal. Returns an exit status. */
int worker_run(struct worker *w);
void worker_fini(struct worker *w);

#endif
