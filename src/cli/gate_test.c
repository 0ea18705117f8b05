/* gate_test.c - what `once gate` writes is what daemons read, and what it refuses they would not use. */
#include "cli/gate.h"

#include "engine/runs_internal.h"

#include <criterion/criterion.h>
#include <stdio.h>

static void expect_both(struct gate_setting s, bool good)
{
    char text[GATE_TEXT_BYTES];
    struct gate_config config;
    struct gate_setting back;
    struct err err;
    gate_setting_write(&s, text);
    cr_expect((gate_setting_check(&s, &err) == 0) == good, "%s", text);
    cr_expect(gate_parse(bytes_str(text), &config) == good, "%s", text);
    cr_expect(gate_setting_read(bytes_str(text), &back) == good, "%s", text);
    if (!good) return;
    cr_expect(config.threshold == s.threshold && config.window_ms == s.window_ms &&
              config.hold_ms == s.hold_ms && config.weight == s.weight);
    cr_expect(back.threshold == s.threshold && back.window_ms == s.window_ms &&
              back.hold_ms == s.hold_ms && back.weight == s.weight);
    cr_expect_str_eq(back.mode, s.mode);
}

Test(cli_gate, daemons_read_what_is_written_and_agree_on_what_can_be)
{
    const struct gate_setting usual = GATE_SETTING_INIT;
    static const int64_t thresholds[] = { -1, 0, 1, 100000, 100001 },
                         times[] = { -1, 0, 1, 3600000, 3600001 },
                         weights[] = { -1, 0, 1, 100, 101 };
    expect_both(usual, true);
    for (size_t i = 0; i < 5; i++) {
        struct gate_setting threshold = usual, window = usual, hold = usual, weight = usual;
        threshold.threshold = thresholds[i];
        window.window_ms = hold.hold_ms = times[i];
        weight.weight = weights[i];
        expect_both(threshold, i == 2 || i == 3);
        expect_both(window, i == 2 || i == 3);
        expect_both(hold, i == 2 || i == 3);
        expect_both(weight, i == 2 || i == 3);
    }
}

Test(cli_gate, every_mode_is_the_daemons)
{
    static const char *const modes[] = {
        [GATE_ON] = "on", [GATE_SHADOW] = "shadow", [GATE_OFF] = "off"
    };
    for (int m = GATE_ON; m <= GATE_OFF; m++) {
        struct gate_setting s = GATE_SETTING_INIT;
        struct gate_config config;
        char text[GATE_TEXT_BYTES];
        snprintf(s.mode, sizeof s.mode, "%s", modes[m]);
        cr_assert(gate_parse(bytes_str(gate_setting_write(&s, text)), &config));
        cr_expect((int)config.mode == m);
    }
    struct gate_setting unknown = GATE_SETTING_INIT;
    snprintf(unknown.mode, sizeof unknown.mode, "onn");
    expect_both(unknown, false);
}

Test(cli_gate, the_defaults_are_the_engines)
{
    const struct gate_setting here = GATE_SETTING_INIT;
    const struct gate_config there = GATE_CONFIG_INIT;
    cr_expect(here.threshold == there.threshold && here.window_ms == there.window_ms &&
              here.hold_ms == there.hold_ms);
    cr_expect_str_eq(GATE_SCOPE, GATES_SCOPE);
    cr_expect((int)GATE_ENV_BYTES_MAX == (int)ENV_BYTES_MAX);
}

Test(cli_gate, without_a_weight_it_is_one)
{
    struct gate_setting s;
    cr_assert(gate_setting_read(bytes_str("on 1 2 3"), &s));
    cr_expect(s.weight == 1);
}

Test(cli_gate, nonsense_is_no_setting)
{
    struct gate_setting s;
    static const char *const texts[] = { "", "on", "on 1 2", "1 2 3 4", "on x 2 3" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        cr_expect(!gate_setting_read(bytes_str(texts[i]), &s), "%s", texts[i]);
    cr_expect(!gate_setting_read(bytes_of(NULL, 0), &s));
}

Test(cli_gate, an_env_is_what_a_trigger_takes)
{
    static const char *const texts[] = { "", "default", "a b", "a/b:c.d_e-9", "\xc3\xa9", "%" };
    char longest[GATE_ENV_BYTES_MAX + 1];
    struct err err;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct bytes env = bytes_str(texts[i]);
        int theirs = run_name_check(env, ENV_BYTES_MAX, "env", &err);
        cr_expect(!gate_env_check(env, &err) == !theirs, "%s", texts[i]);
    }
    memset(longest, 'e', sizeof longest);
    cr_expect(gate_env_check(bytes_of(longest, GATE_ENV_BYTES_MAX), &err) == 0);
    cr_expect(gate_env_check(bytes_of(longest, GATE_ENV_BYTES_MAX + 1), &err) != 0);
}
