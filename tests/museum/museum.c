/* museum.c - every bug behind glass is let out, and must be caught.
 *
 * For each bug the table says who must catch it. Each of these catchers runs in a child process
 * with the bug on and must complain; a crash or a run that does not end is no complaint,
 * because it does not say what is wrong. The control is the same with no bug on: nobody may
 * complain.
 *
 *   museum [--only NAME] SPEC...       the specs are for the schedules */
#include "base/museum.h"
#include "base/check.h"
#include "tests/model/model.h"
#include "tests/schedule/schedule.h"
#include "tests/sim/sim.h"
#include "tests/support/world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIM_SEEDS = 1000, MODEL_SEEDS = 10, MODEL_STEPS = 2000, CHILD_SECONDS = 60 };

enum museum_bug museum_bug;

static char **specs;
static int spec_count;

/* What a child found, sent to its parent. */
struct finding {
    bool caught;
    char text[240];
};

/* ---- the catchers ---- */

static struct finding catch_by_sim(void)
{
    struct finding f = { 0 };
    for (uint64_t seed = 1; seed <= SIM_SEEDS && !f.caught; seed++) {
        struct sim_result r = sim_run(seed, &(struct sim_options){ 0 });
        f.caught = !r.ok;
        if (f.caught)
            snprintf(f.text, sizeof f.text, "at seed %" PRIu64 ": %s, %.160s", seed, r.rule,
                     r.why);
    }
    return f;
}

static struct finding catch_by_schedule(void)
{
    struct finding f = { 0 };
    char why[2048];
    unsigned permutations;
    for (int i = 0; i < spec_count && !f.caught; i++) {
        f.caught = !schedule_run_file(specs[i], "memory", why, sizeof why, &permutations);
        const char *name = strrchr(specs[i], '/');
        if (f.caught) snprintf(f.text, sizeof f.text, "%s", name ? name + 1 : specs[i]);
    }
    return f;
}

static struct finding catch_by_model(void)
{
    struct finding f = { 0 };
    char why[2048];
    for (uint64_t seed = 1; seed <= MODEL_SEEDS && !f.caught; seed++) {
        struct model_run run = { .seed = seed, .steps = MODEL_STEPS };
        f.caught = !model_run(&run, why, sizeof why);
        if (f.caught) snprintf(f.text, sizeof f.text, "at seed %" PRIu64, seed);
    }
    return f;
}

enum { SIM, SCHEDULE, MODEL, CATCHERS };

static const struct {
    const char *name;
    struct finding (*run)(void);
} catchers[CATCHERS] = {
    [SIM] = { "sim", catch_by_sim },
    [SCHEDULE] = { "schedule", catch_by_schedule },
    [MODEL] = { "model", catch_by_model },
};

/* ---- the bugs ---- */

/* Who must catch it. The model compares stores with the rules, so it is blind to the rules' own
 * bugs; the schedules know nothing of messages that are lost. The simulator catches them all.
 */
static const unsigned must_catch[MUSEUM_COUNT] = {
    [MUSEUM_NONE] = BIT(SIM) | BIT(SCHEDULE) | BIT(MODEL),
    [BUG_BLIND_RELEASE] = BIT(SIM) | BIT(SCHEDULE) | BIT(MODEL),
    [BUG_BLIND_PUBLISH] = BIT(SIM) | BIT(SCHEDULE),
    [BUG_REWRITE_DONE] = BIT(SIM) | BIT(SCHEDULE),
    [BUG_CLIPPED_LEASE] = BIT(SIM) | BIT(SCHEDULE),
    [BUG_PUBLISH_RESULT_IGNORED] = BIT(SIM) | BIT(SCHEDULE),
    [BUG_LEASE_NEVER_LAPSES] = BIT(SIM) | BIT(SCHEDULE),
    [BUG_FINGERPRINT_DROPPED] = BIT(SIM) | BIT(SCHEDULE),
    [BUG_FINGERPRINT_REPLACED] = BIT(SIM) | BIT(SCHEDULE),
    [BUG_PROGRESS_BEFORE_MISMATCH] = BIT(SIM) | BIT(SCHEDULE),
    [BUG_BLIND_RETRY] = BIT(SIM),
    [BUG_RELEASE_BEFORE_RESULT] = BIT(SIM),
    [BUG_VANISHED_MEANS_MINE] = BIT(SIM) | BIT(SCHEDULE),
    [BUG_POLL_ERROR_CLAIMS] = BIT(SIM),
    [BUG_COORD_GRANTS] = BIT(SIM) | BIT(MODEL),
    [BUG_ZERO_IS_DEFAULT] = BIT(SIM) | BIT(SCHEDULE),
    [BUG_FENCE_RESET] = BIT(SIM) | BIT(SCHEDULE),
    [BUG_EAGER_TAKEOVER] = BIT(SIM) | BIT(SCHEDULE),
    [BUG_STALE_RENEW] = BIT(SIM) | BIT(SCHEDULE),
    [BUG_LOST_WAKEUP] = BIT(SIM),
    [BUG_WAKE_ONE_ON_PUBLISH] = BIT(SIM) | BIT(SCHEDULE),
    [BUG_SWEEP_PENDING] = BIT(SIM) | BIT(SCHEDULE),
    [BUG_EMPTY_IS_ABSENT] = BIT(SIM) | BIT(SCHEDULE),
    [BUG_RENEWAL_STOPS] = BIT(SIM) | BIT(SCHEDULE),
    [BUG_SHARED_SCOPE] = BIT(SIM) | BIT(SCHEDULE) | BIT(MODEL),
    [BUG_GHOST_CLAIM] = BIT(SIM),
    [BUG_PUBLISH_LOOKS_LOST] = BIT(SIM),
    [BUG_COORD_KEEPS_LONGER] = BIT(SIM),
    [BUG_EMPTY_PLACE] = BIT(SIM),
    [BUG_ZERO_RENEWED] = BIT(SIM),
};

static const struct exhibit {
    const char *name, *origin, *text;
} exhibits[MUSEUM_COUNT] = { [MUSEUM_NONE] = { "no bug", "", "" },
#define EXHIBIT(name, origin, text) [BUG_##name] = { #name, origin, text },
                             MUSEUM_LIST(EXHIBIT)
#undef EXHIBIT
};

/* ---- letting one out ---- */

static void child_main(enum museum_bug bug, int catcher, int to_parent)
{
    alarm(CHILD_SECONDS);
    museum_bug = bug;
    struct finding f = catchers[catcher].run();
    bool told = write(to_parent, &f, sizeof f) == (ssize_t)sizeof f;
    _exit(told ? 0 : 1);
}

/* Runs the catcher in a process of its own: a bug may leave anything behind. */
static bool let_out(enum museum_bug bug, int catcher, struct finding *ret_found)
{
    int ends[2];
    if (pipe(ends) < 0) return false;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) child_main(bug, catcher, ends[1]);
    close(ends[1]);
    struct finding f = { 0 };
    bool heard = pid > 0 && read(ends[0], &f, sizeof f) == (ssize_t)sizeof f;
    close(ends[0]);
    int status = 0;
    if (pid > 0) waitpid(pid, &status, 0);
    if (!heard)
        snprintf(f.text, sizeof f.text, "the catcher ended with signal %d",
                 WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    *ret_found = f;
    return heard;
}

static void show(enum museum_bug bug, int catcher)
{
    const struct exhibit *x = &exhibits[bug];
    struct finding f;
    bool heard = let_out(bug, catcher, &f);
    if (bug == MUSEUM_NONE)
        tap_result(heard && !f.caught, "no bug, no complaint by %s %s", catchers[catcher].name,
                   f.text);
    else if (heard && f.caught)
        tap_result(true, "%s caught by %s %s", x->name, catchers[catcher].name, f.text);
    else
        tap_result(false, "%s (%s: %s) not caught by %s %s", x->name, x->origin, x->text,
                   catchers[catcher].name, f.text);
}

int main(int argc, char **argv)
{
    const char *only = NULL;
    int at = 1;
    if (at + 1 < argc && strcmp(argv[at], "--only") == 0) only = argv[at + 1], at += 2;
    specs = argv + at;
    spec_count = argc - at;
    for (int bug = MUSEUM_NONE; bug < MUSEUM_COUNT; bug++) {
        if (only && strcmp(only, exhibits[bug].name) != 0) continue;
        if (!must_catch[bug]) tap_result(false, "nobody has to catch %s", exhibits[bug].name);
        for (int catcher = 0; catcher < CATCHERS; catcher++)
            if (must_catch[bug] & BIT(catcher)) show((enum museum_bug)bug, catcher);
    }
    return tap_end();
}
