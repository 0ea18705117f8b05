/* result.h - what a command printed and how it ended, as the value of a claim.
 *
 *     "once" version:u8 status:u8 finished_at_ms:u64 took_ms:u64 { stream:u8 len:u32 bytes }...
 *
 * Chunks are in the order in which they were read; neighbours of one stream are joined. The
 * decoder trusts nothing: a value that is not a result, or is cut short, is an error. */
#ifndef CLI_RESULT_H
#define CLI_RESULT_H

#include "base/buf.h"
#include "base/err.h"

enum { RESULT_STDOUT = 1, RESULT_STDERR = 2 };
enum { RESULT_HEADER_BYTES = 22, RESULT_CHUNK_HEADER_BYTES = 5 };

struct result_writer {
    struct buf frame;
    size_t chunk_at; /* offset of the last chunk; 0: there is none yet */
    bool overflowed; /* passed the maximum: what was kept is gone */
};

void result_start(struct result_writer *w, size_t bytes_max);
void result_free(struct result_writer *w);
void result_add(struct result_writer *w, int stream, struct bytes content);

struct result_end {
    int exit_status; /* 0-255; 128 + n: died of signal n */
    int64_t finished_at_ms, took_ms;
};

/* Completes the frame; the view is the writer's. Not after an overflow. */
struct bytes result_finish(struct result_writer *w, const struct result_end *end);

struct result {
    struct result_end end;
    struct bytes chunks;
    uint64_t stdout_bytes, stderr_bytes;
};

int result_decode(struct bytes value, struct result *ret_result, struct err *reterr);

/* Walks the chunks of a decoded result: false at the end. */
bool result_next(struct bytes *chunks, int *ret_stream, struct bytes *ret_content);

#endif
