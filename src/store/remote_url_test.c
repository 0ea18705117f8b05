/* remote_url_test.c - what may stand behind "once:", and that a token is never shown. */
#include "store/remote.h"

#include <criterion/criterion.h>

static struct remote_options good(const char *rest)
{
    struct remote_options o;
    struct err err = { 0 };
    cr_assert_eq(remote_options_parse(rest, &o, &err), 0, "%s: %s", rest, err.text);
    return o;
}

static void expect_host(const char *rest, const char *host, const char *port)
{
    struct remote_options o = good(rest);
    cr_assert_str_eq(o.host, host);
    cr_assert_str_eq(o.port, port);
    cr_assert(!o.path && !o.token);
    remote_options_fini(&o);
}

Test(remote_url, hosts_and_ports)
{
    expect_host("//localhost", "localhost", "6624");
    expect_host("//localhost/", "localhost", "6624");
    expect_host("//10.0.0.1:7000", "10.0.0.1", "7000");
    expect_host("//[::1]:7000", "::1", "7000");
    expect_host("//[::1]", "::1", "6624");
}

Test(remote_url, tokens_paths_and_options)
{
    struct remote_options o = good("//once_a%40b@host:1?timeout_ms=250");
    cr_assert_str_eq(o.token, "once_a@b");
    cr_assert_str_eq(o.host, "host");
    cr_assert_eq(o.timeout_ms, 250);
    remote_options_fini(&o);
    o = good("///run/once.sock");
    cr_assert(!o.host && strcmp(o.path, "/run/once.sock") == 0);
    remote_options_fini(&o);
    o = good("//token@/run/once.sock");
    cr_assert_str_eq(o.path, "/run/once.sock");
    cr_assert_str_eq(o.token, "token");
    remote_options_fini(&o);
    o = good("/run/a%20b@c.sock");
    cr_assert_str_eq(o.path, "/run/a b@c.sock");
    cr_assert_eq(o.timeout_ms, 10000);
    remote_options_fini(&o);
}

Test(remote_url, what_is_refused_shows_no_token)
{
    static const char *const bad[] = { "",
                                       "host",
                                       "//",
                                       "//SECRET@",
                                       "/SECRET@host:1",
                                       "//SECRET@host:0",
                                       "//SECRET@host:65536",
                                       "//SECRET@host:+1",
                                       "//SECRET@host:1x",
                                       "//SECRET@[::1",
                                       "//SECRET@[::1]x",
                                       "//SECRET@host/db",
                                       "//SECRET%@host",
                                       "//SECRET%00@host",
                                       "//SECRET@host?timeout_ms=0",
                                       "//SECRET@host?timeout_ms=",
                                       "//host?SECRET=1",
                                       "//SECRET?x@host" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct remote_options o;
        struct err err = { 0 };
        cr_assert_eq(remote_options_parse(bad[i], &o, &err), ERR_INVALID, "%s", bad[i]);
        cr_assert(!strstr(err.text, "SECRET"), "%s", err.text);
        remote_options_fini(&o);
    }
}
