/* http_client.h - a connection to an HTTP door, on a loop: one request at a time, and its answer.
 *
 * Reads what our door writes and nothing else: HTTP/1.1, one Content-Length, no codings. Whatever is
 * not well formed, comes unasked, or ends early is a connection lost. */
#ifndef TESTS_SUPPORT_HTTP_CLIENT_H
#define TESTS_SUPPORT_HTTP_CLIENT_H

#include "base/buf.h"
#include "base/loop.h"

struct http_client {
    struct io io;
    struct loop *loop;
    struct buf out; /* the request; http_client_send() sends it */
    struct buf in;
    size_t sent;
    bool asked; /* an answer is to come */
    /* The content may be changed in place, and is gone afterwards. */
    void (*heard)(struct http_client *c, int status, uint8_t *content, size_t len);
    void (*lost)(struct http_client *c); /* close it */
};

void http_client_open(struct http_client *c, struct loop *loop, const char *path);
void http_client_close(struct http_client *c);
void http_client_send(struct http_client *c);

#endif
