/* resp_run_args_test.c - what the arguments of commands about runs mean, and what is refused. */
#include "base/check.h"
#include "daemon/resp_session.h"

#include <criterion/criterion.h>
#include <stdio.h>

#define TOKEN "000102030405060708090a0b0c0d0e0f"
#define ID "run_01KA6JD5X80123456789ABCDEF"
#define OTHER "run_01KA6JD5X80123456789ABCDEG"

enum { WORDS = 40 };

static struct bytes words[WORDS];

/* Words are separated by one blank; "~" stands for an empty one. */
static int parse(const char *text, struct resp_run *ret, struct err *reterr)
{
    static char line[2048]; /* outlives the call: everything points into it */
    struct resp_command in = { .args = words };
    snprintf(line, sizeof line, "%s", text);
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) {
        cr_assert_lt(in.count, WORDS);
        words[in.count++] = bytes_str(strcmp(word, "~") == 0 ? "" : word);
    }
    const struct resp_entry *e = resp_find(in.args[0]);
    cr_assert(e && e->parse_run, "%s", text);
    cr_assert(in.count >= e->args_min && in.count <= e->args_max, "%s", text);
    return e->parse_run(&in, ret, reterr);
}

static const struct resp_run *must(const char *text)
{
    static struct resp_run run;
    struct err err = { 0 };
    memset(&run, 0xee, sizeof run); /* whatever is not set is noticed */
    cr_assert_eq(parse(text, &run, &err), 0, "%s: %s", text, err.text);
    return &run;
}

static void refused(const char *text, const char *why)
{
    struct resp_run run;
    struct err err = { 0 };
    cr_assert_lt(parse(text, &run, &err), 0, "%s", text);
    cr_assert(strstr(err.text, why), "%s: %s", text, err.text);
}

static bool is(struct bytes got, const char *want)
{
    return bytes_eq(got, bytes_str(want));
}

static bool is_id(const struct run_id *got, const char *want)
{
    return strcmp(got->text, want) == 0;
}

Test(resp_run_args, trigger_by_default)
{
    const struct resp_run *r = must("ONCE.TRIGGER send {}");
    const struct run_args *a = &r->args;
    cr_assert(a->question == ASK_TRIGGER && r->form == FORM_TRIGGER);
    cr_assert(r->right == VERB_RUN_PUT && r->raw_id == -1);
    cr_assert(is(a->env, "default") && is(a->run.task, "send") && is(a->run.payload, "{}"));
    cr_assert(!a->run.key.len && !a->run.queue.len && !a->run.tags.len && !a->run.id.text[0]);
    cr_assert(!a->run.metadata.len && !a->run.ordering_key.len && !a->mismatch_returns);
    cr_assert(a->delay_ms == -1 && a->key_ms == -1 && a->run.delay_until_ms == 0);
    cr_assert(a->wait_ms == WAIT_MS_DEFAULT && a->run.attempts_max == 0);
}

Test(resp_run_args, trigger_with_everything)
{
    const struct resp_run *r =
        must("once.trigger send [1] env prod key k KEYTTL 1h DELAY 5s TAG a TAG b QUEUE mail "
             "ORDER user-1 ATTEMPTS 7 METADATA {\"a\":1} ID " ID
             " NEWID ONMISMATCH return WAIT 0 RAW 9");
    const struct run_args *a = &r->args;
    cr_assert(is(a->env, "prod") && is(a->run.key, "k") && a->key_ms == 3600000);
    cr_assert(a->delay_ms == 5000 && a->run.attempts_max == 7 && a->mismatch_returns);
    cr_assert(a->id_is_new);
    cr_assert(is(a->run.queue, "mail") && is(a->run.ordering_key, "user-1"));
    cr_assert(is(a->run.metadata, "{\"a\":1}") && is_id(&a->run.id, ID));
    cr_assert(a->wait_ms == 0 && r->raw_id == 9);
    cr_assert(is(a->run.tags, "\1a\1b"));
}

Test(resp_run_args, trigger_at_a_time)
{
    const struct run_args *a = &must("ONCE.TRIGGER t 1 AT 1700000000000")->args;
    cr_assert(a->run.delay_until_ms == INT64_C(1700000000000) && a->delay_ms == -1);
    refused("ONCE.TRIGGER t 1 AT 5 DELAY 5", "DELAY and AT exclude each other");
    refused("ONCE.TRIGGER t 1 AT soon", "AT wants a time");
    refused("ONCE.TRIGGER t 1 AT -1", "AT wants a time");
}

Test(resp_run_args, what_is_refused_of_a_trigger)
{
    refused("ONCE.TRIGGER t 1 ENV ~", "env is empty");
    refused("ONCE.TRIGGER t 1 ENV a*b", "of the env is not one of");
    refused("ONCE.TRIGGER t 1 ID run_1", "an id is run_");
    refused("ONCE.TRIGGER t 1 ATTEMPTS 0", "ATTEMPTS wants a number from 1");
    refused("ONCE.TRIGGER t 1 ATTEMPTS 1001", "ATTEMPTS wants a number from 1");
    refused("ONCE.TRIGGER t 1 TAG ~", "a tag is empty");
    refused("ONCE.TRIGGER t 1 KEY ~", "KEY is empty");
    refused("ONCE.TRIGGER t 1 ORDER ~", "ORDER is empty");
    refused("ONCE.TRIGGER t 1 QUEUE ~", "QUEUE is empty");
    refused("ONCE.TRIGGER t 1 KEY k KEY k", "KEY was given twice");
    refused("ONCE.TRIGGER t 1 KEY", "KEY wants a value");
    refused("ONCE.TRIGGER t 1 ONMISMATCH fail", "ONMISMATCH wants RETURN");
    refused("ONCE.TRIGGER t 1 RAW -1", "RAW wants a number");
    refused("ONCE.TRIGGER t 1 FOO bar", "there is no option 'FOO'");
    refused("ONCE.TRIGGER t 1 TAG a TAG b TAG c TAG d TAG e TAG f TAG g TAG h TAG i TAG j "
            "TAG k",
            "at most 10 tags");
}

Test(resp_run_args, tags_of_any_length_that_fits)
{
    char text[400], tag[TAG_BYTES_MAX + 2] = { 0 };
    memset(tag, 'x', TAG_BYTES_MAX);
    snprintf(text, sizeof text, "ONCE.TRIGGER t 1 TAG %s", tag);
    cr_assert_eq(must(text)->args.run.tags.len, TAG_BYTES_MAX + 1);
    tag[TAG_BYTES_MAX] = 'x';
    snprintf(text, sizeof text, "ONCE.TRIGGER t 1 TAG %s", tag);
    refused(text, "a tag has at most 128 bytes");
}

Test(resp_run_args, get_and_list)
{
    const struct resp_run *r = must("ONCE.RUN GET " ID);
    cr_assert(r->args.question == ASK_GET && r->right == VERB_RUN_GET && r->form == FORM_RUN);
    cr_assert(is_id(&r->args.id, ID) && is(r->args.env, "default"));
    r = must("ONCE.RUN LIST");
    cr_assert(r->args.question == ASK_LIST && r->right == VERB_RUN_LIST);
    cr_assert(r->args.limit == LIST_COUNT_DEFAULT && r->args.states == 0);
    cr_assert(!r->args.task.len && !r->args.queue.len && !r->args.tag.len);
    r = must("ONCE.RUN list ENV e TASK t QUEUE q STATUS failed STATUS QUEUED TAG x BEFORE " ID
             " COUNT 1000");
    cr_assert(is(r->args.env, "e") && is(r->args.task, "t") && is(r->args.queue, "q"));
    cr_assert(r->args.states == (BIT(RUN_FAILED) | BIT(RUN_QUEUED)) && is(r->args.tag, "x"));
    cr_assert(is_id(&r->args.before, ID) && r->args.limit == 1000);
    refused("ONCE.RUN LIST STATUS DELAYED", "delayed ones, too");
    refused("ONCE.RUN LIST COUNT 1001", "COUNT wants a number from 1 to 1000");
    refused("ONCE.RUN GET", "wrong number of arguments for 'ONCE.RUN GET'");
    refused("ONCE.RUN GET nonsense", "an id is run_");
    refused("ONCE.RUN WALK " ID, "unknown subcommand");
}

static const struct run_change *change(const char *text, enum run_change_kind kind)
{
    const struct resp_run *r = must(text);
    cr_assert(r->args.question == ASK_CHANGE && r->args.change.kind == kind, "%s", text);
    cr_assert(r->right == VERB_RUN_CHANGE && is_id(&r->args.id, ID), "%s", text);
    return &r->args.change;
}

Test(resp_run_args, changes)
{
    cr_assert(is(change("ONCE.RUN METADATA " ID " {}", RUN_SET_METADATA)->body, "{}"));
    cr_assert_eq(change("ONCE.RUN METADATA " ID " {}", RUN_SET_METADATA)->version,
                 RUN_ANY_VERSION);
    cr_assert_eq(change("ONCE.RUN METADATA " ID " {} VERSION 3", RUN_SET_METADATA)->version, 3);
    refused("ONCE.RUN METADATA " ID " {} VERSION 18446744073709551615", "wants a version");
    cr_assert(is(change("ONCE.RUN OPERATE " ID " []", RUN_OPERATE)->body, "[]"));
    cr_assert_eq(change("ONCE.RUN CANCEL " ID, RUN_CANCEL)->body.len, 0);
    cr_assert_eq(change("ONCE.RUN CANCEL " ID " REASON no", RUN_CANCEL)->body.len, 0);
    cr_assert(is(must("ONCE.RUN CANCEL " ID " REASON no")->reason, "no"));
    cr_assert(is(change("ONCE.RUN CANCEL " ID " ERROR {}", RUN_CANCEL)->body, "{}"));
    refused("ONCE.RUN CANCEL " ID " ERROR {} REASON no", "REASON and ERROR exclude each other");
    cr_assert_eq(change("ONCE.RUN RESCHEDULE " ID " 5", RUN_RESCHEDULE)->at_ms, 5);
    refused("ONCE.RUN RESCHEDULE " ID " tomorrow", "RESCHEDULE wants a time");
}

/* What stands behind the options is a tag, even if it is called like one. */
Test(resp_run_args, tags_come_last)
{
    cr_assert(is(change("ONCE.RUN TAG " ID " a b", RUN_ADD_TAGS)->body, "\1a\1b"));
    cr_assert(is(change("ONCE.RUN TAG " ID " ENV e ENV", RUN_ADD_TAGS)->body, "\3ENV"));
    cr_assert(is(must("ONCE.RUN TAG " ID " ENV e ENV")->args.env, "e"));
    cr_assert(is(change("ONCE.RUN TAG " ID " RAW 1 ENV e RAW ENV x", RUN_ADD_TAGS)->body,
                 "\3RAW\3ENV\1x"));
    refused("ONCE.RUN TAG " ID " ENV e", "which tags");
}

Test(resp_run_args, replay_and_reset)
{
    const struct resp_run *r = must("ONCE.RUN REPLAY " ID " ID " OTHER);
    cr_assert(r->args.question == ASK_REPLAY && r->right == VERB_RUN_PUT);
    cr_assert(r->form == FORM_TRIGGER && is_id(&r->args.id, ID));
    cr_assert(is_id(&r->args.run.id, OTHER));
    r = must("ONCE.RUN RESET send k ENV e");
    cr_assert(r->args.question == ASK_RESET && r->right == VERB_RUN_RESET);
    cr_assert(is(r->args.task, "send") && is(r->args.key, "k") && is(r->args.env, "e"));
}

Test(resp_run_args, workers)
{
    const struct resp_run *r = must("ONCE.PULL mail");
    cr_assert(r->args.question == ASK_LEASE && r->right == VERB_RUN_LEASE);
    cr_assert(is(r->args.queue, "mail") && r->args.limit == 1);
    cr_assert(r->args.lease_ms == LEASE_MS_DEFAULT && r->args.wait_ms == WAIT_MS_DEFAULT);
    r = must("ONCE.PULL mail COUNT 1000 LEASE 1m WAIT 20s");
    cr_assert_eq(r->args.limit, PULL_COUNT_MAX);
    cr_assert(r->args.lease_ms == 60000 && r->args.wait_ms == 20000);
    refused("ONCE.PULL mail COUNT 0", "COUNT wants a number");
}

static const struct run_change *held(const char *text, enum run_change_kind kind)
{
    static const struct token token = { { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
                                          15 } };
    const struct resp_run *r = must(text);
    cr_assert(r->args.question == ASK_CHANGE && r->args.change.kind == kind, "%s", text);
    cr_assert(r->right == VERB_RUN_LEASE && is_id(&r->args.id, ID), "%s", text);
    cr_assert(token_eq(&r->args.change.token, &token), "%s", text);
    return &r->args.change;
}

#define MINE " " ID " " TOKEN

Test(resp_run_args, leases_are_settled)
{
    cr_assert_eq(held("ONCE.ACK" MINE, RUN_COMPLETE)->body.len, 0);
    cr_assert(is(held("ONCE.ACK" MINE " {\"a\":1}", RUN_COMPLETE)->body, "{\"a\":1}"));
    cr_assert_eq(held("ONCE.ACK" MINE " ENV e", RUN_COMPLETE)->body.len, 0);
    cr_assert(is(held("ONCE.ACK" MINE " \"ENV\" ENV e", RUN_COMPLETE)->body, "\"ENV\""));
    cr_assert(is(must("ONCE.ACK" MINE " ENV e")->args.env, "e"));
    cr_assert(is(held("ONCE.NACK" MINE " \"no\"", RUN_FAIL)->body, "\"no\""));
    cr_assert_eq(held("ONCE.NACK" MINE " \"no\"", RUN_FAIL)->retry_ms, -1);
    cr_assert_eq(held("ONCE.NACK" MINE " \"no\" RETRY 0", RUN_FAIL)->retry_ms, 0);
    held("ONCE.NACK" MINE " RETURN", RUN_RETURN);
    refused("ONCE.NACK" MINE " RETURN RETRY 5", "there is no option 'RETRY'");
    cr_assert_eq(held("ONCE.BEAT" MINE, RUN_HEARTBEAT)->lease_ms, -1);
    cr_assert_eq(held("ONCE.BEAT" MINE " LEASE 1m", RUN_HEARTBEAT)->lease_ms, 60000);
    refused("ONCE.ACK " ID " 00", "a token is 32 hexadecimal digits");
    refused("ONCE.ACK nonsense " TOKEN, "an id is run_");
}
