/* buf_test.c - limits, what a failed write leaves behind, and the reading side. */
#include "base/buf.h"

#include "base/err.h"

#include <criterion/criterion.h>

static struct buf buf;

static void teardown(void)
{
    buf_fini(&buf);
}

TestSuite(buf, .fini = teardown);

static void expect_content(const char *text)
{
    cr_assert(bytes_eq(buf_bytes(&buf), bytes_str(text)), "\"%.*s\"", (int)buf.len,
              (const char *)buf.data);
}

Test(buf, grows_up_to_its_maximum_and_no_further)
{
    buf_init(&buf, 1000);
    for (unsigned i = 0; i < 1000; i++) buf_byte(&buf, (uint8_t)i);
    cr_assert(buf.len == 1000 && !buf_failed(&buf) && buf.cap == 1000);
    buf_byte(&buf, 0);
    cr_assert(buf.len == 1000 && buf_failed(&buf) == ERR_LIMIT);
}

Test(buf, a_failed_write_leaves_the_content_and_is_remembered)
{
    buf_init(&buf, 5);
    buf_add(&buf, bytes_str("abc"));
    buf_add(&buf, bytes_str("defg"));
    expect_content("abc");
    buf_add(&buf, bytes_str("d")); /* would fit, but the content would have a hole */
    expect_content("abc");
    cr_assert(buf_failed(&buf) == ERR_LIMIT);
}

Test(buf, clear_forgets_the_failure_and_keeps_the_memory)
{
    buf_init(&buf, 4);
    buf_add(&buf, bytes_str("abcd"));
    buf_byte(&buf, 'e');
    uint8_t *data = buf.data;
    buf_clear(&buf);
    cr_assert(!buf_failed(&buf) && buf.len == 0 && buf.data == data);
    buf_add(&buf, bytes_str("xyz"));
    expect_content("xyz");
}

Test(buf, nothing_can_be_added_to_a_maximum_of_zero)
{
    buf_init(&buf, 0);
    buf_add(&buf, bytes_of(NULL, 0));
    cr_assert(!buf_failed(&buf));
    buf_byte(&buf, 1);
    cr_assert(buf_failed(&buf) == ERR_LIMIT);
}

Test(buf, printf_appends_text_without_its_nul)
{
    buf_init(&buf, 100);
    buf_printf(&buf, "%s-%d", "a", 17);
    buf_printf(&buf, "%c", '!');
    expect_content("a-17!");
}

Test(buf, printf_beyond_the_maximum_writes_nothing)
{
    buf_init(&buf, 4);
    buf_printf(&buf, "%d", 123456);
    cr_assert(buf.len == 0 && buf_failed(&buf) == ERR_LIMIT);
}

Test(buf, extend_makes_room_for_the_caller_to_fill)
{
    struct buf b;
    buf_init(&b, 100);
    buf_add(&b, bytes_str("ab"));
    uint8_t *at = buf_extend(&b, 98);
    cr_assert(at == b.data + 2 && b.len == 100);
    memset(at, 'x', 98);
    cr_assert(!buf_extend(&b, 1) && buf_failed(&b) == ERR_LIMIT && b.len == 100);
    cr_assert(b.data[0] == 'a' && b.data[99] == 'x');
    buf_fini(&b);
}

Test(buf, fini_can_be_used_again)
{
    buf_init(&buf, 10);
    buf_add(&buf, bytes_str("abc"));
    buf_fini(&buf);
    cr_assert(buf.len == 0 && buf.bytes_max == 10);
    buf_add(&buf, bytes_str("abc"));
    expect_content("abc");
}

Test(buf, numbers_are_big_endian_and_come_back)
{
    buf_init(&buf, 100);
    buf_u32(&buf, 0x01020304);
    buf_u64(&buf, 0xfedcba9876543210u);
    buf_byte(&buf, 7);
    cr_assert(bytes_eq(bytes_of(buf.data, 4), bytes_of("\1\2\3\4", 4)));
    struct reader r = { .left = buf_bytes(&buf) };
    cr_assert(reader_u32(&r) == 0x01020304);
    cr_assert(reader_u64(&r) == 0xfedcba9876543210u);
    cr_assert(reader_byte(&r) == 7 && !r.short_read && r.left.len == 0);
}

Test(buf, reading_past_the_end_gives_zeros_and_says_so)
{
    struct reader r = { .left = bytes_str("abc") };
    cr_assert(reader_u32(&r) == 0 && r.short_read);
    cr_assert(reader_byte(&r) == 0, "nothing is read after a short read");
    r = (struct reader){ .left = bytes_str("abc") };
    cr_assert(reader_take(&r, 3).len == 3 && !r.short_read);
    cr_assert(reader_take(&r, 1).len == 0 && r.short_read);
}
