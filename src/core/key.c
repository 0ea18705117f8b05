/* key.c - see key.h. */
#include "core/key.h"

#include "base/check.h"
#include "base/museum.h"
#include "base/text.h"

static bool scope_byte(uint8_t c)
{
    if (c >= 'A' && c <= 'Z') return true;
    if (c >= 'a' && c <= 'z') return true;
    if (c >= '0' && c <= '9') return true;
    return c == '.' || c == '_' || c == ':' || c == '/' || c == '-';
}

int key_check(const struct key *k, struct err *reterr)
{
    if (k->scope.len == 0) return err_set(reterr, ERR_INVALID, "the scope is empty");
    if (k->scope.len > SCOPE_BYTES_MAX)
        return err_set(reterr, ERR_LIMIT, "the scope has %zu bytes; at most %d are allowed",
                       k->scope.len, SCOPE_BYTES_MAX);
    for (size_t i = 0; i < k->scope.len; i++)
        if (!scope_byte(k->scope.data[i]))
            return err_set(reterr, ERR_INVALID,
                           "byte %zu of the scope is not one of A-Z a-z 0-9 . _ : / -", i + 1);
    if (k->name.len == 0) return err_set(reterr, ERR_INVALID, "the key is empty");
    if (k->name.len > KEY_BYTES_MAX)
        return err_set(reterr, ERR_LIMIT, "the key has %zu bytes; at most %d are allowed",
                       k->name.len, KEY_BYTES_MAX);
    if (!text_is_plain_utf8(k->name))
        return err_set(reterr, ERR_INVALID,
                       "the key is not UTF-8 text without control characters");
    return 0;
}

size_t key_frame(const struct key *k, uint8_t *out)
{
    CHECK(k->scope.len >= 1 && k->scope.len <= SCOPE_BYTES_MAX);
    CHECK(k->name.len >= 1 && k->name.len <= KEY_BYTES_MAX);
    out[0] = (uint8_t)k->scope.len;
    memcpy(out + 1, k->scope.data, k->scope.len);
    if (BUG(SHARED_SCOPE)) memset(out + 1, 's', k->scope.len);
    memcpy(out + 1 + k->scope.len, k->name.data, k->name.len);
    return 1 + k->scope.len + k->name.len;
}

struct key key_unframe(struct bytes frame)
{
    CHECK(frame.len >= 3 && frame.data[0] >= 1 && frame.data[0] + 2u <= frame.len);
    size_t scope_len = frame.data[0];
    return (struct key){ .scope = bytes_of(frame.data + 1, scope_len),
                         .name =
                             bytes_of(frame.data + 1 + scope_len, frame.len - 1 - scope_len) };
}
