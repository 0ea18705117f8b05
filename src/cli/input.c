/* input.c - see input.h. */
#include "cli/input.h"

#include "cli/format.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* One byte over the maximum is enough to know. */
static int read_all(struct buf *into)
{
    char chunk[65536];
    while (!buf_failed(into)) {
        ssize_t n = read(STDIN_FILENO, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -errno;
        if (n == 0) return 0;
        buf_add(into, bytes_of(chunk, (size_t)n));
    }
    return 0;
}

int input_read(const struct cli *cli, const char *what, struct buf *into)
{
    char most[SIZE_TEXT_BYTES], text[96];
    int r = read_all(into);
    if (r < 0) {
        cli_error("cannot read the %s from stdin: %s", what, strerror(-r));
        return STATUS_INTERNAL;
    }
    if (!buf_failed(into)) return 0;
    snprintf(text, sizeof text, "the %s is larger than %s bytes; nothing was done", what,
             format_size(into->bytes_max, most));
    return cli_fail(cli, buf_failed(into), text);
}
