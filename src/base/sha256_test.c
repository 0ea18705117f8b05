/* sha256_test.c - known digests of framed pieces, and that pieces are kept apart. */
#include "base/sha256.h"

#include "base/text.h"

#include <criterion/criterion.h>

static void expect_digest(const struct bytes *pieces, size_t count, const char *expected)
{
    uint8_t digest[SHA256_BYTES];
    char text[2 * SHA256_BYTES + 1];
    cr_assert(sha256_pieces(pieces, count, digest));
    hex_encode(bytes_of(digest, sizeof digest), text);
    cr_expect_str_eq(text, expected);
}

/* As `printf '\0\0\0\0\0\0\0\003abc' | sha256sum` has it. */
Test(sha256, known_digests)
{
    struct bytes abc = bytes_str("abc"), none[2] = { { NULL, 0 }, { NULL, 0 } };
    expect_digest(NULL, 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect_digest(none, 1, "af5570f5a1810b7af78caf4bc70a660f0df51e42baf91d4de5b2328de0e83dfc");
    expect_digest(none, 2, "374708fff7719dd5979ec875d56cd2286f6d3cf7ec317a3b25632aab28ec37bb");
    expect_digest(&abc, 1, "c3494ca1a2cf8eeb8a11ded316fb55b83c3bbbedb6313cd50415251e5d09e12f");
}

static void digest_of(const char *a, const char *b, uint8_t out[SHA256_BYTES])
{
    struct bytes pieces[] = { bytes_str(a), bytes_str(b) };
    cr_assert(sha256_pieces(pieces, 2, out));
}

Test(sha256, pieces_are_kept_apart)
{
    static const char *const table[][2] = {
        { "a", "bc" }, { "ab", "c" }, { "abc", "" }, { "", "abc" }, { "a", "bd" },
    };
    enum { ROWS = sizeof table / sizeof table[0] };
    uint8_t digests[ROWS][SHA256_BYTES];
    for (size_t i = 0; i < ROWS; i++) {
        digest_of(table[i][0], table[i][1], digests[i]);
        for (size_t k = 0; k < i; k++)
            cr_expect(memcmp(digests[i], digests[k], SHA256_BYTES) != 0, "%zu and %zu", i, k);
    }
}

Test(sha256, the_length_has_eight_bytes)
{
    static uint8_t large[70000];
    struct bytes one = bytes_of(large, sizeof large);
    expect_digest(&one, 1, "b6831c55012447fd5b9c6098bf95595f093f8ba5ae354f295c4895bb2a2e0815");
}
