/* log_test.c - lines as they are written, with clocks that the test moves. */
#include "daemon/log.h"

#include "cli/format.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static struct log log_;
static int64_t wall_ms, now_ms;
static int ends[2];
static char said[65536];

static int64_t read_ms(void *ctx)
{
    return *(int64_t *)ctx;
}

static void start(enum log_format format, enum log_level level)
{
    cr_assert(pipe2(ends, O_NONBLOCK) == 0);
    log_init(&log_, ends[1], format, level);
    wall_ms = INT64_C(1763274000123);
    log_.wall = (struct clock){ .now_ms = read_ms, .ctx = &wall_ms };
    log_.clock = (struct clock){ .now_ms = read_ms, .ctx = &now_ms };
}

static const char *lines(void)
{
    ssize_t n = read(ends[0], said, sizeof said - 1);
    said[n > 0 ? n : 0] = '\0';
    return said;
}

static unsigned count_lines(void)
{
    unsigned count = 0;
    for (const char *p = lines(); *p; p++) count += *p == '\n';
    return count;
}

static void expect(const char *want)
{
    cr_expect_str_eq(lines(), want);
}

static void emit(struct trace_event event)
{
    trace_emit(&log_.trace, event);
}

static struct trace_event takeover(void)
{
    return (struct trace_event){ .kind = TRACE_TAKEOVER,
                                 .scope = bytes_str("orders"),
                                 .key = bytes_str("secret-17"),
                                 .number = 9 };
}

Test(log, logfmt)
{
    start(LOG_LOGFMT, LOG_INFO);
    log_say(&log_, LOG_INFO, "start",
            (struct log_field[]){ LOG_TEXT("planes", "ledger a, coord b"),
                                  LOG_TEXT("odd", "a\"b\\c\n"),
                                  LOG_TEXT("none", NULL),
                                  LOG_TEXT("empty", ""),
                                  LOG_NUMBER("pid", -3),
                                  { 0 } });
    expect("ts=2025-11-16T06:20:00.123Z level=info event=start planes=\"ledger a, coord b\" "
           "odd=\"a\\\"b\\\\c\\x0a\" empty=\"\" pid=-3\n");
}

Test(log, json)
{
    start(LOG_JSON, LOG_INFO);
    log_say(&log_, LOG_WARN, "odd",
            (struct log_field[]){ LOG_TEXT("text", "a\"b\n"), LOG_NUMBER("n", 7), { 0 } });
    expect("{\"ts\":\"2025-11-16T06:20:00.123Z\",\"level\":\"warn\",\"event\":\"odd\","
           "\"text\":\"a\\\"b\\n\",\"n\":7}\n");
}

Test(log, a_key_is_a_hash_and_the_one_that_the_command_shows)
{
    char name[KEY_HASH_BYTES], want[200];
    start(LOG_LOGFMT, LOG_INFO);
    emit(takeover());
    key_hash(bytes_str("orders"), bytes_str("secret-17"), name);
    snprintf(want, sizeof want,
             "ts=2025-11-16T06:20:00.123Z level=warn event=takeover key=%s fence=9\n", name);
    expect(want);
    cr_expect(strlen(name) == 12 && !strstr(said, "secret") && !strstr(said, "orders"));
}

Test(log, the_level_decides_and_can_change)
{
    start(LOG_LOGFMT, LOG_ERROR);
    emit(takeover());
    log_say(&log_, LOG_WARN, "x", NULL);
    expect("");
    log_set_level(&log_, LOG_WARN);
    emit(takeover());
    emit((struct trace_event){ .kind = TRACE_CALL, .text = "asking" });
    log_say(&log_, LOG_INFO, "x", NULL);
    cr_expect(count_lines() == 1);
    log_set_level(&log_, LOG_DEBUG);
    emit((struct trace_event){ .kind = TRACE_CALL, .text = "asking" });
    expect("ts=2025-11-16T06:20:00.123Z level=debug event=call state=asking\n");
}

Test(log, what_nobody_hears_is_muted_at_the_source)
{
    start(LOG_LOGFMT, LOG_INFO);
    cr_expect(log_.trace.mute & 1u << TRACE_OP && log_.trace.mute & 1u << TRACE_CALL);
    cr_expect(!(log_.trace.mute & 1u << TRACE_TAKEOVER));
    log_set_level(&log_, LOG_DEBUG);
    cr_expect(log_.trace.mute == 0);
}

Test(log, a_flood_is_a_few_lines_and_a_number)
{
    start(LOG_LOGFMT, LOG_INFO);
    for (int i = 0; i < 500; i++) emit(takeover());
    cr_expect(count_lines() == LOG_LIMIT_LINES);
    log_say(&log_, LOG_INFO, "other", NULL);
    cr_expect(count_lines() == 1, "others are not held up");
    now_ms += LOG_LIMIT_MS;
    emit((struct trace_event){ .kind = TRACE_AMNESIA });
    expect("ts=2025-11-16T06:20:00.123Z level=info event=left_out of=takeover lines=490\n"
           "ts=2025-11-16T06:20:00.123Z level=warn event=amnesia\n");
    emit(takeover());
    cr_expect(count_lines() == 1, "a new window");
    cr_expect(log_.left_out == 490);
}

Test(log, the_end_says_what_was_left_out)
{
    start(LOG_LOGFMT, LOG_INFO);
    for (int i = 0; i <= LOG_LIMIT_LINES; i++) emit(takeover());
    lines();
    log_end(&log_);
    expect("ts=2025-11-16T06:20:00.123Z level=info event=left_out of=takeover lines=1\n");
    log_end(&log_);
    expect("");
}

Test(log, debug_leaves_nothing_out)
{
    start(LOG_LOGFMT, LOG_DEBUG);
    for (int i = 0; i < 100; i++) emit(takeover());
    cr_expect(count_lines() == 100);
}

Test(log, a_line_that_cannot_be_written_is_counted)
{
    start(LOG_LOGFMT, LOG_INFO);
    close(ends[1]);
    log_say(&log_, LOG_INFO, "x", NULL);
    cr_expect(log_.failed == 1 && log_.lines == 0);
}

Test(log, names)
{
    cr_expect(log_name_find(log_level_names, "warn") == LOG_WARN);
    cr_expect(log_name_find(log_level_names, "loud") == -1);
    cr_expect(log_name_find(log_format_names, "json") == LOG_JSON);
}
