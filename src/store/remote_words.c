/* remote_words.c - a command for the RESP door, word by word. */
#include "store/remote.h"

#include "base/check.h"
#include "base/text.h"

#include <stdio.h>

void words_start(struct words *w)
{
    w->count = w->number_count = 0;
}

void words_add(struct words *w, struct bytes word)
{
    CHECK(w->count < WORDS_MAX);
    w->list[w->count++] = word;
}

void words_text(struct words *w, const char *word)
{
    words_add(w, bytes_str(word));
}

void words_number(struct words *w, uint64_t n)
{
    CHECK(w->number_count < WORDS_NUMBERS_MAX);
    char *text = w->numbers[w->number_count++];
    snprintf(text, sizeof w->numbers[0], "%llu", (unsigned long long)n);
    words_text(w, text);
}

void words_token(struct words *w, const struct token *t)
{
    hex_encode(bytes_of(t->bytes, sizeof t->bytes), w->token);
    words_text(w, w->token);
}

void words_ms(struct words *w, const char *name, int64_t ms)
{
    if (ms < 0) return;
    words_text(w, name);
    words_number(w, (uint64_t)ms);
}

bool words_write(struct buf *out, const struct words *w)
{
    size_t before = out->len;
    struct resp_writer writer = { .out = out, .version = 2 };
    resp_array(&writer, w->count);
    for (size_t i = 0; i < w->count; i++) resp_bulk(&writer, w->list[i]);
    if (!buf_failed(out)) return true;
    buf_clear(out);
    out->len = before;
    return false;
}
