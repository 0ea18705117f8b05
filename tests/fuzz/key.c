/* key.c - scopes and keys: what is accepted survives being framed, and no two share a frame. */
#include "core/key.h"
#include "tests/fuzz/fuzz.h"

/* The first byte says where the scope ends. */
static struct key split(struct bytes in, uint8_t scope_len)
{
    size_t len = scope_len < in.len ? scope_len : in.len;
    return (struct key){ bytes_of(in.data, len), bytes_of(in.data + len, in.len - len) };
}

static void check_round_trip(const struct key *key)
{
    uint8_t frame[KEY_FRAME_BYTES_MAX];
    size_t len = key_frame(key, frame);
    CHECK(len <= sizeof frame && len == 1 + key->scope.len + key->name.len);
    struct key back = key_unframe(bytes_of(frame, len));
    CHECK(bytes_eq(back.scope, key->scope) && bytes_eq(back.name, key->name));
}

static void check_apart(const struct key *a, const struct key *b)
{
    uint8_t frame_a[KEY_FRAME_BYTES_MAX], frame_b[KEY_FRAME_BYTES_MAX];
    bool same = bytes_eq(a->scope, b->scope) && bytes_eq(a->name, b->name);
    struct bytes one = bytes_of(frame_a, key_frame(a, frame_a));
    struct bytes other = bytes_of(frame_b, key_frame(b, frame_b));
    CHECK(bytes_eq(one, other) == same);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    struct bytes rest = bytes_of(data + 2, size - 2);
    struct key a = split(rest, data[0]), b = split(rest, data[1]);
    struct err err = { 0 };
    bool a_good = key_check(&a, &err) == 0;
    if (!a_good) CHECK(err.code < 0 && err.text[0]);
    bool b_good = key_check(&b, &err) == 0;
    if (a_good) check_round_trip(&a);
    if (a_good && b_good) check_apart(&a, &b);
    return 0;
}
