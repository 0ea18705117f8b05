/* tls_test.c - TLS below a door that answers every byte: talking, ending, certificates. */
#include "daemon/tls_scene_test.h"

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
