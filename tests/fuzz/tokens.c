/* tokens.c - any lines are tokens or an error that names its line; what was read is written as lines
 * that say the same. Any text is a token or is not, whatever stands behind it. */
#include "daemon/tokens.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

static void write_lines(const struct tokens *t, struct buf *out)
{
    buf_init(out, 1 << 20);
    tokens_write(t, out);
    CHECK(!buf_failed(out));
}

static void check_rows(const struct tokens *t)
{
    struct err err;
    for (size_t i = 0; i < t->count; i++) {
        const struct access_token *row = &t->rows[i];
        CHECK(i == 0 || strcmp(t->rows[i - 1].id, row->id) < 0);
        CHECK(tokens_find(t, bytes_str(row->id)) == row);
        CHECK(row->rights && row->name[0]);
        CHECK(scopes_check(bytes_str(row->scopes), &err) == 0);
    }
}

static void check_lines(struct bytes in)
{
    struct tokens t = { 0 }, again = { 0 };
    struct buf lines, second;
    struct err err = { 0 };
    if (tokens_read(in, &t, &err) < 0) {
        CHECK(!t.rows && strncmp(err.text, "line ", 5) == 0);
        return;
    }
    check_rows(&t);
    write_lines(&t, &lines);
    CHECK(tokens_read(buf_bytes(&lines), &again, &err) == 0);
    write_lines(&again, &second);
    CHECK(bytes_eq(buf_bytes(&lines), buf_bytes(&second)));
    buf_fini(&lines);
    buf_fini(&second);
    tokens_fini(&t);
    tokens_fini(&again);
}

/* A token ends where it ends: one byte more or less is none. */
static void check_text(struct bytes in)
{
    struct bytes id;
    struct err err;
    if (token_text_parse(in, &id, &err) < 0) return;
    CHECK(in.len == TOKEN_TEXT_BYTES && id.len == TOKEN_ID_BYTES);
    CHECK(token_text_parse(bytes_of(in.data, in.len - 1), &id, &err) == ERR_INVALID);
}

/* A pattern that covers nothing more than itself is refused for everything else. */
static void check_scopes(struct bytes in)
{
    struct err err;
    if (scopes_check(in, &err) < 0) return;
    char *scopes = strndup((const char *)in.data, in.len);
    CHECK(scopes);
    if (!strchr(scopes, '*')) CHECK(!scopes_cover(scopes, bytes_str("")));
    if (!strpbrk(scopes, ",*")) CHECK(scopes_cover(scopes, in));
    free(scopes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes in = bytes_of(data, size);
    check_lines(in);
    check_text(in);
    check_scopes(in);
    return 0;
}
