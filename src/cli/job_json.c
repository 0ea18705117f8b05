/* job_json.c - how a command ended, as JSON; see job.h. */
#include "cli/format.h"
#include "cli/job.h"

#include <stdlib.h>
#include <string.h>

static bool is_space(uint8_t c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static struct bytes trimmed(struct bytes text)
{
    while (text.len && is_space(text.data[text.len - 1])) text.len--;
    while (text.len && is_space(text.data[0])) text = bytes_of(text.data + 1, text.len - 1);
    return text;
}

/* Numbers are only looked at, never written again: large ones are fine. */
static bool is_json(struct bytes text)
{
    const size_t flags =
        JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL;
    json_t *value = json_loadb((const char *)text.data, text.len, flags, NULL);
    json_decref(value);
    return value != NULL;
}

static char *dump(json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    json_decref(value);
    return text;
}

char *job_output_json(struct bytes output)
{
    struct bytes text = trimmed(output);
    if (text.len && is_json(text)) return strndup((const char *)text.data, text.len);
    return dump(json_bytes(output));
}

/* The end of a text may begin in the middle of a character. */
static struct bytes from_character(struct bytes text)
{
    for (int i = 0; i < 3 && text.len && (text.data[0] & 0xc0) == 0x80; i++)
        text = bytes_of(text.data + 1, text.len - 1);
    return text;
}

char *job_error_json(int exit_status, struct bytes last_words)
{
    json_t *words = json_bytes(from_character(last_words));
    if (!words) return NULL;
    return dump(json_pack("{s:i, s:o}", "exit", exit_status, "stderr", words));
}
