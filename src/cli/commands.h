/* commands.h - the commands by name; each stands in the file of its own, or its family's. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "cli/cli.h"

extern const struct command run_command;                                     /* run.c */
extern const struct command claim_command;                                   /* claim.c */
extern const struct command publish_command, release_command, renew_command; /* owned.c */
extern const struct command peek_command, forget_command;                    /* peek.c */
extern const struct command trigger_command;                                 /* trigger.c */
extern const struct command runs_command;                                    /* runs.c */
extern const struct command work_command;                                    /* work.c */
extern const struct command drain_command;                                   /* drain.c */
extern const struct command gate_command;                                    /* gate.c */
extern const struct command ls_command;                                      /* ls.c */
extern const struct command sweep_command, stats_command;                    /* upkeep.c */
extern const struct command migrate_command;                                 /* migrate.c */
extern const struct command serve_command;                                   /* serve.c */
extern const struct command config_command;                                  /* config.c */
extern const struct command token_command;                                   /* token.c */
extern const struct command top_command;                                     /* top.c */
extern const struct command doctor_command;                                  /* doctor.c */
extern const struct command bench_command;                                   /* bench.c */
extern const struct command completion_command;                              /* completion.c */
extern const struct command version_command, help_command_entry;             /* help.c */

/* What the daemon can be told, on the command line and elsewhere: serve.c. */
extern const struct option serve_options[];

#endif
