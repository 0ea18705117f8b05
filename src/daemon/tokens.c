/* tokens.c - see tokens.h. */
#include "daemon/tokens.h"

#include "base/check.h"
#include "base/text.h"
#include "core/key.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PREFIX "once_"

enum {
    PREFIX_BYTES = sizeof PREFIX - 1,
    SECRET_DIGITS = 52,
    CHECK_DIGITS = 7,
    CHECKED_BYTES = TOKEN_TEXT_BYTES - CHECK_DIGITS,
};

_Static_assert(PREFIX_BYTES + TOKEN_ID_BYTES + 1 + SECRET_DIGITS + CHECK_DIGITS ==
                   TOKEN_TEXT_BYTES,
               "prefix, id, secret, checksum");

/* Crockford's: no letter looks like a number or makes a word. */
static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";

static bool all_digits(const uint8_t *p, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!p[i] || !strchr(digits, p[i])) return false;
    return true;
}

/* ---- rights ---- */

#define RIGHT_BIT(id, name) { name, BIT(id) },
static const struct {
    const char *name;
    unsigned bits;
} right_names[] = {
    RIGHT_LIST(RIGHT_BIT) /* those first, in their order */
    { "read", BIT(RIGHT_PEEK) | BIT(RIGHT_SCAN) | BIT(RIGHT_RUNS) },
    { "write", BIT(RIGHT_CLAIM) | BIT(RIGHT_PUBLISH) | BIT(RIGHT_RENEW) | BIT(RIGHT_RELEASE) |
                   BIT(RIGHT_TRIGGER) | BIT(RIGHT_CHANGE) | BIT(RIGHT_WORK) |
                   BIT(RIGHT_MUTATE) },
    { "all", BIT(RIGHTS) - 1 },
};
#undef RIGHT_BIT

/* Takes what is in front of the first `end`, and leaves what is behind it. */
static struct bytes take_word(struct bytes *text, char end)
{
    const uint8_t *at = text->len ? memchr(text->data, end, text->len) : NULL;
    size_t len = at ? (size_t)(at - text->data) : text->len, skip = len + (at != NULL);
    struct bytes word = bytes_of(text->data, len);
    *text = bytes_of(text->data + skip, text->len - skip);
    return word;
}

static unsigned right_bits(struct bytes word)
{
    for (size_t i = 0; i < sizeof right_names / sizeof right_names[0]; i++)
        if (bytes_eq(word, bytes_str(right_names[i].name))) return right_names[i].bits;
    return 0;
}

static bool ends_open(struct bytes list)
{
    return !list.len || list.data[list.len - 1] == ',';
}

int rights_parse(struct bytes text, unsigned *ret_rights, struct err *reterr)
{
    unsigned rights = 0;
    if (ends_open(text)) return err_set(reterr, ERR_INVALID, "a verb is missing");
    do {
        struct bytes word = take_word(&text, ',');
        unsigned bits = right_bits(word);
        if (!bits)
            return err_set(
                reterr, ERR_INVALID,
                "'%.*s' is not a verb: claim, publish, renew, release, peek, "
                "forget, scan, metrics, trigger, runs, change, work, mutate; or read, write, "
                "all",
                (int)(word.len < 32 ? word.len : 32), (const char *)word.data);
        rights |= bits;
    } while (text.len);
    *ret_rights = rights;
    return 0;
}

void rights_write(unsigned rights, struct buf *out)
{
    const char *comma = "";
    for (unsigned i = 0; i < RIGHTS; i++) {
        if (!(rights & BIT(i))) continue;
        buf_printf(out, "%s%s", comma, right_names[i].name);
        comma = ",";
    }
}

/* ---- scopes ---- */

static int scope_check(struct bytes word, struct err *reterr)
{
    struct key k = { .scope = word, .name = bytes_str("x") };
    if (word.len && word.data[word.len - 1] == '*') k.scope.len--;
    if (word.len && !k.scope.len) return 0; /* the star alone */
    return key_check(&k, reterr);
}

int scopes_check(struct bytes text, struct err *reterr)
{
    int r;
    if (text.len > TOKEN_SCOPES_BYTES_MAX)
        return err_set(reterr, ERR_LIMIT, "the scopes of a token have at most %d bytes in all",
                       TOKEN_SCOPES_BYTES_MAX);
    if (ends_open(text)) return err_set(reterr, ERR_INVALID, "a scope is missing");
    do r = scope_check(take_word(&text, ','), reterr);
    while (!r && text.len);
    return r;
}

static bool pattern_covers(struct bytes pattern, struct bytes scope)
{
    bool star = pattern.len && pattern.data[pattern.len - 1] == '*';
    if (!star) return scope.len && bytes_eq(pattern, scope);
    pattern.len--;
    return scope.len >= pattern.len && bytes_eq(pattern, bytes_of(scope.data, pattern.len));
}

bool scopes_cover(const char *scopes, struct bytes scope)
{
    struct bytes left = bytes_str(scopes);
    while (left.len)
        if (pattern_covers(take_word(&left, ','), scope)) return true;
    return false;
}

/* ---- the text ---- */

/* CRC-32 as zlib has it; a table would be longer than what it saves. */
static uint32_t crc32(const uint8_t *p, size_t len)
{
    uint32_t crc = UINT32_MAX;
    while (len--) {
        crc ^= *p++;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void write_check(const uint8_t *text, uint8_t out[CHECK_DIGITS])
{
    uint32_t crc = crc32(text, CHECKED_BYTES);
    for (size_t i = CHECK_DIGITS; i--; crc >>= 5) out[i] = (uint8_t)digits[crc & 31];
}

int token_text_parse(struct bytes text, struct bytes *ret_id, struct err *reterr)
{
    const uint8_t *p = text.data;
    uint8_t check[CHECK_DIGITS];
    bool shape = text.len == TOKEN_TEXT_BYTES && memcmp(p, PREFIX, PREFIX_BYTES) == 0 &&
                 all_digits(p + PREFIX_BYTES, TOKEN_ID_BYTES) &&
                 p[PREFIX_BYTES + TOKEN_ID_BYTES] == '_';
    if (!shape)
        return err_set(
            reterr, ERR_INVALID,
            "that is not a token: once_, an id, _ and a secret, %d characters in all",
            TOKEN_TEXT_BYTES);
    write_check(p, check);
    if (memcmp(check, p + CHECKED_BYTES, CHECK_DIGITS) != 0)
        return err_set(reterr, ERR_INVALID, "the token has a typo: its checksum is wrong");
    *ret_id = bytes_of(p + PREFIX_BYTES, TOKEN_ID_BYTES);
    return 0;
}

int token_text_hash(struct bytes text, uint8_t out[TOKEN_HASH_BYTES])
{
    return EVP_Digest(text.data, text.len, out, NULL, EVP_sha256(), NULL) == 1 ? 0 : -1;
}

/* ---- the set ---- */

void tokens_fini(struct tokens *t)
{
    for (size_t i = 0; i < t->count; i++) free(t->rows[i].scopes);
    free(t->rows);
    *t = (struct tokens){ 0 };
}

/* The first row that is not before the id. */
static size_t place_of(const struct tokens *t, struct bytes id)
{
    size_t low = 0, high = t->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (bytes_cmp(bytes_str(t->rows[middle].id), id) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_at(const struct tokens *t, size_t at, struct bytes id)
{
    return at < t->count && bytes_eq(bytes_str(t->rows[at].id), id);
}

const struct access_token *tokens_find(const struct tokens *t, struct bytes id)
{
    size_t at = place_of(t, id);
    return is_at(t, at, id) ? &t->rows[at] : NULL;
}

bool tokens_live(const struct tokens *t, int64_t now_ms)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->rows[i].expires_ms > now_ms) return true;
    return false;
}

static int make_room(struct tokens *t, struct err *reterr)
{
    if (t->count == TOKENS_MAX)
        return err_set(reterr, ERR_LIMIT, "there are %d tokens: revoke some", TOKENS_MAX);
    if (t->count < t->cap) return 0;
    size_t cap = t->cap ? 2 * t->cap : 8;
    struct access_token *rows = realloc(t->rows, cap * sizeof *rows);
    if (!rows) return err_set(reterr, ERR_NOMEM, "out of memory for tokens");
    t->rows = rows;
    t->cap = cap;
    return 0;
}

/* Takes over `row.scopes`, also on failure. */
static int add(struct tokens *t, struct access_token *row, struct err *reterr)
{
    struct bytes id = bytes_str(row->id);
    size_t at = place_of(t, id);
    int r = is_at(t, at, id) ? err_set(reterr, ERR_CORRUPT, "the id %s is there twice", row->id)
                             : make_room(t, reterr);
    if (r) {
        free(row->scopes);
        return r;
    }
    memmove(t->rows + at + 1, t->rows + at, (t->count - at) * sizeof *t->rows);
    t->rows[at] = *row;
    t->count++;
    return 0;
}

bool tokens_remove(struct tokens *t, struct bytes id)
{
    size_t at = place_of(t, id);
    if (!is_at(t, at, id)) return false;
    free(t->rows[at].scopes);
    t->count--;
    memmove(t->rows + at, t->rows + at + 1, (t->count - at) * sizeof *t->rows);
    return true;
}

static int name_take(struct bytes name, struct access_token *row, struct err *reterr)
{
    struct key as_scope = { .scope = name, .name = bytes_str("x") };
    struct err why;
    if (name.len > TOKEN_NAME_BYTES_MAX || key_check(&as_scope, &why) < 0)
        return err_set(reterr, ERR_INVALID,
                       "the name of a token is 1 to %d letters, digits or ._:/-",
                       TOKEN_NAME_BYTES_MAX);
    memcpy(row->name, name.data, name.len);
    row->name[name.len] = 0;
    return 0;
}

static int scopes_take(struct bytes scopes, struct access_token *row, struct err *reterr)
{
    int r = scopes_check(scopes, reterr);
    if (r) return r;
    row->scopes = strndup((const char *)scopes.data, scopes.len);
    return row->scopes ? 0 : err_set(reterr, ERR_NOMEM, "out of memory for tokens");
}

/* ---- making ---- */

static void make_text(struct rng *rng, char out[TOKEN_TEXT_BYTES + 1])
{
    uint8_t random[TOKEN_ID_BYTES + 1 + SECRET_DIGITS];
    rng->fill(rng, random, sizeof random);
    memcpy(out, PREFIX, PREFIX_BYTES);
    for (size_t i = 0; i < sizeof random; i++) out[PREFIX_BYTES + i] = digits[random[i] & 31];
    out[PREFIX_BYTES + TOKEN_ID_BYTES] = '_';
    write_check((uint8_t *)out, (uint8_t *)out + CHECKED_BYTES);
    out[TOKEN_TEXT_BYTES] = 0;
    OPENSSL_cleanse(random, sizeof random);
}

static int64_t whole_seconds(int64_t ms)
{
    return ms / 1000 * 1000;
}

int tokens_create(struct tokens *t, const struct token_wish *wish, struct rng *rng,
                  char ret_text[TOKEN_TEXT_BYTES + 1], struct err *reterr)
{
    struct access_token row = { .rights = wish->rights,
                                .created_ms = whole_seconds(wish->now_ms),
                                .expires_ms = INT64_MAX };
    int r = name_take(wish->name, &row, reterr);
    if (!r) r = scopes_take(wish->scopes, &row, reterr);
    if (r) return r;
    if (wish->expires_ms != INT64_MAX)
        row.expires_ms = whole_seconds(wish->now_ms + wish->expires_ms + 999);
    do {
        make_text(rng, ret_text);
        memcpy(row.id, ret_text + PREFIX_BYTES, TOKEN_ID_BYTES);
    } while (tokens_find(t, bytes_str(row.id)));
    if (token_text_hash(bytes_str(ret_text), row.hash) < 0) {
        free(row.scopes);
        return err_set(reterr, ERR_NOMEM, "out of memory for tokens");
    }
    return add(t, &row, reterr);
}

/* ---- time ---- */

void token_time_show(int64_t ms, char out[TIME_TEXT_BYTES])
{
    struct tm tm;
    time_t s = (time_t)(ms / 1000);
    if (ms == INT64_MAX || !gmtime_r(&s, &tm) ||
        !strftime(out, TIME_TEXT_BYTES, "%Y-%m-%dT%H:%M:%SZ", &tm))
        memcpy(out, "never", sizeof "never");
}

/* Only what token_time_show() writes. */
static bool time_parse(struct bytes text, int64_t *ret_ms)
{
    char copy[TIME_TEXT_BYTES], shown[TIME_TEXT_BYTES];
    struct tm tm = { 0 };
    if (text.len >= sizeof copy) return false;
    memcpy(copy, text.data, text.len);
    copy[text.len] = 0;
    int64_t ms = INT64_MAX;
    if (strcmp(copy, "never") != 0) {
        if (!strptime(copy, "%Y-%m-%dT%H:%M:%SZ", &tm)) return false;
        ms = (int64_t)timegm(&tm) * 1000;
    }
    token_time_show(ms, shown);
    *ret_ms = ms;
    return strcmp(copy, shown) == 0;
}

/* ---- the lines ---- */

static int read_fields(struct bytes line, struct access_token *row, struct err *reterr)
{
    struct bytes id = take_word(&line, ' '), hash = take_word(&line, ' ');
    struct bytes rights = take_word(&line, ' '), scopes = take_word(&line, ' ');
    struct bytes created = take_word(&line, ' '), expires = take_word(&line, ' ');
    if (id.len != TOKEN_ID_BYTES || !all_digits(id.data, id.len))
        return err_set(reterr, ERR_CORRUPT, "an id has %d digits", TOKEN_ID_BYTES);
    memcpy(row->id, id.data, id.len);
    if (!hex_decode(hash, row->hash, sizeof row->hash))
        return err_set(reterr, ERR_CORRUPT, "a SHA-256 has 64 hexadecimal digits");
    if (!time_parse(created, &row->created_ms) || !time_parse(expires, &row->expires_ms))
        return err_set(reterr, ERR_CORRUPT, "a time is 2026-11-16T06:00:00Z, or never");
    int r = rights_parse(rights, &row->rights, reterr);
    if (!r) r = name_take(line, row, reterr);
    return r ? r : scopes_take(scopes, row, reterr);
}

static int read_line(struct bytes line, struct tokens *t, struct err *reterr)
{
    struct access_token row = { 0 };
    if (!line.len || line.data[0] == '#') return 0;
    int r = read_fields(line, &row, reterr);
    return r ? r : add(t, &row, reterr);
}

int tokens_read(struct bytes lines, struct tokens *ret_tokens, struct err *reterr)
{
    struct tokens t = { 0 };
    for (size_t number = 1; lines.len; number++) {
        struct err why;
        int r = read_line(take_word(&lines, '\n'), &t, &why);
        if (!r) continue;
        tokens_fini(&t);
        if (r == ERR_NOMEM) return err_set(reterr, r, "%s", why.text);
        return err_set(reterr, ERR_CORRUPT, "line %zu: %s", number, why.text);
    }
    *ret_tokens = t;
    return 0;
}

static void write_row(const struct access_token *row, struct buf *out)
{
    char hash[2 * TOKEN_HASH_BYTES + 1], created[TIME_TEXT_BYTES], expires[TIME_TEXT_BYTES];
    hex_encode(bytes_of(row->hash, sizeof row->hash), hash);
    token_time_show(row->created_ms, created);
    token_time_show(row->expires_ms, expires);
    buf_printf(out, "%s %s ", row->id, hash);
    rights_write(row->rights, out);
    buf_printf(out, " %s %s %s %s\n", row->scopes, created, expires, row->name);
}

void tokens_write(const struct tokens *t, struct buf *out)
{
    buf_printf(out, "# Who may ask this daemon; written by `once token`. No secret is in it.\n"
                    "# ID SHA256 VERBS SCOPES CREATED EXPIRES NAME\n");
    for (size_t i = 0; i < t->count; i++) write_row(&t->rows[i], out);
}
