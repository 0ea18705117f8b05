/* mutation.h - a mutation: a user's request that must change the user's own database once.
 *
 * What makes two of them the same is the user and the request; method and fingerprint say what is
 * asked for, and are compared. Pure: the limits, and what the replay cache keeps of one that was done. */
#ifndef CORE_MUTATION_H
#define CORE_MUTATION_H

#include "base/blob.h"
#include "base/bytes.h"
#include "base/err.h"

enum {
    MUTATION_NAME_BYTES_MAX = 256, /* of the user, of the request */
    MUTATION_METHOD_BYTES_MAX = 128,
    MUTATION_EPOCH_BYTES_MAX = 128,
    MUTATION_OUTCOME_BYTES_MAX = 8192,  /* what a marker keeps */
    MUTATION_FRAME_BYTES_MAX = 2 + 128, /* what mutation_pack() adds to a response */
};

#define MUTATION_TTL_MS_DEFAULT INT64_C(3600000)

/* Who asks for what. Views. */
struct mutation {
    struct bytes user, request;
    struct bytes method;      /* may be empty */
    struct bytes fingerprint; /* up to 64 bytes; may be empty */
};

int mutation_check(const struct mutation *m, struct err *reterr);
int mutation_epoch_check(struct bytes epoch, struct err *reterr);

/* What is kept of a mutation that was done: the epoch of the database that has it, and the response.
 * Without one (NULL), it is known that it was done, and nothing more. NULL: out of memory. */
struct blob *mutation_pack(struct bytes epoch, const struct bytes *response);

struct mutation_kept {
    struct bytes epoch, response; /* views into the blob */
    bool has_response;
};
bool mutation_unpack(const struct blob *packed, struct mutation_kept *ret);

#endif
