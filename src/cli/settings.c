/* settings.c - see settings.h. The file is lines of "name = value"; what begins with # is a comment.
 * There is no quoting: a value is what stands between the = and the end of the line. */
#include "cli/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void setting_variable(const struct option *o, char out[SETTING_NAME_BYTES])
{
    int len = snprintf(out, SETTING_NAME_BYTES, "ONCE_%s", o->name);
    for (int i = 0; i < len && i < SETTING_NAME_BYTES - 1; i++) {
        if (out[i] == '-') out[i] = '_';
        if (out[i] >= 'a' && out[i] <= 'z') out[i] = (char)(out[i] - 'a' + 'A');
    }
}

/* An empty variable counts as unset, as NO_COLOR and XDG have it. */
static int take_variable(const struct option *o, struct option_value *value, struct err *reterr)
{
    char name[SETTING_NAME_BYTES];
    setting_variable(o, name);
    const char *text = getenv(name);
    if (!text || !*text) return 0;
    return option_parse(o, name, text, ORIGIN_ENVIRONMENT, value, reterr);
}

int settings_from_environment(const struct option_table *tables, size_t table_count,
                              struct err *reterr)
{
    for (size_t t = 0; t < table_count; t++) {
        const struct option *rows = tables[t].rows;
        for (size_t i = 0; rows && rows[i].name; i++) {
            struct option_value *value = &tables[t].values[i];
            if (!rows[i].setting || value->origin == ORIGIN_FLAG) continue;
            int r = take_variable(&rows[i], value, reterr);
            if (r) return r;
        }
    }
    return 0;
}

/* ---- the file ---- */

struct file {
    const char *path;
    unsigned line;
    const struct option_table *tables;
    size_t table_count;
    unsigned seen[2][OPTIONS_MAX]; /* line where it stands; 0: nowhere */
    struct err *reterr;
};

static int unknown_name(const struct file *f, const char *name)
{
    struct nearest n;
    nearest_init(&n, name);
    for (size_t t = 0; t < f->table_count; t++) {
        const struct option *rows = f->tables[t].rows;
        for (size_t i = 0; rows && rows[i].name; i++)
            if (rows[i].setting) nearest_try(&n, rows[i].name);
    }
    return err_set(f->reterr, ERR_INVALID, "%s:%u: there is no setting '%.32s'%s%s%s", f->path,
                   f->line, name, n.best ? "; did you mean '" : "", n.best ? n.best : "",
                   n.best ? "'?" : "");
}

static int take_setting(struct file *f, const char *name, const char *text)
{
    for (size_t t = 0; t < f->table_count; t++) {
        const struct option *rows = f->tables[t].rows;
        for (size_t i = 0; rows && rows[i].name; i++) {
            if (!rows[i].setting || strcmp(rows[i].name, name) != 0) continue;
            if (f->seen[t][i])
                return err_set(f->reterr, ERR_INVALID, "%s:%u: '%s' stands in line %u already",
                               f->path, f->line, name, f->seen[t][i]);
            f->seen[t][i] = f->line;
            char called[160];
            snprintf(called, sizeof called, "%.100s:%u: %s", f->path, f->line, name);
            struct option_value value;
            int r = option_parse(&rows[i], called, text, ORIGIN_FILE, &value, f->reterr);
            value.line = f->line;
            if (!r && f->tables[t].values[i].origin <= ORIGIN_FILE)
                f->tables[t].values[i] = value;
            return r;
        }
    }
    return unknown_name(f, name);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Without the blanks around it; ends it where they begin. */
static char *trim(char *from, char *to)
{
    while (from < to && is_blank(*from)) from++;
    while (to > from && is_blank(to[-1])) to--;
    *to = '\0';
    return from;
}

static int take_line(struct file *f, char *line, char *end)
{
    line = trim(line, end);
    if (!*line || *line == '#') return 0;
    char *equals = strchr(line, '=');
    if (!equals)
        return err_set(f->reterr, ERR_INVALID, "%s:%u: expected 'name = value'", f->path,
                       f->line);
    char *value = trim(equals + 1, line + strlen(line));
    const char *name = trim(line, equals);
    if (!*value)
        return err_set(f->reterr, ERR_INVALID,
                       "%s:%u: '%.32s' has no value; leave the line out for the default",
                       f->path, f->line, name);
    return take_setting(f, name, value);
}

int settings_from_text(const char *path, char *text, size_t len,
                       const struct option_table *tables, size_t table_count,
                       struct err *reterr)
{
    struct file f = {
        .path = path, .tables = tables, .table_count = table_count, .reterr = reterr
    };
    if (memchr(text, '\0', len))
        return err_set(reterr, ERR_INVALID, "%s: this is not text", path);
    for (char *at = text, *end = text + len; at < end;) {
        char *newline = memchr(at, '\n', (size_t)(end - at));
        char *stop = newline ? newline : end;
        f.line++;
        int r = take_line(&f, at, stop);
        if (r) return r;
        at = stop + 1;
    }
    return 0;
}

/* Bytes read, at most `size`; negative: errno. */
static ssize_t read_whole(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    size_t len = 0;
    ssize_t n;
    while ((n = read(fd, text + len, size - len)) > 0) len += (size_t)n;
    int failed = errno;
    close(fd);
    return n < 0 ? -failed : (ssize_t)len;
}

int settings_from_file(const char *path, const struct option_table *tables, size_t table_count,
                       char **ret_text, struct err *reterr)
{
    char *text = malloc(SETTINGS_FILE_BYTES_MAX + 1); /* one more, for the last NUL */
    int r = 0;
    if (!text) return err_set(reterr, ERR_NOMEM, "out of memory");
    ssize_t len = read_whole(path, text, SETTINGS_FILE_BYTES_MAX);
    if (len < 0)
        r = err_set(reterr, ERR_INVALID, "cannot read %.120s: %s", path, strerror((int)-len));
    else if (len == SETTINGS_FILE_BYTES_MAX)
        r = err_set(reterr, ERR_INVALID, "%.120s has more than %d bytes", path,
                    SETTINGS_FILE_BYTES_MAX - 1);
    else
        r = settings_from_text(path, text, (size_t)len, tables, table_count, reterr);
    if (r) {
        free(text);
        return r;
    }
    *ret_text = text;
    return 0;
}
