/* base64.c - see base64.h. */
#include "proto/base64.h"

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* One to three bytes become four digits. */
static void encode_group(const uint8_t *in, size_t len, struct buf *out)
{
    uint32_t bits = (uint32_t)in[0] << 16;
    if (len > 1) bits |= (uint32_t)in[1] << 8;
    if (len > 2) bits |= in[2];
    char group[4] = { digits[bits >> 18], digits[bits >> 12 & 63], '=', '=' };
    if (len > 1) group[2] = digits[bits >> 6 & 63];
    if (len > 2) group[3] = digits[bits & 63];
    buf_add(out, bytes_of(group, 4));
}

void base64_encode(struct bytes in, struct buf *out)
{
    for (size_t at = 0; at < in.len; at += 3)
        encode_group(in.data + at, in.len - at < 3 ? in.len - at : 3, out);
}

/* -1: not a digit. */
static int digit_value(uint8_t c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Two to four digits become one to three bytes. */
static bool decode_group(const uint8_t *in, size_t count, uint8_t *out)
{
    uint32_t bits = 0;
    for (size_t i = 0; i < 4; i++) {
        int value = i < count ? digit_value(in[i]) : 0;
        if (value < 0) return false;
        bits = bits << 6 | (uint32_t)value;
    }
    for (size_t i = 0; i < count - 1; i++) out[i] = (uint8_t)(bits >> (16 - 8 * i));
    return (bits & (0xffffffu >> (8 * (count - 1)))) == 0;
}

static size_t padding_of(struct bytes in)
{
    if (in.len == 0 || in.data[in.len - 1] != '=') return 0;
    return in.data[in.len - 2] == '=' ? 2 : 1;
}

bool base64_decode(struct bytes in, uint8_t *out, size_t *ret_len)
{
    if (in.len % 4 != 0) return false;
    size_t padding = padding_of(in), len = 0;
    for (size_t at = 0; at < in.len; at += 4) {
        size_t count = at + 4 == in.len ? 4 - padding : 4;
        if (!decode_group(in.data + at, count, out + len)) return false;
        len += count - 1;
    }
    *ret_len = len;
    return true;
}
