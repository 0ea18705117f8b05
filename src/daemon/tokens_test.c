/* tokens_test.c - tokens as text and as lines, and the file that has them. */
#include "daemon/tokens_file.h"

#include "base/check.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOW_MS = 1794808800 };

static struct rng_seeded rng;

static struct token_wish a_wish(void)
{
    return (struct token_wish){ .name = bytes_str("worker"),
                                .scopes = bytes_str("orders,billing:*"),
                                .rights = BIT(RIGHT_CLAIM) | BIT(RIGHT_METRICS),
                                .now_ms = INT64_C(1000) * NOW_MS + 1,
                                .expires_ms = 1000 };
}

static const struct access_token *create(struct tokens *t, char text[TOKEN_TEXT_BYTES + 1])
{
    struct token_wish wish = a_wish();
    struct err err = { 0 };
    struct bytes id;
    if (!rng.base.fill) rng_seeded_init(&rng, 1);
    cr_assert_eq(tokens_create(t, &wish, &rng.base, text, &err), 0, "%s", err.text);
    cr_assert_eq(token_text_parse(bytes_str(text), &id, &err), 0, "%s", err.text);
    return tokens_find(t, id);
}

/* ---- text ---- */

Test(token, is_a_text_of_fixed_length_that_hashes_to_its_row)
{
    struct tokens t = { 0 };
    char text[TOKEN_TEXT_BYTES + 1];
    uint8_t hash[TOKEN_HASH_BYTES];
    const struct access_token *row = create(&t, text);
    cr_assert(row);
    cr_assert_eq(strlen(text), TOKEN_TEXT_BYTES);
    cr_assert_eq(strspn(text, "once_0123456789abcdefghjkmnpqrstvwxyz"), TOKEN_TEXT_BYTES);
    cr_assert_eq(token_text_hash(bytes_str(text), hash), 0);
    cr_assert_arr_eq(hash, row->hash, sizeof hash);
    tokens_fini(&t);
}

Test(token, with_any_bit_flipped_is_refused)
{
    struct tokens t = { 0 };
    struct err err;
    struct bytes id;
    char text[TOKEN_TEXT_BYTES + 1];
    create(&t, text);
    for (size_t bit = 0; bit < 8 * TOKEN_TEXT_BYTES; bit++) {
        text[bit / 8] = (char)(text[bit / 8] ^ (char)BIT(bit % 8));
        cr_assert_eq(token_text_parse(bytes_of(text, TOKEN_TEXT_BYTES), &id, &err), ERR_INVALID,
                     "bit %zu", bit);
        text[bit / 8] = (char)(text[bit / 8] ^ (char)BIT(bit % 8));
    }
    cr_assert_eq(token_text_parse(bytes_of(text, TOKEN_TEXT_BYTES), &id, &err), 0);
    tokens_fini(&t);
}

Test(token, cut_or_lengthened_is_refused)
{
    struct tokens t = { 0 };
    struct err err;
    struct bytes id;
    char text[TOKEN_TEXT_BYTES + 2] = "";
    create(&t, text);
    text[TOKEN_TEXT_BYTES] = '0';
    for (size_t len = 0; len <= TOKEN_TEXT_BYTES + 1; len++)
        if (len != TOKEN_TEXT_BYTES)
            cr_assert_eq(token_text_parse(bytes_of(text, len), &id, &err), ERR_INVALID);
    tokens_fini(&t);
}

/* ---- rights and scopes ---- */

static void rights_are(const char *text, const char *want)
{
    struct buf out;
    struct err err = { 0 };
    unsigned rights;
    buf_init(&out, 200);
    cr_assert_eq(rights_parse(bytes_str(text), &rights, &err), 0, "%s", err.text);
    rights_write(rights, &out);
    cr_assert(bytes_eq(buf_bytes(&out), bytes_str(want)), "%s", text);
    buf_fini(&out);
}

Test(rights, by_name_and_by_group)
{
    rights_are("claim", "claim");
    rights_are("scan,peek,scan", "peek,scan");
    rights_are("read", "peek,scan,runs");
    rights_are("write", "claim,publish,renew,release,trigger,change,work,mutate");
    rights_are("all",
               "claim,publish,renew,release,peek,forget,scan,metrics,trigger,runs,change,"
               "work,mutate");
}

Test(rights, that_are_none)
{
    static const char *const bad[] = { "",      ",",      "claim,",    ",claim",
                                       "CLAIM", "claims", "claim peek" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        unsigned rights = 77;
        struct err err;
        cr_assert_eq(rights_parse(bytes_str(bad[i]), &rights, &err), ERR_INVALID, "%s", bad[i]);
        cr_assert_eq(rights, 77);
    }
}

Test(scopes, exact_and_by_prefix)
{
    const char *some = "orders,billing:*";
    cr_assert(scopes_cover(some, bytes_str("orders")));
    cr_assert(scopes_cover(some, bytes_str("billing:")));
    cr_assert(scopes_cover(some, bytes_str("billing:eu")));
    cr_assert(!scopes_cover(some, bytes_str("order")));
    cr_assert(!scopes_cover(some, bytes_str("orders2")));
    cr_assert(!scopes_cover(some, bytes_str("billing")));
    cr_assert(!scopes_cover(some, bytes_str("orders,billing:*")));
    cr_assert(!scopes_cover(some, bytes_str("")), "all scopes");
    cr_assert(scopes_cover("*", bytes_str("anything")));
    cr_assert(scopes_cover("*", bytes_str("")), "all scopes");
    cr_assert(scopes_cover("a,*", bytes_str("")), "all scopes");
}

Test(scopes, that_are_none)
{
    static const char *const bad[] = { "", ",", "a,", ",a", "a b", "**", "a*b", "a\n", "\xff" };
    struct err err;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_assert_lt(scopes_check(bytes_str(bad[i]), &err), 0, "%s", bad[i]);
    cr_assert_eq(scopes_check(bytes_str("*"), &err), 0);
    cr_assert_eq(scopes_check(bytes_str("a/b:c-d_e.f*,x"), &err), 0);
}

/* ---- lines ---- */

static void write_lines(const struct tokens *t, struct buf *lines)
{
    buf_init(lines, 1 << 20);
    tokens_write(t, lines);
    cr_assert_eq(buf_failed(lines), 0);
}

Test(tokens, come_back_as_they_were_written)
{
    struct tokens t = { 0 }, back;
    struct buf lines, again;
    struct err err = { 0 };
    char text[TOKEN_TEXT_BYTES + 1];
    for (int i = 0; i < 50; i++) create(&t, text);
    write_lines(&t, &lines);
    cr_assert(!memmem(lines.data, lines.len, text + 14, 52), "the secret");
    cr_assert_eq(tokens_read(buf_bytes(&lines), &back, &err), 0, "%s", err.text);
    cr_assert_eq(back.count, 50);
    for (size_t i = 0; i < back.count; i++) {
        cr_assert(i == 0 || strcmp(back.rows[i - 1].id, back.rows[i].id) < 0);
        cr_assert_eq(back.rows[i].created_ms, INT64_C(1000) * NOW_MS);
        cr_assert_eq(back.rows[i].expires_ms, INT64_C(1000) * (NOW_MS + 2), "never too early");
        cr_assert_str_eq(back.rows[i].scopes, "orders,billing:*");
        cr_assert_str_eq(back.rows[i].name, "worker");
    }
    write_lines(&back, &again);
    cr_assert(bytes_eq(buf_bytes(&lines), buf_bytes(&again)));
    buf_fini(&lines);
    buf_fini(&again);
    tokens_fini(&t);
    tokens_fini(&back);
}

#define HASH "0000000000000000000000000000000000000000000000000000000000000000"
#define FINE "00000000 " HASH " claim * 2026-11-16T06:00:00Z never x\n"

Test(tokens, lines_that_make_no_sense_are_told_by_number)
{
    static const char *const bad[] = {
        "x\n",
        "0000000i " HASH " claim * 2026-11-16T06:00:00Z never x\n",
        "00000001 0" HASH " claim * 2026-11-16T06:00:00Z never x\n",
        "00000001 " HASH " * claim 2026-11-16T06:00:00Z never x\n",
        "00000001 " HASH " claim a*b 2026-11-16T06:00:00Z never x\n",
        "00000001 " HASH " claim * 2026-13-16T06:00:00Z never x\n",
        "00000001 " HASH " claim * 2026-02-30T06:00:00Z never x\n",
        "00000001 " HASH " claim * 2026-11-16T06:00:00Z soon x\n",
        "00000001 " HASH " claim * 2026-11-16T06:00:00Z never\n",
        "00000001 " HASH " claim * 2026-11-16T06:00:00Z never x y\n",
        "00000001 " HASH " claim * 2026-11-16T06:00:00Z never x\r\n",
        " 00000001 " HASH " claim * 2026-11-16T06:00:00Z never x\n",
        FINE,
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct tokens t = { 0 };
        struct err err;
        char lines[1000];
        snprintf(lines, sizeof lines, "# a comment\n" FINE "\n%s", bad[i]);
        cr_assert_eq(tokens_read(bytes_str(lines), &t, &err), ERR_CORRUPT, "%s", bad[i]);
        cr_assert(strstr(err.text, "line 4: "), "%s", err.text);
        cr_assert_eq(t.rows, NULL);
    }
}

Test(tokens, are_removed_by_id)
{
    struct tokens t = { 0 };
    char text[TOKEN_TEXT_BYTES + 1], id[TOKEN_ID_BYTES + 1] = "";
    create(&t, text);
    create(&t, text);
    memcpy(id, text + 5, TOKEN_ID_BYTES);
    cr_assert(tokens_remove(&t, bytes_str(id)));
    cr_assert(!tokens_remove(&t, bytes_str(id)));
    cr_assert(!tokens_find(&t, bytes_str(id)));
    cr_assert_eq(t.count, 1);
    tokens_fini(&t);
}

Test(tokens, live_until_they_expire)
{
    struct tokens t = { 0 };
    char text[TOKEN_TEXT_BYTES + 1];
    int64_t ends_ms = create(&t, text)->expires_ms;
    cr_assert(tokens_live(&t, ends_ms - 1));
    cr_assert(!tokens_live(&t, ends_ms));
    tokens_fini(&t);
    cr_assert(!tokens_live(&t, 0));
}

/* ---- the file ---- */

struct place {
    char dir[32], path[64];
};

static struct place a_place(void)
{
    struct place p = { .dir = "/tmp/tokens-test-XXXXXX" };
    cr_assert(mkdtemp(p.dir));
    snprintf(p.path, sizeof p.path, "%s/tokens", p.dir);
    return p;
}

static void leave(const struct place *p)
{
    unlink(p->path);
    cr_assert_eq(rmdir(p->dir), 0, "nothing else is left behind");
}

static void add_one(const char *path)
{
    struct tokens_change c;
    struct err err = { 0 };
    char text[TOKEN_TEXT_BYTES + 1];
    cr_assert_eq(tokens_change_begin(&c, path, &err), 0, "%s", err.text);
    create(&c.tokens, text);
    cr_assert_eq(tokens_change_save(&c, &err), 0, "%s", err.text);
    tokens_change_end(&c);
}

static size_t count_in(const char *path)
{
    struct tokens t;
    struct err err = { 0 };
    bool found;
    cr_assert_eq(tokens_load(path, true, &t, &found, &err), 0, "%s", err.text);
    size_t count = t.count;
    tokens_fini(&t);
    return count;
}

Test(tokens_file, is_for_its_owner_alone)
{
    struct place p = a_place();
    struct stat st;
    mode_t before = umask(0);
    add_one(p.path);
    umask(before);
    cr_assert_eq(stat(p.path, &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0600);
    leave(&p);
}

Test(tokens_file, that_others_may_write_is_refused)
{
    struct place p = a_place();
    struct tokens t;
    struct err err;
    bool found;
    add_one(p.path);
    chmod(p.path, 0620);
    cr_assert_eq(tokens_load(p.path, true, &t, &found, &err), ERR_INVALID);
    cr_assert(strstr(err.text, "chmod 600"), "%s", err.text);
    leave(&p);
}

Test(tokens_file, that_is_not_there)
{
    struct place p = a_place();
    struct tokens t;
    struct err err = { 0 };
    bool found = true;
    cr_assert_eq(tokens_load(p.path, true, &t, &found, &err), ERR_INVALID);
    cr_assert(found);
    cr_assert_eq(tokens_load(p.path, false, &t, &found, &err), 0, "%s", err.text);
    cr_assert(!found);
    leave(&p);
}

enum { WRITERS = 8, EACH = 10 };

Test(tokens_file, changed_by_many_at_once_has_it_all)
{
    struct place p = a_place();
    for (int i = 0; i < WRITERS; i++) {
        if (fork() != 0) continue;
        rng_seeded_init(&rng, 100 + (uint64_t)i);
        for (int n = 0; n < EACH; n++) add_one(p.path);
        _exit(0);
    }
    for (int i = 0; i < WRITERS; i++) {
        int status;
        cr_assert_gt(wait(&status), 0);
        cr_assert_eq(status, 0);
    }
    cr_assert_eq(count_in(p.path), WRITERS * EACH);
    leave(&p);
}
