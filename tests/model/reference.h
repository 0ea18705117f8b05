/* reference.h - the rules over an array: the store that is too simple to be wrong.
 *
 * One slot per key of the history, found by walking; no index, no heap, no file. It shares
 * core/rules with the stores, so it cannot show that the rules are right (conform and schedule
 * do), but that every store does what they say. */
#ifndef TESTS_MODEL_REFERENCE_H
#define TESTS_MODEL_REFERENCE_H

#include "store/op.h"

enum { REFERENCE_KEYS = 8 };

struct slot {
    struct key key;
    bool used;
    struct record record; /* owns its value; its fingerprint is in `fingerprint` */
    uint8_t fingerprint[FINGERPRINT_BYTES_MAX];
};

struct reference {
    struct slot slots[REFERENCE_KEYS]; /* in the order of a scan */
    uint64_t fence_floor;
    int64_t now_ms;
};

void reference_init(struct reference *m); /* with REFERENCE_KEYS keys, none of them used */
void reference_fini(struct reference *m);

/* Carries out a keyed op on slot `at`: sets out and changed. */
void reference_apply(struct reference *m, size_t at, struct op *op);

size_t reference_gone(const struct reference *m); /* how many an EXPIRE finds */
void reference_expire(struct reference *m);
struct store_stats reference_stats(const struct reference *m);

#endif
