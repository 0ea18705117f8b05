/* args.c - see args.h. */
#include "cli/args.h"

#include "base/text.h"

#include <stdio.h>

/* ---- the nearest word ---- */

enum { WORD_BYTES_MAX = 32, NEAR = 2 };

static size_t smallest(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Insertions, deletions and replacements between two short words. */
static size_t word_distance(const char *a, const char *b)
{
    size_t a_len = strlen(a), b_len = strlen(b);
    if (a_len > WORD_BYTES_MAX || b_len > WORD_BYTES_MAX) return SIZE_MAX;
    size_t row[WORD_BYTES_MAX + 1];
    for (size_t j = 0; j <= b_len; j++) row[j] = j;
    for (size_t i = 1; i <= a_len; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = smallest(row[j] + 1, row[j - 1] + 1, replaced);
        }
    }
    return row[b_len];
}

void nearest_init(struct nearest *n, const char *word)
{
    *n = (struct nearest){ .word = word, .distance = NEAR + 1 };
}

void nearest_try(struct nearest *n, const char *candidate)
{
    size_t distance = word_distance(n->word, candidate);
    if (distance >= n->distance || distance >= strlen(candidate)) return;
    n->best = candidate;
    n->distance = distance;
}

/* ---- values ---- */

static bool size_parse(const char *text, int64_t *ret_bytes)
{
    int64_t n = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++) {
        n = n * 10 + (*p - '0');
        if (n > INT32_MAX) return false;
    }
    if (p == text) return false;
    int64_t unit = *p == 'k' ? 1024 : *p == 'm' ? 1024 * 1024 : 1;
    if (unit > 1) p++;
    if (*p || n * unit > INT32_MAX) return false;
    *ret_bytes = n * unit;
    return true;
}

static bool count_parse(const char *text, int64_t *ret_count)
{
    int64_t n = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9' && n <= INT32_MAX; p++) n = n * 10 + (*p - '0');
    *ret_count = n;
    return p != text && !*p && n > 0 && n <= INT32_MAX;
}

static int choice_error(const struct option *o, const char *called, const char *text,
                        struct err *reterr)
{
    struct nearest n;
    char list[96] = "";
    nearest_init(&n, text);
    for (size_t i = 0; i < OPTION_CHOICES_MAX && o->choices[i]; i++) {
        nearest_try(&n, o->choices[i]);
        size_t at = strlen(list);
        snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", o->choices[i]);
    }
    if (n.best)
        return err_set(reterr, ERR_INVALID, "%s: '%.40s' is not one of %s; did you mean %s?",
                       called, text, list, n.best);
    return err_set(reterr, ERR_INVALID, "%s: '%.40s' is not one of %s", called, text, list);
}

static bool choice_is(const struct option *o, const char *text)
{
    for (size_t i = 0; i < OPTION_CHOICES_MAX && o->choices[i]; i++)
        if (strcmp(text, o->choices[i]) == 0) return true;
    return false;
}

static bool flag_parse(const char *text, int64_t *ret_set)
{
    *ret_set = strcmp(text, "true") == 0;
    return *ret_set || strcmp(text, "false") == 0;
}

int option_parse(const struct option *o, const char *called, const char *text,
                 enum origin origin, struct option_value *ret_value, struct err *reterr)
{
    struct option_value v = { .given = origin > ORIGIN_DEFAULT,
                              .origin = origin,
                              .text = text };
    switch (o->kind) {
    case OPTION_FLAG:
        if (!flag_parse(text, &v.number))
            return err_set(reterr, ERR_INVALID, "%s: '%.40s' is neither true nor false", called,
                           text);
        v.given = v.number;
        break;
    case OPTION_TEXT:
    case OPTION_DIR:
        break;
    case OPTION_DURATION:
        if (!duration_parse(bytes_str(text), ARGS_DURATION_MS_MAX, &v.number))
            return err_set(reterr, ERR_INVALID,
                           "%s: '%.40s' is not a duration; write 500ms, 30s, 5m, 24h or 30d "
                           "(a bare number is milliseconds, ten years are the most)",
                           called, text);
        break;
    case OPTION_SIZE:
        if (!size_parse(text, &v.number))
            return err_set(reterr, ERR_INVALID,
                           "%s: '%.40s' is not a size; write bytes, or 64k, or 4m", called,
                           text);
        break;
    case OPTION_COUNT:
        if (!count_parse(text, &v.number))
            return err_set(reterr, ERR_INVALID, "%s: '%.40s' is not a number of at least 1",
                           called, text);
        break;
    case OPTION_CHOICE:
        if (!choice_is(o, text)) return choice_error(o, called, text, reterr);
        break;
    case OPTION_LIST:
        if (ret_value->count == OPTION_TEXTS_MAX)
            return err_set(reterr, ERR_INVALID, "%s was given more than %d times", called,
                           OPTION_TEXTS_MAX);
        memcpy(v.texts, ret_value->texts, sizeof v.texts);
        v.count = ret_value->count;
        v.texts[v.count++] = text;
        break;
    }
    *ret_value = v;
    return 0;
}

/* ---- options ---- */

struct parser {
    char **argv;
    size_t argc, at;
    const struct option_table *tables;
    size_t table_count;
    struct err *reterr;
};

/* The row that matches by name (of name_len bytes) or by letter, and where its value goes. */
static const struct option *find(const struct parser *p, const char *name, size_t name_len,
                                 char letter, struct option_value **ret_value)
{
    for (size_t t = 0; t < p->table_count; t++) {
        const struct option *rows = p->tables[t].rows;
        for (size_t i = 0; rows && rows[i].name; i++) {
            bool same = name ? strlen(rows[i].name) == name_len &&
                                   memcmp(rows[i].name, name, name_len) == 0
                             : rows[i].letter == letter;
            if (!same) continue;
            *ret_value = &p->tables[t].values[i];
            return &rows[i];
        }
    }
    return NULL;
}

static int unknown(const struct parser *p, const char *name, size_t name_len)
{
    char word[WORD_BYTES_MAX + 1];
    snprintf(word, sizeof word, "%.*s",
             (int)(name_len < WORD_BYTES_MAX ? name_len : WORD_BYTES_MAX), name);
    struct nearest n;
    nearest_init(&n, word);
    for (size_t t = 0; t < p->table_count; t++)
        for (size_t i = 0; p->tables[t].rows && p->tables[t].rows[i].name; i++)
            nearest_try(&n, p->tables[t].rows[i].name);
    if (n.best)
        return err_set(p->reterr, ERR_INVALID, "unknown option --%s; did you mean --%s?", word,
                       n.best);
    return err_set(p->reterr, ERR_INVALID, "unknown option --%s", word);
}

/* `attached` is what followed the option in the same word, or NULL. */
static int take(struct parser *p, const struct option *o, const char *attached,
                struct option_value *value)
{
    char called[WORD_BYTES_MAX];
    snprintf(called, sizeof called, "--%s", o->name);
    if (o->kind == OPTION_FLAG) attached = "true";
    if (!attached && p->at == p->argc)
        return err_set(p->reterr, ERR_INVALID, "%s needs a value (%s)", called, o->value);
    return option_parse(o, called, attached ? attached : p->argv[p->at++], ORIGIN_FLAG, value,
                        p->reterr);
}

static int take_long(struct parser *p, const char *word)
{
    const char *equals = strchr(word, '=');
    size_t len = equals ? (size_t)(equals - word) : strlen(word);
    struct option_value *value;
    const struct option *o = find(p, word, len, 0, &value);
    if (!o) return unknown(p, word, len);
    if (equals && o->kind == OPTION_FLAG)
        return err_set(p->reterr, ERR_INVALID, "--%s takes no value", o->name);
    return take(p, o, equals ? equals + 1 : NULL, value);
}

/* "-qv", "-k KEY", "-kKEY" */
static int take_letters(struct parser *p, const char *letters)
{
    for (; *letters; letters++) {
        struct option_value *value;
        const struct option *o = find(p, NULL, 0, *letters, &value);
        if (!o) return err_set(p->reterr, ERR_INVALID, "unknown option -%c", *letters);
        if (o->kind != OPTION_FLAG) return take(p, o, letters[1] ? letters + 1 : NULL, value);
        int r = take(p, o, NULL, value);
        if (r) return r;
    }
    return 0;
}

static int defaults(const struct option_table *table, struct err *reterr)
{
    for (size_t i = 0; table->rows && table->rows[i].name; i++) {
        if (table->values[i].given || !table->rows[i].fallback) continue;
        int r = option_parse(&table->rows[i], table->rows[i].name, table->rows[i].fallback,
                             ORIGIN_DEFAULT, &table->values[i], reterr);
        if (r < 0) return r;
    }
    return 0;
}

int args_parse(char **argv, size_t argc, enum args_style style,
               const struct option_table *tables, size_t table_count, char ***ret_operands,
               size_t *ret_operand_count, struct err *reterr)
{
    struct parser p = { .argv = argv,
                        .argc = argc,
                        .tables = tables,
                        .table_count = table_count,
                        .reterr = reterr };
    size_t operands = 0;
    bool over = false;
    while (p.at < argc) {
        char *word = argv[p.at++];
        if (over || word[0] != '-' || !word[1]) {
            over = over || style == ARGS_LEADING;
            argv[operands++] = word;
            continue;
        }
        if (strcmp(word, "--") == 0) {
            over = true;
            continue;
        }
        int r = word[1] == '-' ? take_long(&p, word + 2) : take_letters(&p, word + 1);
        if (r < 0) return r;
    }
    for (size_t t = 0; t < table_count; t++) {
        int r = defaults(&tables[t], reterr);
        if (r < 0) return r;
    }
    argv[operands] = NULL;
    *ret_operands = argv;
    *ret_operand_count = operands;
    return 0;
}

int args_required(const struct option *rows, const struct option_value *values,
                  struct err *reterr)
{
    for (size_t i = 0; rows && rows[i].name; i++)
        if (rows[i].required && !values[i].given)
            return err_set(reterr, ERR_INVALID, "--%s %s is required", rows[i].name,
                           rows[i].value);
    return 0;
}
