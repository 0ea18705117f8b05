/* identity.c - whose record it is: scope, key, fingerprint; and the bytes it carries. */
#include "tests/conform/conform.h"

/* ---- another fingerprint: refused first, told nothing (C7) ---- */

static void expect_mismatch(const char *fingerprint)
{
    expect_nothing_revealed(
        expect(ask(VERB_CLAIM, "k", owner_of(9, fingerprint)), OUTCOME_MISMATCH));
}

CASE(fingerprint, other_is_refused_while_alive)
{
    expect(ask(VERB_CLAIM, "k", owner_of(1, "f")), OUTCOME_CLAIMED);
    expect_mismatch("g");
    expect(publish("k", 1, "A"), OUTCOME_OK);
}

CASE(fingerprint, other_is_refused_when_lapsed)
{
    expect(ask(VERB_CLAIM, "k", owner_of(1, "f")), OUTCOME_CLAIMED);
    world_advance(&world, LEASE_MS);
    expect_mismatch("g");
    cr_assert(expect(ask(VERB_CLAIM, "k", owner_of(2, "f")), OUTCOME_CLAIMED)->out.taken_over);
}

CASE(fingerprint, other_is_refused_when_done)
{
    expect(ask(VERB_CLAIM, "k", owner_of(1, "f")), OUTCOME_CLAIMED);
    expect(publish("k", 1, "A"), OUTCOME_OK);
    expect_mismatch("g");
    expect_value(expect(ask(VERB_CLAIM, "k", owner_of(2, "f")), OUTCOME_CACHED), "A");
}

CASE(fingerprint, other_is_granted_when_gone)
{
    expect(ask(VERB_CLAIM, "k", owner_of(1, "f")), OUTCOME_CLAIMED);
    expect(publish("k", 1, "A"), OUTCOME_OK);
    world_advance(&world, RETAIN_MS);
    expect(ask(VERB_CLAIM, "k", owner_of(2, "g")), OUTCOME_CLAIMED);
    expect_mismatch("f");
}

CASE(fingerprint, other_is_granted_after_release)
{
    expect(ask(VERB_CLAIM, "k", owner_of(1, "f")), OUTCOME_CLAIMED);
    expect(release("k", 1), OUTCOME_OK);
    expect(ask(VERB_CLAIM, "k", owner_of(2, "g")), OUTCOME_CLAIMED);
    expect_mismatch("f");
}

CASE(fingerprint, owner_with_another_one_is_refused)
{
    expect(ask(VERB_CLAIM, "k", owner_of(1, "f")), OUTCOME_CLAIMED);
    expect_nothing_revealed(expect(ask(VERB_CLAIM, "k", owner_of(1, "g")), OUTCOME_MISMATCH));
}

CASE(fingerprint, none_is_one_like_any_other)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    expect_mismatch("g");
    expect(claim("k", 2), OUTCOME_IN_PROGRESS);
}

CASE(fingerprint, some_refuses_none)
{
    expect(ask(VERB_CLAIM, "k", owner_of(1, "f")), OUTCOME_CLAIMED);
    expect_mismatch("");
}

CASE(fingerprint, prefix_and_extension_are_other_ones)
{
    expect(ask(VERB_CLAIM, "k", owner_of(1, "abc")), OUTCOME_CLAIMED);
    expect_mismatch("ab");
    expect_mismatch("abcd");
    expect(ask(VERB_CLAIM, "k", owner_of(2, "abc")), OUTCOME_IN_PROGRESS);
}

CASE(fingerprint, of_the_first_claim_survives_a_takeover)
{
    expect(ask(VERB_CLAIM, "k", owner_of(1, "f")), OUTCOME_CLAIMED);
    world_advance(&world, LEASE_MS);
    expect(ask(VERB_CLAIM, "k", owner_of(2, "f")), OUTCOME_CLAIMED);
    expect_mismatch("g");
    expect(publish("k", 2, "A"), OUTCOME_OK);
    expect_mismatch("g");
}

CASE(fingerprint, longest_is_compared_to_its_last_byte)
{
    uint8_t bytes[FINGERPRINT_BYTES_MAX] = { 0 };
    struct request in = owner(1), other = owner(2);
    in.fingerprint = bytes_of(bytes, sizeof bytes);
    expect(ask(VERB_CLAIM, "k", in), OUTCOME_CLAIMED);
    uint8_t last[FINGERPRINT_BYTES_MAX] = { 0 };
    last[sizeof last - 1] = 1;
    other.fingerprint = bytes_of(last, sizeof last);
    expect_nothing_revealed(expect(ask(VERB_CLAIM, "k", other), OUTCOME_MISMATCH));
    other.fingerprint = bytes_of(bytes, sizeof bytes);
    expect(ask(VERB_CLAIM, "k", other), OUTCOME_IN_PROGRESS);
}

/* ---- scope and key ---- */

static const struct op *claim_in(const char *scope, const char *name, uint8_t who)
{
    return ask_key(VERB_CLAIM, key_of(scope, name), owner(who));
}

CASE(key, parts_are_framed)
{
    expect(claim_in("a:b", "c", 1), OUTCOME_CLAIMED);
    expect(claim_in("a", "b:c", 2), OUTCOME_CLAIMED);
    expect(claim_in("a", "bc", 3), OUTCOME_CLAIMED);
    expect(claim_in("ab", "c", 4), OUTCOME_CLAIMED);
    expect(claim_in("a:b", "c", 5), OUTCOME_IN_PROGRESS);
}

CASE(key, same_in_two_scopes_is_two_records)
{
    expect(claim_in("one", "k", 1), OUTCOME_CLAIMED);
    expect(claim_in("two", "k", 2), OUTCOME_CLAIMED);
    struct request in = owner_with(1, "A");
    expect(ask_key(VERB_PUBLISH, key_of("one", "k"), in), OUTCOME_OK);
    expect(ask_key(VERB_PEEK, key_of("two", "k"), owner(0)), OUTCOME_IN_PROGRESS);
    expect(ask_key(VERB_PUBLISH, key_of("two", "k"), in), OUTCOME_LOST);
    expect(ask_key(VERB_FORGET, key_of("one", "k"), owner(0)), OUTCOME_OK);
    expect(ask_key(VERB_PEEK, key_of("two", "k"), owner(0)), OUTCOME_IN_PROGRESS);
}

CASE(key, one_token_may_own_two_keys)
{
    expect(claim("a", 1), OUTCOME_CLAIMED);
    expect(claim("b", 1), OUTCOME_CLAIMED);
    expect(release("a", 1), OUTCOME_OK);
    expect(renew("b", 1), OUTCOME_OK);
}

CASE(key, case_and_prefix_matter)
{
    expect(claim("key", 1), OUTCOME_CLAIMED);
    expect(claim("KEY", 2), OUTCOME_CLAIMED);
    expect(claim("ke", 3), OUTCOME_CLAIMED);
    expect(claim("key2", 4), OUTCOME_CLAIMED);
    expect(claim("key", 5), OUTCOME_IN_PROGRESS);
}

CASE(key, longest_is_taken_to_its_last_byte)
{
    char scope[SCOPE_BYTES_MAX + 1] = "", name[KEY_BYTES_MAX + 1] = "";
    memset(scope, 's', SCOPE_BYTES_MAX);
    memset(name, 'k', KEY_BYTES_MAX);
    expect(claim_in(scope, name, 1), OUTCOME_CLAIMED);
    expect(claim_in(scope, name, 2), OUTCOME_IN_PROGRESS);
    name[KEY_BYTES_MAX - 1] = 'K';
    expect(claim_in(scope, name, 3), OUTCOME_CLAIMED);
    scope[SCOPE_BYTES_MAX - 1] = 'S';
    expect(claim_in(scope, name, 4), OUTCOME_CLAIMED);
}

CASE(key, utf8_is_bytes_not_letters)
{
    expect(claim("schl\xc3\xbcssel-\xe2\x82\xac-\xf0\x9f\x94\x91", 1), OUTCOME_CLAIMED);
    expect(claim("schl\xc3\xbcssel-\xe2\x82\xac-\xf0\x9f\x94\x91", 2), OUTCOME_IN_PROGRESS);
    expect(claim("\xc3\xa9", 3), OUTCOME_CLAIMED);
    expect(claim("e\xcc\x81", 4), OUTCOME_CLAIMED); /* looks the same, is not */
}

CASE(key, quotes_and_wildcards_are_letters)
{
    static const char *const names[] = {
        "'", "\"", "a'b", "%", "_", "*", "?", "\\", "--", ";"
    };
    for (uint8_t i = 0; i < sizeof names / sizeof names[0]; i++)
        expect(claim(names[i], (uint8_t)(i + 1)), OUTCOME_CLAIMED);
    for (uint8_t i = 0; i < sizeof names / sizeof names[0]; i++)
        expect(release(names[i], (uint8_t)(i + 1)), OUTCOME_OK);
}

/* ---- values ---- */

CASE(value, mebibyte_comes_back_byte_for_byte)
{
    static uint8_t bytes[VALUE_BYTES_MAX_DEFAULT];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7 + i / 256);
    bytes[0] = bytes[sizeof bytes - 1] = 0;
    struct request in = owner(1);
    expect(ask(VERB_CLAIM, "k", in), OUTCOME_CLAIMED);
    in.value = value_of(bytes_of(bytes, sizeof bytes));
    expect(ask(VERB_PUBLISH, "k", in), OUTCOME_OK);
    struct bytes got = blob_bytes(expect(claim("k", 2), OUTCOME_CACHED)->out.value);
    cr_assert(bytes_eq(got, bytes_of(bytes, sizeof bytes)));
    expect(ask(VERB_PUBLISH, "k", in), OUTCOME_OK);
}

CASE(value, nul_bytes_count)
{
    struct request in = owner(1), longer = owner(1);
    expect(ask(VERB_CLAIM, "k", in), OUTCOME_CLAIMED);
    in.value = value_of(bytes_of("a\0b", 3));
    longer.value = value_of(bytes_of("a\0c", 3));
    expect(ask(VERB_PUBLISH, "k", in), OUTCOME_OK);
    expect(ask(VERB_PUBLISH, "k", longer), OUTCOME_LOST);
    cr_assert(bytes_eq(blob_bytes(peek("k")->out.value), bytes_of("a\0b", 3)));
}

CASE(value, one_mebibyte_that_differs_in_its_last_byte_is_another)
{
    static uint8_t bytes[VALUE_BYTES_MAX_DEFAULT];
    struct request in = owner(1);
    expect(ask(VERB_CLAIM, "k", in), OUTCOME_CLAIMED);
    in.value = value_of(bytes_of(bytes, sizeof bytes));
    expect(ask(VERB_PUBLISH, "k", in), OUTCOME_OK);
    bytes[sizeof bytes - 1] = 1;
    in.value = value_of(bytes_of(bytes, sizeof bytes));
    expect(ask(VERB_PUBLISH, "k", in), OUTCOME_LOST);
}

CASE(value, of_one_key_does_not_reach_another)
{
    expect(claim("a", 1), OUTCOME_CLAIMED);
    expect(claim("b", 2), OUTCOME_CLAIMED);
    expect(publish("a", 1, "A"), OUTCOME_OK);
    expect(publish("b", 2, "B"), OUTCOME_OK);
    expect_value(claim("a", 3), "A");
    expect_value(claim("b", 3), "B");
}

CASE(value, of_a_publish_that_was_refused_is_nowhere)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    expect(publish("k", 2, "B"), OUTCOME_LOST);
    expect_value(peek("k"), NULL);
    expect(release("k", 1), OUTCOME_OK);
    expect_value(claim("k", 3), NULL);
}

CASE(value, of_a_forgotten_record_does_not_come_back)
{
    expect(claim("k", 1), OUTCOME_CLAIMED);
    expect(publish("k", 1, "A"), OUTCOME_OK);
    expect(forget("k"), OUTCOME_OK);
    expect(claim("k", 2), OUTCOME_CLAIMED);
    expect_value(expect(claim("k", 3), OUTCOME_IN_PROGRESS), NULL);
    expect(publish("k", 2, "B"), OUTCOME_OK);
    expect_value(claim("k", 3), "B");
}
