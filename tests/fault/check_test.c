/* check_test.c - the checker has to find what is wrong, and nothing where all is well.
 *
 * Histories made by hand, each with one violation, or with something odd that is allowed. */
#include "base/check.h"
#include "tests/fault/fault.h"
#include "tests/support/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sample {
    const char *name;
    const char *rule; /* that must be found; NULL: nothing may be found */
    bool absorbs, calm;
    const char *text;
};

/* A claim of t1 with fence 7 and a lease of 500 ms, published as v1. */
#define CLAIMED "B 1 1000 claim k - A 500 . -\nE 1 2000 claimed t1 7 . -\n"
#define PUBLISHED "B 2 3000 publish k t1 - 0 . v1\nE 2 4000 ok - 7 . -\n"
#define FINAL "B 90 9000000 peek k - - 0 .f -\nE 90 9001000 cached - 7 . v1\n"

static const struct sample samples[] = {
    { "claim, publish, look", NULL, false, true, CLAIMED PUBLISHED FINAL },
    { "two answers", "C1", false, false,
      CLAIMED PUBLISHED "B 3 5000 peek k - - 0 . -\nE 3 6000 cached - 7 . v2\n"
                        "B 4 1500 publish k t2 - 0 . v2\n" FINAL },
    { "an answer that nobody published", "C1", false, false,
      CLAIMED "B 3 5000 peek k - - 0 . -\nE 3 6000 cached - 7 . v1\n" FINAL },
    { "a publish that did nothing is seen", "C1", false, false,
      CLAIMED "B 2 3000 publish k t1 - 0 . v1\nE 2 4000 !unavailable - 0 . -\n" FINAL },
    { "a refused publish is seen", "C1", false, false,
      CLAIMED "B 2 3000 publish k t1 - 0 . v1\nE 2 4000 lost - 0 . -\n" FINAL },
    { "a second owner within the lease", "C2", false, false,
      CLAIMED "B 2 3000 claim k - A 500 . -\nE 2 4000 claimed t2 8 . -\n"
              "B 3 5000 publish k t2 - 0 . v1\nE 3 6000 ok - 8 . -\n" FINAL },
    { "a second owner within a renewed lease", "C2", false, false,
      CLAIMED "B 2 400000 renew k t1 - 0 . -\nE 2 401000 ok - 7 . -\n"
              "B 3 700000 claim k - A 500 . -\nE 3 701000 claimed t2 8 . -\n"
              "B 4 705000 publish k t2 - 0 . v1\nE 4 706000 ok - 8 . -\n" FINAL },
    { "a second owner after the lease", NULL, false, false,
      CLAIMED "B 2 600000 claim k - A 500 . -\nE 2 601000 claimed t2 8 . -\n"
              "B 3 605000 publish k t2 - 0 . v1\nE 3 606000 ok - 8 . -\n"
              "B 4 607000 publish k t1 - 0 . v9\nE 4 608000 lost - 8 . v1\n" FINAL },
    { "a late owner publishes", "C2", false, false,
      CLAIMED "B 2 600000 claim k - A 500 . -\nE 2 601000 claimed t2 8 . -\n"
              "B 3 605000 publish k t1 - 0 . v1\nE 3 606000 ok - 8 . -\n" FINAL },
    { "a late owner renews", "C2", false, false,
      CLAIMED "B 2 600000 claim k - A 500 . -\nE 2 601000 claimed t2 8 . -\n"
              "B 3 605000 renew k t1 - 0 . -\nE 3 606000 ok - 8 . -\n"
              "B 4 607000 publish k t2 - 0 . v1\nE 4 608000 ok - 8 . -\n" FINAL },
    { "a late owner releases", "C2", false, false,
      CLAIMED "B 2 600000 claim k - A 500 . -\nE 2 601000 claimed t2 8 . -\n"
              "B 3 605000 release k t1 - 0 . -\nE 3 606000 ok - 8 . -\n"
              "B 4 607000 publish k t2 - 0 . v1\nE 4 608000 ok - 8 . -\n" FINAL },
    { "an acknowledged answer is gone", "C3", false, false,
      CLAIMED PUBLISHED "B 3 5000 peek k - - 0 . -\nE 3 6000 absent - 0 . -\n" FINAL },
    { "an acknowledged key is claimed again", "C3", false, false,
      CLAIMED PUBLISHED "B 3 800000 claim k - A 500 . -\nE 3 801000 claimed t2 8 . -\n" FINAL },
    { "in progress after the answer", "C3", false, false,
      CLAIMED PUBLISHED "B 3 5000 claim k - A 500 . -\nE 3 6000 in_progress - 7 . -\n" FINAL },
    { "in progress after the answer, by coord", NULL, true, false,
      CLAIMED PUBLISHED "B 3 5000 claim k - A 500 . -\nE 3 6000 in_progress - 7 . -\n" FINAL },
    { "a key that is stuck", "C5", false, false,
      CLAIMED PUBLISHED
      "B 3 8000000 claim k - A 500 .f -\nE 3 8900000 timed_out - 7 . -\n" FINAL },
    { "a key that cannot be had in the end", "C5", false, false,
      CLAIMED PUBLISHED
      "B 3 8000000 claim k - A 500 .f -\nE 3 8900000 !unavailable - 0 . -\n" FINAL },
    { "an answer that takes too long", "C5", false, false,
      CLAIMED PUBLISHED "B 3 4500 claim k - A 500 .f -\nE 3 8900000 cached - 7 . v1\n" FINAL },
    { "a key without an answer", "C5", false, false, CLAIMED },
    { "an error that need not be", "C4", false, true,
      CLAIMED PUBLISHED "B 3 5000 peek k - - 0 . -\nE 3 6000 !unavailable - 0 . -\n" FINAL },
    { "a waiter that is told late", "C6", false, true,
      CLAIMED PUBLISHED "B 3 2500 claim k - A 500 .w -\nE 3 900000 cached - 7 . v1\n" FINAL },
    { "a waiter that is told at once", NULL, false, true,
      CLAIMED PUBLISHED "B 3 2500 claim k - A 500 .w -\nE 3 4500 cached - 7 . v1\n" FINAL },
    { "another fingerprint sees the answer", "C7", false, false,
      CLAIMED PUBLISHED "B 3 5000 claim k - B 500 . -\nE 3 6000 cached - 7 . v1\n" FINAL },
    { "another fingerprint takes over", "I18", false, false,
      CLAIMED "B 2 600000 claim k - B 500 . -\nE 2 601000 claimed t2 8 . -\n"
              "B 3 605000 publish k t2 - 0 . v1\nE 3 606000 ok - 8 . -\n" FINAL },
    { "another fingerprint is refused", NULL, false, false,
      CLAIMED "B 3 2500 claim k - B 500 . -\nE 3 2600 mismatch - 0 . -\n" PUBLISHED FINAL },
    { "refused, but by nothing", "I18", false, false,
      "B 3 100 claim k - B 500 . -\nE 3 200 mismatch - 0 . -\n" CLAIMED PUBLISHED FINAL },
    { "a bad request is refused", NULL, false, true,
      CLAIMED "B 3 2500 publish k t1 limit 0 .b bad\nE 3 2600 !limit - 0 . -\n" PUBLISHED
              "B 4 5000 claim bad - invalid 0 .b -\nE 4 5100 !invalid - 0 . -\n"
              "B 5 6000 peek bad - - 0 . -\nE 5 6100 absent - 0 . -\n" FINAL },
    { "a bad request is carried out", "C9", false, false,
      CLAIMED PUBLISHED
      "B 4 5000 claim bad - invalid 0 .b -\nE 4 5100 claimed t2 9 . -\n" FINAL },
    { "a bad request meets the fault and not its error", "C9", false, false,
      CLAIMED PUBLISHED
      "B 4 5000 claim bad - invalid 0 .b -\nE 4 5100 !unavailable - 0 . -\n" FINAL },
    { "a bad request is refused, and there is a record of it", "C9", false, false,
      CLAIMED PUBLISHED "B 4 5000 claim bad - invalid 0 .b -\nE 4 5100 !invalid - 0 . -\n"
                        "B 5 6000 peek bad - - 0 . -\nE 5 6100 in_progress - 9 . -\n" FINAL },
    { "what was refused is what everybody sees", "C1", false, false,
      CLAIMED "B 3 2500 publish k t1 limit 0 .b v1\nE 3 2600 !limit - 0 . -\n" FINAL },
    { "a fence that does not grow", "I4", false, false,
      CLAIMED "B 2 2500 release k t1 - 0 . -\nE 2 2600 ok - 0 . -\n"
              "B 3 2700 claim k - A 500 . -\nE 3 2800 claimed t2 6 . -\n"
              "B 4 3000 publish k t2 - 0 . v1\nE 4 4000 ok - 6 . -\n" FINAL },
    { "a fence that is given twice", "I4", false, false,
      CLAIMED "B 2 2500 release k t1 - 0 . -\nE 2 2600 ok - 0 . -\n"
              "B 3 1500 claim k - A 500 .w -\nE 3 2800 claimed t2 7 . -\n"
              "B 4 3000 publish k t2 - 0 . v1\nE 4 4000 ok - 7 . -\n" FINAL },
    { "a look that goes back in time", "I18", false, false,
      CLAIMED "B 2 3000 publish k t1 - 0 . v1\nE 2 9000 ok - 7 . -\n"
              "B 3 4000 peek k - - 0 . -\nE 3 5000 cached - 7 . v1\n"
              "B 4 6000 peek k - - 0 . -\nE 4 7000 in_progress - 7 . -\n" FINAL },
    { "looks while it is published", NULL, false, false,
      CLAIMED "B 2 3000 publish k t1 - 0 . v1\nE 2 9000 ok - 7 . -\n"
              "B 3 4000 peek k - - 0 . -\nE 3 5000 in_progress - 7 . -\n"
              "B 4 6000 peek k - - 0 . -\nE 4 7000 cached - 7 . v1\n" FINAL },
    { "lost, although it owns", "I18", false, false,
      CLAIMED "B 2 3000 renew k t1 - 0 . -\nE 2 3100 lost - 0 . -\n"
              "B 3 4000 publish k t1 - 0 . v1\nE 3 5000 ok - 7 . -\n" FINAL },
    { "an ambiguous publish takes effect later", NULL, false, false,
      CLAIMED "B 2 3000 publish k t1 - 0 . v1\nE 2 4000 !ambiguous - 0 . -\n"
              "B 3 5000 peek k - - 0 . -\nE 3 5500 in_progress - 7 . -\n" FINAL },
    { "a publish of a process that was killed", NULL, false, false,
      CLAIMED "B 2 3000 publish k t1 - 0 . v1\n" FINAL },
    { "an ambiguous publish of a late owner takes effect", "I18", false, false,
      CLAIMED "B 2 600000 claim k - A 500 . -\nE 2 601000 claimed t2 8 . -\n"
              "B 3 605000 publish k t1 - 0 . v1\nE 3 606000 !ambiguous - 0 . -\n"
              "B 4 607000 renew k t2 - 0 . -\nE 4 608000 ok - 8 . -\n" FINAL },
    { "a release that had to be asked for twice", NULL, false, false,
      CLAIMED "B 2 2500 release k t1 - 0 . -\nE 2 2600 lost - 0 .m -\n"
              "B 3 2700 claim k - A 500 . -\nE 3 2800 claimed t2 8 . -\n"
              "B 4 3000 publish k t2 - 0 . v1\nE 4 4000 ok - 8 . -\n" FINAL },
    { "lost to a claim whose answer was lost", NULL, false, false,
      CLAIMED "B 2 600000 claim k - A 500 . -\nE 2 601000 !ambiguous - 0 . -\n"
              "B 3 605000 publish k t1 - 0 . v9\nE 3 606000 lost - 8 . -\n"
              "B 4 1300000 claim k - A 500 . -\nE 4 1301000 claimed t2 9 . -\n"
              "B 5 1303000 publish k t2 - 0 . v1\nE 5 1304000 ok - 9 . -\n" FINAL },
    { "another fingerprint after a claim whose answer was lost", NULL, false, false,
      CLAIMED "B 2 600000 claim k - A 500 . -\nE 2 601000 !ambiguous - 0 . -\n"
              "B 4 1300000 claim k - B 500 . -\nE 4 1301000 claimed t2 9 . -\n"
              "B 5 1303000 publish k t2 - 0 . v1\nE 5 1304000 ok - 9 . -\n" FINAL },
    { "an answer does not vanish because some claim's answer was lost", "I18", false, false,
      CLAIMED PUBLISHED "B 3 4500 claim k - A 500 . -\nE 3 4600 !ambiguous - 0 . -\n"
                        "B 4 5000 peek k - - 0 . -\nE 4 6000 in_progress - 7 . -\n" FINAL },
    { "everything was forgotten", NULL, false, false,
      "B 1 1000 claim k - A 500 . -\nE 1 2000 claimed t1 7 . -\n"
      "B 2 3000 publish k t1 - 0 . v0\nE 2 4000 ok - 7 . -\n"
      "B 8 5000 amnesia * - - 0 . -\nE 8 6000 ok - 0 . -\n"
      "B 3 7000 claim k - A 500 . -\nE 3 8000 claimed t2 8 . -\n"
      "B 4 8000 publish k t2 - 0 . v1\nE 4 9000 ok - 8 . -\n" FINAL },
    { "everything was forgotten, after a look at nothing", NULL, false, false,
      "B 8 100 amnesia * - - 0 . -\nE 8 6000 ok - 0 . -\n"
      "B 1 1000 claim k - A 500 . -\nE 1 2000 claimed t1 7 . -\n"
      "B 2 3000 publish k t1 - 0 . v0\nE 2 4000 ok - 7 . -\n"
      "B 3 5000 claim k - A 500 . -\nE 3 5500 claimed t2 8 . -\n"
      "B 4 8000 publish k t2 - 0 . v1\nE 4 9000 ok - 8 . -\n" FINAL },
    { "everything was forgotten, but not in between", "I18", false, false,
      "B 1 1000 claim k - A 500 . -\nE 1 2000 claimed t1 7 . -\n"
      "B 2 3000 publish k t1 - 0 . v0\nE 2 4000 ok - 7 . -\n"
      "B 3 4500 claim k - A 500 . -\nE 3 4700 claimed t2 8 . -\n"
      "B 8 5000 amnesia * - - 0 . -\nE 8 6000 ok - 0 . -\n"
      "B 4 8000 publish k t2 - 0 . v1\nE 4 9000 ok - 8 . -\n" FINAL },
    { "a fence starts again after everything was forgotten", "I4", false, false,
      CLAIMED "B 8 5000 amnesia * - - 0 . -\nE 8 6000 ok - 0 . -\n"
              "B 3 7000 claim k - A 500 . -\nE 3 8000 claimed t2 1 . -\n"
              "B 4 8000 publish k t2 - 0 . v1\nE 4 9000 ok - 1 . -\n" FINAL },
    { "forgotten on request", NULL, false, false,
      "B 1 1000 claim k - A 500 . -\nE 1 2000 claimed t1 7 . -\n"
      "B 2 3000 publish k t1 - 0 . v0\nE 2 4000 ok - 7 . -\n"
      "B 3 5000 forget k - - 0 . -\nE 3 6000 ok - 0 . -\n"
      "B 4 7000 claim k - A 500 . -\nE 4 8000 claimed t2 8 . -\n"
      "B 5 8000 publish k t2 - 0 . v1\nE 5 9000 ok - 8 . -\n" FINAL },
    { "the answer that was forgotten comes back", "I18", false, false,
      "B 1 1000 claim k - A 500 . -\nE 1 2000 claimed t1 7 . -\n"
      "B 2 3000 publish k t1 - 0 . v1\nE 2 4000 ok - 7 . -\n"
      "B 3 5000 forget k - - 0 . -\nE 3 6000 ok - 0 . -\n" FINAL },
    { "the last changes were forgotten", NULL, false, false,
      CLAIMED PUBLISHED "B 8 5000 rollback * - - 0 . -\nE 8 6000 ok - 0 . -\n"
                        "B 3 7000 publish k t1 - 0 . v1\nE 3 8000 ok - 7 . -\n" FINAL },
};

struct heard {
    struct findings base;
    const char *rule;
    bool found;
    char text[200];
};

static void listen_in(struct findings *f, const char *rule, const char *text)
{
    struct heard *h = (struct heard *)f;
    h->found |= h->rule && strcmp(rule, h->rule) == 0;
    snprintf(h->text, sizeof h->text, "%s: %s", rule, text);
}

static bool sample_read(const struct sample *s, struct history *h)
{
    char path[] = "/tmp/once-history-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    bool ok = write(fd, s->text, strlen(s->text)) == (ssize_t)strlen(s->text);
    close(fd);
    ok = ok && history_read(h, path);
    unlink(path);
    return ok;
}

static void sample_run(const struct sample *s)
{
    struct history history;
    struct promise promise = PROMISE_INIT;
    struct heard heard = { .rule = s->rule };
    promise.absorbs = s->absorbs;
    promise.flawless = promise.calm = s->calm;
    history_init(&history);
    bool ok = sample_read(s, &history);
    heard.base = (struct findings){ .history = &history, .promise = &promise };
    heard.base.tell = listen_in;
    if (ok) check_history(&heard.base);
    ok = ok && (s->rule ? heard.found : heard.base.count == 0);
    tap_result(ok, "check: %s%s%s", s->name, s->rule ? " violates " : "",
               s->rule ? s->rule : "");
    if (!ok) tap_note("last finding: %s", heard.base.count ? heard.text : "none");
    history_fini(&history);
}

void check_test(void)
{
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) sample_run(&samples[i]);
}
