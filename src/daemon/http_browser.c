/* http_browser.c - is it a page in a browser that asks?
 *
 * On loopback everybody on this machine may ask, and so might a page of a stranger's that
 * somebody on this machine looks at: browsers send requests to 127.0.0.1 for it. Two things
 * give it away. What changes something carries the page's Origin. And a page that has pointed
 * its own name to 127.0.0.1 ("rebinding") is of the same origin then, but says its name as
 * Host. */
#include "daemon/http_session.h"

#include "proto/chars.h"

/* "[::1]:6623", "127.0.0.1:6623", "localhost": what cannot be anybody's name. */
static bool is_address(struct bytes authority)
{
    if (authority.len == 0 || authority.data[0] == '[') return true;
    const uint8_t *colon = memchr(authority.data, ':', authority.len);
    struct bytes host =
        bytes_of(authority.data, colon ? (size_t)(colon - authority.data) : authority.len);
    if (bytes_eq_nocase(host, bytes_str("localhost"))) return true;
    for (size_t i = 0; i < host.len; i++)
        if (!char_is(host.data[i], CHAR_DIGIT) && host.data[i] != '.') return false;
    return host.len > 0;
}

bool http_is_foreign(const struct http_session *s, const struct http_request *request)
{
    if (s->conn->uv.handle.type != UV_TCP) return false; /* no browser knows the path */
    if (http_known_field(request, HTTP_ORIGIN).data) return true;
    return !is_address(request->authority);
}
