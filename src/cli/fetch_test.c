/* fetch_test.c - addresses that are none, doors that are not there. The rest is in
 * tests/e2e/metrics.sh, with a daemon. */
#include "cli/fetch.h"

#include <criterion/criterion.h>

static int fetched(const char *url)
{
    struct fetch f = { .url = url, .path = "/metrics", .timeout_ms = 1000 };
    struct err err;
    char *text;
    return fetch_text(&f, &text, &err);
}

Test(fetch, addresses)
{
    cr_expect(fetched("once://127.0.0.1:1") == ERR_INVALID);
    cr_expect(fetched("http://127.0.0.1") == ERR_INVALID);
    cr_expect(fetched("http://:1") == ERR_INVALID);
    cr_expect(fetched("https://127.0.0.1:") == ERR_INVALID);
    cr_expect(fetched("127.0.0.1:1") == ERR_INVALID);
    cr_expect(fetched("") == ERR_INVALID);
}

Test(fetch, nobody_is_there)
{
    cr_expect(fetched("unix:/nowhere/at/all") == ERR_UNAVAILABLE);
    cr_expect(fetched("http://127.0.0.1:1/") == ERR_UNAVAILABLE);
    cr_expect(fetched("https://[::1]:1") == ERR_UNAVAILABLE);
}
