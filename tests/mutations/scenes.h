/* scenes.h - what the scenes share: a try and what it was told, expectations, Redis in every state. */
#ifndef TESTS_MUTATIONS_SCENES_H
#define TESTS_MUTATIONS_SCENES_H

#include "tests/mutations/mutations.h"
#include "tests/support/world.h"

extern PGconn *admin;     /* looks, and breaks things */
extern bool scene_failed; /* the one that is played */

#define EXPECT(what, ...)                                                                      \
    do {                                                                                       \
        if (what) break;                                                                       \
        scene_failed = true;                                                                   \
        tap_note("%s:%d: %s", __FILE__, __LINE__, #what);                                      \
        tap_note(__VA_ARGS__);                                                                 \
    } while (0)

/* ---- one try, and what it was told ---- */

struct trial {
    int result;
    struct once_mutation_answer answer;
    char value[160];
};

struct trial try_with(struct once *o, PGconn *pg, const struct once_mutation *in,
                      struct use *u);
struct trial try_it(struct once *o, PGconn *pg, const char *request);
const char *told(const struct trial *t);
#define TOLD(t, want)                                                                          \
    do {                                                                                       \
        struct trial t_ = (t);                                                                 \
        EXPECT(t_.result == 0 && t_.answer.outcome == (want), "%s", told(&t_));                \
    } while (0)

const char *postgres_url(void);
struct once_db db_of(PGconn *pg);
long long applied(const char *request); /* how often */
const char *name_of(const char *scene, unsigned n);
void marker_counts_for(const char *interval);
void time_passes(void *interval);

/* ---- Redis ---- */

enum redis_is { REDIS_UP, REDIS_DOWN, REDIS_EMPTY, REDIS_HUNG, REDIS_STATES };

void redis_is(enum redis_is state);
struct once *fresh(
    void); /* a handle of its own, so that no breaker remembers what was before */

/* ---- the scenes ---- */

void sequential_replay(void);
void replay_after_recovery(void);
void mismatch(void);
void undecided_commits(void);
void undecided_rolls_back(void);
void ended_while_waiting(void);
void lock_timeout(void);
void retry_storm(void);
void coord_absorbs(void);
void crowd(void);
void killed_before_commit(void);
void killed_after_commit(void);
void commit_answer_lost(void);
void commit_lost(void);
void commit_overtaken(void);
void commit_unknown(void);
void commit_outlived(void);
void commit_other_markers(void);
void backend_ended(void);
void failover(void);
void standby(void);
void not_flushed(void);
void expired(void);
void cached_no_longer(void);
void bouncer(void);
void daemon_keeps(void);
void own_transaction(void);
void functions(void);
void no_more_round_trips(void);
void internal(void);
void session_defaults(void);
void misuse(void);
void under_way(void);
void encodings(void);
void long_responses(void);
void version_retry(void);

#endif
