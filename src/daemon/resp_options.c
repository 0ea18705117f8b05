/* resp_options.c - see resp_options.h. */
#include "daemon/resp_options.h"

#include "base/check.h"
#include "base/text.h"
#include "core/record.h"
#include "proto/number.h"

#include <strings.h>

bool resp_word_is(struct bytes word, const char *name)
{
    return word.len == strlen(name) &&
           strncasecmp((const char *)word.data, name, word.len) == 0;
}

int resp_take_ms(const struct resp_option *o, struct bytes text, void *at, struct err *reterr)
{
    int64_t ms;
    if (!duration_parse(text, DURATION_MS_MAX, &ms))
        return err_set(reterr, ERR_INVALID,
                       "%s wants milliseconds, or 500ms, 30s, 5m, 24h; ten years at most",
                       o->name);
    *(int64_t *)at = ms;
    return 0;
}

int resp_take_count(const struct resp_option *o, struct bytes text, void *at,
                    struct err *reterr)
{
    int64_t n;
    if (!number_parse(text, &n) || n < 1 || n > RESP_COUNT_MAX)
        return err_set(reterr, ERR_INVALID, "%s wants a number from 1 to %d", o->name,
                       RESP_COUNT_MAX);
    *(size_t *)at = (size_t)n;
    return 0;
}

int resp_take_bytes(const struct resp_option *o, struct bytes text, void *at,
                    struct err *reterr)
{
    (void)o, (void)reterr;
    *(struct bytes *)at = text;
    return 0;
}

int resp_take_token(const struct resp_option *o, struct bytes text, void *at,
                    struct err *reterr)
{
    static const struct token none;
    struct token *token = at;
    (void)o;
    if (hex_decode(text, token->bytes, sizeof token->bytes) && !token_eq(token, &none))
        return 0;
    return err_set(reterr, ERR_INVALID,
                   "a token is %zu hexadecimal digits, as it was given to its owner",
                   2 * sizeof token->bytes);
}

int resp_take_flag(const struct resp_option *o, struct bytes text, void *at, struct err *reterr)
{
    (void)o, (void)text, (void)reterr;
    *(bool *)at = true;
    return 0;
}

const struct resp_option *resp_option_find(const struct resp_option *options, struct bytes word)
{
    for (const struct resp_option *o = options; o->name; o++)
        if (resp_word_is(word, o->name)) return o;
    return NULL;
}

int resp_take_options(const struct resp_command *in, size_t from,
                      const struct resp_option *options, void *ret, struct err *reterr)
{
    unsigned seen = 0;
    for (size_t i = from; i < in->count; i++) {
        const struct resp_option *o = resp_option_find(options, in->args[i]);
        if (!o)
            return err_set(reterr, ERR_INVALID, "syntax error: there is no option '%.*s'",
                           (int)(in->args[i].len < 32 ? in->args[i].len : 32),
                           (const char *)in->args[i].data);
        unsigned bit = BIT(o - options);
        if (seen & bit && !o->many)
            return err_set(reterr, ERR_INVALID, "syntax error: %s was given twice", o->name);
        seen |= bit;
        if (o->take != resp_take_flag && ++i == in->count)
            return err_set(reterr, ERR_INVALID, "syntax error: %s wants a value", o->name);
        int r = o->take(o, in->args[i], (char *)ret + o->at, reterr);
        if (r) return r;
    }
    return 0;
}
