/* marker.c - see marker.h. */
#include "store/marker.h"

enum outcome marker_judge(const struct mutation *asked, struct bytes method,
                          struct bytes fingerprint)
{
    bool same = bytes_eq(asked->method, method) && bytes_eq(asked->fingerprint, fingerprint);
    return same ? OUTCOME_ALREADY_DONE : OUTCOME_MISMATCH;
}
