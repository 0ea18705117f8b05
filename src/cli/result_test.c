/* result_test.c - results come back as they went in; nothing else is taken for one. */
#include "cli/result.h"

#include <criterion/criterion.h>

enum { ROOMY = 1 << 20 };

static const struct result_end success = { .exit_status = 0,
                                           .finished_at_ms = 1700000000000,
                                           .took_ms = 42 };

static void add(struct result_writer *w, int stream, const char *text)
{
    result_add(w, stream, bytes_str(text));
}

static void expect_chunk(struct bytes *chunks, int stream, const char *text)
{
    int got;
    struct bytes content;
    cr_assert(result_next(chunks, &got, &content));
    cr_assert_eq(got, stream);
    cr_assert(bytes_eq(content, bytes_str(text)));
}

Test(result, keeps_order_and_joins_neighbours)
{
    struct result_writer w;
    struct result got;
    struct err err;
    result_start(&w, ROOMY);
    add(&w, RESULT_STDOUT, "a");
    add(&w, RESULT_STDOUT, "b");
    add(&w, RESULT_STDERR, "oops");
    add(&w, RESULT_STDOUT, "c");
    struct bytes frame = result_finish(&w, &success);
    cr_assert_eq(frame.len, RESULT_HEADER_BYTES + 3 * RESULT_CHUNK_HEADER_BYTES + 7u);
    cr_assert_eq(result_decode(frame, &got, &err), 0);
    cr_assert_eq(got.stdout_bytes, 3);
    cr_assert_eq(got.stderr_bytes, 4);
    expect_chunk(&got.chunks, RESULT_STDOUT, "ab");
    expect_chunk(&got.chunks, RESULT_STDERR, "oops");
    expect_chunk(&got.chunks, RESULT_STDOUT, "c");
    cr_assert_eq(got.chunks.len, 0);
    result_free(&w);
}

Test(result, keeps_how_it_ended)
{
    const struct result_end end = { .exit_status = 137,
                                    .finished_at_ms = INT64_MAX,
                                    .took_ms = 0 };
    struct result_writer w;
    struct result got;
    struct err err;
    result_start(&w, ROOMY);
    cr_assert_eq(result_decode(result_finish(&w, &end), &got, &err), 0);
    cr_assert_eq(got.end.exit_status, 137);
    cr_assert_eq(got.end.finished_at_ms, INT64_MAX);
    cr_assert_eq(got.end.took_ms, 0);
    cr_assert_eq(got.chunks.len, 0);
    result_free(&w);
}

Test(result, keeps_every_byte)
{
    uint8_t all[256];
    struct result_writer w;
    struct result got;
    struct err err;
    for (size_t i = 0; i < sizeof all; i++) all[i] = (uint8_t)i;
    result_start(&w, ROOMY);
    result_add(&w, RESULT_STDERR, bytes_of(all, sizeof all));
    result_add(&w, RESULT_STDERR, bytes_of(NULL, 0));
    cr_assert_eq(result_decode(result_finish(&w, &success), &got, &err), 0);
    int stream;
    struct bytes content;
    cr_assert(result_next(&got.chunks, &stream, &content));
    cr_assert(bytes_eq(content, bytes_of(all, sizeof all)));
    cr_assert_not(result_next(&got.chunks, &stream, &content));
    result_free(&w);
}

Test(result, fits_exactly_or_not_at_all)
{
    struct result_writer w;
    const size_t overhead = RESULT_HEADER_BYTES + RESULT_CHUNK_HEADER_BYTES;
    result_start(&w, overhead + 5);
    add(&w, RESULT_STDOUT, "12345");
    cr_assert_not(w.overflowed);
    cr_assert_eq(result_finish(&w, &success).len, overhead + 5);
    add(&w, RESULT_STDOUT, "6");
    cr_assert(w.overflowed);
    cr_assert_eq(w.frame.len, 0, "what was kept must be given back");
    add(&w, RESULT_STDOUT, "7");
    cr_assert(w.overflowed);
    result_free(&w);
}

Test(result, overflows_at_a_chunk_header)
{
    struct result_writer w;
    result_start(&w, RESULT_HEADER_BYTES + 2);
    add(&w, RESULT_STDERR, "x");
    cr_assert(w.overflowed);
    result_free(&w);
}

Test(result, every_cut_is_refused)
{
    struct result_writer w;
    struct result got;
    struct err err;
    result_start(&w, ROOMY);
    add(&w, RESULT_STDOUT, "out");
    add(&w, RESULT_STDERR, "err");
    struct bytes frame = result_finish(&w, &success);
    size_t whole[] = { RESULT_HEADER_BYTES,
                       RESULT_HEADER_BYTES + RESULT_CHUNK_HEADER_BYTES + 3 };
    for (size_t len = 0; len < frame.len; len++) {
        bool ends_between_chunks = len == whole[0] || len == whole[1];
        int r = result_decode(bytes_of(frame.data, len), &got, &err);
        cr_assert_eq(r == 0, ends_between_chunks, "length %zu", len);
    }
    result_free(&w);
}

Test(result, every_flipped_byte_is_refused_or_harmless)
{
    struct result_writer w;
    result_start(&w, ROOMY);
    add(&w, RESULT_STDOUT, "out");
    add(&w, RESULT_STDERR, "err");
    struct bytes frame = result_finish(&w, &success);
    uint8_t copy[64];
    for (size_t at = 0; at < frame.len; at++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            struct result got;
            struct err err;
            memcpy(copy, frame.data, frame.len);
            copy[at] ^= (uint8_t)(1u << bit);
            if (result_decode(bytes_of(copy, frame.len), &got, &err) < 0) continue;
            cr_assert_leq(got.stdout_bytes + got.stderr_bytes, frame.len);
            cr_assert_geq(at, 5, "a changed magic or version was taken for a result");
        }
    }
    result_free(&w);
}

Test(result, says_what_is_wrong)
{
    struct result got;
    struct err err;
    cr_assert_eq(result_decode(bytes_str("hello, world"), &got, &err), ERR_CORRUPT);
    cr_assert_eq(result_decode(bytes_str("once\x02 from the future, long enough"), &got, &err),
                 ERR_VERSION);
    cr_assert_eq(result_decode(bytes_of(NULL, 0), &got, &err), ERR_CORRUPT);
}
