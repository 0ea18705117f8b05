/* serve.c - once serve: the daemon. What it needs from a command line, and what it says when it
 * starts; the rest is src/daemon. */
#include "cli/commands.h"
#include "cli/format.h"
#include "daemon/server.h"

#include <string.h>

enum {
    SERVE_CONFIG,
    SERVE_LISTEN,
    SERVE_RESP,
    SERVE_TOKENS,
    SERVE_INSECURE,
    SERVE_DRAIN,
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
    [SERVE_INSECURE] = { "insecure", .setting = true,
                         .help = "let other machines connect without TLS: who listens on the "
                                 "way reads tokens" },
    [SERVE_DRAIN] = { "drain", .kind = OPTION_DURATION, .value = "D", .fallback = "5s",
                      .setting = true,
                      .help = "how long those who wait may go on after SIGTERM" },
    [SERVE_END] = { 0 },
};

static void emit(void *ctx, const struct trace_event *event)
{
    struct once_event out = { .name = trace_name(event->kind),
                              .text = event->text,
                              .scope = { event->scope.data, event->scope.len },
                              .key = { event->key.data, event->key.len },
                              .number = event->number };
    cli_print_event(ctx, &out);
}

/* The arguments of redis-cli that lead to the address. */
static void print_client(FILE *to, const char *address)
{
    const char *colon = strrchr(address, ':');
    if (strncmp(address, "unix:", 5) == 0)
        fprintf(to, "redis-cli -s %s", address + 5);
    else if (address[0] == '[')
        fprintf(to, "redis-cli -h %.*s -p %s", (int)(colon - address) - 2, address + 1,
                colon + 1);
    else
        fprintf(to, "redis-cli -h %.*s -p %s", (int)(colon - address), address, colon + 1);
}

/* The same for curl. */
static void print_curl(FILE *to, const char *address)
{
    bool path = strncmp(address, "unix:", 5) == 0;
    fprintf(to, "curl -X POST ");
    if (path) fprintf(to, "--unix-socket %s ", address + 5);
    fprintf(to, "http://%s/v1/claims/orders/o-17\n", path ? "localhost" : address);
}

static void print_doors(const struct server *s)
{
    const char *http = server_address(s, "http"), *resp = server_address(s, "resp");
    const char *who =
        server_wants_tokens(s) ? "those who have a token" : "everybody on this machine";
    if (http) fprintf(stderr, "  HTTP        %s, for %s\n", http, who);
    if (resp) fprintf(stderr, "  RESP        %s, for %s\n", resp, who);
    if (http) {
        fprintf(stderr, "  try         ");
        print_curl(stderr, http);
    }
    if (resp) {
        fprintf(stderr, "  try         ");
        print_client(stderr, resp);
        fprintf(stderr, " ONCE.CLAIM orders o-17 WAIT 5000\n");
    }
}

static void print_banner(const struct cli *cli, const struct server *s)
{
    if (cli->quiet) return;
    fprintf(stderr, "once %s: same key, same answer\n", once_version());
    fprintf(stderr, "  runs on     %s\n", server_planes(s));
    fprintf(stderr, "  guarantees  one owner per key, one answer for all; %s\n",
            server_durable(s) ? "what was acknowledged survives kill -9"
                              : "answers last as long as coord does: there is no ledger");
    print_doors(s);
    fprintf(stderr,
            "  stop        SIGTERM or ctrl-C: finishes what was asked, releases what is "
            "bound\n");
}

/* As `once doctor` has them. */
static void print_fact(void *ctx, const struct once_fact *fact)
{
    static const char *const levels[] = { "ok", "warn", "fail" };
    const struct cli *cli = ctx;
    if (cli->quiet) return;
    fprintf(stderr, "  %-10s  %s %s: %s\n", levels[fact->level], fact->plane, fact->name,
            fact->text);
    if (fact->level && *fact->advice) fprintf(stderr, "              %s\n", fact->advice);
}

/* For whoever started it and let it choose a port. */
static void print_listening(const struct cli *cli, const struct server *s)
{
    const char *http = server_address(s, "http"), *resp = server_address(s, "resp");
    if (cli->json) {
        print_json(stdout, json_pack("{s:s, s:s?, s:s?}", "event", "listening", "http", http,
                                     "resp", resp));
    } else {
        printf("listening");
        if (http) printf(" http %s", http);
        if (resp) printf(" resp %s", resp);
        printf("\n");
    }
    fflush(stdout);
}

static void print_reloaded(void *ctx, const struct err *err)
{
    if (err->code)
        cli_error("not reloaded, all is as it was: %s", err->text);
    else
        cli_note(ctx, "reloaded");
}

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
    struct trace trace = { .emit = emit };
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
    config.on_fact = print_fact;
    config.on_fact_ctx = cli;
    config.on_reloaded = print_reloaded;
    config.on_reloaded_ctx = cli;
    config.insecure = args->values[SERVE_INSECURE].given;
    set_tokens(cli, args, tokens, sizeof tokens, &config);
    if (cli->verbose) config.trace = &trace;
    int r = server_open(&config, &server, &err);
    if (r) return cli_fail(cli, r, err.text);
    print_banner(cli, server);
    print_listening(cli, server);
    r = server_run(server, &err);
    if (r) return cli_fail(cli, r, err.text);
    server_close(server);
    cli_note(cli, "stopped");
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
    .run = serve_run,
};
