/* mutation_op.c - see mutation_op.h. */
#include "store/mutation_op.h"

void mutation_ask_clear(struct mutation_ask *a)
{
    blob_unref(a->answer.packed);
    a->answer = (struct mutation_answer){ 0 };
}
