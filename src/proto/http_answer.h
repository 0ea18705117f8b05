/* http_answer.h - HTTP/1.1 as a server speaks it: answers to bytes.
 *
 * Guarantees: an answer is framed so that the next one cannot be mistaken (a length or chunks; a
 * closing connection where the client knows neither); no content where there must be none (HEAD,
 * 1xx, 204, 304); a name or value that could end a line is refused, not written. What does not fit
 * or was refused is remembered by the buffer: see buf_failed(). Time is handed in. */
#ifndef PROTO_HTTP_ANSWER_H
#define PROTO_HTTP_ANSWER_H

#include "base/buf.h"

struct http_answer {
    int status;
    int minor;         /* of the request's version */
    bool keep_alive;   /* false: say that the connection will be closed */
    bool head;         /* the request was HEAD: say everything, send no content */
    struct bytes date; /* as http_write_date() writes it; empty: none */
};

struct http_writer {
    struct buf *out;
    struct http_answer answer;
    bool chunked;
};

/* First the start, then fields, then either the content or chunks. */
void http_start(struct http_writer *w, struct buf *out, const struct http_answer *answer);
void http_put(struct http_writer *w, const char *name, struct bytes value);
void http_put_text(struct http_writer *w, const char *name, const char *value);
void http_put_number(struct http_writer *w, const char *name, int64_t value);
void http_finish(struct http_writer *w, struct bytes content);

/* Content whose length is not known yet. A client of HTTP/1.0 gets it as it is, and the end of
 * the connection ends it: w->answer.keep_alive says so afterwards. */
void http_start_chunks(struct http_writer *w);
void http_chunk(struct http_writer *w, struct bytes content); /* an empty one is left out */
void http_finish_chunks(struct http_writer *w);

void http_continue(struct buf *out); /* "100 Continue" */

const char *http_reason(int status); /* "Not Found"; "" if we do not know it */

enum { HTTP_DATE_BYTES = 29 };
/* "Sun, 06 Nov 1994 08:49:37 GMT" and a NUL. */
void http_write_date(int64_t unix_ms, char *out);

#endif
