/* http_lines.h - what head and trailers have in common: lines and fields. Private to http*.c. */
#ifndef PROTO_HTTP_LINES_H
#define PROTO_HTTP_LINES_H

#include "proto/http.h"

enum http_body_step {
    BODY_NONE,
    BODY_LENGTH,
    BODY_CHUNK_SIZE,
    BODY_CHUNK_DATA,
    BODY_CHUNK_END,
    BODY_TRAILERS,
};

/* The line at the start of `in`, at most so long; *ret_used includes its end. HTTP_BAD: see the
 * fault; it is `too_long`, or HTTP_FAULT_LINE_END. */
struct http_line_rule {
    size_t bytes_max; /* without its end */
    enum http_fault too_long;
};
enum http_progress http_take_line(struct http_reader *r, struct bytes in,
                                  struct http_line_rule rule, struct bytes *ret_line,
                                  size_t *ret_used);

enum http_fault http_parse_field(struct bytes line, struct http_field *ret_field);
enum http_fault http_parse_target(struct http_request *request);

static inline enum http_progress http_bad(struct http_reader *r, enum http_fault fault)
{
    r->fault = fault;
    return HTTP_BAD;
}

#endif
