/* http.h - HTTP/1.1 as a server hears it: bytes to requests, strictly as RFC 9112 has it.
 *
 * Two servers that take the same bytes for different requests let one caller speak in another
 * one's name. So whatever can be read in two ways is refused: bare CR or LF, folded lines, blanks
 * before a colon, two lengths, a length beside a transfer coding, codings other than chunked, a
 * Host that is missing, repeated or malformed, control characters anywhere.
 *
 * The reader copies nothing and allocates nothing: what it finds are views into the caller's
 * buffer, which is shown from the start of the head again when more has come. However the input is
 * cut, requests and faults are the same, and nothing behind the request is looked at (pipelining).
 * A reader is a few words of memory; the fields live in an array that is only used while a head is
 * read and acted upon. Written by hand because the packaged parsers are callback machines that
 * leave these decisions to their users, or unmaintained. */
#ifndef PROTO_HTTP_H
#define PROTO_HTTP_H

#include "base/bytes.h"

/* fault, status, text for the caller */
#define HTTP_FAULT_LIST(X)                                                                     \
    X(HTTP_FAULT_NONE, 0, "")                                                                  \
    X(HTTP_FAULT_LINE_END, 400, "a line does not end with CR LF")                              \
    X(HTTP_FAULT_REQUEST_LINE, 400, "malformed request line")                                  \
    X(HTTP_FAULT_TARGET, 400, "malformed request target")                                      \
    X(HTTP_FAULT_FIELD_NAME, 400, "malformed field name")                                      \
    X(HTTP_FAULT_FIELD_VALUE, 400, "control character in a field")                             \
    X(HTTP_FAULT_FIELD_FOLDED, 400, "folded field line")                                       \
    X(HTTP_FAULT_HOST_MISSING, 400, "Host is missing")                                         \
    X(HTTP_FAULT_HOST_REPEATED, 400, "more than one Host")                                     \
    X(HTTP_FAULT_HOST, 400, "malformed Host")                                                  \
    X(HTTP_FAULT_LENGTH, 400, "malformed Content-Length")                                      \
    X(HTTP_FAULT_LENGTH_REPEATED, 400, "more than one Content-Length")                         \
    X(HTTP_FAULT_LENGTH_AND_CODING, 400, "Content-Length beside Transfer-Encoding")            \
    X(HTTP_FAULT_CODING, 400, "malformed Transfer-Encoding")                                   \
    X(HTTP_FAULT_CODING_UNKNOWN, 501, "only the transfer coding chunked is known")             \
    X(HTTP_FAULT_CODING_OLD, 400, "Transfer-Encoding in HTTP/1.0")                             \
    X(HTTP_FAULT_CONNECTION, 400, "malformed Connection")                                      \
    X(HTTP_FAULT_EXPECT, 417, "only the expectation 100-continue is known")                    \
    X(HTTP_FAULT_LENGTH_MISSING, 411, "Content-Length is missing")                             \
    X(HTTP_FAULT_BODY_LONG, 413, "the content is too large")                                   \
    X(HTTP_FAULT_TARGET_LONG, 414, "the request line is too long")                             \
    X(HTTP_FAULT_FIELD_LONG, 431, "a field line is too long")                                  \
    X(HTTP_FAULT_HEAD_LONG, 431, "the fields are too large together")                          \
    X(HTTP_FAULT_FIELDS_MANY, 431, "too many fields")                                          \
    X(HTTP_FAULT_CHUNK, 400, "malformed chunk")                                                \
    X(HTTP_FAULT_CHUNK_EXTRA, 431, "chunk extensions or trailers are too large")               \
    X(HTTP_FAULT_VERSION, 505, "HTTP/1.1 is spoken here")                                      \
    X(HTTP_FAULT_HTTP2, 505, "HTTP/2 is not spoken here; HTTP/1.1 is")

#define HTTP_FAULT_ENUM(fault, status, text) fault,
enum http_fault { HTTP_FAULT_LIST(HTTP_FAULT_ENUM) };
#undef HTTP_FAULT_ENUM

int http_fault_status(enum http_fault fault);
const char *http_fault_text(enum http_fault fault);

struct http_limits {
    size_t line_bytes_max;  /* of the request line */
    size_t field_bytes_max; /* of one field line */
    size_t head_bytes_max;  /* of request line and fields */
    size_t fields_max;      /* also of trailers */
    size_t extra_bytes_max; /* of chunk extensions and trailers of one request */
    int64_t body_bytes_max;
    bool length_required; /* 411 for a POST, PUT or PATCH that announces no content */
};

extern const struct http_limits http_limits_default;

/* method, name. The reader knows them; the others are HTTP_OTHER. */
#define HTTP_METHOD_LIST(X)                                                                    \
    X(HTTP_OTHER, "")                                                                          \
    X(HTTP_GET, "GET")                                                                         \
    X(HTTP_HEAD, "HEAD")                                                                       \
    X(HTTP_POST, "POST")                                                                       \
    X(HTTP_PUT, "PUT")                                                                         \
    X(HTTP_DELETE, "DELETE")                                                                   \
    X(HTTP_PATCH, "PATCH")                                                                     \
    X(HTTP_OPTIONS, "OPTIONS")                                                                 \
    X(HTTP_CONNECT, "CONNECT")                                                                 \
    X(HTTP_TRACE, "TRACE")

#define HTTP_METHOD_ENUM(method, name) method,
enum http_method { HTTP_METHOD_LIST(HTTP_METHOD_ENUM) };
#undef HTTP_METHOD_ENUM

/* field, name in small letters, how its slot is found: first letter, last letter. To add one: a
 * line here; if its slot is taken, the compiler says so (http.c, slots). */
#define HTTP_FIELD_LIST(X)                                                                     \
    X(HTTP_HOST, "host", 'h', 't')                                                             \
    X(HTTP_CONNECTION, "connection", 'c', 'n')                                                 \
    X(HTTP_CONTENT_LENGTH, "content-length", 'c', 'h')                                         \
    X(HTTP_TRANSFER_ENCODING, "transfer-encoding", 't', 'g')                                   \
    X(HTTP_EXPECT, "expect", 'e', 't')                                                         \
    X(HTTP_CONTENT_TYPE, "content-type", 'c', 'e')                                             \
    X(HTTP_CONTENT_ENCODING, "content-encoding", 'c', 'g')                                     \
    X(HTTP_ACCEPT, "accept", 'a', 't')                                                         \
    X(HTTP_AUTHORIZATION, "authorization", 'a', 'n')                                           \
    X(HTTP_PREFER, "prefer", 'p', 'r')                                                         \
    X(HTTP_UPGRADE, "upgrade", 'u', 'e')                                                       \
    X(HTTP_ORIGIN, "origin", 'o', 'n')                                                         \
    X(HTTP_IF_NONE_MATCH, "if-none-match", 'i', 'h')                                           \
    X(HTTP_IDEMPOTENCY_KEY, "idempotency-key", 'i', 'y')                                       \
    X(HTTP_REQUEST_ID, "x-request-id", 'x', 'd')                                               \
    X(HTTP_TRACEPARENT, "traceparent", 't', 't')                                               \
    X(HTTP_TRACESTATE, "tracestate", 't', 'e')                                                 \
    X(HTTP_ONCE_ENV, "once-env", 'o', 'v')

#define HTTP_FIELD_ENUM(field, name, first, last) field,
enum http_known { HTTP_FIELD_LIST(HTTP_FIELD_ENUM) HTTP_KNOWN_COUNT };
#undef HTTP_FIELD_ENUM

struct http_field {
    struct bytes name, value; /* the value without blanks around it */
};

enum http_form {
    HTTP_ORIGIN_FORM,    /* "/path?query" */
    HTTP_ABSOLUTE_FORM,  /* "http://host/path?query": its host counts, not the field */
    HTTP_AUTHORITY_FORM, /* "host:port", with CONNECT only */
    HTTP_ASTERISK_FORM,  /* "*", with OPTIONS only */
};

struct http_request {
    struct http_field *fields; /* the caller's: room for fields_max */
    size_t count;
    size_t used; /* bytes of the head */

    enum http_method method;
    struct bytes method_name, target;
    enum http_form form;
    struct bytes authority;   /* of the target or of Host; may be empty */
    struct bytes path, query; /* as they came; without the '?' */
    int minor;                /* of the version: 0 or 1 */
    bool keep_alive;
    bool expect_continue; /* the client waits for "100 Continue" before it sends the content */
    bool has_body;        /* content was announced, be it of length 0 */
    int64_t length;       /* of the content; -1: chunked, known at its end */

    uint32_t repeated;                /* bits of the known fields that came more than once */
    uint16_t known[HTTP_KNOWN_COUNT]; /* number of the first such field, from 1; 0: none */
};

enum http_progress {
    HTTP_MORE,  /* show me more */
    HTTP_DATA,  /* a piece of the content */
    HTTP_READY, /* the head, or the content, is complete */
    HTTP_BAD,   /* reader->fault says why; answer it and close */
};

struct http_reader {
    const struct http_limits *limits;
    enum http_fault fault;
    size_t at;      /* of the head: where the next line begins */
    uint32_t lines; /* of head or trailers that were read */
    uint8_t step;   /* of the content: which part comes next */
    int64_t left;   /* of the content or the chunk at hand */
    int64_t total;  /* of all chunks so far */
    size_t extra;   /* bytes of extensions and trailers so far */
};

void http_reader_init(struct http_reader *r, const struct http_limits *limits);

/* `in` starts where the head does. After HTTP_READY drop request->used bytes when they are not
 * looked at any more, and read the content, even if there is none. */
enum http_progress http_read_head(struct http_reader *r, struct bytes in,
                                  struct http_request *ret_request);

/* Takes `in` from where the last call stopped: drop *ret_used bytes after every call. HTTP_DATA:
 * *ret_data, never empty, is the next piece. HTTP_READY: there is no more; the reader is ready for
 * the next head. */
enum http_progress http_read_body(struct http_reader *r, struct bytes in,
                                  struct bytes *ret_data, size_t *ret_used);

/* The value of a field, of the first if there are several; NULL data: there is none. */
struct bytes http_known_field(const struct http_request *request, enum http_known field);
struct bytes http_field(const struct http_request *request, const char *name);

/* ---- parts of the target ---- */

/* The next segment of a path, still escaped: "/a/b%2Fc/" has "a", "b%2Fc" and "". */
bool http_next_segment(struct bytes *path, struct bytes *ret_segment);

/* Undoes %-escapes; `out` has room for in.len bytes. False: a malformed escape, or a NUL. */
bool http_unescape(struct bytes in, uint8_t *out, size_t *ret_len);

struct http_parameter {
    struct bytes name, value; /* still escaped */
};
/* The next "name=value" or "name" of a query; empty ones are skipped. */
bool http_next_parameter(struct bytes *query, struct http_parameter *ret_parameter);

/* The same as http_unescape(), and '+' is a blank: parts of a query. */
bool http_unescape_parameter(struct bytes in, uint8_t *out, size_t *ret_len);

/* "host", "host:port", "[address]:port"; empty is fine unless the port is required. */
bool http_authority_is_valid(struct bytes authority, bool port_required);

#endif
