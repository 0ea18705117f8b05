/* args_test.c - command lines as people type them. */
#include "cli/args.h"

#include <criterion/criterion.h>
#include <stdio.h>

enum { T_KEY, T_LEASE, T_SIZE, T_MODE, T_MARK, T_LIST, T_COUNT, T_END };

static const struct option rows[] = {
    [T_KEY] = { "key", 'k', OPTION_TEXT, .required = true, .value = "KEY", .help = "" },
    [T_LEASE] = { "lease", 'l', OPTION_DURATION, .value = "D", .fallback = "30s", .help = "" },
    [T_SIZE] = { "size", .kind = OPTION_SIZE, .value = "SIZE", .help = "" },
    [T_MODE] = { "mode", .kind = OPTION_CHOICE, .value = "M",
                 .choices = { "store", "release" } },
    [T_MARK] = { "mark", 'm', OPTION_FLAG, .help = "" },
    [T_LIST] = { "list", .kind = OPTION_LIST, .value = "L", .fallback = "all", .help = "" },
    [T_COUNT] = { "count", .kind = OPTION_COUNT, .value = "N", .help = "" },
    [T_END] = { 0 },
};

struct parsed {
    struct option_value values[OPTIONS_MAX];
    char *argv[40];
    char **operands;
    size_t count;
    struct err err;
    int result;
};

/* Words are separated by one space. */
static struct parsed *parse(enum args_style style, const char *line)
{
    static struct parsed p;
    static char text[256];
    p = (struct parsed){ 0 };
    snprintf(text, sizeof text, "%s", line);
    size_t argc = 0;
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) p.argv[argc++] = word;
    const struct option_table table = { rows, p.values };
    p.result = args_parse(p.argv, argc, style, &table, 1, &p.operands, &p.count, &p.err);
    return &p;
}

static struct parsed *refuse(const char *line, const char *because)
{
    struct parsed *p = parse(ARGS_MIXED, line);
    cr_assert_eq(p->result, ERR_INVALID, "'%s' was taken", line);
    cr_assert(strstr(p->err.text, because), "'%s' says: %s", line, p->err.text);
    return p;
}

Test(args, every_way_to_give_a_value)
{
    const char *lines[] = {
        "--key a --mark", "--key=a -m", "-k a -m", "-ka -m", "-mk a", "-mka"
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct parsed *p = parse(ARGS_MIXED, lines[i]);
        cr_assert_eq(p->result, 0);
        cr_assert_str_eq(p->values[T_KEY].text, "a");
        cr_assert(p->values[T_MARK].given);
        cr_assert_eq(p->count, 0);
    }
}

Test(args, values_may_look_like_options_or_be_empty)
{
    struct parsed *p = parse(ARGS_MIXED, "--key --mark");
    cr_assert_str_eq(p->values[T_KEY].text, "--mark");
    cr_assert_not(p->values[T_MARK].given);
    p = parse(ARGS_MIXED, "--key=");
    cr_assert_str_eq(p->values[T_KEY].text, "");
    cr_assert(p->values[T_KEY].given);
}

Test(args, a_list_is_given_one_by_one)
{
    struct parsed *p = parse(ARGS_MIXED, "--list a -m --list=b");
    cr_assert_eq(p->values[T_LIST].count, 2);
    cr_assert_str_eq(p->values[T_LIST].texts[0], "a");
    cr_assert_str_eq(p->values[T_LIST].texts[1], "b");
    p = parse(ARGS_MIXED, "");
    cr_assert_eq(p->values[T_LIST].count, 1);
    cr_assert_str_eq(p->values[T_LIST].texts[0], "all");
    char line[256] = "";
    for (int i = 0; i < OPTION_TEXTS_MAX; i++) strcat(line, "--list a ");
    cr_assert_eq(parse(ARGS_MIXED, line)->result, 0);
    strcat(line, "--list a");
    refuse(line, "more than 16 times");
}

Test(args, defaults_go_through_the_same_parser)
{
    struct parsed *p = parse(ARGS_MIXED, "");
    cr_assert_eq(p->values[T_LEASE].number, 30000);
    cr_assert_not(p->values[T_LEASE].given);
    cr_assert_null(p->values[T_MODE].text);
}

Test(args, operands_stand_anywhere_when_mixed)
{
    struct parsed *p = parse(ARGS_MIXED, "one --mark two - --lease 5m -- --key -x");
    cr_assert_eq(p->result, 0);
    cr_assert_eq(p->count, 5);
    const char *want[] = { "one", "two", "-", "--key", "-x" };
    for (size_t i = 0; i < 5; i++) cr_assert_str_eq(p->operands[i], want[i]);
    cr_assert_eq(p->values[T_LEASE].number, 300000);
    cr_assert_not(p->values[T_KEY].given);
}

Test(args, the_first_operand_ends_leading_options)
{
    struct parsed *p = parse(ARGS_LEADING, "--mark ls -l -- --key x");
    cr_assert_eq(p->count, 5);
    cr_assert_str_eq(p->operands[1], "-l");
    cr_assert_str_eq(p->operands[2], "--");
    cr_assert_null(p->operands[5], "what exec gets must end");
    cr_assert_not(p->values[T_KEY].given);
}

Test(args, sizes_and_durations)
{
    cr_assert_eq(parse(ARGS_MIXED, "--size 64k")->values[T_SIZE].number, 65536);
    cr_assert_eq(parse(ARGS_MIXED, "--size 1m")->values[T_SIZE].number, 1048576);
    cr_assert_eq(parse(ARGS_MIXED, "--size 0")->values[T_SIZE].number, 0);
    cr_assert_eq(parse(ARGS_MIXED, "--lease 0")->values[T_LEASE].number, 0);
    refuse("--size 4g", "not a size");
    refuse("--size k", "not a size");
    refuse("--size 9999999m", "not a size");
    refuse("--lease soon", "not a duration");
    refuse("--lease -5s", "not a duration");
    refuse("--lease 99999999d", "not a duration");
}

Test(args, mistakes_get_a_suggestion)
{
    refuse("--lese 5s", "did you mean --lease?");
    refuse("--mrk", "did you mean --mark?");
    refuse("--mode stor", "did you mean store?");
    refuse("--mode sideways", "not one of store, release");
    refuse("--frobnicate", "unknown option --frobnicate");
    refuse("-z", "unknown option -z");
    refuse("--mark=yes", "takes no value");
    refuse("--key", "needs a value");
}

Test(args, required_options)
{
    struct parsed *p = parse(ARGS_MIXED, "--mark");
    cr_assert_eq(args_required(rows, p->values, &p->err), ERR_INVALID);
    cr_assert_str_eq(p->err.text, "--key KEY is required");
    p = parse(ARGS_MIXED, "-k x");
    cr_assert_eq(args_required(rows, p->values, &p->err), 0);
}

Test(args, counts_are_whole_and_at_least_one)
{
    struct parsed *p = parse(ARGS_MIXED, "--count 2147483647");
    cr_assert_eq(p->result, 0);
    cr_assert_eq(p->values[T_COUNT].number, INT32_MAX);
    refuse("--count 0", "not a number of at least 1");
    refuse("--count 2147483648", "not a number");
    refuse("--count 99999999999999999999999999", "not a number");
    refuse("--count -1", "not a number");
    refuse("--count 1k", "not a number");
}
