/* cuts.h - for targets of protocols: input that arrives in pieces is the same input.
 *
 * A peer reads what has arrived and writes down what it made of it; told in one piece, byte by
 * byte, or cut somewhere, it has to write down the same. It is shown memory of exactly the size of
 * what has arrived, so that the sanitizer sees every byte that is read beyond it. */
#ifndef TESTS_FUZZ_CUTS_H
#define TESTS_FUZZ_CUTS_H

#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

struct cuts_peer {
    /* Reads from the start of `in` as far as it can; returns how much it used for good. */
    size_t (*read)(struct cuts_peer *peer, uint8_t *in, size_t len);
    struct buf log;
    bool bad; /* nothing more is to be read */
};

static inline void cuts_show(struct cuts_peer *peer, struct bytes in, size_t *used)
{
    size_t len = in.len - *used;
    uint8_t *copy = malloc(len ? len : 1);
    CHECK(copy);
    if (len) memcpy(copy, in.data + *used, len);
    size_t n = peer->read(peer, copy, len);
    CHECK(n <= len);
    *used += n;
    free(copy);
}

/* In pieces of this many bytes. */
static inline void cuts_tell(struct cuts_peer *peer, struct bytes in, size_t step)
{
    size_t used = 0, have = 0;
    buf_init(&peer->log, 1 << 20);
    while (have < in.len && !peer->bad) {
        have = in.len - have < step ? in.len : have + step;
        cuts_show(peer, bytes_of(in.data, have), &used);
    }
    if (!peer->bad) buf_printf(&peer->log, " left %zu", in.len - used);
    CHECK(!buf_failed(&peer->log));
}

/* `told` starts a peer, tells it the input in steps and hands over its log. Long inputs are not
 * told byte by byte: the time is better spent on many short ones. */
static inline void cuts_check(struct buf (*told)(struct bytes in, size_t step), struct bytes in)
{
    struct buf whole = told(in, in.len ? in.len : 1);
    size_t steps[] = { in.len / 256 + 1, in.len / 64 + 2, in.len / 2 + 1 };
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        struct buf cut = told(in, steps[i]);
        CHECK(bytes_eq(buf_bytes(&cut), buf_bytes(&whole)));
        buf_fini(&cut);
    }
    buf_fini(&whole);
}

#endif
