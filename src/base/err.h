/* err.h - what went wrong, as a code a program can act on and a sentence a person can.
 *
 * An error means "no answer". ERR_AMBIGUOUS is the only one after which something may have
 * happened; every other one promises that nothing did. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

/* code, value, name, retryable, text. The public ONCE_E... constants carry the same values
 * (checked in lib/api.c). To add one: add a line here and one in once.h. */
#define ERR_LIST(X)                                                                            \
    X(ERR_INVALID, -1, "invalid", false, "the request is not valid")                           \
    X(ERR_LIMIT, -2, "limit", false, "a limit would be exceeded")                              \
    X(ERR_NOMEM, -3, "out_of_memory", true, "out of memory; nothing was changed")              \
    X(ERR_UNAVAILABLE, -4, "unavailable", true, "a plane cannot be reached; nothing was done") \
    X(ERR_AMBIGUOUS, -5, "ambiguous", true, "no answer; the change may have been made")        \
    X(ERR_CORRUPT, -6, "corrupt", false, "stored data does not make sense")                    \
    X(ERR_VERSION, -7, "version", false, "the store was written by a newer version")           \
    X(ERR_CANCELED, -8, "canceled", true, "the call was canceled")                             \
    X(ERR_UNSUPPORTED, -9, "unsupported", false, "this store cannot do that")

#define ERR_ENUM(code, value, name, retryable, text) code = value,
enum err_code { ERR_LIST(ERR_ENUM) };
#undef ERR_ENUM

struct err {
    int code; /* 0: no error */
    char text[188];
};

/* Sets code and text; returns the code, so that `return err_set(reterr, ...)` reads well. */
int err_set(struct err *reterr, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

const char *err_name(int code);
const char *err_text(int code);
_Bool err_retryable(int code);

#endif
