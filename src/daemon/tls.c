/* tls.c - see tls.h. OpenSSL reads from and writes to a BIO of our own, which is nothing but the two
 * views in `struct tls`: its memory BIO would keep what it once needed. */
#include "daemon/tls.h"

#include "base/check.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CONTROL_BYTES_MAX = 64 * 1024, /* that a peer can make it say without taking it */
    HEADER_BYTES = 5,              /* of a record: type, version, length */
};

struct tls {
    SSL *ssl;
    const char *alpn;
    struct bytes in; /* what was fed and is not used yet */
    struct buf out;
    bool bad, ended;
    uint8_t header[HEADER_BYTES]; /* of the record that comes ... */
    size_t header_len, body_left; /* ... as far as it has come */
};

/* ---- the pipe ---- */

static int pipe_read(BIO *bio, char *out, int room)
{
    struct tls *t = BIO_get_data(bio);
    size_t n = t->in.len < (size_t)room ? t->in.len : (size_t)room;
    BIO_clear_retry_flags(bio);
    if (!n) {
        BIO_set_retry_read(bio);
        return -1;
    }
    memcpy(out, t->in.data, n);
    t->in = bytes_of(t->in.data + n, t->in.len - n);
    return (int)n;
}

static int pipe_write(BIO *bio, const char *data, int len)
{
    struct tls *t = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    buf_add(&t->out, bytes_of(data, (size_t)len));
    return buf_failed(&t->out) ? -1 : len;
}

static long pipe_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *pipe_new(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "pipe");
    if (!m) return NULL;
    BIO_meth_set_read(m, pipe_read);
    BIO_meth_set_write(m, pipe_write);
    BIO_meth_set_ctrl(m, pipe_control);
    return m;
}

/* ---- certificate and key ---- */

static int cannot(const char *what, const char *path, struct err *reterr)
{
    unsigned long code = ERR_peek_error(); /* the first: what the others are about */
    const char *why =
        ERR_SYSTEM_ERROR(code) ? strerror(ERR_GET_REASON(code)) : ERR_reason_error_string(code);
    return err_set(reterr, ERR_INVALID, "cannot use the %s %.80s: %s", what, path,
                   why ? why : "OpenSSL does not say why");
}

/* Distributions keep keys as root's, readable by a group: as PostgreSQL, that is fine. */
static int check_key_mode(const char *path, struct err *reterr)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return err_set(reterr, ERR_INVALID, "cannot use the key %.80s: %s", path,
                       strerror(errno));
    mode_t never = st.st_uid == 0 ? S_IWGRP | S_IXGRP | S_IRWXO : S_IRWXG | S_IRWXO;
    if (st.st_mode & never)
        return err_set(reterr, ERR_INVALID,
                       "others may read or change the key %.80s: chmod 600 it", path);
    return 0;
}

/* Nobody is there to be asked for a passphrase. */
static int no_passphrase(char *out, int room, int writes, void *ctx)
{
    (void)out, (void)room, (void)writes, (void)ctx;
    return -1;
}

static int select_alpn(SSL *ssl, const unsigned char **ret, unsigned char *ret_len,
                       const unsigned char *offered, unsigned offered_len, void *ctx)
{
    const struct tls *t = SSL_get_app_data(ssl);
    (void)ctx;
    if (!t->alpn) return SSL_TLSEXT_ERR_NOACK;
    size_t len = strlen(t->alpn);
    for (unsigned i = 0; i < offered_len; i += 1u + offered[i]) {
        if (offered[i] != len || memcmp(offered + i + 1, t->alpn, len) != 0) continue;
        *ret = offered + i + 1;
        *ret_len = offered[i];
        return SSL_TLSEXT_ERR_OK;
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static bool set_up(SSL_CTX *ctx)
{
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF); /* the ticket remembers */
    SSL_CTX_set_num_tickets(ctx, 1);
    SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
    SSL_CTX_set_alpn_select_cb(ctx, select_alpn, NULL);
    return SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) == 1 &&
           SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20") == 1;
}

static int load(SSL_CTX *ctx, const char *cert, const char *key, struct err *reterr)
{
    int r = check_key_mode(key, reterr);
    if (r) return r;
    if (SSL_CTX_use_certificate_chain_file(ctx, cert) != 1)
        return cannot("certificate", cert, reterr);
    if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) == 1 &&
        SSL_CTX_check_private_key(ctx) == 1)
        return 0;
    if (ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_VALUES_MISMATCH)
        return err_set(reterr, ERR_INVALID,
                       "the key %.70s is not that of the certificate %.70s", key, cert);
    return cannot("key", key, reterr);
}

int tls_keys_load(struct tls_keys *keys, const char *cert, const char *key, struct err *reterr)
{
    ERR_clear_error();
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (!keys->pipe) keys->pipe = pipe_new();
    int r = ctx && keys->pipe && set_up(ctx) ? load(ctx, cert, key, reterr)
                                             : err_set(reterr, ERR_NOMEM, "cannot set up TLS");
    if (r) {
        SSL_CTX_free(ctx);
        return r;
    }
    SSL_CTX_free(keys->ctx); /* those who use it have a reference */
    keys->ctx = ctx;
    return 0;
}

void tls_keys_fini(struct tls_keys *keys)
{
    SSL_CTX_free(keys->ctx);
    BIO_meth_free(keys->pipe);
    *keys = (struct tls_keys){ 0 };
}

/* ---- life ---- */

struct tls *tls_new(const struct tls_keys *keys, const char *alpn, size_t out_bytes_max)
{
    struct tls *t = calloc(1, sizeof *t);
    BIO *bio = t ? BIO_new(keys->pipe) : NULL;
    if (bio) t->ssl = SSL_new(keys->ctx);
    if (!bio || !t->ssl) {
        BIO_free(bio);
        free(t);
        return NULL;
    }
    t->alpn = alpn;
    buf_init(&t->out, out_bytes_max + out_bytes_max / 128 + CONTROL_BYTES_MAX);
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    SSL_set_bio(t->ssl, bio, bio);
    SSL_set_app_data(t->ssl, t);
    SSL_set_accept_state(t->ssl);
    return t;
}

void tls_free(struct tls *t)
{
    if (!t) return;
    SSL_free(t->ssl);
    buf_fini(&t->out);
    free(t);
}

/* ---- reading ---- */

/* OpenSSL does not say whether it has half a record, if that is a header and nothing else. */
static void note_records(struct tls *t, struct bytes sealed)
{
    while (sealed.len) {
        size_t n = t->body_left < sealed.len ? t->body_left : sealed.len;
        t->body_left -= n;
        if (!n) {
            t->header[t->header_len++] = *sealed.data;
            n = 1;
        }
        if (t->header_len == HEADER_BYTES) {
            t->body_left = (size_t)t->header[3] << 8 | t->header[4];
            t->header_len = 0;
        }
        sealed = bytes_of(sealed.data + n, sealed.len - n);
    }
}

void tls_feed(struct tls *t, struct bytes sealed)
{
    CHECK(!t->in.len);
    note_records(t, sealed);
    t->in = sealed;
}

static enum tls_progress stopped(struct tls *t, int why)
{
    t->in.len = 0;
    if (why == SSL_ERROR_WANT_READ) return TLS_MORE;
    if (why == SSL_ERROR_ZERO_RETURN) return TLS_ENDED;
    t->bad = true;
    return TLS_BAD;
}

enum tls_progress tls_read(struct tls *t, uint8_t *out, size_t room, size_t *ret_len)
{
    size_t len = 0, got;
    CHECK(room >= TLS_RECORD_BYTES);
    *ret_len = 0;
    if (t->out.len > CONTROL_BYTES_MAX) return stopped(t, SSL_ERROR_SSL);
    ERR_clear_error();
    while (room - len >= TLS_RECORD_BYTES) {
        int r = SSL_read_ex(t->ssl, out + len, room - len, &got);
        if (r != 1) return stopped(t, SSL_get_error(t->ssl, r));
        *ret_len = len += got;
    }
    return TLS_PLAIN;
}

/* ---- writing ---- */

int tls_write(struct tls *t, struct bytes plain)
{
    size_t written;
    CHECK(tls_ready(t));
    ERR_clear_error();
    if (!t->bad && SSL_write_ex(t->ssl, plain.data, plain.len, &written) == 1) return 0;
    t->bad = true;
    return -1;
}

bool tls_end(struct tls *t)
{
    if (t->bad || t->ended || !tls_ready(t)) return false;
    t->ended = true;
    ERR_clear_error();
    return SSL_shutdown(t->ssl) >= 0;
}

struct buf *tls_out(struct tls *t)
{
    return &t->out;
}

bool tls_ready(const struct tls *t)
{
    return SSL_is_init_finished(t->ssl);
}

bool tls_midway(const struct tls *t)
{
    return !tls_ready(t) || t->header_len || t->body_left;
}
