/* result.c - the stored result of a command: garbage is refused, what is accepted is consistent
 * and survives being written again. */
#include "cli/result.h"
#include "tests/fuzz/fuzz.h"

/* Both streams of a result, one behind the other. */
static void streams_of(const struct result *r, struct buf *out)
{
    for (int want = RESULT_STDOUT; want <= RESULT_STDERR; want++) {
        struct bytes chunks = r->chunks, content;
        int stream;
        while (result_next(&chunks, &stream, &content))
            if (stream == want) buf_add(out, content);
    }
}

static void write_again(const struct result *r, struct result_writer *w)
{
    struct bytes chunks = r->chunks, content;
    int stream;
    while (result_next(&chunks, &stream, &content)) result_add(w, stream, content);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct result first, second;
    struct err err = { 0 };
    if (result_decode(bytes_of(data, size), &first, &err)) {
        CHECK(err.code < 0 && err.text[0]);
        return 0;
    }
    struct buf before, after;
    buf_init(&before, size + 1);
    buf_init(&after, size + 1);
    streams_of(&first, &before);
    CHECK(before.len == first.stdout_bytes + first.stderr_bytes);

    struct result_writer w;
    result_start(&w, size + RESULT_HEADER_BYTES);
    write_again(&first, &w);
    CHECK(!w.overflowed);
    CHECK(result_decode(result_finish(&w, &first.end), &second, &err) == 0);
    streams_of(&second, &after);
    CHECK(bytes_eq(buf_bytes(&before), buf_bytes(&after)));
    CHECK(second.end.exit_status == first.end.exit_status);
    result_free(&w);
    buf_fini(&before);
    buf_fini(&after);
    return 0;
}
