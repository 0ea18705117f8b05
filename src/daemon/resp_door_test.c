/* resp_door_test.c - the RESP door on an engine whose store fails as it is told to: what becomes of
 * those who hang up, of what they asked, and of what is BOUND to them. */
#include "daemon/scene_test.h"

#define CLAIMED "*4\r\n$7\r\nclaimed\r\n"

static void scene_open(struct scene *s)
{
    scene_open_door(s, &resp_door);
}

/* By a connection of its own. */
static void asked(struct scene *s, const char *text, const char *start)
{
    int fd = dial(s);
    say(s, fd, text);
    hears(fd, start);
    hang_up(s, fd);
}

/* Claims it and leaves its token in `out`. */
static void claim(struct scene *s, int fd, const char *text, char out[33])
{
    say(s, fd, text);
    const char *got = hear(fd);
    cr_assert(strncmp(got, CLAIMED "$32\r\n", strlen(CLAIMED) + 5) == 0, "%s", got);
    snprintf(out, 33, "%.32s", got + strlen(CLAIMED) + 5);
}

Test(resp_door, bound_is_renewed_while_the_connection_lives)
{
    struct scene s = { 0 };
    scene_open(&s);
    int fd = dial(&s);
    say(&s, fd, "ONCE.CLAIM s k LEASE 30s BOUND\n");
    hears(fd, CLAIMED);
    pass_ms(&s, 120000);
    asked(&s, "ONCE.CLAIM s k WAIT 0\n", "*2\r\n$11\r\nin_progress\r\n");
    hang_up(&s, fd);
    asked(&s, "ONCE.PEEK s k\n", "*1\r\n$6\r\nabsent\r\n");
    cr_assert_eq(engine_stats(s.engine).held, 0);
    scene_close(&s);
}

Test(resp_door, without_bound_it_lapses)
{
    struct scene s = { 0 };
    scene_open(&s);
    int fd = dial(&s);
    say(&s, fd, "ONCE.CLAIM s k LEASE 30s\n");
    hears(fd, CLAIMED);
    hang_up(&s, fd);
    asked(&s, "ONCE.CLAIM s k WAIT 0\n", "*2\r\n$11\r\nin_progress\r\n");
    pass_ms(&s, 30000);
    asked(&s, "ONCE.CLAIM s k WAIT 0\n", CLAIMED);
    scene_close(&s);
}

Test(resp_door, bound_is_released_until_the_store_has_heard)
{
    struct scene s = { 0 };
    scene_open(&s);
    int fd = dial(&s);
    say(&s, fd, "ONCE.CLAIM s k LEASE 30s BOUND\n");
    hears(fd, CLAIMED);
    faulty_set(s.store, VERB_RELEASE, FAULT_REFUSE, FAULTY_ALWAYS);
    hang_up(&s, fd);
    cr_assert(!bounds_idle(&s.bounds));
    pass_ms(&s, 60000);
    cr_assert(!bounds_idle(&s.bounds), "D3: it goes on");
    faulty_heal(s.store);
    pass_ms(&s, 2000);
    cr_assert(bounds_idle(&s.bounds));
    cr_assert_eq(engine_stats(s.engine).held, 0);
    asked(&s, "ONCE.PEEK s k\n", "*1\r\n$6\r\nabsent\r\n");
    scene_close(&s);
}

Test(resp_door, what_was_settled_is_not_bound)
{
    struct scene s = { 0 };
    scene_open(&s);
    char token[33], text[128];
    int fd = dial(&s);
    claim(&s, fd, "ONCE.CLAIM s k BOUND\n", token);
    cr_assert_eq(s.bounds.by_token.count, 1);
    snprintf(text, sizeof text, "ONCE.PUBLISH s k %s v\n", token);
    asked(&s, text, "+OK\r\n"); /* by another connection */
    cr_assert_eq(s.bounds.by_token.count, 0);
    claim(&s, fd, "ONCE.CLAIM s k2 BOUND\n", token);
    snprintf(text, sizeof text, "ONCE.RELEASE s k2 %s\n", token);
    say(&s, fd, text);
    hears(fd, "+OK\r\n");
    cr_assert_eq(s.bounds.by_token.count, 0);
    unsigned releases = faulty_count(s.store, VERB_RELEASE);
    hang_up(&s, fd);
    cr_assert_eq(faulty_count(s.store, VERB_RELEASE), releases);
    asked(&s, "ONCE.PEEK s k\n", "*2\r\n$6\r\ncached\r\n$1\r\nv\r\n");
    scene_close(&s);
}

Test(resp_door, what_was_taken_over_is_not_bound)
{
    struct scene s = { 0 };
    scene_open(&s);
    int fd = dial(&s);
    say(&s, fd, "ONCE.CLAIM s k LEASE 1s BOUND\n");
    hears(fd, CLAIMED);
    faulty_set(s.store, VERB_RENEW, FAULT_REFUSE, FAULTY_ALWAYS);
    pass_ms(&s, 2000);
    asked(&s, "ONCE.CLAIM s k LEASE 60s\n", CLAIMED);
    faulty_heal(s.store);
    pass_ms(&s, 2000);
    cr_assert_eq(s.bounds.by_token.count, 0);
    hang_up(&s, fd);
    asked(&s, "ONCE.CLAIM s k WAIT 0\n", "*2\r\n$11\r\nin_progress\r\n");
    scene_close(&s);
}

Test(resp_door, a_grant_that_nobody_hears_is_given_back)
{
    static const char *const claims[] = { "ONCE.CLAIM s k WAIT 0\n", "ONCE.CLAIM s k\n",
                                          "ONCE.CLAIM s k BOUND\n" };
    for (size_t i = 0; i < sizeof claims / sizeof claims[0]; i++) {
        struct scene s = { 0 };
        scene_open(&s);
        int fd = dial(&s);
        faulty_set(s.store, VERB_CLAIM, FAULT_HOLD, 1);
        say(&s, fd, claims[i]);
        cr_assert_eq(faulty_held(s.store), 1);
        hang_up(&s, fd);
        faulty_let_go(s.store);
        go(&s);
        bool may_wait = i > 0; /* otherwise it may only have stopped sending: it is answered */
        asked(&s, "ONCE.PEEK s k\n",
              may_wait ? "*1\r\n$6\r\nabsent\r\n" : "*2\r\n$11\r\nin_pro");
        cr_assert_eq(s.conns.count, 0);
        scene_close(&s);
    }
}

Test(resp_door, a_publish_is_carried_out_although_nobody_hears_of_it)
{
    struct scene s = { 0 };
    scene_open(&s);
    char token[33], text[128];
    int fd = dial(&s);
    claim(&s, fd, "ONCE.CLAIM s k\n", token);
    faulty_set(s.store, VERB_PUBLISH, FAULT_HOLD, 1);
    snprintf(text, sizeof text, "ONCE.PUBLISH s k %s v\n", token);
    say(&s, fd, text);
    conns_close(&s.conns, CLOSE_BROKEN);
    go(&s);
    faulty_let_go(s.store);
    go(&s);
    asked(&s, "ONCE.PEEK s k\n", "*2\r\n$6\r\ncached\r\n$1\r\nv\r\n");
    close(fd);
    scene_close(&s);
}

Test(resp_door, answers_keep_the_order_of_the_commands)
{
    struct scene s = { 0 };
    scene_open(&s);
    char token[33], text[128];
    int owner = dial(&s), fd = dial(&s);
    claim(&s, owner, "ONCE.CLAIM s k\n", token);
    say(&s, fd, "ONCE.CLAIM s k WAIT 60s\nONCE.PEEK s none\nPING\nHELLO 3\nNONSENSE\nPING x\n");
    hears(fd, "");
    snprintf(text, sizeof text, "ONCE.PUBLISH s k %s v\n", token);
    say(&s, owner, text);
    hears(owner, "+OK\r\n");
    const char *got = hear(fd);
    const char *order[] = {
        "*2\r\n$6\r\ncached\r\n$1\r\nv\r\n*1\r\n$6\r\nabsent\r\n+PONG\r\n%9\r\n",
        "-ERR unknown command 'NONSENSE'", "$1\r\nx\r\n"
    };
    for (size_t i = 0; i < 3; i++) {
        const char *at = strstr(got, order[i]);
        cr_assert(at && (i > 0 || at == got), "D1: %s", got);
        got = at;
    }
    close(owner);
    close(fd);
    scene_close(&s);
}

Test(resp_door, errors_say_what_may_have_happened)
{
    struct scene s = { 0 };
    scene_open(&s);
    int fd = dial(&s);
    faulty_set(s.store, VERB_CLAIM, FAULT_REFUSE, 1);
    say(&s, fd, "ONCE.CLAIM s k WAIT 0\n");
    hears(fd, "-UNAVAILABLE ");
    faulty_set(s.store, VERB_FORGET, FAULT_LOSE_ANSWER, FAULTY_ALWAYS);
    say(&s, fd, "ONCE.FORGET s k\n");
    pass_ms(&s, 10000);
    hears(fd, "-AMBIGUOUS ");
    close(fd);
    scene_close(&s);
}

Test(resp_door, claims_are_canceled_when_the_daemon_cannot_wait_for_them)
{
    struct scene s = { 0 };
    scene_open(&s);
    char token[33];
    int owner = dial(&s), fd = dial(&s);
    claim(&s, owner, "ONCE.CLAIM s k\n", token);
    say(&s, fd, "ONCE.CLAIM s k WAIT 60s\n");
    cr_assert_eq(engine_stats(s.engine).waiters, 1);
    conns_cancel(&s.conns);
    go(&s);
    hears(fd, "-UNAVAILABLE nothing was done");
    cr_assert_eq(engine_stats(s.engine).waiters, 0);
    close(owner);
    close(fd);
    scene_close(&s);
}

#define TOKEN "000102030405060708090a0b0c0d0e0f"
#define META "%13\r\n$7\r\noutcome\r\n"

Test(resp_door, meta_tells_everything_and_a_token_finds_its_claim_again)
{
    struct scene s = { 0 };
    scene_open(&s);
    int fd = dial(&s);
    say(&s, fd, "HELLO 3\n");
    hear(fd);
    for (int i = 0; i < 2; i++) {
        say(&s, fd, "ONCE.CLAIM s k TOKEN " TOKEN " META\n");
        const char *got = hear(fd);
        cr_assert(strncmp(got, META "$7\r\nclaimed", strlen(META) + 11) == 0, "%s", got);
        cr_assert(strstr(got, "$5\r\ntoken\r\n$32\r\n" TOKEN "\r\n$5\r\nvalue\r\n_\r\n"));
        cr_assert(strstr(got, i ? "$7\r\nchanged\r\n#f" : "$7\r\nchanged\r\n#t"), "%s", got);
    }
    say(&s, fd, "ONCE.CLAIM s k FP other META\n");
    hears(fd, META "$8\r\nmismatch\r\n");
    say(&s, fd, "ONCE.CLAIM s k WAIT 0 TOKEN 00000000000000000000000000000000\n");
    hears(fd, "-ERR a token is 32 hexadecimal digits");
    say(&s, fd, "ONCE.CLAIM s k TOKEN " TOKEN " BOUND\n");
    hears(fd, "-ERR syntax error: BOUND and TOKEN");
    say(&s, fd, "ONCE.PUBLISH s k " TOKEN " x OMIT\nONCE.PEEK s k\n");
    hears(fd, "+OK\r\n*1\r\n$12\r\nalready_done\r\n");
    close(fd);
    scene_close(&s);
}

/* Whoever made the token may be asking again by now: it is not for the daemon to give it back. */
Test(resp_door, a_claim_with_a_token_of_the_clients_is_not_given_back)
{
    struct scene s = { 0 };
    scene_open(&s);
    int fd = dial(&s);
    faulty_set(s.store, VERB_CLAIM, FAULT_HOLD, 1);
    say(&s, fd, "ONCE.CLAIM s k LEASE 30s TOKEN " TOKEN "\n");
    hang_up(&s, fd);
    faulty_let_go(s.store);
    go(&s);
    asked(&s, "ONCE.CLAIM s k WAIT 0\n", "*2\r\n$11\r\nin_progress\r\n");
    asked(&s, "ONCE.CLAIM s k WAIT 0 TOKEN " TOKEN "\n", CLAIMED);
    scene_close(&s);
}

Test(resp_door, a_watch_is_told_once_out_of_turn)
{
    struct scene s = { 0 };
    scene_open(&s);
    int fd = dial(&s), owner = dial(&s);
    char token[33], text[160];
    claim(&s, owner, "ONCE.CLAIM s k\n", token);
    say(&s, fd, "ONCE.WATCH 7 s k 0\n");
    hears(fd, "-ERR pushes need RESP3: say HELLO 3 first");
    say(&s, fd, "HELLO 3\n");
    hear(fd);
    say(&s, fd, "ONCE.WATCH 7 s none 0\nONCE.WATCH 7 s none 0\nONCE.WATCH 8 s k 0\n");
    const char *got = hear(fd);
    cr_assert(strncmp(got, "+OK\r\n-ERR there is a watch", 26) == 0, "%s", got);
    cr_assert(strstr(got, "+OK\r\n>3\r\n$10\r\nonce.watch\r\n:8\r\n_\r\n"), "%s", got);
    say(&s, fd, "ONCE.PEEK s k META\n");
    const char *version = strstr(hear(fd), "$7\r\nversion\r\n");
    cr_assert(version);
    long long seen = atoll(strchr(version + 14, '\n') + 1);
    snprintf(text, sizeof text, "ONCE.WATCH 8 s k %lld\nONCE.CLAIM s k WAIT 60s\n", seen);
    say(&s, fd, text);
    hears(fd, "+OK\r\n");
    hears(fd, "");
    snprintf(text, sizeof text, "ONCE.PUBLISH s k %s v\n", token);
    say(&s, owner, text);
    got = hear(fd);
    cr_assert(strstr(got, "$10\r\nonce.watch\r\n:8\r\n_\r\n"), "%s", got);
    cr_assert(strstr(got, "*2\r\n$6\r\ncached\r\n"), "%s", got);
    say(&s, fd, "ONCE.WATCH 9 s k 1\n"); /* the answer is there: it comes along */
    cr_assert(strstr(hear(fd), ":9\r\n%6\r\n$7\r\noutcome\r\n$6\r\ncached\r\n"));
    say(&s, fd, "ONCE.UNWATCH 7\nONCE.UNWATCH 7\nONCE.UNWATCH x\n");
    hears(fd, ":1\r\n:0\r\n:0\r\n");
    say(&s, fd, "ONCE.WATCH 9 s none 0\n");
    hears(fd, "+OK\r\n");
    hang_up(&s, fd);
    cr_assert_eq(s.door.watches.count, 0);
    close(owner);
    scene_close(&s);
}

Test(resp_door, upkeep_can_be_asked_for)
{
    struct scene s = { 0 };
    scene_open(&s);
    int fd = dial(&s);
    say(&s, fd, "HELLO 3\nONCE.CLAIM s k LEASE 0 RETAIN 0\n");
    hear(fd);
    say(&s, fd, "ONCE.STATS\n");
    hears(fd, "%7\r\n$7\r\npending\r\n:0\r\n$6\r\nlapsed\r\n:1\r\n");
    pass_ms(&s, 2 * 86400000);
    say(&s, fd, "ONCE.SWEEP\nONCE.SWEEP 5\nONCE.SWEEP x\n");
    hears(fd, ":0\r\n:0\r\n-ERR how many at most"); /* the engine has swept by itself */
    say(&s, fd, "ONCE.FACTS\n");
    hears(fd, "*");
    close(fd);
    scene_close(&s);
}
