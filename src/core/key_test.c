/* key_test.c - what a scope and a key may be, and that framing keeps them apart. */
#include "core/key.h"

#include <criterion/criterion.h>
#include <stdio.h>

static int check(struct bytes scope, struct bytes name)
{
    struct err err = { 0 };
    struct key k = { scope, name };
    int r = key_check(&k, &err);
    cr_assert(r == err.code);
    cr_assert(r == 0 || err.text[0], "an error says what is wrong");
    return r;
}

Test(key, scopes)
{
    cr_assert(check(bytes_str("AZaz09._:/-"), bytes_str("k")) == 0);
    static const char *const bad[] = { "a b", "a\n", "\xc3\xbc", "a*", "a\\", "a@b", "{a}" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_expect(check(bytes_str(bad[i]), bytes_str("k")) == ERR_INVALID, "\"%s\"", bad[i]);
    cr_assert(check(bytes_of("a\0b", 3), bytes_str("k")) == ERR_INVALID);
}

Test(key, names)
{
    cr_assert(check(bytes_str("s"), bytes_str("any thing {*}\\'\" \xc3\xbc")) == 0);
    static const char *const bad[] = { "\n", "a\tb", "\x7f", "\xc3", "\xc2\x85" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_expect(check(bytes_str("s"), bytes_str(bad[i])) == ERR_INVALID, "row %zu", i);
    cr_assert(check(bytes_str("s"), bytes_of("a\0b", 3)) == ERR_INVALID);
}

Test(key, lengths)
{
    char text[KEY_BYTES_MAX + 2];
    memset(text, 'a', sizeof text);
    cr_assert(check(bytes_of(text, 0), bytes_str("k")) == ERR_INVALID);
    cr_assert(check(bytes_of(text, SCOPE_BYTES_MAX), bytes_str("k")) == 0);
    cr_assert(check(bytes_of(text, SCOPE_BYTES_MAX + 1), bytes_str("k")) == ERR_LIMIT);
    cr_assert(check(bytes_str("s"), bytes_of(text, 0)) == ERR_INVALID);
    cr_assert(check(bytes_str("s"), bytes_of(text, KEY_BYTES_MAX)) == 0);
    cr_assert(check(bytes_str("s"), bytes_of(text, KEY_BYTES_MAX + 1)) == ERR_LIMIT);
}

static struct bytes frame(const char *scope, const char *name, uint8_t *out)
{
    struct key k = { bytes_str(scope), bytes_str(name) };
    return bytes_of(out, key_frame(&k, out));
}

Test(key, frames_of_different_keys_differ)
{
    static const char *const keys[][2] = { { "a:b", "c" }, { "a", "b:c" }, { "ab", "c" },
                                           { "a", "bc" },  { "c", "ab" },  { "abc", "x" } };
    enum { COUNT = sizeof keys / sizeof keys[0] };
    uint8_t memory[COUNT][KEY_FRAME_BYTES_MAX];
    struct bytes frames[COUNT];
    for (size_t i = 0; i < COUNT; i++) frames[i] = frame(keys[i][0], keys[i][1], memory[i]);
    for (size_t i = 0; i < COUNT; i++)
        for (size_t j = i + 1; j < COUNT; j++)
            cr_expect(!bytes_eq(frames[i], frames[j]), "%zu and %zu", i, j);
}

Test(key, unframe_gives_back_what_was_framed)
{
    char scope[SCOPE_BYTES_MAX + 1] = "", name[KEY_BYTES_MAX + 1] = "";
    memset(scope, 's', SCOPE_BYTES_MAX);
    memset(name, 'n', KEY_BYTES_MAX);
    uint8_t memory[KEY_FRAME_BYTES_MAX];
    struct key k = key_unframe(frame(scope, name, memory));
    cr_assert(bytes_eq(k.scope, bytes_str(scope)) && bytes_eq(k.name, bytes_str(name)));
    k = key_unframe(frame("s", "n", memory));
    cr_assert(bytes_eq(k.scope, bytes_str("s")) && bytes_eq(k.name, bytes_str("n")));
}
