/* resp.h - RESP2 and RESP3 as a server speaks them: bytes to commands, values to bytes.
 *
 * The reader takes what clients send: arrays of bulk strings, or a line of words as typed by a
 * person, with the quotes of redis-cli. It copies nothing: arguments are views into the caller's
 * buffer, which is shown from the start of the command again when more has come; what was looked
 * at is not looked at again. However the input is cut, the commands and errors are the same.
 * Limits are checked as soon as a length is announced, not when the bytes are there. A reader is
 * a few words of memory, so that ten thousand idle connections can have one each; the array for
 * the arguments is only used during a call and can be shared by all of them. */
#ifndef PROTO_RESP_H
#define PROTO_RESP_H

#include "base/buf.h"
#include "base/err.h"

struct resp_limits {
    size_t args_max;          /* of one command */
    size_t bulk_bytes_max;    /* of one argument */
    size_t inline_bytes_max;  /* of a line typed by a person */
    size_t command_bytes_max; /* of a command with all its framing */
};

enum resp_progress {
    RESP_MORE,  /* show me more */
    RESP_READY, /* the command is complete */
    RESP_BAD,   /* answer the error and close: where the next command begins is not known */
};

struct resp_reader {
    const struct resp_limits *limits; /* may be exchanged between commands, as after AUTH */
    size_t need; /* after RESP_MORE: not before so many bytes are there, from the start */
    size_t at;   /* what is in front of this was looked at */
    size_t left; /* arguments that are not seen yet */
    bool begun;  /* an array of so many arguments */
};

struct resp_command {
    struct bytes *args; /* the caller's: room for args_max */
    size_t count;       /* 0: nothing to do, as for an empty line */
    size_t used;        /* bytes of the input that it took */
};

void resp_reader_init(struct resp_reader *r, const struct resp_limits *limits);

/* `in` starts where the command does. Words in quotes are undone in place, in the bytes of a
 * complete command only. After RESP_READY the reader is ready for the next one. Error texts are
 * as Redis words them, without the "ERR". */
enum resp_progress resp_read(struct resp_reader *r, uint8_t *in, size_t len,
                             struct resp_command *ret_command, struct err *reterr);

/* ---- answers ---- */

/* RESP3 has nulls, booleans, doubles, maps and pushes; for RESP2 they are spelled out as Redis
 * does. What does not fit is remembered by the buffer: see buf_failed(). */
struct resp_writer {
    struct buf *out;
    int version; /* 2 or 3 */
};

void resp_simple(struct resp_writer *w, const char *text);
/* "CODE text"; line ends in the text become blanks. */
void resp_error(struct resp_writer *w, const char *code, struct bytes text);
void resp_integer(struct resp_writer *w, int64_t n);
void resp_bulk(struct resp_writer *w, struct bytes content);
void resp_text(struct resp_writer *w, const char *text); /* a bulk string */
void resp_null(struct resp_writer *w);
void resp_null_array(struct resp_writer *w); /* RESP2 tells it from a null */
void resp_boolean(struct resp_writer *w, bool yes);
void resp_double(struct resp_writer *w, double d);
void resp_array(struct resp_writer *w, size_t count); /* its elements follow */
void resp_map(struct resp_writer *w, size_t pairs);   /* key, value, key, ... follow */
void resp_push(struct resp_writer *w, size_t count);  /* out of turn; its elements follow */

#endif
