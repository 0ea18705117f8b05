/* serve.c - once serve: the daemon. What it needs from a command line; what it says is in notice.c,
 * the rest is src/daemon. */
#include "cli/commands.h"
#include "cli/notice.h"
#include "cli/settings.h"

#include <stdlib.h>
#include <string.h>

enum {
    SERVE_CONFIG,
    SERVE_LISTEN,
    SERVE_RESP,
    SERVE_TOKENS,
    SERVE_TLS_CERT,
    SERVE_TLS_KEY,
    SERVE_INSECURE,
    SERVE_BUFFER,
    SERVE_GATE,
    SERVE_GATE_THRESHOLD,
    SERVE_GATE_WINDOW,
    SERVE_GATE_HOLD,
    SERVE_GATE_ALL,
    SERVE_DRAINER,
    SERVE_DRAINER_RATE,
    SERVE_DRAINER_ENV_MAX,
    SERVE_DRAIN,
    SERVE_VALUE_MAX,
    SERVE_CONNECTIONS_MAX,
    SERVE_WAITERS_MAX,
    SERVE_LOG_FORMAT,
    SERVE_LOG_LEVEL,
    SERVE_END
};

const struct option serve_options[] = {
    [SERVE_CONFIG] = { "config", .kind = OPTION_TEXT, .value = "FILE",
                       .help = "settings as lines of 'name = value': see once help config" },
    [SERVE_LISTEN] = { "listen", .kind = OPTION_TEXT, .value = "ADDR",
                       .fallback = "127.0.0.1:6623", .setting = true,
                       .help = "where HTTP is spoken: HOST:PORT, unix:PATH, off; port 0: any" },
    [SERVE_RESP] = { "resp", .kind = OPTION_TEXT, .value = "ADDR", .fallback = "127.0.0.1:6624",
                     .setting = true,
                     .help = "where Redis clients connect: HOST:PORT, unix:PATH, off; port 0: "
                             "any" },
    [SERVE_TOKENS] = { "tokens", .kind = OPTION_TEXT, .value = "FILE", .setting = true,
                       .help =
                           "who may ask (default: tokens in the data directory, if there)" },
    [SERVE_TLS_CERT] = { "tls-cert", .kind = OPTION_TEXT, .value = "FILE", .setting = true,
                         .help =
                             "speak TLS, with this certificate (PEM, its issuers behind it)" },
    [SERVE_TLS_KEY] = { "tls-key", .kind = OPTION_TEXT, .value = "FILE", .setting = true,
                        .help = "the key of the certificate, readable by nobody else" },
    [SERVE_INSECURE] = { "insecure", .setting = true,
                         .help = "let other machines connect without TLS: who listens on the "
                                 "way reads tokens" },
    [SERVE_BUFFER] = { "buffer", .kind = OPTION_TEXT, .value = "URL", .setting = true,
                       .help = "where bursts of triggers wait: sqlite:PATH, none, or spool: "
                               "coord, and in the data directory until the ledger has them "
                               "(default: coord, or beside the ledger's file)" },
    [SERVE_GATE] = { "gate", .kind = OPTION_CHOICE, .value = "MODE", .fallback = "on",
                     .setting = true, .choices = { "on", "shadow", "off" },
                     .help = "are bursts diverted into the buffer, only counted, or neither" },
    [SERVE_GATE_THRESHOLD] = { "gate-threshold", .kind = OPTION_COUNT, .value = "N",
                               .fallback = "100", .setting = true,
                               .help = "triggers of an env within the window that may pass" },
    [SERVE_GATE_WINDOW] = { "gate-window", .kind = OPTION_DURATION, .value = "D",
                            .fallback = "200ms", .setting = true,
                            .help = "the window, which slides" },
    [SERVE_GATE_HOLD] = { "gate-hold", .kind = OPTION_DURATION, .value = "D",
                          .fallback = "500ms", .setting = true,
                          .help = "how long all are diverted after one that was too many" },
    [SERVE_GATE_ALL] = { "gate-all-threshold", .kind = OPTION_COUNT, .value = "N",
                         .setting = true,
                         .help = "the same for all envs together (default: no such limit)" },
    [SERVE_DRAINER] = { "drainer", .kind = OPTION_CHOICE, .value = "MODE", .fallback = "on",
                        .setting = true, .choices = { "on", "off" },
                        .help = "does this daemon move the buffer into the ledger" },
    [SERVE_DRAINER_RATE] = { "drainer-rate", .kind = OPTION_COUNT, .value = "N",
                             .setting = true,
                             .help =
                                 "entries a second at most (default: as many as it takes)" },
    [SERVE_DRAINER_ENV_MAX] = { "drainer-env-max", .kind = OPTION_COUNT, .value = "N",
                                .setting = true,
                                .help = "entries of one env in one round of 1000 at most "
                                        "(default: as many as there is room for)" },
    [SERVE_DRAIN] = { "drain", .kind = OPTION_DURATION, .value = "D", .fallback = "5s",
                      .setting = true,
                      .help = "how long those who wait may go on after SIGTERM" },
    [SERVE_VALUE_MAX] = { "value-max", .kind = OPTION_SIZE, .value = "SIZE", .fallback = "1m",
                          .setting = true, .help = "the longest answer that is kept" },
    [SERVE_CONNECTIONS_MAX] = { "connections-max", .kind = OPTION_COUNT, .value = "N",
                                .fallback = "20000", .setting = true,
                                .help = "more are turned away; also limited by ulimit -n" },
    [SERVE_WAITERS_MAX] = { "waiters-max", .kind = OPTION_COUNT, .value = "N",
                            .fallback = "100000", .setting = true,
                            .help =
                                "claims that may wait at once; more are told to try later" },
    [SERVE_LOG_FORMAT] = { "log-format", .kind = OPTION_CHOICE, .value = "FORMAT",
                           .fallback = "logfmt", .setting = true,
                           .choices = { "logfmt", "json" },
                           .help = "how a line is written on stderr" },
    [SERVE_LOG_LEVEL] = { "log-level", .kind = OPTION_CHOICE, .value = "LEVEL", .setting = true,
                          .choices = { "error", "warn", "info", "debug" },
                          .help = "what is worth a line (default: info)" },
    [SERVE_END] = { 0 },
};

/* Where `once token` puts it, unless told otherwise. */
static void set_tokens(struct cli *cli, const struct args *args, char *path, size_t path_bytes,
                       struct server_config *config)
{
    struct err err;
    config->tokens_needed = args->values[SERVE_TOKENS].given;
    config->tokens = args->values[SERVE_TOKENS].text;
    if (config->tokens_needed || cli_data_dir(cli, &err) < 0) return;
    snprintf(path, path_bytes, "%s/tokens", cli->data_dir);
    config->tokens = path;
}

/* ---- SIGHUP ---- */

struct serving {
    struct notices notices;
    const struct cli *cli;
    const struct args *args;
};

/* The level as the file has it now, unless somebody stronger has spoken. The rest of the file is
 * checked, too: it is what the next start will read. */
static int read_level(struct serving *s, struct err *reterr)
{
    struct option_value own[OPTIONS_MAX], globals[OPTIONS_MAX];
    const struct option_table tables[] = { { serve_options, own },
                                           { global_options, globals } };
    const char *path = s->args->values[SERVE_CONFIG].text;
    char *text;
    if (!path) return 0;
    memcpy(own, s->args->values, sizeof own);
    memcpy(globals, s->cli->globals, sizeof globals);
    if (own[SERVE_LOG_LEVEL].origin == ORIGIN_FILE)
        own[SERVE_LOG_LEVEL] = (struct option_value){ 0 };
    int r = settings_from_file(path, tables, 2, &text, reterr);
    if (r) return r;
    notices_set_level(&s->notices, own[SERVE_LOG_LEVEL].text);
    free(text);
    return 0;
}

static void reloaded(void *ctx, const struct err *err)
{
    struct serving *s = ctx;
    struct err own = *err;
    if (own.code || read_level(s, &own) == 0) own = *err;
    notice_reloaded(&s->notices, &own);
}

static int serve_run(struct cli *cli, const struct args *args)
{
    char tokens[sizeof cli->data_dir + sizeof "/tokens"];
    struct serving serving = { .cli = cli, .args = args };
    struct notices *notices = &serving.notices;
    struct server_config config = SERVER_CONFIG_INIT;
    struct server *server;
    struct err err;
    config.buffer = args->values[SERVE_BUFFER].text;
    bool spool = config.buffer && strcmp(config.buffer, "spool") == 0;
    if (!cli->ledger || spool) {
        int status = cli_make_data_dir(cli);
        if (status) return status;
        config.data_dir = cli->data_dir;
    }
    config.ledger = cli->ledger;
    config.coord = cli->coord;
    config.http = args->values[SERVE_LISTEN].text;
    config.resp = args->values[SERVE_RESP].text;
    config.gate = args->values[SERVE_GATE].text;
    config.gate_threshold = args->values[SERVE_GATE_THRESHOLD].number;
    config.gate_window_ms = args->values[SERVE_GATE_WINDOW].number;
    config.gate_hold_ms = args->values[SERVE_GATE_HOLD].number;
    config.gate_all_threshold = args->values[SERVE_GATE_ALL].number;
    config.drainer = strcmp(args->values[SERVE_DRAINER].text, "on") == 0;
    config.drainer_rate = args->values[SERVE_DRAINER_RATE].number;
    config.drainer_env_max = args->values[SERVE_DRAINER_ENV_MAX].number;
    config.drain_ms = args->values[SERVE_DRAIN].number;
    config.value_bytes_max = args->values[SERVE_VALUE_MAX].number;
    config.connections_max = (size_t)args->values[SERVE_CONNECTIONS_MAX].number;
    config.waiters_max = (size_t)args->values[SERVE_WAITERS_MAX].number;
    notices_init(notices, cli, args->values[SERVE_LOG_FORMAT].text,
                 args->values[SERVE_LOG_LEVEL].text);
    config.trace = &notices->log.trace;
    config.log = &notices->log;
    config.notify_socket = getenv("NOTIFY_SOCKET"); /* systemd */
    config.on_fact = notice_fact;
    config.on_fact_ctx = notices;
    config.on_reloaded = reloaded;
    config.on_reloaded_ctx = &serving;
    config.tls_cert = args->values[SERVE_TLS_CERT].text;
    config.tls_key = args->values[SERVE_TLS_KEY].text;
    config.insecure = args->values[SERVE_INSECURE].given;
    set_tokens(cli, args, tokens, sizeof tokens, &config);
    int r = server_open(&config, &server, &err);
    if (r) return cli_fail(cli, r, err.text);
    notice_started(notices, server);
    r = server_run(server, &err);
    if (r) return cli_fail(cli, r, err.text);
    server_close(server);
    notice_stopped(notices);
    return STATUS_OK;
}

const struct command serve_command = {
    .name = "serve",
    .summary = "The daemon: claims over HTTP and for every Redis client",
    .options = serve_options,
    .local = true,
    .details =
        "Claims over HTTP (GET /openapi.json says how) and over the Redis protocol (COMMAND\n"
        "DOCS), on the planes of --ledger and --coord. Says where it listens in one line on\n"
        "stdout. SIGTERM: nothing new, finishes what it has, releases the claims that are "
        "BOUND\n"
        "to a connection; again: at once.\n",
    .run = serve_run,
};
