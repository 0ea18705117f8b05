/* cli.c - settings, opening and messages: what all commands share (cli.h). */
#include "cli/cli.h"

#include "base/buf.h"
#include "cli/format.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- messages ---- */

static void say(const char *fmt, va_list args)
{
    char text[1024];
    vsnprintf(text, sizeof text, fmt, args);
    fprintf(stderr, "once: %s\n", text);
}

void cli_note(const struct cli *cli, const char *fmt, ...)
{
    if (cli->quiet) return;
    va_list args;
    va_start(args, fmt);
    say(fmt, args);
    va_end(args);
}

void cli_error(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say(fmt, args);
    va_end(args);
}

int cli_status_of_error(int code)
{
    switch (code) {
    case ONCE_EINVAL:
    case ONCE_ELIMIT:
        return STATUS_USAGE;
    case ONCE_EUNAVAILABLE:
    case ONCE_EAMBIGUOUS:
        return STATUS_UNAVAILABLE;
    default:
        return STATUS_INTERNAL;
    }
}

int cli_fail(const struct cli *cli, int code, const char *text)
{
    int status = cli_status_of_error(code);
    const char *words = text && *text ? text : once_strerror(code);
    if (cli->json)
        print_json(cli->json_to,
                   json_pack("{s:s, s:s, s:b, s:i}", "error", err_name(code), "text", words,
                             "retryable", once_retryable(code), "exit_status", status));
    if (!cli->json || cli->json_to != stderr) cli_error("%s", words);
    return status;
}

/* ---- settings ---- */

enum {
    GLOBAL_LEDGER,
    GLOBAL_COORD,
    GLOBAL_DATA,
    GLOBAL_URL,
    GLOBAL_JSON,
    GLOBAL_QUIET,
    GLOBAL_VERBOSE,
    GLOBAL_NO_COLOR,
    GLOBAL_HELP,
    GLOBAL_END
};

const struct option global_options[] = {
    [GLOBAL_LEDGER] = { "ledger", .kind = OPTION_TEXT, .value = "URL", .setting = true,
                        .help = "where answers are kept: sqlite:PATH, postgres://..., none (or "
                                "ONCE_LEDGER)" },
    [GLOBAL_COORD] = { "coord", .kind = OPTION_TEXT, .value = "URL", .setting = true,
                       .help = "what absorbs duplicates in front of it: memory:, redis://..., "
                               "none (or ONCE_COORD)" },
    [GLOBAL_DATA] = { "data", .kind = OPTION_DIR, .value = "DIR", .setting = true,
                      .help = "directory of the default ledger, once.db (or ONCE_DATA)" },
    [GLOBAL_URL] = { "url", .kind = OPTION_TEXT, .value = "URL",
                     .help = "ask a daemon, which has them: once[s]://[token@]host[:port], "
                             "once:///path/of/the.sock (or ONCE_URL)" },
    [GLOBAL_JSON] = { "json", .kind = OPTION_FLAG, .help = "output for programs" },
    [GLOBAL_QUIET] = { "quiet", 'q', OPTION_FLAG, .help = "no notes on stderr, only errors" },
    [GLOBAL_VERBOSE] = { "verbose", 'v', OPTION_FLAG,
                         .help = "what happens inside, as logfmt on stderr" },
    [GLOBAL_NO_COLOR] = { "no-color", .kind = OPTION_FLAG,
                          .help = "no colours on a terminal (or NO_COLOR)" },
    [GLOBAL_HELP] = { "help", 'h', OPTION_FLAG, .help = "how to use the command" },
    [GLOBAL_END] = { 0 },
};

/* Set and not empty: an empty variable counts as unset, as NO_COLOR and XDG have it. */
static const char *env(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static int set_data_dir(struct cli *cli, const char *from, const char *dir, const char *below,
                        struct err *reterr)
{
    int len = snprintf(cli->data_dir, sizeof cli->data_dir, "%s%s", dir, below);
    if (len < 0 || (size_t)len >= sizeof cli->data_dir)
        return err_set(reterr, ERR_INVALID, "%s: the path is too long", from);
    cli->data_dir_from = from;
    return 0;
}

int cli_data_dir(struct cli *cli, struct err *reterr)
{
    static const char *const from[] = { "", "the file", "ONCE_DATA", "--data" };
    const struct option_value *data = &cli->globals[GLOBAL_DATA];
    if (data->given) return set_data_dir(cli, from[data->origin], data->text, "", reterr);
    const char *dir = env("XDG_STATE_HOME");
    if (dir && dir[0] == '/') return set_data_dir(cli, "XDG_STATE_HOME", dir, "/once", reterr);
    dir = env("HOME");
    if (dir) return set_data_dir(cli, "HOME", dir, "/.local/state/once", reterr);
    return err_set(reterr, ERR_INVALID,
                   "no place to keep answers: HOME is not set; say --data DIR");
}

/* By flag: a plane, or where one is. */
static bool wants_planes(const struct option_value *globals)
{
    return globals[GLOBAL_LEDGER].origin == ORIGIN_FLAG ||
           globals[GLOBAL_COORD].origin == ORIGIN_FLAG ||
           globals[GLOBAL_DATA].origin == ORIGIN_FLAG;
}

/* A daemon or planes: what was said on the command line is stronger than what the environment says;
 * both in the same place contradict each other. */
static int settle_url(struct cli *cli, const struct option_value *globals, struct err *reterr)
{
    const char *flag = globals[GLOBAL_URL].text, *variable = env("ONCE_URL");
    if (flag && wants_planes(globals))
        return err_set(
            reterr, ERR_INVALID,
            "--url is a daemon with planes of its own: leave out --ledger, --coord and "
            "--data");
    if (!flag && variable && (cli->ledger || cli->coord) && !wants_planes(globals))
        return err_set(
            reterr, ERR_INVALID,
            "ONCE_URL and a plane (ONCE_LEDGER, ONCE_COORD) are both set: unset one");
    cli->url = flag ? flag : wants_planes(globals) ? NULL : variable;
    if (cli->url) cli->ledger = cli->coord = NULL;
    return 0;
}

int cli_settle(struct cli *cli, const struct command *c, struct option_value *globals,
               struct err *reterr)
{
    struct option_value *ledger = &globals[GLOBAL_LEDGER];
    cli->globals = globals;
    cli->json = globals[GLOBAL_JSON].given;
    cli->json_to = stdout;
    cli->quiet = globals[GLOBAL_QUIET].given;
    cli->verbose = globals[GLOBAL_VERBOSE].given;
    cli->color = isatty(STDOUT_FILENO) && !globals[GLOBAL_NO_COLOR].given && !env("NO_COLOR");
    cli->coord = globals[GLOBAL_COORD].text;
    /* A --data on the command line is stronger than a ledger anywhere else. */
    if (globals[GLOBAL_DATA].origin == ORIGIN_FLAG && ledger->origin < ORIGIN_FLAG)
        *ledger = (struct option_value){ 0 };
    cli->ledger = ledger->text;
    if (!c->local) return settle_url(cli, globals, reterr);
    if (!globals[GLOBAL_URL].text) return 0;
    return err_set(reterr, ERR_INVALID, "once %s asks no daemon: leave out --url", c->name);
}

/* ---- opening ---- */

/* Creates what is missing of the path for the owner only: answers may be secret. */
static int make_dirs(const char *path)
{
    char part[sizeof((struct cli *)0)->data_dir];
    snprintf(part, sizeof part, "%s", path);
    for (char *p = part + 1;; p++) {
        if (*p && *p != '/') continue;
        char was = *p;
        *p = '\0';
        if (mkdir(part, 0700) < 0 && errno != EEXIST) return -errno;
        if (!was) return 0;
        *p = was;
    }
}

int cli_make_data_dir(struct cli *cli)
{
    struct stat st;
    struct err err;
    if (cli_data_dir(cli, &err) < 0) return cli_fail(cli, err.code, err.text);
    int r = make_dirs(cli->data_dir);
    if (r == 0 && stat(cli->data_dir, &st) < 0) r = -errno;
    if (r == 0 && !S_ISDIR(st.st_mode)) r = -ENOTDIR;
    if (r == 0) return 0;
    err_set(&err, ERR_UNAVAILABLE, "cannot use %.80s (from %s): %s; say --data DIR",
            cli->data_dir, cli->data_dir_from, strerror(-r));
    return cli_fail(cli, err.code, err.text);
}

/* One write, so that lines of several processes never mix. */
void cli_print_event(void *ctx, const struct once_event *event)
{
    (void)ctx;
    struct buf line;
    buf_init(&line, 512);
    buf_printf(&line, "event=%s", event->name);
    if (event->text) buf_printf(&line, " text=\"%s\"", event->text);
    if (event->key.len) {
        char hash[KEY_HASH_BYTES];
        key_hash(bytes_of(event->scope.data, event->scope.len),
                 bytes_of(event->key.data, event->key.len), hash);
        buf_printf(&line, " key=%s", hash);
    }
    buf_printf(&line, " number=%lld", (long long)event->number);
    if (event->detail) buf_printf(&line, ": %s", event->detail);
    buf_byte(&line, '\n');
    if (!buf_failed(&line)) dprintf(STDERR_FILENO, "%.*s", (int)line.len, (char *)line.data);
    buf_fini(&line);
}

int cli_open(struct cli *cli, struct once_config *config, struct once **ret_once)
{
    bool default_ledger = !cli->ledger && !cli->url;
    int status = default_ledger ? cli_make_data_dir(cli) : 0;
    if (status) return status;
    config->ledger = cli->ledger;
    config->coord = cli->coord;
    config->url = cli->url;
    config->data_dir = default_ledger ? cli->data_dir : NULL;
    config->flags |= ONCE_HOSTED; /* one thread less: every command drives its handle itself */
    if (cli->verbose) config->on_event = cli_print_event;
    struct once_error error;
    int r = once_open(config, ret_once, &error);
    return r < 0 ? cli_fail(cli, r, error.text) : 0;
}
