/* tls_scene_test.h - a door behind TLS in the process of a test: real sockets, OpenSSL as the client,
 * time that the test moves. The client's bytes go where and when the test says. */
#ifndef DAEMON_TLS_SCENE_TEST_H
#define DAEMON_TLS_SCENE_TEST_H

#include "daemon/listen.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LARGE = 4 * 1024 * 1024, ROUNDS_MAX = 100000 };

/* ---- a certificate ---- */

struct pair {
    char cert[64], key[64];
};

static inline void save_key(const char *path, EVP_PKEY *key, const char *passphrase)
{
    FILE *f = fopen(path, "w");
    cr_assert(f);
    const EVP_CIPHER *cipher = passphrase ? EVP_aes_128_cbc() : NULL;
    cr_assert(PEM_write_PrivateKey(f, key, cipher, (const unsigned char *)passphrase,
                                   passphrase ? (int)strlen(passphrase) : 0, NULL, NULL));
    fclose(f);
    chmod(path, 0600);
}

static inline struct pair make_pair(const char *dir, const char *name)
{
    struct pair p;
    snprintf(p.cert, sizeof p.cert, "%.30s/%.10s.cert", dir, name);
    snprintf(p.key, sizeof p.key, "%.30s/%.10s.key", dir, name);
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = X509_new();
    cr_assert(key && x);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -60);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                               (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(x));
    X509_set_pubkey(x, key);
    cr_assert(X509_sign(x, key, EVP_sha256()));
    FILE *f = fopen(p.cert, "w");
    cr_assert(f && PEM_write_X509(f, x));
    fclose(f);
    save_key(p.key, key, NULL);
    X509_free(x);
    EVP_PKEY_free(key);
    return p;
}

static inline void drop_pair(const struct pair *p)
{
    unlink(p->cert);
    unlink(p->key);
}

/* ---- the door and its scene ---- */

enum {
    SAY_BIG = 'b',  /* answered by LARGE bytes */
    SAY_QUIT = 'q', /* answered, and the end */
    SAY_MORE = 'm', /* nothing, before another one has come */
};

struct scene {
    char dir[32];
    struct pair pair;
    struct tls_keys keys;
    uv_loop_t uv;
    struct loop loop;
    struct conns conns;
    struct listener listener;
    struct conn *last; /* the one that was opened last; NULL: it is closed */
    size_t shown, ended;
};

static const struct conn_limits limits = { .in_bytes_max = 256 * 1024,
                                           .out_bytes_high = 64 * 1024,
                                           .out_bytes_max = 3 * LARGE,
                                           .owed_max = 4,
                                           .command_ms = 30000,
                                           .send_ms = 20000,
                                           .linger_ms = 1000,
                                           .handshake_ms = 10000 };

static inline size_t on_bytes(struct conn *c, uint8_t *data, size_t len)
{
    static char large[LARGE];
    struct scene *s = c->ctx;
    size_t used = 0;
    memset(large, SAY_BIG, sizeof large);
    while (used < len && !conn_full(c)) {
        uint8_t byte = data[used];
        if (byte == SAY_MORE && len - used < 2) break;
        buf_add(conn_out(c), byte == SAY_BIG ? bytes_of(large, LARGE) : bytes_of(&byte, 1));
        if (byte == SAY_QUIT) conn_end(c, CLOSE_REFUSED);
        used += byte == SAY_MORE ? 2 : 1;
        s->shown++;
    }
    return used;
}

static inline void on_opened(struct conn *c)
{
    ((struct scene *)c->ctx)->last = c;
}

static inline void on_ended(struct conn *c)
{
    ((struct scene *)c->ctx)->ended++;
}

static inline void on_closed(struct conn *c)
{
    ((struct scene *)c->ctx)->last = NULL;
}

static inline void on_nothing(struct conn *c)
{
    (void)c;
}

static const struct door door = { .name = "test",
                                  .full_text = "full",
                                  .alpn = "test/1",
                                  .on_opened = on_opened,
                                  .on_bytes = on_bytes,
                                  .on_room = on_nothing,
                                  .on_ended = on_ended,
                                  .on_cancel = on_nothing,
                                  .on_closed = on_closed };

static inline void scene_open(struct scene *s)
{
    struct err err = { 0 };
    char address[64];
    struct clock clock = clock_monotonic();
    *s = (struct scene){ .dir = "/tmp/tls-test-XXXXXX" };
    signal(SIGPIPE, SIG_IGN); /* as server_run() does */
    cr_assert(mkdtemp(s->dir));
    s->pair = make_pair(s->dir, "first");
    cr_assert_eq(tls_keys_load(&s->keys, s->pair.cert, s->pair.key, &err), 0, "%s", err.text);
    cr_assert_eq(uv_loop_init(&s->uv), 0);
    loop_init(&s->loop, clock_now_ms(&clock));
    conns_init(&s->conns, &s->uv, &s->loop, &limits, 1000);
    s->listener.conns = &s->conns;
    s->listener.door = &door;
    s->listener.door_ctx = s;
    snprintf(address, sizeof address, "unix:%s/s", s->dir);
    cr_assert_eq(listener_open(&s->listener, address, &err), 0, "%s", err.text);
    s->listener.keys = &s->keys; /* on a socket that delivers at once, unlike TCP */
}

static inline void scene_close(struct scene *s)
{
    conns_close(&s->conns, CLOSE_SHUTDOWN);
    listener_close(&s->listener);
    uv_run(&s->uv, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&s->uv), 0);
    conns_fini(&s->conns);
    loop_fini(&s->loop);
    tls_keys_fini(&s->keys);
    drop_pair(&s->pair);
    cr_assert_eq(rmdir(s->dir), 0);
}

/* Everything that can be done without waiting. */
static inline void go(struct scene *s)
{
    for (int i = 0; i < 4; i++) {
        uv_run(&s->uv, UV_RUN_NOWAIT);
        loop_turn(&s->loop, s->loop.now_ms);
        conns_settle(&s->conns);
    }
}

static inline void pass_ms(struct scene *s, int64_t ms)
{
    loop_turn(&s->loop, s->loop.now_ms + ms);
    go(s);
}

static inline uint64_t closed_for(const struct scene *s, enum close_reason why)
{
    return s->conns.stats[door.id].closed[why];
}

/* ---- the client ---- */

struct client {
    struct scene *scene;
    int fd;
    SSL_CTX *ctx;
    SSL *ssl;
    BIO *in, *out;
    size_t step; /* so many bytes at a time */
    bool over;   /* the daemon has closed it */
};

static inline int dial(struct scene *s)
{
    union address a;
    struct err err;
    cr_assert_eq(address_parse(s->listener.shown, &a, &err), 0);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    cr_assert_eq(connect(fd, &a.any, sizeof a.path), 0);
    cr_assert_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    go(s);
    return fd;
}

static inline void client_open(struct client *c, struct scene *s, int version)
{
    *c = (struct client){ .scene = s, .fd = dial(s), .step = SIZE_MAX };
    c->ctx = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_min_proto_version(c->ctx, version);
    SSL_CTX_set_max_proto_version(c->ctx, version);
    SSL_CTX_set_security_level(c->ctx, 0); /* or TLS 1.1 would not even be asked for */
    c->ssl = SSL_new(c->ctx);
    c->in = BIO_new(BIO_s_mem());
    c->out = BIO_new(BIO_s_mem());
    SSL_set_bio(c->ssl, c->in, c->out);
    SSL_set_connect_state(c->ssl);
}

static inline void client_close(struct client *c)
{
    SSL_free(c->ssl);
    SSL_CTX_free(c->ctx);
    close(c->fd);
    go(c->scene);
}

static inline void client_receive(struct client *c)
{
    char part[65536];
    ssize_t n;
    while ((n = read(c->fd, part, sizeof part)) > 0) BIO_write(c->in, part, (int)n);
    if (n == 0 || errno != EAGAIN) c->over = true;
}

/* Sends what OpenSSL has written, a step at a time. */
static inline void client_send(struct client *c)
{
    char *data;
    size_t len = (size_t)BIO_get_mem_data(c->out, &data), done = 0;
    for (int i = 0; done < len && i < ROUNDS_MAX; i++) {
        size_t part = len - done < c->step ? len - done : c->step;
        ssize_t n = write(c->fd, data + done, part);
        if (n < 0 && errno != EAGAIN) break;
        if (n > 0) done += (size_t)n;
        go(c->scene);
    }
    (void)BIO_reset(c->out);
}

/* Until both have said all they can. */
static inline void client_turn(struct client *c)
{
    client_send(c);
    go(c->scene);
    client_receive(c);
}

static inline bool client_shakes(struct client *c)
{
    for (int i = 0; i < 100; i++) {
        ERR_clear_error();
        int r = SSL_do_handshake(c->ssl);
        int why = SSL_get_error(c->ssl, r);
        client_turn(c);
        if (r == 1) return true;
        if (why != SSL_ERROR_WANT_READ) return false;
        if (c->over && BIO_ctrl_pending(c->in) == 0) return false;
    }
    return false;
}

static inline void client_meet(struct client *c, struct scene *s, int version)
{
    client_open(c, s, version);
    cr_assert(client_shakes(c), "%s", ERR_reason_error_string(ERR_peek_error()));
}

static inline void client_say(struct client *c, const char *text)
{
    cr_assert_eq(SSL_write(c->ssl, text, (int)strlen(text)), (int)strlen(text));
    client_turn(c);
}

/* So many bytes, all of them alike. */
static inline void client_hears(struct client *c, char byte, size_t len)
{
    static char part[65536];
    size_t got = 0;
    for (int i = 0; got < len && i < ROUNDS_MAX; i++) {
        int n = SSL_read(c->ssl, part, sizeof part);
        if (n <= 0) {
            cr_assert_eq(SSL_get_error(c->ssl, n), SSL_ERROR_WANT_READ);
            client_turn(c);
            continue;
        }
        for (int j = 0; j < n; j++) cr_assert_eq(part[j], byte);
        got += (size_t)n;
    }
    cr_assert_eq(got, len);
}

static inline int client_ends_with(struct client *c)
{
    char byte;
    for (int i = 0; i < 100; i++) {
        client_turn(c);
        int n = SSL_read(c->ssl, &byte, 1);
        cr_assert_leq(n, 0, "nothing more was expected");
        int why = SSL_get_error(c->ssl, n);
        if (why != SSL_ERROR_WANT_READ) return why;
    }
    return SSL_ERROR_WANT_READ;
}

static const int versions[] = { TLS1_2_VERSION, TLS1_3_VERSION };

#endif
