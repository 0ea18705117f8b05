/* resp_mutations_test.c - ONCE.MUTATION.*: what is answered, who may ask, and who has hung up. */
#include "daemon/scene_test.h"
#include "daemon/tokens_file.h"

static const char *talk(struct scene *s, int fd, const char *text)
{
    say(s, fd, text);
    return hear(fd);
}

__attribute__((format(printf, 4, 5))) static void talks(struct scene *s, int fd,
                                                        const char *want, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const char *got = talk(s, fd, text);
    cr_assert(strncmp(got, want, strlen(want)) == 0, "%s\n%s", text, got);
}

static void begin(struct scene *s, int fd, const char *text, char token[33])
{
    const char *got = talk(s, fd, text), *start = "*3\r\n$7\r\nclaimed\r\n$32\r\n";
    cr_assert(strncmp(got, start, strlen(start)) == 0, "%s", got);
    snprintf(token, 33, "%.32s", got + strlen(start));
}

Test(resp_mutations, from_begun_to_cached)
{
    struct scene s = { 0 };
    char token[33];
    scene_open_door(&s, &resp_door);
    int fd = dial(&s);
    begin(&s, fd, "ONCE.MUTATION.BEGIN u r METHOD Use LEASE 7s\n", token);
    talks(&s, fd, "*2\r\n$11\r\nin_progress\r\n:7000\r\n",
          "ONCE.MUTATION.BEGIN u r METHOD Use\n");
    talks(&s, fd, "-MISMATCH same request", "ONCE.MUTATION.BEGIN u r METHOD Sell\n");
    talks(&s, fd, "+OK\r\n", "once.mutation.complete u r %s done EPOCH e1 RETAIN 1h\n", token);
    talks(&s, fd, "*2\r\n$6\r\ncached\r\n$4\r\ndone\r\n",
          "ONCE.MUTATION.BEGIN u r METHOD Use EPOCH e1\n");
    begin(&s, fd, "ONCE.MUTATION.BEGIN u r METHOD Use EPOCH e2\n", token);
    talks(&s, fd, "+OK\r\n", "ONCE.MUTATION.ABORT u r %s\n", token);
    talks(&s, fd, "*1\r\n$4\r\nlost\r\n", "ONCE.MUTATION.ABORT u r %s\n", token);
    begin(&s, fd, "ONCE.MUTATION.BEGIN u r ENV other\n", token);
    talks(&s, fd, "+OK\r\n", "ONCE.MUTATION.COMPLETE u r %s \"\" OMIT ENV other\n", token);
    talks(&s, fd, "*1\r\n$12\r\nalready_done\r\n", "ONCE.MUTATION.BEGIN u r ENV other\n");
    hang_up(&s, fd);
    scene_close(&s);
}

Test(resp_mutations, keep_a_response_for_as_long_as_they_are_told)
{
    struct scene s = { 0 };
    char token[33];
    scene_open_door(&s, &resp_door);
    int fd = dial(&s);
    begin(&s, fd, "ONCE.MUTATION.BEGIN u r\n", token);
    talks(&s, fd, "+OK\r\n", "ONCE.MUTATION.COMPLETE u r %s done RETAIN 5s\n", token);
    world_advance(&s.world, 4999);
    talks(&s, fd, "*2\r\n$6\r\ncached\r\n$4\r\ndone\r\n", "ONCE.MUTATION.BEGIN u r\n");
    world_advance(&s.world, 1);
    begin(&s, fd, "ONCE.MUTATION.BEGIN u r\n", token);
    hang_up(&s, fd);
    scene_close(&s);
}

Test(resp_mutations, without_coord_there_is_a_token_that_is_empty)
{
    struct scene s = { 0 };
    scene_open_door(&s, &resp_door);
    int fd = dial(&s);
    faulty_set(s.store, VERB_CLAIM, FAULT_REFUSE, 1);
    talks(&s, fd, "*3\r\n$7\r\nclaimed\r\n$0\r\n\r\n:0\r\n", "ONCE.MUTATION.BEGIN u r\n");
    talks(&s, fd, "+OK\r\n", "ONCE.MUTATION.COMPLETE u r \"\" done\n");
    talks(&s, fd, "+OK\r\n", "ONCE.MUTATION.ABORT u r \"\"\n");
    hang_up(&s, fd);
    scene_close(&s);
}

Test(resp_mutations, everything_that_is_known)
{
    struct scene s = { 0 };
    scene_open_door(&s, &resp_door);
    int fd = dial(&s);
    const char *token = "000102030405060708090a0b0c0d0e0f";
    talks(&s, fd,
          "*14\r\n$7\r\noutcome\r\n$7\r\nclaimed\r\n$5\r\ntoken\r\n$32\r\n00010203"
          "0405060708090a0b0c0d0e0f\r\n$13\r\nlease_left_ms\r\n:30000\r\n",
          "ONCE.MUTATION.BEGIN u r TOKEN %s META\n", token);
    talks(&s, fd, "*3\r\n$7\r\nclaimed\r\n", "ONCE.MUTATION.BEGIN u r TOKEN %s\n", token);
    hang_up(&s, fd);
    scene_close(&s);
}

Test(resp_mutations, answers_come_in_order)
{
    struct scene s = { 0 };
    char token[33];
    scene_open_door(&s, &resp_door);
    int fd = dial(&s), other = dial(&s);
    begin(&s, fd, "ONCE.MUTATION.BEGIN u r\n", token);
    say(&s, other, "ONCE.MUTATION.BEGIN u r WAIT 1000\nPING\n");
    hears(other, "");
    talks(&s, fd, "+OK\r\n", "ONCE.MUTATION.COMPLETE u r %s done\n", token);
    hears(other, "*2\r\n$6\r\ncached\r\n$4\r\ndone\r\n+PONG\r\n");
    hang_up(&s, fd);
    hang_up(&s, other);
    scene_close(&s);
}

Test(resp_mutations, begun_for_nobody_is_given_back)
{
    struct scene s = { 0 };
    char token[33];
    scene_open_door(&s, &resp_door);
    faulty_set(s.store, VERB_CLAIM, FAULT_HOLD, 1);
    int fd = dial(&s);
    say(&s, fd, "ONCE.MUTATION.BEGIN u r WAIT 1000\n");
    hang_up(&s, fd);
    faulty_let_go(s.store);
    go(&s);
    fd = dial(&s);
    begin(&s, fd, "ONCE.MUTATION.BEGIN u r\n", token);
    hang_up(&s, fd);
    scene_close(&s);
}

Test(resp_mutations, what_is_wrong_is_said)
{
    static const struct {
        const char *text, *want;
    } rows[] = {
        { "ONCE.MUTATION.BEGIN u\n", "-ERR wrong number of arguments" },
        { "ONCE.MUTATION.BEGIN u \"\"\n", "-ERR the request id is empty" },
        { "ONCE.MUTATION.BEGIN u r ENV \"\"\n", "-ERR the env is empty" },
        { "ONCE.MUTATION.BEGIN u r LEASE x\n", "-ERR LEASE wants" },
        { "ONCE.MUTATION.BEGIN u r RETAIN 1\n", "-ERR syntax error" },
        { "ONCE.MUTATION.COMPLETE u r xyz done\n", "-ERR a token is" },
        { "ONCE.MUTATION.ABORT u r\n", "-ERR wrong number of arguments" },
    };
    struct scene s = { 0 };
    scene_open_door(&s, &resp_door);
    int fd = dial(&s);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        talks(&s, fd, rows[i].want, "%s", rows[i].text);
    cr_assert_eq(faulty_count(s.store, VERB_CLAIM), 0);
    hang_up(&s, fd);
    scene_close(&s);
}
