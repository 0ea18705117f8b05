/* commands.c - every command there is. To add one: a file with its `struct command`, a line in
 * each of the two lists below, its entry in docs/once.1 and its cases in tests/e2e/cli.sh. */
#include "cli/commands.h"

#include <string.h>

const struct command *const commands[] = {
    &run_command,        &claim_command,
    &publish_command,    &release_command,
    &renew_command,      &peek_command,
    &forget_command,     &trigger_command,
    &runs_command,       &work_command,
    &drain_command,      &gate_command,
    &ls_command,         &sweep_command,
    &stats_command,      &migrate_command,
    &serve_command,      &config_command,
    &token_command,      &top_command,
    &doctor_command,     &bench_command,
    &completion_command, &version_command,
    &help_command_entry, NULL,
};

const struct command *command_find(const char *name)
{
    for (size_t i = 0; commands[i]; i++)
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    return NULL;
}
