/* blob_test.c - shared bytes, and errors as a table. */
#include "base/blob.h"

#include "base/err.h"

#include <criterion/criterion.h>

Test(blob, keeps_a_copy_until_the_last_reference)
{
    char text[] = "abc";
    struct blob *b = blob_new(bytes_str(text));
    text[0] = 'x';
    cr_assert(bytes_eq(blob_bytes(b), bytes_str("abc")));
    cr_assert(blob_ref(b) == b);
    blob_unref(b);
    cr_assert(bytes_eq(blob_bytes(b), bytes_str("abc")));
    blob_unref(b);
}

Test(blob, null_is_no_blob)
{
    cr_assert(!blob_ref(NULL) && blob_bytes(NULL).len == 0);
    blob_unref(NULL);
}

Test(blob, empty_is_not_null)
{
    struct blob *empty = blob_new(bytes_of(NULL, 0)), *also = blob_new(bytes_str(""));
    cr_assert(blob_eq(empty, also) && blob_eq(NULL, NULL));
    cr_assert(!blob_eq(empty, NULL) && !blob_eq(NULL, empty));
    blob_unref(empty);
    blob_unref(also);
}

Test(blob, equality_is_of_content)
{
    struct blob *a = blob_new(bytes_of("a\0b", 3)), *b = blob_new(bytes_of("a\0c", 3));
    struct blob *c = blob_new(bytes_of("a\0b", 3)), *d = blob_new(bytes_of("a", 1));
    cr_assert(blob_eq(a, c) && !blob_eq(a, b) && !blob_eq(a, d));
    blob_unref(a);
    blob_unref(b);
    blob_unref(c);
    blob_unref(d);
}

Test(bytes, order_is_by_content_then_length)
{
    cr_assert(bytes_cmp(bytes_str("a"), bytes_str("b")) < 0);
    cr_assert(bytes_cmp(bytes_str("ab"), bytes_str("a")) > 0);
    cr_assert(bytes_cmp(bytes_str(""), bytes_str("a")) < 0);
    cr_assert(bytes_cmp(bytes_str("\xff"), bytes_str("a")) > 0, "bytes are unsigned");
    cr_assert(bytes_cmp(bytes_of("a\0b", 3), bytes_of("a\0c", 3)) < 0);
    cr_assert(bytes_cmp(bytes_of(NULL, 0), bytes_str("")) == 0);
}

Test(err, every_code_has_a_name_and_a_text)
{
#define CHECK_ROW(code, value, name, retryable, text)                                          \
    cr_expect(strcmp(err_name(code), name) == 0 && err_retryable(code) == retryable);          \
    cr_expect(strlen(err_text(code)) > 0 && (code) < 0);
    ERR_LIST(CHECK_ROW)
#undef CHECK_ROW
    cr_assert(strcmp(err_name(0), "ok") == 0 && !err_retryable(0));
}

Test(err, set_returns_the_code_and_cuts_long_texts)
{
    struct err err;
    char text[400];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    cr_assert(err_set(&err, ERR_LIMIT, "%s", text) == ERR_LIMIT && err.code == ERR_LIMIT);
    cr_assert(strlen(err.text) == sizeof err.text - 1);
}
