/* resp_args_test.c - what the arguments of ONCE.* commands mean, and what is refused. */
#include "daemon/cursor.h"
#include "daemon/resp_session.h"

#include <criterion/criterion.h>
#include <stdio.h>

#define TOKEN "000102030405060708090a0b0c0d0e0f"

enum { WORDS_MAX = 16 };

static struct bytes words[WORDS_MAX];

/* Words are separated by one blank; "~" stands for an empty one. */
static struct resp_command command_of(char *line)
{
    struct resp_command in = { .args = words };
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) {
        cr_assert_lt(in.count, WORDS_MAX);
        words[in.count++] = bytes_str(strcmp(word, "~") == 0 ? "" : word);
    }
    return in;
}

/* What run_command() does before the engine is asked. */
static int parse(const char *text, struct ask_args *ret, struct err *reterr)
{
    static char line[2048]; /* outlives the call: everything points into it */
    snprintf(line, sizeof line, "%s", text);
    struct resp_command in = command_of(line);
    const struct resp_entry *e = resp_find(in.args[0]);
    cr_assert(e && e->parse, "%s", text);
    cr_assert(in.count >= e->args_min && in.count <= e->args_max, "%s", text);
    return e->parse(&in, ret, reterr);
}

static struct ask_args must(const char *text)
{
    static struct ask_args args;
    struct err err = { 0 };
    cr_assert_eq(parse(text, &args, &err), 0, "%s: %s", text, err.text);
    return args;
}

static void refused(const char *text, const char *why)
{
    struct ask_args args;
    struct err err = { 0 };
    cr_assert_lt(parse(text, &args, &err), 0, "%s", text);
    cr_assert(strstr(err.text, why), "%s: %s", text, err.text);
}

static bool is(struct bytes got, const char *want)
{
    return bytes_eq(got, bytes_str(want));
}

Test(resp_args, claim_by_default)
{
    struct ask_args a = must("ONCE.CLAIM orders o-17");
    cr_assert_eq(a.call.verb, VERB_CLAIM);
    cr_assert(is(a.call.key.scope, "orders") && is(a.call.key.name, "o-17"));
    cr_assert_eq(a.call.in.lease_ms, LEASE_MS_DEFAULT);
    cr_assert_eq(a.call.in.retain_ms, RETAIN_MS_DEFAULT);
    cr_assert_eq(a.call.wait_ms, WAIT_MS_DEFAULT);
    cr_assert_eq(a.call.in.fingerprint.len, 0);
    cr_assert(!a.bound && !a.call.renew);
}

Test(resp_args, claim_with_everything)
{
    struct ask_args a = must("once.claim s k bound fp abc retain 2h wait 0 Lease 500");
    cr_assert_eq(a.call.in.lease_ms, 500);
    cr_assert_eq(a.call.in.retain_ms, 7200000);
    cr_assert_eq(a.call.wait_ms, 0, "zero means zero");
    cr_assert(is(a.call.in.fingerprint, "abc"));
    cr_assert(a.bound && a.call.renew, "the daemon renews what is bound to a connection");
}

Test(resp_args, an_option_may_be_the_value_of_another)
{
    cr_assert(is(must("ONCE.CLAIM s k FP WAIT").call.in.fingerprint, "WAIT"));
    refused("ONCE.CLAIM s k WAIT BOUND", "WAIT wants milliseconds");
}

Test(resp_args, claim_refuses)
{
    refused("ONCE.CLAIM s k LEASE", "LEASE wants a value");
    refused("ONCE.CLAIM s k LEASE -1", "LEASE wants milliseconds");
    refused("ONCE.CLAIM s k LEASE ~", "LEASE wants milliseconds");
    refused("ONCE.CLAIM s k RETAIN 4000d", "ten years");
    refused("ONCE.CLAIM s k LEASE 1 LEASE 1", "twice");
    refused("ONCE.CLAIM s k BOUND BOUND", "twice");
    refused("ONCE.CLAIM s k LEASES 1", "no option 'LEASES'");
    refused("ONCE.CLAIM s k ~", "no option ''");
}

Test(resp_args, owners_show_their_token)
{
    struct ask_args a = must("ONCE.PUBLISH s k " TOKEN " value");
    cr_assert_eq(a.call.in.token.bytes[15], 15);
    cr_assert(is(a.value, "value"));
    cr_assert_eq(a.call.in.retain_ms, -1, "as claimed");
    cr_assert_eq(must("ONCE.PUBLISH s k " TOKEN " v RETAIN 5s").call.in.retain_ms, 5000);
    cr_assert_eq(must("ONCE.PUBLISH s k " TOKEN " ~").value.len, 0);
    cr_assert_eq(must("ONCE.RENEW s k " TOKEN).call.in.lease_ms, -1);
    cr_assert_eq(must("ONCE.RENEW s k " TOKEN " LEASE 0").call.in.lease_ms, 0);
    cr_assert_eq(must("ONCE.RELEASE s k " TOKEN).call.verb, VERB_RELEASE);
    refused("ONCE.RELEASE s k 00", "32 hexadecimal digits");
    refused("ONCE.RENEW s k " TOKEN "0", "32 hexadecimal digits");
    refused("ONCE.PUBLISH s k " TOKEN " v BOUND", "no option 'BOUND'");
}

Test(resp_args, scan)
{
    struct ask_args a = must("ONCE.SCAN 0");
    cr_assert(a.call.all_scopes && a.call.key.scope.len == 0 && a.call.key.name.len == 0);
    cr_assert_eq(a.call.limit, SCAN_COUNT_DEFAULT);
    a = must("ONCE.SCAN 0 SCOPE s COUNT 7");
    cr_assert(!a.call.all_scopes && is(a.call.key.scope, "s"));
    cr_assert_eq(a.call.limit, 7);
    refused("ONCE.SCAN 0 COUNT 0", "from 1 to");
    refused("ONCE.SCAN 0 COUNT 1001", "from 1 to");
}

Test(resp_args, a_cursor_comes_back)
{
    struct scan_row rows[] = { { .key = { bytes_str("a"), bytes_str("x") } },
                               { .key = { bytes_str("s"), bytes_str("key") } } };
    struct scan page = { .rows = rows, .count = 2, .more = true };
    char cursor[CURSOR_TEXT_BYTES], text[CURSOR_TEXT_BYTES + 64];
    cr_assert(cursor_write(&page, cursor));
    snprintf(text, sizeof text, "ONCE.SCAN %s SCOPE s", cursor);
    struct ask_args a;
    struct err err;
    cr_assert_eq(parse(text, &a, &err), 0);
    cr_assert(is(a.call.key.scope, "s") && is(a.call.key.name, "key"));
    snprintf(text, sizeof text, "ONCE.SCAN %s SCOPE t", cursor);
    refused(text, "another scope");
    page.more = false;
    cr_assert(!cursor_write(&page, cursor));
}

Test(resp_args, a_cursor_that_was_made_up)
{
    refused("ONCE.SCAN ~", "invalid cursor");
    refused("ONCE.SCAN 1", "invalid cursor");
    refused("ONCE.SCAN 00", "invalid cursor");
    refused("ONCE.SCAN xx7379", "invalid cursor");
    refused("ONCE.SCAN ff7379", "invalid cursor"); /* its scope would be longer than it is */
    refused("ONCE.SCAN 0173790", "invalid cursor");
    refused("ONCE.SCAN 007379", "invalid cursor");
    refused("ONCE.SCAN 027379", "invalid cursor");
    refused("ONCE.SCAN 01207a", "scope");
    refused("ONCE.SCAN 017a00", "key");
}

Test(resp_args, every_command_is_found_once)
{
    for (const struct resp_entry *e = resp_table; e->name; e++) {
        cr_assert_eq(resp_find(bytes_str(e->name)), e, "%s", e->name);
        cr_assert_eq(!!e->answer + !!e->parse + !!e->parse_run + !!e->parse_mutation, 1,
                     "%s is answered in exactly one way", e->name);
        cr_assert(e->args_min >= 1 && e->args_min <= e->args_max, "%s", e->name);
        cr_assert(e->usage && e->summary, "%s", e->name);
    }
    cr_assert_null(resp_find(bytes_str("ONCE.CLAI")));
    cr_assert_null(resp_find(bytes_str("ONCE.CLAIMS")));
    cr_assert_null(resp_find(bytes_str("")));
}

Test(resp_args, tokens_and_meta)
{
    struct ask_args a = must("ONCE.CLAIM s k TOKEN " TOKEN " META");
    cr_assert(a.meta && !a.bound && a.call.in.token.bytes[15] == 15);
    a = must("ONCE.CLAIM s k");
    cr_assert(!a.meta && a.call.in.token.bytes[15] == 0);
    a = must("ONCE.PUBLISH s k " TOKEN " ~ OMIT META");
    cr_assert(a.omit && a.meta);
    cr_assert(must("ONCE.RELEASE s k " TOKEN " META").meta);
    cr_assert(must("ONCE.RENEW s k " TOKEN " META").meta);
    a = must("ONCE.PEEK s k TOKEN " TOKEN);
    cr_assert(!a.meta && a.call.in.token.bytes[1] == 1);
    cr_assert(must("ONCE.FORGET s k META").meta);
    refused("ONCE.CLAIM s k TOKEN 00", "32 hexadecimal digits");
    refused("ONCE.CLAIM s k TOKEN 00000000000000000000000000000000", "32 hexadecimal digits");
    refused("ONCE.CLAIM s k TOKEN " TOKEN " BOUND", "exclude each other");
    refused("ONCE.PEEK s k WAIT 0", "no option 'WAIT'");
}

Test(resp_args, watch)
{
    struct ask_args a = must("ONCE.WATCH 17 s k 18446744073709551615 FP x");
    cr_assert(a.call.verb == VERB_WATCH && a.watch_id == 17 && a.call.seen == UINT64_MAX);
    cr_assert(is(a.call.key.scope, "s") && is(a.call.key.name, "k"));
    cr_assert(is(a.call.in.fingerprint, "x"));
    cr_assert_eq(must("ONCE.WATCH 0 s k 0").call.seen, 0);
    refused("ONCE.WATCH -1 s k 0", "the id of a watch");
    refused("ONCE.WATCH x s k 0", "the id of a watch");
    refused("ONCE.WATCH 1 s k 18446744073709551616", "a version");
    refused("ONCE.WATCH 1 s k -1", "a version");
    refused("ONCE.WATCH 1 s k 0 META", "no option 'META'");
}

Test(resp_args, upkeep)
{
    struct ask_args a = must("ONCE.SWEEP");
    cr_assert(a.call.verb == VERB_EXPIRE && a.call.limit == SWEEP_COUNT_DEFAULT);
    cr_assert_eq(must("ONCE.SWEEP 7").call.limit, 7);
    refused("ONCE.SWEEP -1", "how many at most");
    refused("ONCE.SWEEP 100001", "how many at most");
    cr_assert_eq(must("ONCE.STATS").call.verb, VERB_STATS);
    a = must("ONCE.FACTS");
    cr_assert(a.call.verb == VERB_PING && a.call.wants_facts);
}
