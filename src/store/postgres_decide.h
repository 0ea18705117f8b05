/* postgres_decide.h - what ops about single runs do to the image of a batch; private to the postgres
 * store. The rules are in core/run_rules.h: here is whom they are asked about, and what follows. */
#ifndef STORE_POSTGRES_DECIDE_H
#define STORE_POSTGRES_DECIDE_H

#include "store/postgres_image.h"

/* One op of a batch. */
struct run_step {
    struct op *op;
    bool settled;                /* it has its answer */
    bool guessed;                /* that nothing of it is there, without a look */
    struct err bad;              /* what was read makes no sense */
    const struct run_step *same; /* who has asked the same a moment before; NULL: nobody */

    /* What its answer says something of: as far as it was changed, it has to be written. */
    struct image_row *rows[IMAGE_ROWS_OF_OP];
    size_t row_count;
};

struct run_moment {
    int64_t now_ms;       /* by the clock of the ledger */
    int64_t monotonic_ms; /* by ours */
};

/* Is it a verb for run_decide()? */
bool run_decides(enum verb verb);

/* A PUT that would have to be written by now, or would be too late. */
bool run_put_is_late(const struct run_ask *ask, struct run_moment at);

/* Answers the op, or says why there is none; then the image is as it was. */
void run_decide(struct run_step *step, struct image *image, struct run_scratch *scratch,
                struct run_moment at);

/* Is everything written that the answer relies on? */
bool run_step_is_written(const struct run_step *step);

#endif
