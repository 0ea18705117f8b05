/* tls.h - TLS as a pipe: sealed bytes go in and plain ones come out, and back. No sockets here.
 *
 * Guarantees:
 *   S1 TLS 1.2 or 1.3, with forward secrecy; no renegotiation, no compression, no early data.
 *   S2 Between records it has no buffers: what an idle one costs is OpenSSL's state, about 15 KiB.
 *   S3 Whoever has begun goes on with the certificate they began with; a new one is for those
 *      who come later. One that cannot be used changes nothing. */
#ifndef DAEMON_TLS_H
#define DAEMON_TLS_H

#include "base/buf.h"
#include "base/err.h"

/* A certificate and its key. Outlives every `struct tls` made with it. */
struct tls_keys {
    struct ssl_ctx_st *ctx; /* OpenSSL's; NULL: none */
    struct bio_method_st *pipe;
};

/* Reads both files; again, for others. The certificate comes first in its file, what it was issued
 * by behind it. The key is its owner's alone. */
int tls_keys_load(struct tls_keys *keys, const char *cert, const char *key, struct err *reterr);
void tls_keys_fini(struct tls_keys *keys);

struct tls;

/* `alpn`: the one protocol that is spoken, "http/1.1"; NULL: not asked. NULL: out of memory. */
struct tls *tls_new(const struct tls_keys *keys, const char *alpn, size_t out_bytes_max);
void tls_free(struct tls *t);

enum tls_progress {
    TLS_MORE,  /* all that was fed is used */
    TLS_PLAIN, /* there is more to read */
    TLS_ENDED, /* the peer has said that nothing more comes */
    TLS_BAD,   /* it is not TLS as it should be; tls_out() may have an alert about it */
};

/* Shows sealed bytes, which stay where they are until tls_read() has used them. */
void tls_feed(struct tls *t, struct bytes sealed);
enum { TLS_RECORD_BYTES = 16 * 1024 }; /* of plain bytes; tls_read() wants room for one */
enum tls_progress tls_read(struct tls *t, uint8_t *out, size_t room, size_t *ret_len);

int tls_write(struct tls *t, struct bytes plain); /* -1: it cannot be sent */
bool tls_end(struct tls *t); /* says that nothing more comes; false: was said, or cannot be */
struct buf *tls_out(struct tls *t); /* sealed bytes to be sent; whoever does empties it */

bool tls_ready(const struct tls *t);  /* they have shaken hands */
bool tls_midway(const struct tls *t); /* they have not, or half a record has come */

#endif
