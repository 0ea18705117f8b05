/* notice.c - see notice.h. */
#include "cli/notice.h"

#include "cli/format.h"

#include <string.h>
#include <unistd.h>

/* ---- at a terminal ---- */

/* The arguments of redis-cli that lead to the address. */
static void print_client(FILE *to, const struct server *s, const char *address)
{
    const char *colon = strrchr(address, ':');
    if (server_wants_tokens(s)) fprintf(to, "REDISCLI_AUTH=TOKEN ");
    if (strncmp(address, "unix:", 5) == 0)
        fprintf(to, "redis-cli -s %s", address + 5);
    else if (address[0] == '[')
        fprintf(to, "redis-cli -h %.*s -p %s", (int)(colon - address) - 2, address + 1,
                colon + 1);
    else
        fprintf(to, "redis-cli -h %.*s -p %s", (int)(colon - address), address, colon + 1);
    if (server_speaks_tls(s) && address[0] != 'u') fprintf(to, " --tls");
}

static const char *guarantee(const struct server *s)
{
    return server_durable(s) ? "what was acknowledged survives kill -9"
                             : "answers last as long as coord does: there is no ledger";
}

/* The same for curl. */
static void print_curl(FILE *to, const struct server *s, const char *address)
{
    bool path = strncmp(address, "unix:", 5) == 0;
    fprintf(to, "curl -X POST ");
    if (server_wants_tokens(s)) fprintf(to, "--oauth2-bearer TOKEN ");
    if (path) fprintf(to, "--unix-socket %s ", address + 5);
    fprintf(to, "%s://%s/v1/claims/orders/o-17\n",
            server_speaks_tls(s) && !path ? "https" : "http", path ? "localhost" : address);
}

static void print_doors(const struct server *s)
{
    const char *http = server_address(s, "http"), *resp = server_address(s, "resp");
    const char *who =
        server_wants_tokens(s) ? "those who have a token" : "everybody on this machine";
    const char *tls = server_speaks_tls(s) ? " over TLS" : "";
    if (http) fprintf(stderr, "  HTTP        %s%s, for %s\n", http, tls, who);
    if (resp) fprintf(stderr, "  RESP        %s%s, for %s\n", resp, tls, who);
    if (http) {
        fprintf(stderr, "  try         ");
        print_curl(stderr, s, http);
    }
    if (resp) {
        fprintf(stderr, "  try         ");
        print_client(stderr, s, resp);
        fprintf(stderr, " ONCE.CLAIM orders o-17 WAIT 5000\n");
    }
}

static void print_banner(const struct server *s)
{
    fprintf(stderr, "once %s: same key, same answer\n", once_version());
    fprintf(stderr, "  runs on     %s\n", server_planes(s));
    fprintf(stderr, "  guarantees  one owner per key, one answer for all; %s\n", guarantee(s));
    print_doors(s);
    fprintf(stderr,
            "  stop        SIGTERM or ctrl-C: finishes what was asked, releases what is "
            "bound\n");
}

/* As `once doctor` has them. */
static void print_fact(const struct once_fact *fact)
{
    static const char *const levels[] = { "ok", "warn", "fail" };
    fprintf(stderr, "  %-10s  %s %s: %s\n", levels[fact->level], fact->plane, fact->name,
            fact->text);
    if (fact->level && *fact->advice) fprintf(stderr, "              %s\n", fact->advice);
}

/* ---- where it listens ---- */

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

static void log_listening(struct notices *n, const char *door, const char *address)
{
    if (!address) return;
    log_say(
        &n->log, LOG_INFO, "listening",
        (struct log_field[]){ LOG_TEXT("door", door), LOG_TEXT("address", address), { 0 } });
}

static void log_start(struct notices *n, const struct server *s)
{
    log_say(&n->log, LOG_INFO, "start",
            (struct log_field[]){ LOG_TEXT("version", once_version()),
                                  LOG_NUMBER("pid", getpid()),
                                  LOG_TEXT("planes", server_planes(s)),
                                  LOG_TEXT("guarantee", guarantee(s)),
                                  LOG_TEXT("tokens", server_wants_tokens(s) ? "yes" : "no"),
                                  LOG_TEXT("tls", server_speaks_tls(s) ? "yes" : "no"),
                                  { 0 } });
    log_listening(n, "http", server_address(s, "http"));
    log_listening(n, "resp", server_address(s, "resp"));
}

/* ---- for serve.c ---- */

static enum log_level level_of(const struct cli *cli, const char *name)
{
    int level = name ? log_name_find(log_level_names, name) : -1;
    if (level >= 0) return (enum log_level)level;
    return cli->verbose ? LOG_DEBUG : cli->quiet ? LOG_WARN : LOG_INFO;
}

void notices_init(struct notices *n, const struct cli *cli, const char *format,
                  const char *level)
{
    int f = log_name_find(log_format_names, format);
    n->cli = cli;
    n->terminal = isatty(STDERR_FILENO);
    log_init(&n->log, STDERR_FILENO, f >= 0 ? (enum log_format)f : LOG_LOGFMT,
             level_of(cli, level));
}

void notices_set_level(struct notices *n, const char *level)
{
    log_set_level(&n->log, level_of(n->cli, level));
}

void notice_started(struct notices *n, const struct server *s)
{
    if (!n->terminal)
        log_start(n, s);
    else if (!n->cli->quiet)
        print_banner(s);
    print_listening(n->cli, s);
}

void notice_fact(void *ctx, const struct once_fact *fact)
{
    static const enum log_level levels[] = { LOG_INFO, LOG_WARN, LOG_ERROR };
    struct notices *n = ctx;
    if (n->terminal) {
        if (!n->cli->quiet) print_fact(fact);
        return;
    }
    log_say(&n->log, levels[fact->level], "fact",
            (struct log_field[]){ LOG_TEXT("plane", fact->plane),
                                  LOG_TEXT("name", fact->name),
                                  LOG_TEXT("text", fact->text),
                                  LOG_TEXT("advice", fact->level ? fact->advice : NULL),
                                  { 0 } });
}

void notice_reloaded(struct notices *n, const struct err *err)
{
    if (err->code)
        log_say(&n->log, LOG_ERROR, "reload_failed",
                (struct log_field[]){ LOG_TEXT("text", err->text), { 0 } });
    else
        log_say(&n->log, LOG_INFO, "reloaded", NULL);
}

void notice_stopped(struct notices *n)
{
    log_end(&n->log);
    if (n->terminal) cli_note(n->cli, "stopped");
}
