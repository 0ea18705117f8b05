/* settings_test.c - the same setting said in several places, and files as people write them. */
#include "cli/settings.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

enum { T_CERT, T_DRAIN, T_OPEN, T_CONFIG, T_END };

static const struct option rows[] = {
    [T_CERT] = { "tls-cert", .kind = OPTION_TEXT, .setting = true, .value = "FILE" },
    [T_DRAIN] = { "drain", .kind = OPTION_DURATION, .setting = true, .fallback = "5s" },
    [T_OPEN] = { "insecure", .kind = OPTION_FLAG, .setting = true },
    [T_CONFIG] = { "config", .kind = OPTION_TEXT },
    [T_END] = { 0 },
};

static struct option_value values[OPTIONS_MAX];
static const struct option_table table = { rows, values };
static char text[512];
static struct err err;

static int read_text(const char *content)
{
    snprintf(text, sizeof text, "%s", content);
    return settings_from_text("once.conf", text, strlen(text), &table, 1, &err);
}

static void refused(const char *content, const char *because)
{
    cr_assert_eq(read_text(content), ERR_INVALID, "'%s' was taken", content);
    cr_assert(strstr(err.text, because), "'%s' says: %s", content, err.text);
}

/* As `once` does it: the command line, the environment, the file. */
static void settle(char **argv, size_t argc, const char *content)
{
    char **operands;
    size_t count;
    memset(values, 0, sizeof values);
    cr_assert_eq(args_parse(argv, argc, ARGS_MIXED, &table, 1, &operands, &count, &err), 0);
    cr_assert_eq(settings_from_environment(&table, 1, &err), 0, "%s", err.text);
    cr_assert_eq(read_text(content), 0, "%s", err.text);
}

Test(settings, the_stronger_place_wins)
{
    char *flag[] = { (char *)"--drain=1s", NULL }, *none[] = { NULL };
    setenv("ONCE_DRAIN", "2s", 1);
    settle(flag, 1, "drain = 3s\n");
    cr_assert_eq(values[T_DRAIN].number, 1000);
    cr_assert_eq(values[T_DRAIN].origin, ORIGIN_FLAG);
    settle(none, 0, "drain = 3s\n");
    cr_assert_eq(values[T_DRAIN].number, 2000);
    cr_assert_eq(values[T_DRAIN].origin, ORIGIN_ENVIRONMENT);
    setenv("ONCE_DRAIN", "", 1);
    settle(none, 0, "# first\ndrain = 3s\n");
    cr_assert_eq(values[T_DRAIN].number, 3000);
    cr_assert_eq(values[T_DRAIN].origin, ORIGIN_FILE);
    cr_assert_eq(values[T_DRAIN].line, 2);
    settle(none, 0, "");
    cr_assert_eq(values[T_DRAIN].number, 5000);
    cr_assert_eq(values[T_DRAIN].origin, ORIGIN_DEFAULT);
    cr_assert_not(values[T_DRAIN].given);
}

Test(settings, a_line_is_a_name_and_the_rest)
{
    char *none[] = { NULL };
    settle(none, 0, "\n  # tls-cert = no\n\ttls-cert\t=  a b = c # d  \r\ninsecure=true");
    cr_assert_str_eq(values[T_CERT].text, "a b = c # d");
    cr_assert(values[T_OPEN].given);
    settle(none, 0, "insecure = false");
    cr_assert_not(values[T_OPEN].given);
    cr_assert_eq(values[T_OPEN].origin, ORIGIN_FILE);
}

Test(settings, a_flag_can_be_switched_off_by_the_environment)
{
    char *none[] = { NULL };
    setenv("ONCE_INSECURE", "false", 1);
    settle(none, 0, "insecure = true");
    cr_assert_not(values[T_OPEN].given);
    setenv("ONCE_INSECURE", "yes", 1);
    cr_assert_eq(settings_from_environment(&table, 1, &err), ERR_INVALID);
    cr_assert(strstr(err.text, "ONCE_INSECURE: 'yes' is neither true nor false"));
}

Test(settings, mistakes_are_named_with_their_line)
{
    refused("\ntls-crt = x\n",
            "once.conf:2: there is no setting 'tls-crt'; did you mean 'tls-cert'?");
    refused("config = other.conf\n", "there is no setting 'config'");
    refused("drain = 1s\ndrain = 1s\n", "once.conf:2: 'drain' stands in line 1 already");
    refused("drain = soon\n", "once.conf:1: drain: 'soon' is not a duration");
    refused("drain =\n", "'drain' has no value");
    refused("drain\n", "expected 'name = value'");
    refused("= 5\n", "there is no setting ''");
}

/* Said by the command line already, a line of the file is checked all the same. */
Test(settings, a_weaker_mistake_is_a_mistake)
{
    char *flag[] = { (char *)"--drain=1s", NULL };
    settle(flag, 1, "");
    refused("drain = soon\n", "'soon' is not a duration");
    cr_assert_eq(values[T_DRAIN].number, 1000);
}

Test(settings, a_file_has_to_be_there_to_be_text_and_small)
{
    char path[] = "/tmp/settings-test-XXXXXX", *content;
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    cr_assert(f);
    fwrite("drain\0= 1s", 1, 10, f);
    fflush(f);
    cr_assert_eq(settings_from_file(path, &table, 1, &content, &err), ERR_INVALID);
    cr_assert(strstr(err.text, "not text"), "%s", err.text);
    for (int i = 0; i < SETTINGS_FILE_BYTES_MAX; i++) fputc('#', f);
    fclose(f);
    cr_assert_eq(settings_from_file(path, &table, 1, &content, &err), ERR_INVALID);
    cr_assert(strstr(err.text, "more than"), "%s", err.text);
    remove(path);
    cr_assert_eq(settings_from_file(path, &table, 1, &content, &err), ERR_INVALID);
    cr_assert(strstr(err.text, "cannot read"), "%s", err.text);
}
