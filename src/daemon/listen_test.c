/* listen_test.c - addresses as people write them. */
#include "daemon/listen.h"

#include <criterion/criterion.h>

static void shows(const char *text, const char *want)
{
    union address a;
    struct err err = { 0 };
    char shown[ADDRESS_TEXT_BYTES];
    cr_assert_eq(address_parse(text, &a, &err), 0, "%s: %s", text, err.text);
    address_show(&a, shown);
    cr_assert_str_eq(shown, want);
}

static void refused(const char *text, int code)
{
    union address a;
    struct err err = { 0 };
    cr_assert_eq(address_parse(text, &a, &err), code, "%s: %s", text, err.text);
    cr_assert(err.text[0]);
}

Test(address, of_this_machine)
{
    shows("127.0.0.1:6624", "127.0.0.1:6624");
    shows("127.1.2.3:0", "127.1.2.3:0");
    shows("localhost:1", "127.0.0.1:1");
    shows(":65535", "127.0.0.1:65535");
    shows("[::1]:6624", "[::1]:6624");
    shows("unix:/run/once.sock", "unix:/run/once.sock");
    shows("unix:a:1", "unix:a:1");
}

static bool local(const char *text)
{
    union address a;
    struct err err = { 0 };
    cr_assert_eq(address_parse(text, &a, &err), 0, "%s: %s", text, err.text);
    return address_is_local(&a);
}

Test(address, that_only_this_machine_can_reach)
{
    cr_assert(local("127.0.0.1:6624"));
    cr_assert(local("127.255.0.1:0"));
    cr_assert(local("[::1]:0"));
    cr_assert(local("unix:/run/once.sock"));
    cr_assert(!local("0.0.0.0:6624"));
    cr_assert(!local("192.168.1.1:6624"));
    cr_assert(!local("128.0.0.1:6624"));
    cr_assert(!local("[::]:6624"));
    cr_assert(!local("[::ffff:127.0.0.1]:6624"));
}

Test(address, that_is_none)
{
    refused("", ERR_INVALID);
    refused("6624", ERR_INVALID);
    refused("127.0.0.1", ERR_INVALID);
    refused("127.0.0.1:", ERR_INVALID);
    refused("127.0.0.1:65536", ERR_INVALID);
    refused("127.0.0.1:-1", ERR_INVALID);
    refused("127.0.0.1:1x", ERR_INVALID);
    refused("127.0.0.1:00001234", ERR_INVALID);
    refused("::1:6624", ERR_INVALID);
    refused("[::1:6624", ERR_INVALID);
    refused("example.org:6624", ERR_INVALID);
    refused("unix:", ERR_INVALID);
    char path[200] = "unix:/";
    memset(path + 6, 'x', sizeof path - 7);
    refused(path, ERR_LIMIT);
}
