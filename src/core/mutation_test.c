/* mutation_test.c - what is a mutation, and what is kept of one. */
#include "core/mutation.h"

#include <criterion/criterion.h>

static struct mutation plain(void)
{
    return (struct mutation){ .user = bytes_str("user-1"), .request = bytes_str("req-9") };
}

static int checked(struct mutation m)
{
    struct err err = { 0 };
    int r = mutation_check(&m, &err);
    cr_assert(!r || err.text[0]);
    return r;
}

Test(mutation, says_what_is_none)
{
    static const char longer[MUTATION_NAME_BYTES_MAX + 1];
    uint8_t fingerprint[65] = { 0 };
    char full[MUTATION_NAME_BYTES_MAX];
    memset(full, 'x', sizeof full);
    struct mutation m = plain();
    cr_assert(checked(m) == 0);
    m.user = bytes_of(full, sizeof full);
    m.method = bytes_str("UseItem");
    m.fingerprint = bytes_of(fingerprint, 64);
    cr_assert(checked(m) == 0);
    m.fingerprint.len = 65;
    cr_assert(checked(m) == ERR_LIMIT);
    m = plain();
    m.user.len = 0;
    cr_assert(checked(m) == ERR_INVALID);
    m = plain();
    m.request = bytes_of(longer, sizeof longer);
    cr_assert(checked(m) == ERR_LIMIT);
    m.request = bytes_str("a\nb");
    cr_assert(checked(m) == ERR_INVALID);
    m = plain();
    m.method = bytes_str("\xff");
    cr_assert(checked(m) == ERR_INVALID);
    m.method = bytes_of(full, MUTATION_METHOD_BYTES_MAX + 1);
    cr_assert(checked(m) == ERR_LIMIT);
}

static void comes_back(const char *epoch, const struct bytes *response)
{
    struct mutation_kept kept;
    struct blob *packed = mutation_pack(bytes_str(epoch), response);
    cr_assert(packed && mutation_unpack(packed, &kept));
    cr_assert(bytes_eq(kept.epoch, bytes_str(epoch)));
    cr_assert(kept.has_response == (response != NULL));
    if (response) cr_assert(bytes_eq(kept.response, *response));
    blob_unref(packed);
}

Test(mutation, what_is_kept_comes_back)
{
    struct bytes response = bytes_of("a\0b", 3), empty = bytes_str("");
    comes_back("00000001-x", &response);
    comes_back("", &response);
    comes_back("e", &empty);
    comes_back("e", NULL);
}

Test(mutation, what_is_something_else_is_refused)
{
    static const struct bytes wrong[] = {
        { (const uint8_t *)"", 0 },        { (const uint8_t *)"\1", 1 },
        { (const uint8_t *)"\1\5abc", 5 }, { (const uint8_t *)"\3\0", 2 },
        { (const uint8_t *)"\2\0x", 3 },   { (const uint8_t *)"run_01", 6 },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct mutation_kept kept;
        struct blob *b = blob_new(wrong[i]);
        cr_expect(!mutation_unpack(b, &kept), "%zu", i);
        blob_unref(b);
    }
    cr_expect(!mutation_unpack(NULL, &(struct mutation_kept){ 0 }));
}
