/* job_test.c - what is said of a command that has ended. */
#include "cli/job.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static void output_is(const char *output, const char *want)
{
    char *json = job_output_json(bytes_str(output));
    cr_assert(json);
    cr_expect_str_eq(json, want);
    free(json);
}

Test(job, output_that_is_json_stays_as_it_is)
{
    output_is("{\"a\": 1}\n", "{\"a\": 1}");
    output_is("  [1,\n 2]\n\n", "[1,\n 2]");
    output_is("null", "null");
    output_is("\"text\"\n", "\"text\"");
    output_is("12345678901234567890123456789", "12345678901234567890123456789");
    output_is("1.50", "1.50");
}

Test(job, other_output_becomes_a_string_with_every_byte)
{
    output_is("done\n", "\"done\\n\"");
    output_is("{\"a\": 1", "\"{\\\"a\\\": 1\"");
    output_is("{\"a\": 1, \"a\": 2}", "\"{\\\"a\\\": 1, \\\"a\\\": 2}\"");
    output_is("1 2", "\"1 2\"");
    output_is(" \n", "\" \\n\"");
}

Test(job, output_that_is_not_text_is_base64)
{
    output_is("\xff\xfe", "{\"base64\":\"//4=\"}");
}

static void error_is(int exit_status, const char *words, const char *want)
{
    char *json = job_error_json(exit_status, bytes_str(words));
    cr_assert(json);
    cr_expect_str_eq(json, want);
    free(json);
}

Test(job, an_error_has_the_exit_status_and_the_last_words)
{
    error_is(3, "no such order\n", "{\"exit\":3,\"stderr\":\"no such order\\n\"}");
    error_is(137, "", "{\"exit\":137,\"stderr\":\"\"}");
}

Test(job, last_words_may_begin_in_the_middle_of_a_character)
{
    error_is(1, "\x82\xac\xc3\xa9", "{\"exit\":1,\"stderr\":\"\xc3\xa9\"}");
}
