/* text.c - UTF-8, hexadecimal and durations, against second opinions that are slow and plain.
 */
#include "base/text.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- UTF-8, as the grammar of RFC 3629 writes it ---- */

struct form {
    uint8_t first_low, first_high, second_low, second_high;
    size_t len;
};

static const struct form forms[] = {
    { 0x20, 0x7e, 0, 0, 1 },       { 0xc2, 0xc2, 0xa0, 0xbf, 2 }, { 0xc3, 0xdf, 0x80, 0xbf, 2 },
    { 0xe0, 0xe0, 0xa0, 0xbf, 3 }, { 0xe1, 0xec, 0x80, 0xbf, 3 }, { 0xed, 0xed, 0x80, 0x9f, 3 },
    { 0xee, 0xef, 0x80, 0xbf, 3 }, { 0xf0, 0xf0, 0x90, 0xbf, 4 }, { 0xf1, 0xf3, 0x80, 0xbf, 4 },
    { 0xf4, 0xf4, 0x80, 0x8f, 4 },
};

static bool form_matches(const struct form *f, struct bytes in)
{
    if (in.len < f->len) return false;
    if (in.data[0] < f->first_low || in.data[0] > f->first_high) return false;
    if (f->len > 1 && (in.data[1] < f->second_low || in.data[1] > f->second_high)) return false;
    for (size_t i = 2; i < f->len; i++)
        if (in.data[i] < 0x80 || in.data[i] > 0xbf) return false;
    return true;
}

static bool plain_by_grammar(struct bytes in)
{
    while (in.len) {
        size_t i = 0, count = sizeof forms / sizeof forms[0];
        while (i < count && !form_matches(&forms[i], in)) i++;
        if (i == count) return false;
        in = bytes_of(in.data + forms[i].len, in.len - forms[i].len);
    }
    return true;
}

/* ---- hexadecimal ---- */

static void check_hex(struct bytes in)
{
    uint8_t back[64];
    char text[2 * sizeof back + 1];
    if (in.len > sizeof back) in.len = sizeof back;
    hex_encode(in, text);
    CHECK(hex_decode(bytes_str(text), back, in.len));
    CHECK(bytes_eq(bytes_of(back, in.len), in));
    if (in.len % 2 == 0 && hex_decode(in, back, in.len / 2)) {
        hex_encode(bytes_of(back, in.len / 2), text);
        for (size_t i = 0; i < in.len; i++) /* the same digits, but for their case */
            CHECK(text[i] == (char)(in.data[i] >= 'A' && in.data[i] <= 'F' ? in.data[i] | 0x20
                                                                           : in.data[i]));
    }
}

/* ---- durations ---- */

static void check_duration(struct bytes in, int64_t max_ms)
{
    int64_t ms = -1;
    if (!duration_parse(in, max_ms, &ms)) {
        CHECK(ms == -1);
        return;
    }
    CHECK(ms >= 0 && ms <= max_ms);
    char text[32];
    snprintf(text, sizeof text, "%lldms", (long long)ms);
    int64_t again = -1;
    CHECK(duration_parse(bytes_str(text), max_ms, &again) && again == ms);
    if (ms > 0) CHECK(!duration_parse(in, ms - 1, &again));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes in = bytes_of(data, size);
    CHECK(text_is_plain_utf8(in) == plain_by_grammar(in));
    check_hex(in);
    check_duration(in, INT64_C(3650) * 86400000);
    check_duration(in, 1000);
    check_duration(in, INT64_MAX);
    return 0;
}
