/* tls_test.c - TLS below a door that answers every byte: real sockets, OpenSSL as the client, time
 * that the test moves. The client's bytes go where and when the test says. */
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

static void save_key(const char *path, EVP_PKEY *key, const char *passphrase)
{
    FILE *f = fopen(path, "w");
    cr_assert(f);
    const EVP_CIPHER *cipher = passphrase ? EVP_aes_128_cbc() : NULL;
    cr_assert(PEM_write_PrivateKey(f, key, cipher, (const unsigned char *)passphrase,
                                   passphrase ? (int)strlen(passphrase) : 0, NULL, NULL));
    fclose(f);
    chmod(path, 0600);
}

static struct pair make_pair(const char *dir, const char *name)
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

static void drop_pair(const struct pair *p)
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

static size_t on_bytes(struct conn *c, uint8_t *data, size_t len)
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

static void on_opened(struct conn *c)
{
    ((struct scene *)c->ctx)->last = c;
}

static void on_ended(struct conn *c)
{
    ((struct scene *)c->ctx)->ended++;
}

static void on_closed(struct conn *c)
{
    ((struct scene *)c->ctx)->last = NULL;
}

static void on_nothing(struct conn *c)
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

static void scene_open(struct scene *s)
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

static void scene_close(struct scene *s)
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
static void go(struct scene *s)
{
    for (int i = 0; i < 4; i++) {
        uv_run(&s->uv, UV_RUN_NOWAIT);
        loop_turn(&s->loop, s->loop.now_ms);
        conns_settle(&s->conns);
    }
}

static void pass_ms(struct scene *s, int64_t ms)
{
    loop_turn(&s->loop, s->loop.now_ms + ms);
    go(s);
}

static uint64_t closed_for(const struct scene *s, enum close_reason why)
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

static int dial(struct scene *s)
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

static void client_open(struct client *c, struct scene *s, int version)
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

static void client_close(struct client *c)
{
    SSL_free(c->ssl);
    SSL_CTX_free(c->ctx);
    close(c->fd);
    go(c->scene);
}

static void client_receive(struct client *c)
{
    char part[65536];
    ssize_t n;
    while ((n = read(c->fd, part, sizeof part)) > 0) BIO_write(c->in, part, (int)n);
    if (n == 0 || errno != EAGAIN) c->over = true;
}

/* Sends what OpenSSL has written, a step at a time. */
static void client_send(struct client *c)
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
static void client_turn(struct client *c)
{
    client_send(c);
    go(c->scene);
    client_receive(c);
}

static bool client_shakes(struct client *c)
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

static void client_meet(struct client *c, struct scene *s, int version)
{
    client_open(c, s, version);
    cr_assert(client_shakes(c), "%s", ERR_reason_error_string(ERR_peek_error()));
}

static void client_say(struct client *c, const char *text)
{
    cr_assert_eq(SSL_write(c->ssl, text, (int)strlen(text)), (int)strlen(text));
    client_turn(c);
}

/* So many bytes, all of them alike. */
static void client_hears(struct client *c, char byte, size_t len)
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

static int client_ends_with(struct client *c)
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

/* ---- talking ---- */

Test(tls, carries_small_and_large_both_ways)
{
    for (size_t i = 0; i < 2; i++) {
        struct scene s;
        struct client c;
        scene_open(&s);
        client_meet(&c, &s, versions[i]);
        client_say(&c, "e");
        client_hears(&c, 'e', 1);
        client_say(&c, "bb");
        client_hears(&c, 'b', 2 * (size_t)LARGE);
        static char large[200001];
        memset(large, 'x', sizeof large - 1);
        client_say(&c, large);
        client_hears(&c, 'x', sizeof large - 1);
        client_close(&c);
        cr_assert_eq(s.conns.count, 0);
        scene_close(&s);
    }
}

Test(tls, cut_at_every_byte_is_the_same)
{
    for (size_t i = 0; i < 2; i++) {
        struct scene s;
        struct client c;
        scene_open(&s);
        client_open(&c, &s, versions[i]);
        c.step = 1;
        cr_assert(client_shakes(&c));
        client_say(&c, "eee");
        client_hears(&c, 'e', 3);
        client_close(&c);
        scene_close(&s);
    }
}

Test(tls, who_leaves_after_any_byte_leaves_nothing)
{
    struct scene s;
    struct client c;
    char *hello;
    scene_open(&s);
    client_open(&c, &s, TLS1_3_VERSION);
    SSL_do_handshake(c.ssl);
    size_t len = (size_t)BIO_get_mem_data(c.out, &hello);
    cr_assert_gt(len, 100);
    for (size_t n = 0; n < len; n++) {
        int fd = dial(&s);
        cr_assert_eq(write(fd, hello, n), (ssize_t)n);
        go(&s);
        close(fd);
        go(&s);
    }
    cr_assert_eq(s.conns.count, 1);
    cr_assert_eq(s.shown, 0);
    client_close(&c);
    scene_close(&s);
}

Test(tls, idle_has_no_buffers)
{
    struct scene s;
    struct client c;
    scene_open(&s);
    client_meet(&c, &s, TLS1_3_VERSION);
    client_say(&c, "b");
    client_hears(&c, 'b', LARGE);
    go(&s);
    cr_assert_null(s.last->in.data);
    cr_assert_null(s.last->out.data);
    cr_assert_null(s.last->sending.data);
    cr_assert_null(tls_out(s.last->tls)->data);
    client_close(&c);
    scene_close(&s);
}

enum { IDLE = 50, IDLE_BYTES_MAX = 20 * 1024 };

/* The client's side of it is freed, its socket stays. */
static int idle_socket(struct scene *s)
{
    struct client c;
    client_meet(&c, s, TLS1_3_VERSION);
    client_say(&c, "e");
    client_hears(&c, 'e', 1);
    SSL_free(c.ssl);
    SSL_CTX_free(c.ctx);
    return c.fd;
}

Test(tls, idle_costs_little)
{
    struct scene s;
    int fds[IDLE];
    scene_open(&s);
    int first = idle_socket(&s);
    size_t before = mallinfo2().uordblks;
    for (size_t i = 0; i < IDLE; i++) fds[i] = idle_socket(&s);
    size_t each = (mallinfo2().uordblks - before) / IDLE;
    cr_assert_leq(each, IDLE_BYTES_MAX, "%zu bytes", each);
    for (size_t i = 0; i < IDLE; i++) close(fds[i]);
    close(first);
    scene_close(&s);
}

/* ---- ending ---- */

Test(tls, an_end_is_said)
{
    for (size_t i = 0; i < 2; i++) {
        struct scene s;
        struct client c;
        scene_open(&s);
        client_meet(&c, &s, versions[i]);
        client_say(&c, "q");
        client_hears(&c, 'q', 1);
        cr_assert_eq(client_ends_with(&c), SSL_ERROR_ZERO_RETURN, "close_notify");
        client_close(&c);
        cr_assert_eq(closed_for(&s, CLOSE_REFUSED), 1);
        cr_assert_eq(s.conns.count, 0);
        scene_close(&s);
    }
}

Test(tls, an_end_that_was_said_is_one)
{
    struct scene s;
    struct client c;
    scene_open(&s);
    client_meet(&c, &s, TLS1_3_VERSION);
    cr_assert_eq(SSL_write(c.ssl, "e", 1), 1);
    SSL_shutdown(c.ssl);
    client_turn(&c);
    client_hears(&c, 'e', 1);
    cr_assert_eq(client_ends_with(&c), SSL_ERROR_ZERO_RETURN);
    cr_assert_eq(s.ended, 1);
    cr_assert_eq(closed_for(&s, CLOSE_ENDED), 1);
    client_close(&c);
    scene_close(&s);
}

/* ---- what is not TLS, or not as it should be ---- */

static void is_refused(struct scene *s, const void *data, size_t len)
{
    uint64_t before = closed_for(s, CLOSE_TLS);
    int fd = dial(s);
    cr_assert_eq(write(fd, data, len), (ssize_t)len);
    go(s);
    shutdown(fd, SHUT_WR);
    go(s);
    cr_assert_eq(closed_for(s, CLOSE_TLS), before + 1);
    cr_assert_eq(s->shown, 0);
    close(fd);
    go(s);
}

Test(tls, plain_text_and_garbage_are_refused)
{
    struct scene s;
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    static const char resp[] = "*1\r\n$4\r\nPING\r\n";
    uint8_t garbage[64];
    scene_open(&s);
    is_refused(&s, http, sizeof http - 1);
    is_refused(&s, resp, sizeof resp - 1);
    memset(garbage, 0xff, sizeof garbage);
    is_refused(&s, garbage, sizeof garbage);
    scene_close(&s);
}

Test(tls, garbage_after_the_handshake_ends_it)
{
    struct scene s;
    struct client c;
    scene_open(&s);
    client_meet(&c, &s, TLS1_3_VERSION);
    cr_assert_eq(write(c.fd, "\x17\x03\x03\x00\x20 this was not sealed by anybody!", 37), 37);
    go(&s);
    cr_assert_eq(client_ends_with(&c), SSL_ERROR_SSL, "an alert");
    cr_assert_eq(s.shown, 0);
    client_close(&c);
    cr_assert_eq(closed_for(&s, CLOSE_TLS), 1);
    scene_close(&s);
}

Test(tls, older_than_1_2_is_refused)
{
    struct scene s;
    struct client c;
    scene_open(&s);
    client_open(&c, &s, TLS1_1_VERSION);
    cr_assert(!client_shakes(&c));
    client_close(&c);
    cr_assert_eq(closed_for(&s, CLOSE_TLS), 1);
    scene_close(&s);
}

Test(tls, is_not_renegotiated)
{
    struct scene s;
    struct client c;
    scene_open(&s);
    client_meet(&c, &s, TLS1_2_VERSION);
    cr_assert_eq(SSL_renegotiate(c.ssl), 1);
    cr_assert(!client_shakes(&c));
    cr_assert(c.over);
    client_close(&c);
    cr_assert_eq(closed_for(&s, CLOSE_TLS), 1);
    scene_close(&s);
}

Test(tls, new_keys_as_often_as_the_peer_likes_cost_nothing)
{
    struct scene s;
    struct client c;
    scene_open(&s);
    client_meet(&c, &s, TLS1_3_VERSION);
    for (int i = 0; i < 1000; i++) {
        cr_assert_eq(SSL_key_update(c.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        cr_assert_eq(SSL_do_handshake(c.ssl), 1);
    }
    client_say(&c, "e");
    client_hears(&c, 'e', 1);
    cr_assert_null(tls_out(s.last->tls)->data);
    client_close(&c);
    scene_close(&s);
}

/* ---- time and back-pressure ---- */

Test(tls, half_a_handshake_does_not_wait_for_ever)
{
    struct scene s;
    scene_open(&s);
    int silent = dial(&s);
    int half = dial(&s);
    cr_assert_eq(write(half, "\x16\x03\x01", 3), 3);
    go(&s);
    pass_ms(&s, 9000);
    cr_assert_eq(s.conns.count, 2);
    pass_ms(&s, 1001);
    cr_assert_eq(s.conns.count, 0, "K6");
    cr_assert_eq(closed_for(&s, CLOSE_TLS), 2);
    close(silent);
    close(half);
    scene_close(&s);
}

Test(tls, half_a_record_does_not_wait_for_ever)
{
    for (size_t n = 1; n < 40; n += 2) {
        struct scene s;
        struct client c;
        char *record;
        scene_open(&s);
        client_meet(&c, &s, TLS1_3_VERSION);
        pass_ms(&s, 100000);
        cr_assert(s.last, "idle is fine");
        cr_assert_eq(SSL_write(c.ssl, "0123456789012345678901234567890123456789", 40), 40);
        cr_assert_gt(BIO_get_mem_data(c.out, &record), 40);
        cr_assert_eq(write(c.fd, record, n), (ssize_t)n);
        go(&s);
        pass_ms(&s, 29000);
        cr_assert(s.last);
        pass_ms(&s, 1001);
        cr_assert_null(s.last, "K4: %zu bytes", n);
        cr_assert_eq(closed_for(&s, CLOSE_SLOW_INPUT), 1);
        client_close(&c);
        scene_close(&s);
    }
}

Test(tls, half_a_command_in_a_record_neither)
{
    struct scene s;
    struct client c;
    scene_open(&s);
    client_meet(&c, &s, TLS1_3_VERSION);
    client_say(&c, "m");
    pass_ms(&s, 30001);
    cr_assert_null(s.last, "K4");
    cr_assert_eq(closed_for(&s, CLOSE_SLOW_INPUT), 1);
    client_close(&c);
    scene_close(&s);
}

Test(tls, who_does_not_listen_is_not_shown_more)
{
    struct scene s;
    struct client c;
    scene_open(&s);
    client_meet(&c, &s, TLS1_3_VERSION);
    cr_assert_eq(SSL_write(c.ssl, "bbbbbbbb", 8), 8);
    client_send(&c);
    go(&s);
    cr_assert_lt(s.shown, 8, "K2");
    cr_assert_leq(s.last->sending.len + s.last->out.len, limits.out_bytes_max, "K2");
    pass_ms(&s, 20001);
    pass_ms(&s, 20001);
    cr_assert_null(s.last, "K4");
    cr_assert_eq(closed_for(&s, CLOSE_SLOW_OUTPUT), 1);
    client_close(&c);
    scene_close(&s);
}

/* ---- certificates ---- */

static void shows(struct scene *s, const char *name)
{
    struct client c;
    char shown[32];
    client_meet(&c, s, TLS1_3_VERSION);
    X509 *x = SSL_get1_peer_certificate(c.ssl);
    cr_assert(x);
    X509_NAME_get_text_by_NID(X509_get_subject_name(x), NID_commonName, shown, sizeof shown);
    cr_assert_str_eq(shown, name);
    X509_free(x);
    client_close(&c);
}

Test(tls, a_new_certificate_is_for_those_who_come)
{
    struct scene s;
    struct client before;
    struct err err = { 0 };
    scene_open(&s);
    struct pair second = make_pair(s.dir, "second");
    client_meet(&before, &s, TLS1_3_VERSION);
    shows(&s, "first");
    cr_assert_eq(tls_keys_load(&s.keys, second.cert, second.key, &err), 0, "%s", err.text);
    shows(&s, "second");
    client_say(&before, "e");
    client_hears(&before, 'e', 1);
    client_close(&before);
    drop_pair(&second);
    scene_close(&s);
}

static void not_loaded(struct scene *s, const char *cert, const char *key, const char *why)
{
    struct err err = { 0 };
    cr_assert_eq(tls_keys_load(&s->keys, cert, key, &err), ERR_INVALID);
    cr_assert(strstr(err.text, why), "%s", err.text);
    shows(s, "first");
}

Test(tls, what_cannot_be_used_is_told_and_changes_nothing)
{
    struct scene s;
    scene_open(&s);
    struct pair other = make_pair(s.dir, "other");
    not_loaded(&s, "/nowhere", other.key, "No such file");
    not_loaded(&s, other.cert, "/nowhere", "No such file");
    not_loaded(&s, other.cert, s.pair.key, "not that of the certificate");
    not_loaded(&s, other.key, other.key, "cannot use the certificate");
    chmod(other.key, 0644);
    not_loaded(&s, other.cert, other.key, "chmod 600");
    EVP_PKEY *key = EVP_EC_gen("P-256");
    save_key(other.key, key, "secret");
    EVP_PKEY_free(key);
    not_loaded(&s, other.cert, other.key, "cannot use the key");
    drop_pair(&other);
    scene_close(&s);
}

/* ---- which protocol is spoken inside ---- */

static bool agrees(struct scene *s, const char *offer, const char *want)
{
    struct client c;
    const unsigned char *chosen;
    unsigned len;
    client_open(&c, s, TLS1_3_VERSION);
    SSL_set_alpn_protos(c.ssl, (const unsigned char *)offer, (unsigned)strlen(offer));
    bool shaken = client_shakes(&c);
    SSL_get0_alpn_selected(c.ssl, &chosen, &len);
    if (shaken) cr_assert(bytes_eq(bytes_of(chosen, len), bytes_str(want)));
    client_close(&c);
    return shaken;
}

Test(tls, alpn)
{
    struct scene s;
    scene_open(&s);
    cr_assert(agrees(&s, "", ""));
    cr_assert(agrees(&s, "\x06test/1", "test/1"));
    cr_assert(agrees(&s, "\x02h2\x06test/1", "test/1"));
    cr_assert(!agrees(&s, "\x02h2", ""));
    scene_close(&s);
}
