/* answer.c - see answer.h. */
#include "cli/answer.h"

#include "cli/format.h"

#include <unistd.h>

static bool is_refusal(int outcome)
{
    return once_outcome_exit_status(outcome) != STATUS_OK;
}

json_t *answer_json(const struct once_answer *a)
{
    json_t *o = json_pack("{s:s, s:b, s:b, s:i}", "outcome", once_outcome_name(a->outcome),
                          "degraded", a->degraded, "durable", a->durable, "exit_status",
                          once_outcome_exit_status(a->outcome));
    if (!o) return NULL;
    json_object_set_new(o, "waited_ms", json_integer(a->waited_ms));
    if (a->outcome == ONCE_CLAIMED) {
        json_object_set_new(o, "token", json_string(a->lease.token));
        json_object_set_new(o, "fence", json_integer((json_int_t)a->lease.fence));
        json_object_set_new(o, "lease_ms", json_integer(a->lease.lease_ms));
        json_object_set_new(o, "taken_over", json_boolean(a->taken_over));
    } else if (a->fence) {
        json_object_set_new(o, "fence", json_integer((json_int_t)a->fence));
    }
    if (a->outcome == ONCE_IN_PROGRESS || a->outcome == ONCE_TIMED_OUT)
        json_object_set_new(o, "lease_left_ms", json_integer(a->lease_left_ms));
    if (a->outcome == ONCE_CACHED || a->outcome == ONCE_ALREADY_DONE)
        json_object_set_new(o, "retain_left_ms", json_integer(a->retain_left_ms));
    if (a->has_value && a->outcome != ONCE_OK) /* the publisher knows what it published */
        json_object_set_new(o, "value", json_bytes(bytes_of(a->value.data, a->value.len)));
    return o;
}

void answer_explain(const struct once_answer *a)
{
    char left[DURATION_TEXT_BYTES];
    const char *name = once_outcome_name(a->outcome), *text = once_outcome_text(a->outcome);
    if (!is_refusal(a->outcome)) return;
    if (a->outcome == ONCE_IN_PROGRESS || a->outcome == ONCE_TIMED_OUT)
        cli_error("%s: %s (its lease ends in %s unless renewed)", name, text,
                  format_duration(a->lease_left_ms, left));
    else
        cli_error("%s: %s", name, text);
}

void answer_print_value(struct once_bytes value)
{
    fwrite(value.data ? value.data : "", 1, value.len, stdout);
    bool ends = value.len && ((const char *)value.data)[value.len - 1] == '\n';
    if (!ends && isatty(STDOUT_FILENO)) putchar('\n');
}

int answer_finish(const struct cli *cli, int result, struct once_answer *answer)
{
    int status = result < 0 ? cli_fail(cli, result, answer->error.text)
                            : once_outcome_exit_status(answer->outcome);
    if (result == 0 && cli->json && print_json(stdout, answer_json(answer)) != STATUS_OK)
        status = STATUS_INTERNAL;
    if (result == 0) answer_explain(answer);
    once_answer_clear(answer);
    return status;
}
