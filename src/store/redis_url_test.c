/* redis_url_test.c - what is behind "redis:", and what is said of what cannot be. */
#include "store/redis.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

static struct redis_options parsed(const char *rest)
{
    struct redis_options o;
    struct err err;
    int r = redis_options_parse(rest, &o, &err);
    cr_assert(r == 0, "%s: %s", rest, r ? err.text : "");
    return o;
}

static bool same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

Test(redis_url, every_form)
{
    static const struct {
        const char *rest, *host, *path, *user, *password, *prefix;
        int port, db, timeout_ms;
        unsigned lanes;
    } forms[] = {
        { "//h", "h", NULL, NULL, NULL, "once", 6379, 0, 100, 1 },
        { "//h:7000/3", "h", NULL, NULL, NULL, "once", 7000, 3, 100, 1 },
        { "//h/", "h", NULL, NULL, NULL, "once", 6379, 0, 100, 1 },
        { "//[::1]", "::1", NULL, NULL, NULL, "once", 6379, 0, 100, 1 },
        { "//[::1]:7000", "::1", NULL, NULL, NULL, "once", 7000, 0, 100, 1 },
        { "//:pw@h", "h", NULL, NULL, "pw", "once", 6379, 0, 100, 1 },
        { "//joe:pw@h:1", "h", NULL, "joe", "pw", "once", 1, 0, 100, 1 },
        { "//joe:@h", "h", NULL, "joe", "", "once", 6379, 0, 100, 1 },
        { "//joe:p%40%2fw@h", "h", NULL, "joe", "p@/w", "once", 6379, 0, 100, 1 },
        { "//joe:a@b/c:d@h", "h", NULL, "joe", "a@b/c:d", "once", 6379, 0, 100, 1 },
        { "///run/r.sock", NULL, "/run/r.sock", NULL, NULL, "once", 6379, 0, 100, 1 },
        { "/run/r.sock", NULL, "/run/r.sock", NULL, NULL, "once", 6379, 0, 100, 1 },
        { "/run/a@b:c.sock", NULL, "/run/a@b:c.sock", NULL, NULL, "once", 6379, 0, 100, 1 },
        { "//joe:pw@/run/r.sock?db=2", NULL, "/run/r.sock", "joe", "pw", "once", 6379, 2, 100,
          1 },
        { "//h?prefix=a%3ab&timeout_ms=60000&connections=16", "h", NULL, NULL, NULL, "a:b",
          6379, 0, 60000, 16 },
        { "//h?db=4&timeout_ms=1&connections=1", "h", NULL, NULL, NULL, "once", 6379, 4, 1, 1 },
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct redis_options o = parsed(forms[i].rest);
        cr_expect(same(o.host, forms[i].host) && same(o.path, forms[i].path) &&
                      same(o.user, forms[i].user) && same(o.password, forms[i].password) &&
                      same(o.prefix, forms[i].prefix),
                  "%s", forms[i].rest);
        cr_expect(o.port == forms[i].port && o.db == forms[i].db &&
                      o.timeout_ms == forms[i].timeout_ms && o.lanes == forms[i].lanes,
                  "%s", forms[i].rest);
        redis_options_fini(&o);
    }
}

static void expect_refused(const char *rest, const char *text)
{
    struct redis_options o;
    struct err err;
    cr_expect(redis_options_parse(rest, &o, &err) == ERR_INVALID, "%s", rest);
    cr_expect(strstr(err.text, text), "%s: %s", rest, err.text);
    cr_expect(!strcasestr(err.text, "secret"), "%s: %s", rest, err.text);
    redis_options_fini(&o);
}

Test(redis_url, every_error_and_never_a_password)
{
    expect_refused("", "//");
    expect_refused("host", "//");
    expect_refused("//", "host is missing");
    expect_refused("//:7000", "host is missing");
    expect_refused("//:secret@", "host is missing");
    expect_refused("/:secret@h", "two slashes");
    expect_refused("///joe:secret@h:1/2", "two slashes");
    expect_refused("//secret@h", "colon");
    expect_refused("//joe:secret%@h", "escape");
    expect_refused("//joe:secret%0@h", "escape");
    expect_refused("//joe:secret%00@h", "escape");
    expect_refused("//joe%zz:secret@h", "escape");
    expect_refused("//:secret@h:0", "port");
    expect_refused("//:secret@h:65536", "port");
    expect_refused("//:secret@h:x", "port");
    expect_refused("//:secret@[::1", "]");
    expect_refused("//:secret@[::1]7000", "port");
    expect_refused("//:secret@h/x", "database");
    expect_refused("//:secret@h/-1", "database");
    expect_refused("//:a?secret=1@h", "%3F");
    expect_refused("//:a?prefix=x&secret@h", "%3F");
    expect_refused("//:secret@h?timeout_ms=0", "timeout_ms");
    expect_refused("//:secret@h?timeout_ms=60001", "timeout_ms");
    expect_refused("//:secret@h?timeout_ms=99999999999999999999", "timeout_ms");
    expect_refused("//:secret@h?connections=0", "connections");
    expect_refused("//:secret@h?connections=17", "connections");
    expect_refused("//:secret@h?evictable=2", "evictable");
    expect_refused("//:secret@h?prefix=", "prefix");
    expect_refused("//:secret@h?prefix=a{b", "prefix");
    expect_refused("//:secret@h?prefix=%zz", "escape");
    expect_refused("//:secret@h?db=x", "db");
    expect_refused("//:secret@h?speed=1", "unknown option \"speed\"");
    expect_refused("//:secret@h?prefix", "no value");
    expect_refused("///run/%zz", "escape");
}

Test(redis_url, too_long)
{
    char rest[600];
    snprintf(rest, sizeof rest, "//%0256d", 1);
    expect_refused(rest, "host is too long");
    snprintf(rest, sizeof rest, "//h?prefix=%065d", 1);
    expect_refused(rest, "prefix");
    snprintf(rest, sizeof rest, "/%0108d", 1);
    expect_refused(rest, "path of the socket");
}

/* The way an error comes is Redis' own: as 7.0 says it, and as 6 wrapped it. */
Test(redis_error, what_promises_that_nothing_was_changed)
{
    static const char *const nothing[] = {
        "OOM command not allowed when used memory > 'maxmemory'. script: 1f8f, on "
        "@user_script:1.",
        "ERR Error running script (call to f_1f8f): @user_script:1: @user_script: 1: -OOM "
        "command "
        "not allowed when used memory > 'maxmemory'. ",
        "READONLY You can't write against a read only replica. script: 1f8f, on "
        "@user_script:1.",
        "ERR Error running script (call to f_1f8f): @user_script:1: @user_script: 1: -READONLY "
        "You "
        "can't write against a read only replica. ",
        "NOREPLICAS Not enough good replicas to write. script: 1f8f, on @user_script:1.",
        "MISCONF Redis is configured to save RDB snapshots",
        "LOADING Redis is loading the dataset in memory",
        "BUSY Redis is busy running a script.",
        "NOPERM this user has no permissions to run the 'evalsha' command",
        "CLUSTERDOWN Hash slot not served",
        "TRYAGAIN Multiple keys request during rehashing of slot",
    };
    static const char *const maybe[] = {
        "ERR The user executing the script can't run this command or subcommand script: 1f8f, "
        "on "
        "@user_script:1.",
        "NOPERM No permissions to access a channel script: 1f8f, on @user_script:1.",
        "ERR user_script:1: attempt to index local 'x' (a nil value) script: 1f8f",
        "ERR the word OOM or READONLY somewhere in it",
        "OOMPH",
        "ERR Error running script (call to f_1f8f): @user_script:1: user_script:1: attempt to "
        "compare nil with READONLY",
        "",
    };
    for (size_t i = 0; i < sizeof nothing / sizeof nothing[0]; i++)
        cr_expect(error_did_nothing(nothing[i]), "%s", nothing[i]);
    for (size_t i = 0; i < sizeof maybe / sizeof maybe[0]; i++)
        cr_expect(!error_did_nothing(maybe[i]), "%s", maybe[i]);
}

Test(redis_facts, a_server_that_cannot_do_the_work)
{
    struct redis_facts f = { 0 };
    facts_from_info(&f, "# Server\r\nredis_version:5.0.14\r\nrole:master\r\n");
    cr_expect(strstr(facts_unfit(&f), "6.0"));
    facts_from_info(&f, "# Server\r\nredis_version:6.0.0\r\nrole:master\r\n");
    cr_expect(facts_unfit(&f) == NULL);
    facts_from_info(&f, "# Server\r\nredis_version:10.1.0\r\nrole:slave\r\n");
    cr_expect(strstr(facts_unfit(&f), "replica"));
    facts_from_info(&f,
                    "# Server\r\nredis_version:7.0.1\r\nrole:slave\r\ncluster_enabled:1\r\n");
    cr_expect(facts_unfit(&f) == NULL);
}

static const struct fact *fact_named(const struct op *op, const char *name)
{
    for (size_t i = 0; op->facts && i < op->facts->count; i++)
        if (strcmp(op->facts->rows[i].name, name) == 0) return &op->facts->rows[i];
    cr_assert_fail("no fact %s", name);
    return NULL;
}

static void expect_told(const struct redis_facts *f, unsigned servers, const char *name,
                        enum fact_level level, const char *text)
{
    struct op op = { .verb = VERB_PING };
    facts_tell(&op, f, servers, false);
    const struct fact *fact = fact_named(&op, name);
    cr_expect(fact->level == level && strstr(fact->text, text), "%s: %s", name, fact->text);
    free(op.facts);
}

static struct redis_facts server(const char *info, const char *fsync, const char *save)
{
    struct redis_facts f = { 0 };
    facts_from_info(&f, info);
    const char *words[] = { "appendfsync", fsync, "save", save };
    for (size_t i = 0; i < 4; i += 2) {
        redisReply name = { .str = (char *)words[i] }, value = { .str = (char *)words[i + 1] };
        redisReply *pair[] = { &name, &value };
        redisReply reply = { .type = REDIS_REPLY_ARRAY, .elements = 2, .element = pair };
        if (words[i + 1]) facts_from_config(&f, &reply);
    }
    return f;
}

#define MASTER                                                                                 \
    "# Server\r\nredis_version:7.0.1\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n"
#define AOF MASTER "aof_enabled:1\r\n"
#define EVICTING                                                                               \
    "# Server\r\nredis_version:7.0.1\r\nrole:master\r\nmaxmemory:1000\r\n"                     \
    "maxmemory_policy:allkeys-lru\r\naof_enabled:1\r\n"

/* A managed server does not let anybody ask for its configuration. */
Test(redis_facts, what_was_not_told_is_not_made_up)
{
    struct redis_facts f = server(MASTER, NULL, NULL);
    expect_told(&f, 1, "persistence", FACT_OK, "not told");
    f = server(MASTER, "everysec", "");
    expect_told(&f, 1, "persistence", FACT_OK, "none: a restart forgets everything");
    f = server(MASTER, "everysec", "3600 1");
    expect_told(&f, 1, "persistence", FACT_OK, "snapshots only");
    f = server(AOF, NULL, NULL);
    expect_told(&f, 1, "persistence", FACT_OK, "how often it syncs is not told");
}

Test(redis_facts, of_several_servers_the_worst_is_told)
{
    struct redis_facts good = server(AOF, "always", "");
    struct redis_facts others[] = { server(AOF, "everysec", ""), server(AOF, "no", ""),
                                    server(MASTER, "no", "3600 1"), server(MASTER, NULL, NULL),
                                    server(MASTER, "no", "") };
    const char *const told[] = { "everysec", "appendfsync no", "snapshots only", "not told",
                                 "none" };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct redis_facts worst = good;
        facts_worst(&worst, &others[i]);
        expect_told(&worst, 2, "persistence", FACT_OK, told[i]);
        facts_worst(&worst, &good);
        expect_told(&worst, 2, "persistence", FACT_OK, told[i]);
    }
    struct redis_facts evicting = server(EVICTING, "always", ""), worst = evicting;
    facts_worst(&worst, &good);
    expect_told(&worst, 2, "eviction", FACT_WARN, "allkeys-lru");
    expect_told(&worst, 2, "buffer", FACT_WARN, "refused");
    expect_told(&worst, 2, "server", FACT_OK, "worst of 2");
    facts_worst(&good, &evicting);
    expect_told(&good, 2, "eviction", FACT_WARN, "allkeys-lru");
}

Test(redis_facts, replica_of_a_cluster_is_no_failure)
{
    struct redis_facts f = server(
        "# Server\r\nredis_version:7.0.1\r\nrole:slave\r\ncluster_enabled:1\r\n", "always", "");
    struct op op = { .verb = VERB_PING };
    facts_tell(&op, &f, 1, false);
    for (size_t i = 0; i < op.facts->count; i++)
        cr_expect(op.facts->rows[i].level != FACT_FAIL, "%s", op.facts->rows[i].text);
    free(op.facts);
}
