/* fingerprint.c - see fingerprint.h. */
#include "cli/fingerprint.h"

#include "cli/format.h"

#include <stdlib.h>

int fingerprint_text(const char *text, struct fingerprint *ret)
{
    struct bytes in = bytes_str(text);
    struct fingerprint f = { .len = in.len };
    if (in.len <= FINGERPRINT_BYTES) {
        memcpy(f.bytes, in.data, in.len);
    } else {
        f.len = DIGEST_BYTES;
        if (digest_parts(&in, 1, f.bytes) < 0) return -1;
    }
    *ret = f;
    return 0;
}

int fingerprint_words(char *const *words, size_t count, struct fingerprint *ret)
{
    struct fingerprint f = { .len = DIGEST_BYTES };
    struct bytes *parts = calloc(count ? count : 1, sizeof *parts);
    if (!parts) return -1;
    for (size_t i = 0; i < count; i++) parts[i] = bytes_str(words[i]);
    int r = digest_parts(parts, count, f.bytes);
    free(parts);
    if (r == 0) *ret = f;
    return r;
}
