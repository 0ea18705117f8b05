/* http_fields.h - what the values of fields say: lists, media types, preferences, credentials,
 * trace context. Views in, views out; a value that is not well formed says nothing. */
#ifndef PROTO_HTTP_FIELDS_H
#define PROTO_HTTP_FIELDS_H

#include "base/bytes.h"

/* The next element of a list, without blanks around it. Empty ones are skipped; a comma between
 * quotes does not count. */
bool http_next_in_list(struct bytes *list, struct bytes *ret_element);

/* "application/json; charset=utf-8" */
struct http_media {
    struct bytes type, subtype; /* compare without case */
    struct bytes charset;       /* without quotes; empty: none given */
};
bool http_parse_media(struct bytes value, struct http_media *ret_media);
bool http_media_is(const struct http_media *media, const char *type, const char *subtype);

/* What an Accept field thinks of a type, in thousandths; 0: not acceptable. The most specific
 * range decides. Without the field (NULL data) everything is fine. */
int http_accepts(struct bytes accept, const char *type, const char *subtype);

/* RFC 7240: "wait=10, respond-async". True: it is there; *ret_value is what stands behind '='. */
bool http_preference(struct bytes prefer, const char *name, struct bytes *ret_value);

/* "Bearer TOKEN" */
bool http_bearer(struct bytes authorization, struct bytes *ret_token);

/* W3C trace context. A later version than ours is read as far as we know it. */
struct http_traceparent {
    uint8_t trace_id[16], parent_id[8];
    uint8_t flags; /* bit 0: sampled */
};
enum { HTTP_TRACEPARENT_BYTES = 55 };
bool http_parse_traceparent(struct bytes value, struct http_traceparent *ret_parent);
void http_write_traceparent(const struct http_traceparent *parent, char *out); /* and a NUL */

#endif
