/* serve.c - once serve: the daemon. What it needs from a command line; what it says is in notice.c,
 * the rest is src/daemon. */
#include "cli/commands.h"
#include "cli/notice.h"

#include <string.h>

enum {
    SERVE_CONFIG,
    SERVE_LISTEN,
    SERVE_RESP,
    SERVE_TOKENS,
    SERVE_TLS_CERT,
    SERVE_TLS_KEY,
    SERVE_INSECURE,
    SERVE_DRAIN,
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
    [SERVE_DRAIN] = { "drain", .kind = OPTION_DURATION, .value = "D", .fallback = "5s",
                      .setting = true,
                      .help = "how long those who wait may go on after SIGTERM" },
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

static int serve_run(struct cli *cli, const struct args *args)
{
    char tokens[sizeof cli->data_dir + sizeof "/tokens"];
    struct notices notices;
    struct server_config config = SERVER_CONFIG_INIT;
    struct server *server;
    struct err err;
    if (!cli->ledger) {
        int status = cli_make_data_dir(cli);
        if (status) return status;
        config.data_dir = cli->data_dir;
    }
    config.ledger = cli->ledger;
    config.coord = cli->coord;
    config.http = args->values[SERVE_LISTEN].text;
    config.resp = args->values[SERVE_RESP].text;
    config.drain_ms = args->values[SERVE_DRAIN].number;
    notices_init(&notices, cli, args->values[SERVE_LOG_FORMAT].text,
                 args->values[SERVE_LOG_LEVEL].text);
    config.trace = &notices.log.trace;
    config.log = &notices.log;
    config.on_fact = notice_fact;
    config.on_fact_ctx = &notices;
    config.on_reloaded = notice_reloaded;
    config.on_reloaded_ctx = &notices;
    config.tls_cert = args->values[SERVE_TLS_CERT].text;
    config.tls_key = args->values[SERVE_TLS_KEY].text;
    config.insecure = args->values[SERVE_INSECURE].given;
    set_tokens(cli, args, tokens, sizeof tokens, &config);
    int r = server_open(&config, &server, &err);
    if (r) return cli_fail(cli, r, err.text);
    notice_started(&notices, server);
    r = server_run(server, &err);
    if (r) return cli_fail(cli, r, err.text);
    server_close(server);
    notice_stopped(&notices);
    return STATUS_OK;
}

const struct command serve_command = {
    .name = "serve",
    .summary = "The daemon: claims over HTTP and for every Redis client",
    .options = serve_options,
    .details =
        "Claims over HTTP (GET /openapi.json says how) and over the Redis protocol (COMMAND\n"
        "DOCS), on the planes of --ledger and --coord. Says where it listens in one line on\n"
        "stdout. SIGTERM: nothing new, finishes what it has, releases the claims that are "
        "BOUND\n"
        "to a connection; again: at once.\n",
    .local = true,
    .run = serve_run,
};
