/* cond.h - what a condition is evaluated against: the results of one interleaving. */
#ifndef TESTS_SCHEDULE_COND_H
#define TESTS_SCHEDULE_COND_H

#include "tests/schedule/spec.h"

struct step_result {
    unsigned result; /* enum result or an outcome */
    bool has_value, taken_over;
    char value[WORD_MAX];
    unsigned started, ended; /* order in this interleaving, from 1; 0: not yet */
};

struct final_key {
    unsigned result; /* of a peek */
    bool has_value;
    char value[WORD_MAX];
};

struct findings {
    const struct spec *spec;
    const struct step_result *results; /* one per step */
    struct final_key (*peek)(void *ctx, const char *key);
    void *ctx;
};

bool cond_holds(const struct findings *f, int cond);

#endif
