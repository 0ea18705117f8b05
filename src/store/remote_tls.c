/* remote_tls.c - TLS for onces://, as a pipe: sealed bytes go in and plain ones come out, and back.
 *
 * Guarantees: TLS 1.2 or later; the certificate of the daemon is checked, for the host in the URL, with
 * the system's authorities or those in the file that the URL names; there is no way around that. Does
 * not: touch a socket. */
#include "store/remote.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>

enum { PLAIN_BYTES = 16 * 1024 };

static int failed(struct err *reterr, const char *what)
{
    unsigned long code = ERR_get_error();
    const char *why = code ? ERR_reason_error_string(code) : NULL;
    ERR_clear_error();
    return err_set(reterr, ERR_INVALID, "url: %s: %s", what, why ? why : "out of memory");
}

static bool authorities(SSL_CTX *ctx, const char *file)
{
    if (file) return SSL_CTX_load_verify_locations(ctx, file, NULL) == 1;
    return SSL_CTX_set_default_verify_paths(ctx) == 1;
}

int remote_tls_prepare(const char *ca_file, struct ssl_ctx_st **ret, struct err *reterr)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    if (!ctx) return failed(reterr, "cannot begin");
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    if (SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1 || !authorities(ctx, ca_file)) {
        SSL_CTX_free(ctx);
        return failed(reterr, ca_file ? "the file of ca=" : "the system's certificates");
    }
    *ret = ctx;
    return 0;
}

void remote_tls_forget(struct ssl_ctx_st *ctx)
{
    SSL_CTX_free(ctx);
}

static bool is_address(const char *host)
{
    uint8_t bytes[16];
    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

/* Whom to expect: by name, which the server is also told, or by address. */
static bool expect_host(SSL *ssl, const char *host)
{
    if (is_address(host)) return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

struct ssl_st *remote_tls_open(struct ssl_ctx_st *ctx, const char *host)
{
    SSL *ssl = SSL_new(ctx);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    if (!ssl || !in || !out || !expect_host(ssl, host)) {
        BIO_free(in);
        BIO_free(out);
        SSL_free(ssl);
        ERR_clear_error();
        return NULL;
    }
    SSL_set_bio(ssl, in, out);
    SSL_set_connect_state(ssl);
    SSL_do_handshake(ssl); /* has its first words ready */
    ERR_clear_error();
    return ssl;
}

void remote_tls_close(struct ssl_st *ssl)
{
    SSL_free(ssl);
}

static bool broken(SSL *ssl, int result, char *why, size_t len)
{
    int error = SSL_get_error(ssl, result);
    long verified = SSL_get_verify_result(ssl);
    unsigned long code = ERR_get_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    ERR_clear_error();
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return false;
    if (verified != X509_V_OK)
        snprintf(why, len, "its certificate: %s", X509_verify_cert_error_string(verified));
    else if (error == SSL_ERROR_ZERO_RETURN)
        snprintf(why, len, "it closed the connection");
    else
        snprintf(why, len, "TLS: %s", reason ? reason : "it is not spoken there");
    return true;
}

bool remote_tls_feed(struct ssl_st *ssl, struct bytes sealed, struct buf *plain, char *why,
                     size_t len)
{
    uint8_t bytes[PLAIN_BYTES];
    int n;
    if (BIO_write(SSL_get_rbio(ssl), sealed.data, (int)sealed.len) != (int)sealed.len) {
        snprintf(why, len, "no memory for its answers");
        return false;
    }
    ERR_clear_error();
    while ((n = SSL_read(ssl, bytes, sizeof bytes)) > 0)
        buf_add(plain, bytes_of(bytes, (size_t)n));
    return !broken(ssl, n, why, len);
}

/* What has to go out: what was to be said, once there is somebody to say it to, sealed. */
bool remote_tls_seal(struct ssl_st *ssl, struct buf *plain, struct buf *sealed)
{
    uint8_t bytes[PLAIN_BYTES];
    int n;
    ERR_clear_error();
    if (plain->len && SSL_is_init_finished(ssl)) {
        size_t written;
        if (SSL_write_ex(ssl, plain->data, plain->len, &written) != 1) return false;
        buf_clear(plain);
    }
    while ((n = BIO_read(SSL_get_wbio(ssl), bytes, sizeof bytes)) > 0)
        buf_add(sealed, bytes_of(bytes, (size_t)n));
    ERR_clear_error();
    return !buf_failed(sealed);
}
