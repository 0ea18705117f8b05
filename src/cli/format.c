/* format.c - see format.h. */
#include "cli/format.h"

#include "base/buf.h"
#include "base/text.h"
#include "cli/cli.h"

#include <openssl/evp.h>
#include <stdlib.h>

static const struct {
    const char *name;
    int64_t ms;
} units[] = { { "d", 86400000 }, { "h", 3600000 }, { "m", 60000 } };

const char *format_duration(int64_t ms, char out[DURATION_TEXT_BYTES])
{
    if (ms < 0) ms = 0;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (ms < units[i].ms) continue;
        int64_t rest = ms % units[i].ms;
        bool last = units[i].ms == 60000;
        int64_t lower = last ? rest / 1000 : rest / units[i + 1].ms;
        int at = snprintf(out, DURATION_TEXT_BYTES, "%lld%s", (long long)(ms / units[i].ms),
                          units[i].name);
        if (lower)
            snprintf(out + at, DURATION_TEXT_BYTES - (size_t)at, "%lld%s", (long long)lower,
                     last ? "s" : units[i + 1].name);
        return out;
    }
    if (ms >= 1000 && ms % 1000 < 100)
        snprintf(out, DURATION_TEXT_BYTES, "%llds", (long long)(ms / 1000));
    else if (ms >= 1000)
        snprintf(out, DURATION_TEXT_BYTES, "%lld.%llds", (long long)(ms / 1000),
                 (long long)(ms % 1000 / 100));
    else
        snprintf(out, DURATION_TEXT_BYTES, "%lldms", (long long)ms);
    return out;
}

const char *format_size(uint64_t bytes, char out[SIZE_TEXT_BYTES])
{
    static const char letters[] = "kMGT";
    if (bytes < 1024) {
        snprintf(out, SIZE_TEXT_BYTES, "%llu", (unsigned long long)bytes);
        return out;
    }
    double n = (double)bytes / 1024;
    size_t i = 0;
    for (; n >= 1024 && i < 3; i++) n /= 1024;
    snprintf(out, SIZE_TEXT_BYTES, "%.1f%c", n, letters[i]);
    return out;
}

/* Zero-width and direction-changing characters: they are legal in a key, and can make one line
 * of a listing look like another. Given as UTF-8: U+200B-200F, 202A-202E, 2060-2069, FEFF. */
static bool invisible(const uint8_t *p, size_t len)
{
    if (len < 3) return false;
    if (p[0] == 0xef) return p[1] == 0xbb && p[2] == 0xbf;
    if (p[0] != 0xe2) return false;
    if (p[1] == 0x80) return (p[2] >= 0x8b && p[2] <= 0x8f) || (p[2] >= 0xaa && p[2] <= 0xae);
    return p[1] == 0x81 && p[2] >= 0xa0 && p[2] <= 0xa9;
}

void print_escaped(FILE *to, struct bytes text)
{
    bool plain = text_is_plain_utf8(text);
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.data[i];
        if (c == '\\') {
            fputs("\\\\", to);
        } else if (plain && invisible(text.data + i, text.len - i)) {
            fprintf(to, "\\x%02x\\x%02x\\x%02x", c, text.data[i + 1], text.data[i + 2]);
            i += 2;
        } else if (plain || (c >= 0x20 && c < 0x7f)) {
            putc(c, to);
        } else {
            fprintf(to, "\\x%02x", c);
        }
    }
}

void print_quoted(FILE *to, const char *word)
{
    putc('\'', to);
    for (; *word; word++)
        if (*word == '\'')
            fputs("'\\''", to);
        else
            putc(*word, to);
    putc('\'', to);
}

static json_t *json_base64(struct bytes value)
{
    char *text = malloc(4 * (value.len / 3 + 1) + 1);
    if (!text) return NULL;
    EVP_EncodeBlock((unsigned char *)text, value.data, (int)value.len);
    json_t *object = json_pack("{s:s}", "base64", text);
    free(text);
    return object;
}

json_t *json_bytes(struct bytes value)
{
    if (value.len == 0) return json_string("");
    json_t *text = json_stringn((const char *)value.data, value.len); /* checks the UTF-8 */
    return text ? text : json_base64(value);
}

int print_json(FILE *to, json_t *object)
{
    int r = object ? json_dumpf(object, to, JSON_COMPACT) : -1;
    json_decref(object);
    putc('\n', to);
    if (r == 0) return STATUS_OK;
    cli_error("could not write JSON: out of memory, or the output is gone");
    return STATUS_INTERNAL;
}

int digest_parts(const struct bytes *parts, size_t count, uint8_t out[DIGEST_BYTES])
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    int ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL);
    for (size_t i = 0; ok && i < count; i++) {
        struct buf frame;
        buf_init(&frame, 8);
        buf_u64(&frame, parts[i].len);
        ok = !buf_failed(&frame) && EVP_DigestUpdate(ctx, frame.data, frame.len) &&
             EVP_DigestUpdate(ctx, parts[i].data, parts[i].len);
        buf_fini(&frame);
    }
    ok = ok && EVP_DigestFinal_ex(ctx, out, NULL);
    EVP_MD_CTX_free(ctx);
    return ok ? 0 : -1;
}

void key_hash(struct bytes scope, struct bytes key, char out[KEY_HASH_BYTES])
{
    uint8_t digest[DIGEST_BYTES];
    if (digest_parts((struct bytes[]){ scope, key }, 2, digest) < 0)
        memset(digest, 0, sizeof digest);
    hex_encode(bytes_of(digest, (KEY_HASH_BYTES - 1) / 2), out);
}
