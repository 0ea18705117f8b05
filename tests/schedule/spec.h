/* spec.h - a parsed spec: sessions, steps, permutations and what must hold. */
#ifndef TESTS_SCHEDULE_SPEC_H
#define TESTS_SCHEDULE_SPEC_H

#include "core/outcome.h"

#include <stddef.h>
#include <stdint.h>

enum {
    SESSIONS_MAX = 8,
    STEPS_MAX = 24,
    RULES_MAX = 32,
    CONDS_MAX = 256,
    LISTED_MAX = 64,
    WORD_MAX = 48,
};

/* What came of a step: an outcome, or one of these. */
enum result {
    RESULT_NONE = 0,
    RESULT_SKIPPED = OUTCOME_ABSENT + 1, /* its session owns nothing it could act with */
    RESULT_CANCELED,
    RESULT_FAILED,
    RESULTS,
};
const char *result_name(unsigned result);

enum action {
    ACT_CLAIM,
    ACT_PUBLISH,
    ACT_RELEASE,
    ACT_RENEW,
    ACT_PEEK,
    ACT_FORGET,
    ACT_SWEEP,
    ACT_CANCEL,
    ACT_CRASH,
    ACT_ADVANCE,
    ACT_CLOCK,
    ACTIONS,
};

struct step {
    char name[WORD_MAX];
    unsigned session;
    enum action action;
    char key[WORD_MAX], value[WORD_MAX], fingerprint[WORD_MAX];
    bool has_value, renew;
    int64_t lease_ms, retain_ms, wait_ms, by_ms;
};

/* Conditions are trees in an array; -1 is none. */
enum cond_kind {
    COND_AND,
    COND_OR,
    COND_NOT,
    COND_COUNT,       /* low..high of `steps` came to one of `results` */
    COND_VALUE,       /* the only step of `steps` got `text` */
    COND_TOOK_OVER,   /* the only step of `steps` took over */
    COND_BEFORE,      /* `first` started before `second` */
    COND_ENDS_BEFORE, /* `first` ended before `second` */
    COND_KEY,         /* at the end, key `text` holds `other` */
};

struct cond {
    enum cond_kind kind;
    int left, right;
    uint32_t steps, results;
    unsigned low, high, first, second;
    char text[WORD_MAX], other[WORD_MAX];
};

enum rule_kind { RULE_REQUIRE, RULE_FORBID, RULE_SOMETIMES };

struct rule {
    enum rule_kind kind;
    int cond, only_if;
    char text[160];
    bool seen; /* SOMETIMES: it was */
};

enum processes { PROCESSES_BOTH, PROCESSES_ONE, PROCESSES_EACH };

struct permutation {
    uint8_t steps[STEPS_MAX];
    size_t count;
};

struct spec {
    char path[256], title[160];
    char sessions[SESSIONS_MAX][WORD_MAX];
    size_t session_count;
    struct step steps[STEPS_MAX];
    size_t step_count;
    struct rule rules[RULES_MAX];
    size_t rule_count;
    struct cond conds[CONDS_MAX];
    size_t cond_count;
    struct permutation listed[LISTED_MAX];
    size_t listed_count;
    enum processes processes;
};

bool spec_load(struct spec *s, const char *path, char *why, size_t len);
bool spec_permutation(const struct spec *s, const char *names, struct permutation *ret);
int spec_step(const struct spec *s, const char *name); /* -1: there is none */

/* cond.c: words[*at...] as a condition; -1 with a reason. */
int cond_parse(struct spec *s, char words[][WORD_MAX], size_t count, size_t *at, char *why,
               size_t len);

#endif
