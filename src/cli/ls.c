/* ls.c - once ls: what the ledger holds, one record per line. */
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/now.h"

#include <string.h>

struct listing {
    const struct cli *cli;
    int64_t now_ms;
    size_t rows;
    int status;
};

static struct bytes view(struct once_bytes b)
{
    return bytes_of(b.data, b.len);
}

enum { SHOWN_DONE, SHOWN_PENDING, SHOWN_LAPSED };

static const struct {
    const char *name, *color;
} shown[] = {
    [SHOWN_DONE] = { "done", "\033[32m" },
    [SHOWN_PENDING] = { "pending", "\033[33m" },
    [SHOWN_LAPSED] = { "lapsed", "\033[31m" },
};

static int shown_as(const struct once_row *row)
{
    if (!row->pending) return SHOWN_DONE;
    return row->lease_left_ms > 0 ? SHOWN_PENDING : SHOWN_LAPSED;
}

static int print_row_json(const struct once_row *row)
{
    json_t *o =
        json_pack("{s:o, s:o, s:s, s:b, s:b}", "scope", json_bytes(view(row->scope)), "key",
                  json_bytes(view(row->key)), "state", row->pending ? "pending" : "done",
                  "lapsed", shown_as(row) == SHOWN_LAPSED, "has_value", row->has_value);
    if (!o) return print_json(stdout, NULL);
    json_object_set_new(o, "fence", json_integer((json_int_t)row->fence));
    json_object_set_new(o, "claimed_at_ms", json_integer(row->claimed_at_ms));
    if (row->pending) {
        json_object_set_new(o, "lease_left_ms", json_integer(row->lease_left_ms));
    } else {
        json_object_set_new(o, "done_at_ms", json_integer(row->done_at_ms));
        json_object_set_new(o, "retain_left_ms", json_integer(row->retain_left_ms));
    }
    json_object_set_new(o, "value_bytes", json_integer((json_int_t)row->value_bytes));
    return print_json(stdout, o);
}

static void print_row(const struct listing *l, const struct once_row *row)
{
    char age[DURATION_TEXT_BYTES], left[DURATION_TEXT_BYTES], size[SIZE_TEXT_BYTES];
    int as = shown_as(row);
    int64_t since_ms = row->pending ? row->claimed_at_ms : row->done_at_ms;
    format_duration(row->pending ? row->lease_left_ms : row->retain_left_ms, left);
    printf("%s%-7s%s  %6s  %-14s  %16llu  %6s  ", l->cli->color ? shown[as].color : "",
           shown[as].name, l->cli->color ? "\033[0m" : "",
           format_duration(l->now_ms - since_ms, age), as == SHOWN_LAPSED ? "lease over" : left,
           (unsigned long long)row->fence,
           row->has_value ? format_size(row->value_bytes, size) : "-");
    print_escaped(stdout, view(row->scope));
    fputs("  ", stdout);
    print_escaped(stdout, view(row->key));
    putchar('\n');
}

static int visit(void *ctx, const struct once_row *row)
{
    struct listing *l = ctx;
    if (l->cli->json) {
        l->status = print_row_json(row);
        return l->status;
    }
    if (l->rows++ == 0)
        printf("%-7s  %6s  %-14s  %16s  %6s  SCOPE  KEY\n", "STATE", "AGE", "LEASE/KEPT FOR",
               "FENCE", "SIZE");
    print_row(l, row);
    return ferror(stdout);
}

static int ls_run(struct cli *cli, const struct args *args)
{
    struct once_config config = ONCE_CONFIG_INIT;
    struct listing l = { .cli = cli, .now_ms = now_wall_ms() };
    struct once_error error;
    struct once *once;
    int status = cli_open(cli, &config, &once);
    if (status) return status;
    int r = once_list(once, once_str(args->operand_count ? args->operands[0] : ""), visit, &l,
                      &error);
    once_close(once);
    if (r < 0) return cli_fail(cli, r, error.text);
    if (l.rows == 0 && !cli->json) cli_note(cli, "no records");
    return l.status;
}

const struct command ls_command = {
    .name = "ls",
    .summary = "List what is claimed and what is done",
    .operands = "[SCOPE]",
    .operands_max = 1,
    .details =
        "One line per record: its state, its age, how long the lease still runs or the\n"
        "answer is still kept, its fence, the size of the answer. 'lapsed' is a claim\n"
        "whose owner is gone: the next caller takes it over. With --json: one object per\n"
        "line.\n",
    .run = ls_run,
};
