/* run_show.c - see run_show.h. */
#include "cli/run_show.h"

#include "cli/format.h"
#include "cli/now.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

static struct bytes view(struct once_bytes b)
{
    return bytes_of(b.data, b.len);
}

/* ---- JSON: the shape that a daemon gives over HTTP ---- */

/* JSON within a line of JSON: a line break can only stand between two of its words. */
static void put_json(FILE *to, const char *name, struct once_bytes json)
{
    const char *text = json.len ? json.data : "null";
    size_t len = json.len ? json.len : strlen(text);
    fprintf(to, ",\"%s\":", name);
    for (size_t i = 0; i < len; i++)
        putc(text[i] == '\n' || text[i] == '\r' ? ' ' : text[i], to);
}

static void set_bytes(json_t *o, const char *name, struct once_bytes value)
{
    json_object_set_new(o, name, value.len ? json_bytes(view(value)) : json_null());
}

/* 0: never. */
static void set_time(json_t *o, const char *name, int64_t at_ms)
{
    char second[sizeof "2026-11-16T08:00:00"], text[40];
    time_t at = (time_t)(at_ms / 1000);
    struct tm tm;
    bool known = at_ms && gmtime_r(&at, &tm) &&
                 strftime(second, sizeof second, "%Y-%m-%dT%H:%M:%S", &tm) > 0;
    if (known) snprintf(text, sizeof text, "%s.%03dZ", second, (int)(at_ms % 1000));
    json_object_set_new(o, name, known ? json_string(text) : json_null());
}

static json_t *tags_json(const struct once_run *run)
{
    json_t *list = json_array();
    for (size_t i = 0; i < run->tag_count; i++)
        json_array_append_new(list, json_bytes(view(run->tags[i])));
    return list;
}

/* All but what is JSON already. */
static json_t *run_json(const struct once_run *run)
{
    json_t *o = json_pack("{s:s, s:s, s:s*}", "id", run->id, "status", run->status_name,
                          "canonicalId", run->canonical_id[0] ? run->canonical_id : NULL);
    if (!o) return NULL;
    set_bytes(o, "env", run->env);
    set_bytes(o, "task", run->task);
    set_bytes(o, "queue", run->queue);
    set_bytes(o, "idempotencyKey", run->key);
    set_time(o, "idempotencyKeyExpiresAt", run->key_held ? run->key_until_ms : 0);
    set_bytes(o, "orderingKey", run->ordering_key);
    json_object_set_new(o, "tags", tags_json(run));
    json_object_set_new(o, "attempts", json_integer(run->attempts));
    json_object_set_new(o, "maxAttempts", json_integer(run->attempts_max));
    json_object_set_new(o, "stalls", json_integer(run->stalls));
    set_time(o, "createdAt", run->created_at_ms);
    set_time(o, "delayUntil", run->delay_until_ms);
    set_time(o, "startedAt", run->started_at_ms);
    set_time(o, "finishedAt", run->finished_at_ms);
    json_object_set_new(o, "metadataVersion", json_integer((json_int_t)run->metadata_version));
    return o;
}

int run_print_json(FILE *to, const struct once_run *run)
{
    json_t *o = run_json(run);
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (!text) return print_json(to, NULL);
    fprintf(to, "%.*s", (int)strlen(text) - 1, text); /* the last brace comes below */
    free(text);
    put_json(to, "payload", run->payload);
    put_json(to, "metadata", run->metadata);
    put_json(to, "output", run->output);
    put_json(to, "error", run->error);
    fputs("}\n", to);
    return STATUS_OK;
}

/* ---- words ---- */

static const char *const colors[] = {
    [ONCE_RUN_QUEUED] = "",
    [ONCE_RUN_EXECUTING] = "\033[33m",
    [ONCE_RUN_COMPLETED] = "\033[32m",
    [ONCE_RUN_FAILED] = "\033[31m",
    [ONCE_RUN_CANCELED] = "\033[2m",
    [ONCE_RUN_DELAYED] = "",
};

void run_print_heading(void)
{
    printf("%-30s  %-9s  %6s  %3s  TASK  KEY\n", "ID", "STATUS", "AGE", "TRY");
}

void run_print_row(const struct cli *cli, const struct once_run *run, int64_t now_ms)
{
    char age[DURATION_TEXT_BYTES];
    printf("%-30s  %s%-9s%s  %6s  %3u  ", run->id, cli->color ? colors[run->status] : "",
           run->status_name, cli->color ? "\033[0m" : "",
           format_duration(now_ms - run->created_at_ms, age), run->attempts);
    print_escaped(stdout, view(run->task));
    fputs("  ", stdout);
    print_escaped(stdout, view(run->key));
    putchar('\n');
}

static void put_line(const char *name, struct once_bytes text)
{
    if (!text.len) return;
    printf("%-9s ", name);
    print_escaped(stdout, view(text));
    putchar('\n');
}

/* "3s ago", "in 5m" */
static void put_time(const char *name, int64_t at_ms, int64_t now_ms)
{
    char span[DURATION_TEXT_BYTES];
    if (!at_ms) return;
    bool ahead = at_ms > now_ms;
    format_duration(ahead ? at_ms - now_ms : now_ms - at_ms, span);
    printf("%-9s %s%s%s\n", name, ahead ? "in " : "", span, ahead ? "" : " ago");
}

void run_print_all(const struct once_run *run)
{
    int64_t now_ms = now_wall_ms();
    printf("%-9s %s\n", "id", run->canonical_id[0] ? run->canonical_id : run->id);
    printf("%-9s %s\n", "status", run->status_name);
    put_line("env", run->env);
    put_line("task", run->task);
    put_line("queue", run->queue);
    put_line("key", run->key);
    put_line("ordering", run->ordering_key);
    for (size_t i = 0; i < run->tag_count; i++) put_line("tag", run->tags[i]);
    printf("%-9s %u of %u\n", "attempts", run->attempts, run->attempts_max);
    if (run->stalls) printf("%-9s %u\n", "stalls", run->stalls);
    put_time("created", run->created_at_ms, now_ms);
    if (run->status == ONCE_RUN_DELAYED) put_time("due", run->available_at_ms, now_ms);
    put_time("started", run->started_at_ms, now_ms);
    put_time("finished", run->finished_at_ms, now_ms);
    put_line("payload", run->payload);
    put_line("metadata", run->metadata);
    put_line("output", run->output);
    put_line("error", run->error);
}

/* ---- answers ---- */

int run_status_find(const char *name)
{
    for (int status = ONCE_RUN_QUEUED; status <= ONCE_RUN_DELAYED; status++)
        if (strcasecmp(name, once_run_status_name(status)) == 0) return status;
    return 0;
}

static const char *meaning_of(const struct once_run_answer *a)
{
    if (a->reason) return a->reason;
    if (a->outcome == ONCE_ABSENT) return "there is no such run in this env";
    if (a->outcome == ONCE_MISMATCH)
        return "the key, or the id, leads to a run of another payload; use another one, or "
               "--on-mismatch return";
    return once_outcome_text(a->outcome);
}

int run_answer_status(const struct cli *cli, int result, const struct once_run_answer *answer)
{
    if (result < 0) return cli_fail(cli, result, answer->error.text);
    const char *name = once_outcome_name(answer->outcome), *text = meaning_of(answer);
    int status = once_outcome_exit_status(answer->outcome);
    if (status == STATUS_OK) return status;
    if (cli->json)
        print_json(stdout,
                   json_pack("{s:s, s:s, s:s*, s:b, s:i}", "outcome", name, "text", text, "id",
                             answer->run ? answer->run->id : NULL, "retryable",
                             once_retryable(answer->outcome), "exit_status", status));
    cli_error("%s: %s", name, text);
    return status;
}
