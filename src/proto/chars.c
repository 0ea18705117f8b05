/* chars.c - see chars.h. */
#include "proto/chars.h"

enum {
    UNRESERVED = CHAR_PATH | CHAR_TARGET | CHAR_HOST,
    ALNUM = UNRESERVED | CHAR_TOKEN | CHAR_TOKEN68,
    DELIMITER = CHAR_PATH | CHAR_TARGET | CHAR_HOST, /* sub-delims */
    PLACE = CHAR_PATH | CHAR_TARGET,
};

const uint8_t char_classes[256] = {
    ['0' ... '9'] = ALNUM | CHAR_DIGIT | CHAR_HEX,
    ['A' ... 'F'] = ALNUM | CHAR_HEX,
    ['G' ... 'Z'] = ALNUM,
    ['a' ... 'f'] = ALNUM | CHAR_HEX,
    ['g' ... 'z'] = ALNUM,
    ['-'] = ALNUM,
    ['.'] = ALNUM,
    ['_'] = ALNUM,
    ['~'] = ALNUM,
    ['!'] = DELIMITER | CHAR_TOKEN,
    ['$'] = DELIMITER | CHAR_TOKEN,
    ['&'] = DELIMITER | CHAR_TOKEN,
    ['\''] = DELIMITER | CHAR_TOKEN,
    ['*'] = DELIMITER | CHAR_TOKEN,
    ['+'] = DELIMITER | CHAR_TOKEN | CHAR_TOKEN68,
    ['%'] = DELIMITER | CHAR_TOKEN,
    ['('] = DELIMITER,
    [')'] = DELIMITER,
    [','] = DELIMITER,
    [';'] = DELIMITER,
    ['='] = DELIMITER,
    [':'] = PLACE,
    ['@'] = PLACE,
    ['?'] = PLACE,
    ['/'] = PLACE | CHAR_TOKEN68,
    ['['] = CHAR_TARGET,
    [']'] = CHAR_TARGET,
    ['#'] = CHAR_TOKEN,
    ['^'] = CHAR_TOKEN,
    ['`'] = CHAR_TOKEN,
    ['|'] = CHAR_TOKEN,
};

unsigned hex_digit(uint8_t c)
{
    return c <= '9' ? (unsigned)c - '0' : (c | 0x20u) - 'a' + 10;
}

bool bytes_eq_nocase(struct bytes a, struct bytes b)
{
    if (a.len != b.len) return false;
    for (size_t i = 0; i < a.len; i++)
        if (char_lower(a.data[i]) != char_lower(b.data[i])) return false;
    return true;
}

struct bytes bytes_trim(struct bytes in)
{
    while (in.len > 0 && char_is_blank(in.data[in.len - 1])) in.len--;
    while (in.len > 0 && char_is_blank(in.data[0])) in = bytes_from(in, 1);
    return in;
}

#define EACH(byte) ((uint64_t)(byte)*UINT64_C(0x0101010101010101))

/* Is one of the eight below 0x20, or 0x7f? (No false alarms either: see "Bit Twiddling Hacks".) */
static bool eight_have_control(uint64_t eight)
{
    uint64_t below = (eight - EACH(0x20)) & ~eight;
    uint64_t del = eight ^ EACH(0x7f);
    return ((below | ((del - EACH(1)) & ~del)) & EACH(0x80)) != 0;
}

static bool are_value_slowly(const uint8_t *p, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((p[i] < 0x20 && p[i] != '\t') || p[i] == 0x7f) return false;
    return true;
}

bool chars_are_value(struct bytes in)
{
    while (in.len >= 8) {
        uint64_t eight;
        memcpy(&eight, in.data, 8);
        if (eight_have_control(eight) && !are_value_slowly(in.data, 8)) return false;
        in = bytes_from(in, 8);
    }
    return are_value_slowly(in.data, in.len);
}
