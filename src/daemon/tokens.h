/* tokens.h - access tokens: the text that a caller shows, and the lines that know it again.
 *
 *   once_7kq2m9xa_<52 digits: the secret><7 digits: a checksum>
 *
 * A token has 73 characters, which fit into a URL, a header and a double click. The checksum tells
 * a typo from a token that was revoked, and lets a scanner of source code find tokens and nothing
 * else. Who holds the lines cannot make a token of them: they have the SHA-256 of 260 random bits.
 *
 *   ID SHA256 VERBS SCOPES CREATED EXPIRES NAME
 *   7kq2m9xa 9f86...0a08 claim,publish orders,billing:* 2026-11-16T06:00:00Z never worker
 *
 * Nothing here opens a file (tokens_file.h) or reads a clock. An access token is not an owner
 * token: this one says who may ask, that one who owns a claim. */
#ifndef DAEMON_TOKENS_H
#define DAEMON_TOKENS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/random.h"

enum {
    TOKEN_ID_BYTES = 8,
    TOKEN_TEXT_BYTES = 73,
    TOKEN_HASH_BYTES = 32,
    TOKEN_NAME_BYTES_MAX = 64,
    TOKEN_SCOPES_BYTES_MAX = 2048,
    TOKENS_MAX = 10000,
};

/* id, name: what a token may be good for */
#define RIGHT_LIST(X)                                                                          \
    X(RIGHT_CLAIM, "claim")                                                                    \
    X(RIGHT_PUBLISH, "publish")                                                                \
    X(RIGHT_RENEW, "renew")                                                                    \
    X(RIGHT_RELEASE, "release")                                                                \
    X(RIGHT_PEEK, "peek")                                                                      \
    X(RIGHT_FORGET, "forget")                                                                  \
    X(RIGHT_SCAN, "scan")                                                                      \
    X(RIGHT_METRICS, "metrics")                                                                \
    X(RIGHT_TRIGGER, "trigger")                                                                \
    X(RIGHT_RUNS, "runs")                                                                      \
    X(RIGHT_CHANGE, "change")                                                                  \
    X(RIGHT_WORK, "work")                                                                      \
    X(RIGHT_MUTATE, "mutate")

#define RIGHT_ENUM(id, name) id,
enum right { RIGHT_LIST(RIGHT_ENUM) RIGHTS };
#undef RIGHT_ENUM

struct access_token {
    char id[TOKEN_ID_BYTES + 1];
    uint8_t hash[TOKEN_HASH_BYTES];
    unsigned rights;                /* BIT(enum right) */
    int64_t created_ms, expires_ms; /* wall time, whole seconds; INT64_MAX: never */
    char name[TOKEN_NAME_BYTES_MAX + 1];
    char *scopes; /* "orders,billing:*": exact, or a prefix and a star */
};

/* Ordered by id. */
struct tokens {
    struct access_token *rows;
    size_t count, cap;
};

void tokens_fini(struct tokens *t);
const struct access_token *tokens_find(const struct tokens *t, struct bytes id); /* or NULL */
bool tokens_live(const struct tokens *t,
                 int64_t now_ms); /* is there one that has not expired? */

/* ---- what one is good for ---- */

/* "claim,publish"; also read (peek, scan, runs), write (claim, publish, renew, release, trigger,
 * change, work, mutate) and all. */
int rights_parse(struct bytes text, unsigned *ret_rights, struct err *reterr);
void rights_write(unsigned rights, struct buf *out);

int scopes_check(struct bytes text, struct err *reterr);
bool scopes_cover(const char *scopes, struct bytes scope); /* without one: are all covered? */

/* ---- the text ---- */

/* The id in it; what is not a token, for its checksum or otherwise, is refused. */
int token_text_parse(struct bytes text, struct bytes *ret_id, struct err *reterr);
int token_text_hash(struct bytes text, uint8_t out[TOKEN_HASH_BYTES]); /* -1: no memory */

/* ---- making and removing ---- */

struct token_wish {
    struct bytes name, scopes;
    unsigned rights;
    int64_t now_ms;
    int64_t expires_ms; /* from now on; INT64_MAX: never */
};

/* The text is the only copy of the secret. */
int tokens_create(struct tokens *t, const struct token_wish *wish, struct rng *rng,
                  char ret_text[TOKEN_TEXT_BYTES + 1], struct err *reterr);
bool tokens_remove(struct tokens *t, struct bytes id); /* false: there is none */

/* ---- the lines ---- */

/* `ret` is zeroed before; a line that makes no sense is ERR_CORRUPT, and its number is told. */
int tokens_read(struct bytes lines, struct tokens *ret_tokens, struct err *reterr);
void tokens_write(const struct tokens *t, struct buf *out);

enum { TIME_TEXT_BYTES = 24 };
void token_time_show(int64_t ms, char out[TIME_TEXT_BYTES]); /* INT64_MAX: "never" */

#endif
