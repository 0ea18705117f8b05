/* resp_runs_test.c - runs through the RESP door, on a real ledger: what is answered, in which order,
 * and what becomes of those who hang up. */
#include "base/check.h"
#include "daemon/scene_test.h"
#include "daemon/tokens_file.h"

#define HELLO_3 "HELLO 3\n"
#define LOST "*1\r\n$4\r\nlost\r\n"
#define ABSENT "*1\r\n$6\r\nabsent\r\n"
#define NOTHING "*0\r\n"
#define NONE "run_01KA6JD5X80123456789ABCDEF"

static void scene_open(struct scene *s)
{
    scene_open_on(s, &resp_door, "sqlite");
}

static bool begins(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* Says it and hears what begins so. */
static const char *talk(struct scene *s, int fd, const char *text)
{
    say(s, fd, text);
    return hear(fd);
}

static void talks(struct scene *s, int fd, const char *text, const char *want)
{
    const char *got = talk(s, fd, text);
    cr_assert(strncmp(got, want, strlen(want)) == 0, "%s\n%s", text, got);
}

/* What follows `start` in an answer, up to the end of its line. */
static void take_word(const char *got, const char *start, char *out, size_t size)
{
    const char *at = strstr(got, start);
    cr_assert(at, "no %s in %s", start, got);
    at += strlen(start);
    snprintf(out, size, "%.*s", (int)strcspn(at, "\r"), at);
}

static void trigger(struct scene *s, int fd, const char *text, const char *outcome, char id[31])
{
    char start[32];
    const char *got = talk(s, fd, text);
    snprintf(start, sizeof start, "*4\r\n$%zu\r\n%s\r\n", strlen(outcome), outcome);
    cr_assert(strncmp(got, start, strlen(start)) == 0, "%s\n%s", text, got);
    take_word(got, "$30\r\n", id, 31);
}

/* PULL ... that gets one. */
static void pull(struct scene *s, int fd, const char *text, char id[31], char token[33])
{
    const char *got = talk(s, fd, text);
    cr_assert(begins(got, "*1\r\n*8\r\n"), "%s\n%s", text, got);
    take_word(got, "$30\r\n", id, 31);
    take_word(got, "$32\r\n", token, 33);
}

__attribute__((format(printf, 4, 5))) static void talksf(struct scene *s, int fd,
                                                         const char *want, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    talks(s, fd, text, want);
}

/* ---- answers ---- */

Test(resp_runs, a_key_leads_to_one_run)
{
    struct scene s = { 0 };
    char first[31], again[31];
    scene_open(&s);
    int fd = dial(&s);
    trigger(&s, fd, "ONCE.TRIGGER send '{\"to\": 1}' KEY k\n", "created", first);
    trigger(&s, fd, "ONCE.TRIGGER send '{\"to\": 1}' KEY k\n", "cached", again);
    cr_assert_str_eq(first, again);
    talks(&s, fd, "ONCE.TRIGGER send '{\"to\":1}' KEY k\n", "-MISMATCH ");
    trigger(&s, fd, "ONCE.TRIGGER send 2 KEY k ONMISMATCH RETURN\n", "cached", again);
    cr_assert_str_eq(first, again);
    trigger(&s, fd, "ONCE.TRIGGER send 2 KEY k ENV other\n", "created", again);
    cr_assert_str_neq(first, again);
    talks(&s, fd, "ONCE.RUN RESET send k\n", "+OK\r\n");
    talks(&s, fd, "ONCE.RUN RESET send k\n", ABSENT);
    trigger(&s, fd, "ONCE.TRIGGER send 2 KEY k\n", "created", again);
    cr_assert_str_neq(first, again);
    close(fd);
    scene_close(&s);
}

Test(resp_runs, an_id_of_the_clients_own_finds_its_run_again)
{
    struct scene s = { 0 };
    char id[31];
    scene_open(&s);
    int fd = dial(&s);
    for (int i = 0; i < 2; i++) {
        const char *got = talk(&s, fd, "ONCE.TRIGGER send 1 ID " NONE "\n");
        take_word(got, "$30\r\n", id, sizeof id);
        cr_assert_str_eq(id, NONE);
    }
    const char *got = talk(&s, fd, "ONCE.RUN LIST\n");
    cr_assert(begins(got, "*2\r\n$1\r\n0\r\n*1\r\n"), "%s", got);
    close(fd);
    scene_close(&s);
}

Test(resp_runs, a_run_is_a_map)
{
    struct scene s = { 0 };
    char id[31], text[64];
    scene_open(&s);
    int fd = dial(&s);
    trigger(&s, fd, "ONCE.TRIGGER send '[ 1 ]' DELAY 1h TAG a TAG b METADATA '{\"n\":1}'\n",
            "created", id);
    snprintf(text, sizeof text, "ONCE.RUN GET %s\n", id);
    const char *got = talk(&s, fd, text);
    cr_assert(begins(got, "*44\r\n$2\r\nid\r\n"), "%s", got);
    cr_assert(strstr(got, "$6\r\nstatus\r\n$7\r\nDELAYED\r\n"), "%s", got);
    cr_assert(strstr(got, "$7\r\npayload\r\n$5\r\n[ 1 ]\r\n"), "byte for byte: %s", got);
    cr_assert(strstr(got, "$4\r\ntags\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n"), "%s", got);
    cr_assert(strstr(got, "$8\r\nmetadata\r\n$7\r\n{\"n\":1}\r\n"), "%s", got);
    cr_assert(strstr(got, "$6\r\noutput\r\n$-1\r\n"), "%s", got);
    talks(&s, fd, HELLO_3, "%9\r\n");
    talks(&s, fd, text, "%22\r\n$2\r\nid\r\n");
    talksf(&s, fd, ABSENT, "ONCE.RUN GET %s ENV other\n", id);
    talks(&s, fd, "ONCE.RUN GET " NONE "\n", ABSENT);
    close(fd);
    scene_close(&s);
}

Test(resp_runs, a_list_comes_in_pages)
{
    struct scene s = { 0 };
    char ids[5][31], text[900], cursor[31], payload[401];
    scene_open(&s);
    int fd = dial(&s);
    memset(payload, '1', 400);
    payload[400] = '\0';
    for (int i = 0; i < 5; i++) {
        pass_ms(&s, 1); /* ids are ordered by time */
        snprintf(text, sizeof text, "ONCE.TRIGGER t%d %s TAG x\n", i % 2, payload);
        trigger(&s, fd, text, "created", ids[i]);
    }
    const char *got = talk(&s, fd, "ONCE.RUN LIST COUNT 1\n");
    take_word(got, "$30\r\n", cursor, sizeof cursor);
    cr_assert_str_eq(cursor, ids[4]);
    /* Two of them are more than an answer may have. */
    snprintf(text, sizeof text, "ONCE.RUN LIST BEFORE %s\n", ids[4]);
    got = talk(&s, fd, text);
    take_word(got, "*2\r\n$30\r\n", cursor, sizeof cursor);
    cr_assert_str_eq(cursor, ids[3]);
    cr_assert(strncmp(got + strlen("*2\r\n$30\r\n") + 32, "*1\r\n", 4) == 0, "%s", got);
    talks(&s, fd, "ONCE.RUN LIST TASK none\n", "*2\r\n$1\r\n0\r\n*0\r\n");
    talks(&s, fd, "ONCE.RUN LIST STATUS FAILED\n", "*2\r\n$1\r\n0\r\n*0\r\n");
    snprintf(text, sizeof text, "ONCE.RUN LIST TASK t1 TAG x STATUS QUEUED BEFORE %s\n",
             ids[3]);
    talks(&s, fd, text, "*2\r\n$1\r\n0\r\n*1\r\n");
    close(fd);
    scene_close(&s);
}

static void errors_are(struct scene *s, int fd, const char *id, const char *want)
{
    char text[64], field[128];
    snprintf(text, sizeof text, "ONCE.RUN GET %s\n", id);
    snprintf(field, sizeof field, "$5\r\nerror\r\n$%zu\r\n%s\r\n", strlen(want), want);
    const char *got = talk(s, fd, text);
    cr_assert(strstr(got, field), "%s", got);
}

/* As over HTTP and by the command: text is text, and JSON is what says so. */
Test(resp_runs, a_reason_is_text)
{
    static const struct {
        const char *said, *kept;
    } rows[] = {
        { "REASON 'not needed any more'", "\"not needed any more\"" },
        { "REASON '\"quoted\"'", "\"\\\"quoted\\\"\"" },
        { "REASON ''", "\"\"" },
        { "REASON '{\"a\":1}'", "\"{\\\"a\\\":1}\"" },
        { "ERROR '{ \"a\":1}'", "{ \"a\":1}" },
        { "ERROR '\"text\"'", "\"text\"" },
    };
    struct scene s = { 0 };
    char id[31];
    scene_open(&s);
    int fd = dial(&s);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        trigger(&s, fd, "ONCE.TRIGGER send 1\n", "created", id);
        talksf(&s, fd, "+OK\r\n", "ONCE.RUN CANCEL %s %s\n", id, rows[i].said);
        errors_are(&s, fd, id, rows[i].kept);
    }
    close(fd);
    scene_close(&s);
}

Test(resp_runs, changes_are_made_and_refused)
{
    struct scene s = { 0 };
    char id[31], other[31];
    scene_open(&s);
    int fd = dial(&s);
    trigger(&s, fd, "ONCE.TRIGGER send 1\n", "created", id);
    talksf(&s, fd, "+OK\r\n", "ONCE.RUN TAG %s a b\n", id);
    talksf(&s, fd, "-REFUSED a run has at most", "ONCE.RUN TAG %s c d e f g h i j k\n", id);
    talksf(&s, fd, ":1\r\n", "ONCE.RUN METADATA %s {}\n", id);
    talksf(&s, fd, "-CONFLICT ", "ONCE.RUN METADATA %s {} VERSION 0\n", id);
    talksf(&s, fd, ":2\r\n", "ONCE.RUN METADATA %s {} VERSION 1\n", id);
    talksf(&s, fd, ":3\r\n",
           "ONCE.RUN OPERATE %s '[{\"type\":\"increment\",\"key\":\"n\",\"value\":2}]'\n", id);
    talksf(&s, fd, "-ERR ", "ONCE.RUN OPERATE %s nonsense\n", id);
    talksf(&s, fd, "-REFUSED only a DELAYED run", "ONCE.RUN RESCHEDULE %s 1800000000000\n", id);
    talksf(&s, fd, "-ERR the reason", "ONCE.RUN CANCEL %s ERROR enough\n", id);
    talksf(&s, fd, "+OK\r\n", "ONCE.RUN CANCEL %s REASON 'not \"enough\"'\n", id);
    talksf(&s, fd, "+OK\r\n", "ONCE.RUN CANCEL %s\n", id);
    errors_are(&s, fd, id, "\"not \\\"enough\\\"\"");
    talks(&s, fd, "ONCE.RUN CANCEL " NONE "\n", ABSENT);
    talks(&s, fd, "ONCE.RUN REPLAY " NONE "\n", ABSENT);
    char text[64];
    snprintf(text, sizeof text, "ONCE.RUN REPLAY %s\n", id);
    trigger(&s, fd, text, "created", other);
    cr_assert_str_neq(id, other);
    trigger(&s, fd, "ONCE.TRIGGER send 1 DELAY 1h\n", "created", id);
    talksf(&s, fd, "+OK\r\n", "ONCE.RUN RESCHEDULE %s 1700000000500\n", id);
    close(fd);
    scene_close(&s);
}

/* Of a variable that was not set, say; it is neither a key nor none. */
Test(resp_runs, an_empty_key_is_refused)
{
    struct scene s = { 0 };
    scene_open(&s);
    int fd = dial(&s);
    talks(&s, fd, "ONCE.TRIGGER send 1 KEY ''\n",
          "-ERR KEY is empty: leave it out if there is none\r\n");
    talks(&s, fd, "ONCE.RUN RESET send ''\n", "-ERR the key is empty\r\n");
    talks(&s, fd, "ONCE.CLAIM orders ''\n", "-ERR the key is empty\r\n");
    talks(&s, fd, "ONCE.RUN LIST\n", "*2\r\n$1\r\n0\r\n*0\r\n");
    close(fd);
    scene_close(&s);
}

Test(resp_runs, what_is_not_json_is_refused)
{
    struct scene s = { 0 };
    char id[31], token[33];
    scene_open(&s);
    int fd = dial(&s);
    talks(&s, fd, "ONCE.TRIGGER send {\n", "-ERR ");
    talks(&s, fd, "ONCE.TRIGGER send 1 METADATA []\n", "-ERR ");
    trigger(&s, fd, "ONCE.TRIGGER send ''\n", "created", id);
    pull(&s, fd, "ONCE.PULL send\n", id, token);
    talksf(&s, fd, "-ERR ", "ONCE.ACK %s %s nonsense\n", id, token);
    talksf(&s, fd, "-ERR ", "ONCE.NACK %s %s nonsense\n", id, token);
    talksf(&s, fd, "+OK\r\n", "ONCE.ACK %s %s '\"done\"'\n", id, token);
    close(fd);
    scene_close(&s);
}

/* ---- workers ---- */

Test(resp_runs, a_worker_leases_beats_fails_and_completes)
{
    struct scene s = { 0 };
    char id[31], leased[31], token[33], second[33];
    scene_open(&s);
    int fd = dial(&s);
    trigger(&s, fd, "ONCE.TRIGGER send 1 QUEUE mail\n", "created", id);
    pull(&s, fd, "ONCE.PULL mail LEASE 10s\n", leased, token);
    cr_assert_str_eq(id, leased);
    talks(&s, fd, "ONCE.PULL mail WAIT 0\n", NOTHING);
    talks(&s, fd, "ONCE.PULL mail LEASE 0\n",
          "-ERR a lease of 0 ms is over before a worker has it: 1 ms at least\r\n");
    pass_ms(&s, 9000);
    talksf(&s, fd, "+OK\r\n", "ONCE.BEAT %s %s\n", id, token);
    pass_ms(&s, 9000);
    talks(&s, fd, "ONCE.PULL mail WAIT 0\n", NOTHING);
    talksf(&s, fd, "+OK\r\n", "ONCE.NACK %s %s '\"no\"' RETRY 5s\n", id, token);
    talksf(&s, fd, LOST, "ONCE.ACK %s %s\n", id, token);
    pass_ms(&s, 5000);
    pull(&s, fd, "ONCE.PULL mail\n", leased, second);
    cr_assert_str_eq(id, leased);
    cr_assert_str_neq(token, second);
    talksf(&s, fd, LOST, "ONCE.BEAT %s %s\n", id, token);
    talksf(&s, fd, "+OK\r\n", "ONCE.NACK %s %s RETURN\n", id, second);
    pull(&s, fd, "ONCE.PULL mail\n", leased, token);
    talksf(&s, fd, "+OK\r\n", "ONCE.ACK %s %s '{\"ok\": true}'\n", id, token);
    char text[64];
    snprintf(text, sizeof text, "ONCE.RUN GET %s\n", id);
    const char *got = talk(&s, fd, text);
    cr_assert(strstr(got, "$9\r\nCOMPLETED\r\n"), "%s", got);
    cr_assert(strstr(got, "$6\r\noutput\r\n$12\r\n{\"ok\": true}\r\n"), "%s", got);
    cr_assert(strstr(got, "$8\r\nattempts\r\n:2\r\n"), "a lease given back is none: %s", got);
    close(fd);
    scene_close(&s);
}

Test(resp_runs, who_waits_is_told_and_holds_up_nobody_else)
{
    struct scene s = { 0 };
    char id[31];
    scene_open(&s);
    int fd = dial(&s), other = dial(&s);
    say(&s, fd, "ONCE.PULL mail WAIT 60s\nPING\nONCE.TRIGGER behind 1\n");
    hears(fd, "");
    pass_ms(&s, 3000);
    hears(fd, "");
    const char *got = talk(&s, other, "ONCE.RUN LIST TASK behind\n");
    cr_assert(strstr(got, "behind"), "D1: it was executed: %s", got);
    trigger(&s, other, "ONCE.TRIGGER send 1 QUEUE mail\n", "created", id);
    got = hear(fd);
    cr_assert(begins(got, "*1\r\n*8\r\n$30\r\n"), "%s", got);
    cr_assert(strstr(got, "+PONG\r\n*4\r\n$7\r\ncreated\r\n"), "D1: in order: %s", got);
    close(fd);
    close(other);
    scene_close(&s);
}

/* ---- those who hang up ---- */

Test(resp_runs, nothing_is_leased_for_who_has_hung_up)
{
    struct scene s = { 0 };
    char id[31], token[33];
    scene_open(&s);
    int fd = dial(&s), other = dial(&s);
    say(&s, fd, "ONCE.PULL mail WAIT 60s\n");
    hang_up(&s, fd);
    trigger(&s, other, "ONCE.TRIGGER send 1 QUEUE mail\n", "created", id);
    pull(&s, other, "ONCE.PULL mail WAIT 0\n", id, token);
    close(other);
    scene_close(&s);
}

Test(resp_runs, what_was_leased_meanwhile_is_given_back)
{
    struct scene s = { 0 };
    char id[31], again[31], token[33], text[64];
    scene_open(&s);
    int fd = dial(&s), other = dial(&s);
    trigger(&s, other, "ONCE.TRIGGER send 1 QUEUE mail\n", "created", id);
    faulty_set(s.store, VERB_RUN_LEASE, FAULT_HOLD, 1);
    say(&s, fd, "ONCE.PULL mail WAIT 60s\n");
    cr_assert_eq(faulty_held(s.store), 1);
    hang_up(&s, fd);
    faulty_let_go(s.store);
    go(&s);
    pull(&s, other, "ONCE.PULL mail WAIT 0\n", again, token);
    cr_assert_str_eq(id, again);
    snprintf(text, sizeof text, "ONCE.RUN GET %s\n", id);
    const char *got = talk(&s, other, text);
    cr_assert(strstr(got, "$8\r\nattempts\r\n:1\r\n"), "%s", got);
    cr_assert(strstr(got, "$6\r\nstalls\r\n:0\r\n"), "%s", got);
    close(other);
    scene_close(&s);
}

Test(resp_runs, a_trigger_is_carried_out_although_nobody_hears_of_it)
{
    struct scene s = { 0 };
    scene_open(&s);
    int fd = dial(&s), other = dial(&s);
    faulty_set(s.store, VERB_RUN_PUT, FAULT_HOLD, 1);
    say(&s, fd, "ONCE.TRIGGER send 1 KEY k\n");
    hang_up(&s, fd);
    faulty_let_go(s.store);
    go(&s);
    const char *got = talk(&s, other, "ONCE.RUN LIST\n");
    cr_assert(begins(got, "*2\r\n$1\r\n0\r\n*1\r\n"), "%s", got);
    close(other);
    scene_close(&s);
}

Test(resp_runs, who_half_closes_is_answered_but_does_not_wait)
{
    struct scene s = { 0 };
    scene_open(&s);
    int fd = dial(&s);
    say(&s, fd, "ONCE.TRIGGER send 1\nONCE.PULL none WAIT 60s\nONCE.RUN LIST TASK none\n");
    shutdown(fd, SHUT_WR);
    go(&s);
    const char *got = hear(fd);
    cr_assert(begins(got, "*4\r\n$7\r\ncreated\r\n"), "%s", got);
    cr_assert(strstr(got, "-UNAVAILABLE nothing was done"), "%s", got);
    cr_assert(strstr(got, "*2\r\n$1\r\n0\r\n*0\r\n"), "%s", got);
    close(fd);
    scene_close(&s);
}

Test(resp_runs, who_waits_is_sent_away_when_the_daemon_stops)
{
    struct scene s = { 0 };
    scene_open(&s);
    int fd = dial(&s);
    say(&s, fd, "ONCE.PULL mail WAIT 60s\n");
    conns_cancel(&s.conns);
    go(&s);
    hears(fd, "-UNAVAILABLE nothing was done");
    close(fd);
    scene_close(&s);
}

/* ---- RAW ---- */

#define PUSH ">3\r\n$8\r\nonce.run\r\n"

Test(resp_runs, raw_is_told_by_a_push_out_of_turn)
{
    struct scene s = { 0 };
    char id[31];
    scene_open(&s);
    int fd = dial(&s), other = dial(&s);
    talks(&s, fd, "ONCE.RUN LIST RAW 1\n", "-ERR pushes need RESP3");
    talks(&s, fd, HELLO_3, "%9\r\n");
    talks(&s, fd, "ONCE.PULL mail WAIT 60s RAW 7\nPING\n", "+OK\r\n+PONG\r\n");
    talks(&s, fd, "ONCE.RUN LIST RAW 8\n",
          "+OK\r\n" PUSH ":8\r\n*7\r\n$2\r\nok\r\n_\r\n#f\r\n#f\r\n:");
    trigger(&s, other, "ONCE.TRIGGER send 1 QUEUE mail\n", "created", id);
    const char *got = hear(fd);
    cr_assert(begins(got, PUSH ":7\r\n*7\r\n$2\r\nok\r\n"), "%s", got);
    talks(&s, fd, "ONCE.TRIGGER send { RAW 9\n", "-ERR ");
    talks(&s, fd, "ONCE.RUN GET " NONE " RAW 9\n",
          "+OK\r\n" PUSH ":9\r\n*7\r\n$6\r\nabsent\r\n");
    cr_assert_eq(s.door.raw_calls, 0);
    close(fd);
    close(other);
    scene_close(&s);
}

Test(resp_runs, raw_is_taken_back)
{
    struct scene s = { 0 };
    scene_open(&s);
    int fd = dial(&s);
    talks(&s, fd, HELLO_3, "%9\r\n");
    talks(&s, fd, "ONCE.PULL mail WAIT 60s RAW 7\n", "+OK\r\n");
    const char *got = talk(&s, fd, "ONCE.UNWATCH 8\nONCE.UNWATCH 7\n");
    cr_assert(begins(got, ":0\r\n:1\r\n" PUSH ":7\r\n-UNAVAILABLE "), "%s", got);
    talks(&s, fd, "ONCE.PULL mail WAIT 60s RAW 7\n", "+OK\r\n");
    cr_assert_eq(s.door.raw_calls, 1);
    talks(&s, fd, "RESET\n", "+RESET\r\n");
    cr_assert_eq(s.door.raw_calls, 0);
    hears(fd, "");
    talks(&s, fd, HELLO_3, "%9\r\n");
    talks(&s, fd, "ONCE.PULL mail WAIT 60s RAW 7\n", "+OK\r\n");
    hang_up(&s, fd);
    cr_assert_eq(s.door.raw_calls, 0);
    scene_close(&s);
}

/* Who does not listen: what is told to it is kept, within the limits of a connection. */
Test(resp_runs, raw_waits_for_room)
{
    struct scene s = { 0 };
    char text[1200], payload[901];
    scene_open(&s);
    int fd = dial(&s);
    memset(payload, '1', 900);
    payload[900] = '\0';
    talks(&s, fd, HELLO_3, "%9\r\n");
    snprintf(text, sizeof text, "ONCE.TRIGGER send %s ID " NONE "\n", payload);
    talks(&s, fd, text, "*4\r\n$7\r\ncreated\r\n");
    enum { MANY = 1500 };
    size_t heard = 0, pushes = 0;
    for (int i = 0; i < MANY; i++) say(&s, fd, "ONCE.RUN GET " NONE " RAW 1\n");
    cr_assert_gt(s.conns.stats[DOOR_RESP].out_bytes, 0);
    for (int idle = 0; idle < 3; idle++) {
        for (ssize_t n; (n = read(fd, text, sizeof text)) > 0; idle = 0) {
            heard += (size_t)n;
            for (ssize_t i = 0; i < n; i++) pushes += text[i] == '>';
        }
        go(&s);
    }
    cr_assert_gt(heard, MANY * 900);
    cr_assert_eq(pushes, MANY);
    close(fd);
    scene_close(&s);
}

/* ---- who may ask ---- */

static int64_t any_ms(void *ctx)
{
    (void)ctx;
    return INT64_C(1794808800000);
}

Test(resp_runs, a_token_is_good_for_verbs_in_envs)
{
    struct scene s = { 0 };
    struct auth auth;
    struct rng_system rng;
    struct err err = { 0 };
    struct tokens_change c;
    char path[64], text[200], token[TOKEN_TEXT_BYTES + 1];
    struct token_wish wish = { .name = bytes_str("t"),
                               .scopes = bytes_str("prod"),
                               .rights = BIT(RIGHT_TRIGGER) | BIT(RIGHT_WORK),
                               .expires_ms = INT64_MAX };
    rng_system_init(&rng);
    scene_open(&s);
    snprintf(path, sizeof path, "%s/tokens", s.dir);
    cr_assert_eq(tokens_change_begin(&c, path, &err), 0, "%s", err.text);
    cr_assert_eq(tokens_create(&c.tokens, &wish, &rng.base, token, &err), 0, "%s", err.text);
    cr_assert_eq(tokens_change_save(&c, &err), 0, "%s", err.text);
    tokens_change_end(&c);
    cr_assert_eq(auth_open(&auth, path, true, (struct clock){ any_ms, NULL }, &err), 0);
    s.door.auth = &auth;
    int fd = dial(&s);
    talks(&s, fd, "ONCE.TRIGGER send 1 ENV prod\n", "-NOAUTH ");
    snprintf(text, sizeof text, "AUTH %s\n", token);
    talks(&s, fd, text, "+OK\r\n");
    talks(&s, fd, "ONCE.TRIGGER send 1 ENV prod\n", "*4\r\n$7\r\ncreated\r\n");
    talks(&s, fd, "ONCE.TRIGGER send 1\n", "-NOPERM ");
    talks(&s, fd, "ONCE.TRIGGER send 1 ENV ''\n", "-ERR the env is empty");
    talks(&s, fd, "ONCE.RUN LIST ENV prod\n", "-NOPERM ");
    talks(&s, fd, "ONCE.RUN CANCEL " NONE " ENV prod\n", "-NOPERM ");
    talks(&s, fd, "ONCE.PULL send ENV prod\n", "*1\r\n");
    talks(&s, fd, "ONCE.PULL send\n", "-NOPERM ");
    close(fd);
    go(&s);
    unlink(path);
    scene_close(&s);
    auth_close(&auth);
}
