/* err.c - the error table and the one function that fills an error in. */
#include "base/err.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

static const struct {
    int code;
    const char *name;
    bool retryable;
    const char *text;
} errors[] = {
#define ERR_ROW(code, value, name, retryable, text) { value, name, retryable, text },
    ERR_LIST(ERR_ROW)
#undef ERR_ROW
};

int err_set(struct err *reterr, int code, const char *fmt, ...)
{
    reterr->code = code;
    va_list args;
    va_start(args, fmt);
    vsnprintf(reterr->text, sizeof reterr->text, fmt, args);
    va_end(args);
    return code;
}

static size_t err_row(int code)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code) return i;
    return 0;
}

const char *err_name(int code)
{
    return code == 0 ? "ok" : errors[err_row(code)].name;
}

const char *err_text(int code)
{
    return code == 0 ? "no error" : errors[err_row(code)].text;
}

bool err_retryable(int code)
{
    return code != 0 && errors[err_row(code)].retryable;
}
