/* main.c - oom [--every K] [NAME]: the n-th allocation fails, for every n, once and from then on. TAP.
 * With K for every K-th n only, beginning elsewhere in each scenario: where each takes long.
 *
 * After each injected failure: every call has answered or failed in words; with memory again
 * the store is consistent with what was acknowledged; everything is freed at the end. */
#include "tests/oom/oom.h"

#include "tests/support/world.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NTH_MAX = 20000, PATIENCE_S = 240 };

static atomic_uint failures;
static size_t current_nth, every = 1, begin;
static enum oom_mode current_mode;
static struct world scratch; /* only for its directory */

bool expect(bool ok, const char *file, int line, const char *what)
{
    if (ok) return true;
    if (atomic_fetch_add(&failures, 1) < 5)
        tap_note("%s:%d: %s (allocation %zu%s)", file, line, what, current_nth,
                 current_mode == OOM_SINGLE ? "" : " and later ones");
    return false;
}

void expect_error(int code, const char *text)
{
    EXPECT(code == ONCE_ENOMEM || code == ONCE_EUNAVAILABLE || code == ONCE_EAMBIGUOUS);
    EXPECT(text[0] != '\0');
}

const char *oom_dir(void)
{
    return world_dir(&scratch);
}

static size_t run_mode(const struct scenario *s, enum oom_mode mode)
{
    size_t tried = 0;
    current_mode = mode;
    for (size_t nth = 1 + begin++ % every; nth < NTH_MAX; nth += every, tried++) {
        current_nth = nth;
        long before = oom_live();
        bool fired = s->run(s->arg, mode, nth);
        EXPECT(oom_live() == before);
        if (atomic_load(&failures) > 5 || !fired) return tried;
    }
    EXPECT(!"an end of the allocations");
    return NTH_MAX;
}

static void on_alarm(int signal_number)
{
    (void)signal_number;
    static const char text[] = "not ok - a scenario did not end\n";
    ssize_t n = write(STDOUT_FILENO, text, sizeof text - 1);
    _exit(n > 0 ? 1 : 2);
}

static void run_scenario(const struct scenario *s)
{
    atomic_store(&failures, 0);
    alarm(PATIENCE_S);
    s->run(s->arg, OOM_SINGLE, NTH_MAX); /* without a fault, and to fill caches that stay */
    size_t single = run_mode(s, OOM_SINGLE);
    size_t from_then_on = run_mode(s, OOM_FROM_THEN_ON);
    alarm(0);
    tap_result(atomic_load(&failures) == 0, "%s: %s (%zu single, %zu lasting)", s->arg, s->name,
               single, from_then_on);
}

int main(int argc, char **argv)
{
    static const struct scenario *const lists[] = { engine_scenarios, batch_scenarios,
                                                    buffer_scenarios, api_scenarios,
                                                    runs_scenarios,   mutations_scenarios,
                                                    spool_scenarios };
    oom_init();
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0); /* thousands of files */
    if (argc > 2 && strcmp(argv[1], "--every") == 0) {
        every = strtoul(argv[2], NULL, 10);
        argc -= 2, argv += 2;
    }
    if (every == 0) return 2;
    world_init(&scratch, 1);
    signal(SIGALRM, on_alarm);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        for (const struct scenario *s = lists[i]; s->name; s++)
            if (argc < 2 || strstr(s->name, argv[1])) run_scenario(s);
    world_fini(&scratch);
    return tap_end();
}
