/* gate.c - once gate: how many triggers of an env are a burst, as operators say it, for all daemons
 * of a ledger.
 *
 * What is set is an answer like any other (gate.h), so it is changed in two steps: the old one is
 * forgotten, the new one claimed and published. Who is killed between the two leaves the env as the
 * daemons' settings have it. */
#include "cli/gate.h"

#include "cli/answer.h"
#include "cli/commands.h"
#include "cli/format.h"

#include <stdlib.h>
#include <string.h>

enum { GATE_MODE, GATE_THRESHOLD, GATE_WINDOW, GATE_HOLD, GATE_WEIGHT, GATE_END };
enum { SET_TRIES_MAX = 5, LEASE_MS = 5000, WAIT_MS = 5000 };

static const struct option gate_options[] = {
    [GATE_MODE] = { "mode", .kind = OPTION_CHOICE, .value = "MODE",
                    .choices = { "on", "shadow", "off" },
                    .help = "set: divert bursts into the buffer, only count them, or neither" },
    [GATE_THRESHOLD] = { "threshold", .kind = OPTION_COUNT, .value = "N",
                         .help = "set: more triggers than this within the window are a burst" },
    [GATE_WINDOW] = { "window", .kind = OPTION_DURATION, .value = "D",
                      .help = "set: how long it looks back" },
    [GATE_HOLD] = { "hold", .kind = OPTION_DURATION, .value = "D",
                    .help = "set: how long it diverts after the last one that was too many" },
    [GATE_WEIGHT] = { "weight", .kind = OPTION_COUNT, .value = "N",
                      .help = "set: how many parts of what is drained the env gets, 1 to 100" },
    [GATE_END] = { 0 },
};

struct gate_call {
    struct cli *cli;
    const struct args *args;
    struct once *once;
    const char *env; /* NULL: all */
    size_t shown;
};

static struct once_owned about(const char *env)
{
    struct once_owned in = ONCE_OWNED_INIT;
    in.scope = once_str(GATE_SCOPE);
    in.key = once_str(env);
    return in;
}

/* ---- showing ---- */

static int print_setting(struct gate_call *call, const char *env, const struct gate_setting *s)
{
    char window[DURATION_TEXT_BYTES], hold[DURATION_TEXT_BYTES];
    if (call->cli->json)
        return print_json(stdout,
                          json_pack("{s:s, s:s, s:I, s:I, s:I, s:I}", "env", env, "mode",
                                    s->mode, "threshold", (json_int_t)s->threshold, "window_ms",
                                    (json_int_t)s->window_ms, "hold_ms", (json_int_t)s->hold_ms,
                                    "weight", (json_int_t)s->weight));
    if (call->shown++ == 0)
        printf("%-6s  %9s  %8s  %8s  %6s  ENV\n", "MODE", "THRESHOLD", "WINDOW", "HOLD",
               "WEIGHT");
    printf("%-6s  %9lld  %8s  %8s  %6lld  %s\n", s->mode, (long long)s->threshold,
           format_duration(s->window_ms, window), format_duration(s->hold_ms, hold),
           (long long)s->weight, env);
    return STATUS_OK;
}

/* *ret_found: a daemon would use what is set. Returns an exit status. */
static int look_up(const struct gate_call *call, const char *env, struct gate_setting *ret,
                   bool *ret_found)
{
    struct once_owned in = about(env);
    struct once_answer answer = { 0 };
    int r = once_peek(call->once, &in, &answer);
    if (r < 0) return cli_fail(call->cli, r, answer.error.text);
    *ret_found = answer.outcome == ONCE_CACHED &&
                 gate_setting_read(bytes_of(answer.value.data, answer.value.len), ret);
    once_answer_clear(&answer);
    return STATUS_OK;
}

static int show_one(struct gate_call *call, const char *env)
{
    struct gate_setting setting;
    bool found;
    int status = look_up(call, env, &setting, &found);
    if (status) return status;
    return found ? print_setting(call, env, &setting) : STATUS_ABSENT;
}

/* Names of envs, one behind the other: those who list may not ask. */
struct names {
    char *text; /* each with its 0 */
    size_t len;
    bool failed;
};

static int note_name(void *ctx, const struct once_row *row)
{
    struct names *n = ctx;
    char *text = realloc(n->text, n->len + row->key.len + 1);
    n->failed = !text;
    if (!text) return 1;
    n->text = text;
    memcpy(text + n->len, row->key.data, row->key.len);
    n->len += row->key.len + 1;
    text[n->len - 1] = '\0';
    return 0;
}

static int show_all(struct gate_call *call)
{
    struct names names = { 0 };
    struct once_error error;
    int status = STATUS_OK;
    int r = once_list(call->once, once_str(GATE_SCOPE), note_name, &names, &error);
    if (r == 0 && names.failed) {
        r = ONCE_ENOMEM;
        *error.text = '\0';
    }
    if (r < 0) status = cli_fail(call->cli, r, error.text);
    for (size_t at = 0; at < names.len && !status; at += strlen(names.text + at) + 1) {
        status = show_one(call, names.text + at);
        if (status == STATUS_ABSENT) status = STATUS_OK; /* it is just being set */
    }
    free(names.text);
    if (!status && !call->shown && !call->cli->json)
        cli_note(call->cli,
                 "no env has a gate of its own: all are as the daemons' settings say");
    return status;
}

static int gate_show(struct gate_call *call)
{
    if (!call->env) return show_all(call);
    int status = show_one(call, call->env);
    if (status == STATUS_ABSENT)
        cli_note(call->cli, "%s has no gate of its own: it is as the daemons' settings say",
                 call->env);
    return status;
}

/* ---- setting ---- */

static int publish(const struct gate_call *call, const struct once_lease *lease,
                   const char *text, bool *ret_done)
{
    struct once_owned in = about(call->env);
    struct once_answer answer = { 0 };
    in.token = lease->token;
    in.value = once_str(text);
    int r = once_publish(call->once, &in, &answer);
    if (r < 0) return cli_fail(call->cli, r, answer.error.text);
    *ret_done = answer.outcome == ONCE_OK;
    once_answer_clear(&answer);
    return STATUS_OK;
}

/* *ret_done false: somebody else was faster. */
static int try_to_set(const struct gate_call *call, const char *text, bool *ret_done)
{
    struct once_owned old = about(call->env);
    struct once_claim claim = ONCE_CLAIM_INIT;
    struct once_answer answer = { 0 };
    int r = once_forget(call->once, &old, &answer);
    if (r < 0) return cli_fail(call->cli, r, answer.error.text);
    once_answer_clear(&answer);
    claim.scope = old.scope;
    claim.key = old.key;
    claim.lease_ms = LEASE_MS;
    claim.wait_ms = WAIT_MS;
    claim.retain_ms = ARGS_DURATION_MS_MAX;
    claim.flags = ONCE_NO_RENEW;
    answer = (struct once_answer){ 0 };
    r = once_claim(call->once, &claim, &answer);
    if (r < 0) return cli_fail(call->cli, r, answer.error.text);
    bool claimed = answer.outcome == ONCE_CLAIMED;
    struct once_lease lease = answer.lease;
    once_answer_clear(&answer);
    return claimed ? publish(call, &lease, text, ret_done) : STATUS_OK;
}

static void take_options(const struct option_value *values, struct gate_setting *s)
{
    if (values[GATE_MODE].given)
        snprintf(s->mode, sizeof s->mode, "%s", values[GATE_MODE].text);
    if (values[GATE_THRESHOLD].given) s->threshold = values[GATE_THRESHOLD].number;
    if (values[GATE_WINDOW].given) s->window_ms = values[GATE_WINDOW].number;
    if (values[GATE_HOLD].given) s->hold_ms = values[GATE_HOLD].number;
    if (values[GATE_WEIGHT].given) s->weight = values[GATE_WEIGHT].number;
}

static int gate_set(struct gate_call *call)
{
    struct gate_setting setting = GATE_SETTING_INIT;
    char text[GATE_TEXT_BYTES];
    bool found, done = false;
    int status = look_up(call, call->env, &setting, &found);
    if (status) return status;
    take_options(call->args->values, &setting);
    gate_setting_write(&setting, text);
    for (int i = 0; i < SET_TRIES_MAX && !done && !status; i++)
        status = try_to_set(call, text, &done);
    if (status) return status;
    if (!done) {
        cli_error("somebody else is setting the gate of %s; look with: once gate show",
                  call->env);
        return STATUS_BUSY;
    }
    status = print_setting(call, call->env, &setting);
    cli_note(call->cli, "daemons take it up within a few seconds");
    return status;
}

static int gate_reset(struct gate_call *call)
{
    struct once_owned in = about(call->env);
    struct once_answer answer = { 0 };
    int r = once_forget(call->once, &in, &answer);
    if (r == 0 && answer.outcome == ONCE_OK)
        cli_note(call->cli, "%s is as the daemons' settings say, within a few seconds",
                 call->env);
    return answer_finish(call->cli, r, &answer);
}

/* ---- the command ---- */

static const struct action {
    const char *name;
    size_t operands_min, operands_max;
    bool sets;
    int (*run)(struct gate_call *call);
} actions[] = { { "show", 1, 2, false, gate_show },
                { "set", 2, 2, true, gate_set },
                { "reset", 2, 2, false, gate_reset } };

static const struct action *action_find(const char *name)
{
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
        if (strcmp(actions[i].name, name) == 0) return &actions[i];
    cli_error("there is no 'gate %.40s': show, set or reset", name);
    return NULL;
}

static bool says_what(const struct option_value *values)
{
    for (int i = 0; i < GATE_END; i++)
        if (values[i].given) return true;
    return false;
}

/* All that can be known before anything is opened. */
static int check(const struct gate_call *call, const struct action *action)
{
    const struct args *args = call->args;
    struct gate_setting setting = GATE_SETTING_INIT;
    struct err err;
    if (args->operand_count < action->operands_min) {
        cli_error("gate %s needs an ENV", action->name);
        return STATUS_USAGE;
    }
    if (says_what(args->values) != action->sets) {
        cli_error(action->sets
                      ? "gate set: say what: --mode, --threshold, --window, --hold or --weight"
                      : "gate %s takes no options of 'gate set'",
                  action->name);
        return STATUS_USAGE;
    }
    take_options(args->values, &setting);
    int r = call->env ? gate_env_check(bytes_str(call->env), &err) : 0;
    if (!r) r = gate_setting_check(&setting, &err);
    return r ? cli_fail(call->cli, r, err.text) : 0;
}

static int gate_run(struct cli *cli, const struct args *args)
{
    struct once_config config = ONCE_CONFIG_INIT;
    struct gate_call call = { .cli = cli, .args = args };
    const struct action *action = action_find(args->operands[0]);
    if (!action) return STATUS_USAGE;
    call.env = args->operand_count > 1 ? args->operands[1] : NULL;
    int status = check(&call, action);
    if (!status) status = cli_open(cli, &config, &call.once);
    if (status) return status;
    status = action->run(&call);
    once_close(call.once);
    return status;
}

const struct command gate_command = {
    .name = "gate",
    .summary = "Say how many triggers of an env are a burst: show, set, reset",
    .operands = "show|set|reset [ENV]",
    .operands_min = 1,
    .operands_max = 2,
    .options = gate_options,
    .words = "show set reset",
    .details =
        "More than THRESHOLD triggers of an env within WINDOW are a burst: from then on, and\n"
        "until HOLD after the last one that was too many, its triggers are accepted into the\n"
        "buffer. Of what is drained from there, an env of weight 3 gets three times as much\n"
        "as one of weight 1. What is not said with 'set' stays as it is set, or is: on, 100,\n"
        "200ms, 500ms, 1.\n"
        "It is kept in the ledger, in the scope once/gate; every daemon looks there every two\n"
        "seconds, and it counts more than the daemon's own settings. 'reset' ends that.\n\n"
        "  once gate set production --threshold 500\n"
        "  once gate set staging --mode off\n",
    .run = gate_run,
};
