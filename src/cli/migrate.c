/* migrate.c - once migrate: the schema of the ledger, or of markers, brought up to date or shown. */
#include "cli/commands.h"
#include "cli/format.h"

#include <limits.h>

enum { MIGRATE_PRINT, MIGRATE_MUTATIONS, MIGRATE_PARTITIONS, MIGRATE_TTL, MIGRATE_END };

static const struct option migrate_options[] = {
    [MIGRATE_PRINT] = { "print", .kind = OPTION_FLAG,
                        .help = "print the SQL instead, for people who apply it themselves" },
    [MIGRATE_MUTATIONS] = { "mutations", .kind = OPTION_FLAG,
                            .help = "the markers of mutations, in your own database, instead" },
    [MIGRATE_PARTITIONS] = { "partitions", .kind = OPTION_COUNT, .value = "N",
                             .help =
                                 "with --mutations: a new table has N partitions, by user" },
    [MIGRATE_TTL] = { "ttl", .kind = OPTION_DURATION, .value = "D",
                      .help = "with --mutations: how long a marker counts (at first 1h)" },
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
    return STATUS_OK;
}

static int migrate_default(struct cli *cli)
{
    int status = open_default(cli);
    if (status) return status;
    if (cli->json) return print_json(stdout, json_pack("{s:[s]}", "said", "up to date"));
    printf("up to date: it sees to that whenever it is opened\n");
    return STATUS_OK;
}

static int migrate_ledger(struct cli *cli, const struct args *args, const char *ledger)
{
    const struct option_value *v = args->values;
    struct once_marker_settings markers = ONCE_MARKER_SETTINGS_INIT;
    if (v[MIGRATE_PARTITIONS].given) markers.partitions = v[MIGRATE_PARTITIONS].number;
    if (v[MIGRATE_TTL].given) markers.ttl_ms = v[MIGRATE_TTL].number;
    unsigned flags = v[MIGRATE_PRINT].given ? ONCE_MIGRATE_PRINT : 0;
    struct once_error error;
    json_t *said = json_array();
    once_say_fn *say = cli->json ? collect : print;
    int r = v[MIGRATE_MUTATIONS].given
                ? once_migrate_mutations(ledger, flags, &markers, say, said, &error)
                : once_migrate(ledger, flags, say, said, &error);
    if (r == 0 && cli->json) return print_json(stdout, json_pack("{s:o}", "said", said));
    json_decref(said);
    return r < 0 ? cli_fail(cli, r, error.text) : STATUS_OK;
}

/* Markers go into the default ledger, too, if nothing else is said. */
static int migrate_default_markers(struct cli *cli, const struct args *args)
{
    char ledger[PATH_MAX + 32];
    int status = open_default(cli);
    if (status) return status;
    snprintf(ledger, sizeof ledger, "sqlite:%.*s/once.db", PATH_MAX, cli->data_dir);
    return migrate_ledger(cli, args, ledger);
}

static int migrate_run(struct cli *cli, const struct args *args)
{
    const struct option_value *v = args->values;
    bool mutations = v[MIGRATE_MUTATIONS].given;
    if (!mutations && (v[MIGRATE_PARTITIONS].given || v[MIGRATE_TTL].given))
        return cli_fail(cli, ONCE_EINVAL,
                        "--partitions and --ttl are of markers: add --mutations");
    if (cli->ledger) return migrate_ledger(cli, args, cli->ledger);
    if (v[MIGRATE_PRINT].given) return migrate_ledger(cli, args, "sqlite:once.db");
    return mutations ? migrate_default_markers(cli, args) : migrate_default(cli);
}

const struct command migrate_command = {
    .name = "migrate",
    .summary = "Bring the schema of the ledger, or of markers, up to date",
    .options = migrate_options,
    .details =
        "Applies what is missing and says what it did; again does nothing. Safe while others\n"
        "work, and when many start at once. Commands do this by themselves when they open a\n"
        "ledger, unless its URL says migrate=no. A schema that is newer than this program is\n"
        "left alone and refused.\n\n"
        "Markers are a table and functions in your own database, which make a mutation happen\n"
        "once: see docs/mutations.md. Their table is never changed once it is there.\n\n"
        "  once --ledger postgres://db.example/app migrate\n"
        "  once --ledger 'postgres:?schema=jobs' migrate --print | psql app\n"
        "  once --ledger postgres://db.example/app migrate --mutations --ttl 1h\n",
    .local = true,
    .run = migrate_run,
};
