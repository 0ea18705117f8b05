/* migrate.c - once migrate: the schema of the ledger, brought up to date or shown. */
#include "cli/commands.h"
#include "cli/format.h"

enum { MIGRATE_PRINT, MIGRATE_END };

static const struct option migrate_options[] = {
    [MIGRATE_PRINT] = { "print", .kind = OPTION_FLAG,
                        .help = "print the SQL instead, for people who apply it themselves" },
    [MIGRATE_END] = { 0 },
};

static void collect(void *ctx, const char *text)
{
    json_array_append_new(ctx, json_string(text));
}

static void print(void *ctx, const char *text)
{
    (void)ctx;
    printf("%s\n", text);
}

/* The default ledger is a file, which is brought up to date by being opened. */
static int open_default(struct cli *cli)
{
    struct once_config config = ONCE_CONFIG_INIT;
    struct once *once;
    int status = cli_open(cli, &config, &once);
    if (status) return status;
    once_close(once);
    if (cli->json) return print_json(stdout, json_pack("{s:[s]}", "said", "up to date"));
    printf("up to date: it sees to that whenever it is opened\n");
    return STATUS_OK;
}

static int migrate_run(struct cli *cli, const struct args *args)
{
    unsigned flags = args->values[MIGRATE_PRINT].given ? ONCE_MIGRATE_PRINT : 0;
    if (!cli->ledger && !flags) return open_default(cli);
    struct once_error error;
    json_t *said = json_array();
    const char *ledger = cli->ledger ? cli->ledger : "sqlite:once.db";
    int r = cli->json ? once_migrate(ledger, flags, collect, said, &error)
                      : once_migrate(ledger, flags, print, NULL, &error);
    if (r == 0 && cli->json) return print_json(stdout, json_pack("{s:o}", "said", said));
    json_decref(said);
    return r < 0 ? cli_fail(cli, r, error.text) : STATUS_OK;
}

const struct command migrate_command = {
    .name = "migrate",
    .summary = "Bring the ledger's schema up to date",
    .options = migrate_options,
    .details =
        "Applies what is missing and says what it did; again does nothing. Safe while others\n"
        "work, and when many start at once. Commands do this by themselves when they open a\n"
        "ledger, unless its URL says migrate=no. A schema that is newer than this program is\n"
        "left alone and refused.\n\n"
        "  once --ledger postgres://db.example/app migrate\n"
        "  once --ledger 'postgres:?schema=jobs' migrate --print | psql app\n",
    .local = true,
    .run = migrate_run,
};
