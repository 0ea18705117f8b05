/* config.c - any text is settings or an error that names its line; what was taken is what the line
 * said, and stands there once. */
#include "cli/settings.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

enum { ROW_ADDRESS, ROW_DRAIN, ROW_FORMAT, ROW_SIZE, ROW_OPEN, ROW_HIDDEN, ROWS };

static const struct option rows[] = {
    [ROW_ADDRESS] = { "listen", .kind = OPTION_TEXT, .setting = true, .fallback = "here" },
    [ROW_DRAIN] = { "drain", .kind = OPTION_DURATION, .setting = true },
    [ROW_FORMAT] = { "log-format", .kind = OPTION_CHOICE, .setting = true,
                     .choices = { "logfmt", "json" } },
    [ROW_SIZE] = { "value-max", .kind = OPTION_SIZE, .setting = true },
    [ROW_OPEN] = { "insecure", .kind = OPTION_FLAG, .setting = true },
    [ROW_HIDDEN] = { "config", .kind = OPTION_TEXT },
    [ROWS] = { 0 },
};

static unsigned line_of(const uint8_t *data, size_t offset)
{
    unsigned line = 1;
    for (size_t i = 0; i < offset; i++) line += data[i] == '\n';
    return line;
}

/* Where the value points, its own text stands in the input, on the line that it names. */
static void check_taken(const struct option_value *v, const char *text, const uint8_t *data,
                        size_t size)
{
    if (v->origin != ORIGIN_FILE) return;
    size_t offset = (size_t)(v->text - text), len = strlen(v->text);
    CHECK(v->text >= text && offset + len <= size && len > 0);
    CHECK(memcmp(v->text, data + offset, len) == 0);
    CHECK(v->line == line_of(data, offset));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct option_value values[OPTIONS_MAX] = { 0 };
    const struct option_table table = { rows, values };
    struct err err = { 0 };
    char *text = malloc(size + 1); /* so small that one byte too many is seen */
    CHECK(text);
    memcpy(text, data, size);
    int r = settings_from_text("f", text, size, &table, 1, &err);
    if (r) CHECK(err.code == r && strncmp(err.text, "f:", 2) == 0);
    for (int i = 0; i < ROWS; i++) check_taken(&values[i], text, data, size);
    CHECK(values[ROW_HIDDEN].origin == ORIGIN_DEFAULT);
    if (values[ROW_DRAIN].given) CHECK(values[ROW_DRAIN].number >= 0);
    free(text);
    return 0;
}
