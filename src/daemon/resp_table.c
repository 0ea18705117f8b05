/* resp_table.c - every command of the RESP door; COMMAND, which tells clients about them. */
#include "daemon/resp_session.h"

#define OWNED "scope key token"
#define RAW " [RAW id]"
#define MUTATION " [METHOD method] [FP fingerprint] [ENV env] [META]"

const struct resp_entry resp_table[] = {
    { "ONCE.CLAIM", 3, 15, true, NULL, resp_parse_claim,
      "scope key [LEASE ms] [WAIT ms] [RETAIN ms] [FP fingerprint] [BOUND | TOKEN token] "
      "[META]",
      "Become the owner of a key, or get its answer" },
    { "ONCE.PUBLISH", 5, 9, true, NULL, resp_parse_publish,
      OWNED " value [RETAIN ms] [OMIT] [META]", "Give the answer, for everybody and for good" },
    { "ONCE.RENEW", 4, 7, true, NULL, resp_parse_renew, OWNED " [LEASE ms] [META]",
      "Stay the owner" },
    { "ONCE.RELEASE", 4, 5, true, NULL, resp_parse_release, OWNED " [META]",
      "Give the key back without an answer" },
    { "ONCE.PEEK", 3, 6, false, NULL, resp_parse_peek, "scope key [TOKEN token] [META]",
      "Look without claiming" },
    { "ONCE.FORGET", 3, 6, true, NULL, resp_parse_forget, "scope key [TOKEN token] [META]",
      "Remove an answer, or a claim whose lease has lapsed" },
    { "ONCE.SCAN", 2, 6, false, NULL, resp_parse_scan, "cursor [SCOPE scope] [COUNT n]",
      "List records, a page at a time; begin with cursor 0, end when it is 0 again" },
    { "ONCE.WATCH", 5, 7, false, NULL, resp_parse_watch, "id scope key seen [FP fingerprint]",
      "Be told, by a push, once the version is not what was seen" },
    { "ONCE.UNWATCH", 2, 2, false, resp_unwatch, NULL, "id", "Not to be told any more" },
    { "ONCE.SWEEP", 1, 2, true, NULL, resp_parse_sweep, "[n]",
      "Remove what is past its retention, so many records at most" },
    { "ONCE.STATS", 1, 1, false, NULL, resp_parse_stats, "", "Count records" },
    { "ONCE.FACTS", 1, 1, false, NULL, resp_parse_facts, "",
      "What the planes say of themselves" },
    { .name = "ONCE.TRIGGER",
      .args_min = 3,
      .args_max = RESP_ARGS_MAX,
      .writes = true,
      .parse_run = resp_parse_trigger,
      .usage =
          "task payload [ENV env] [KEY key] [KEYTTL ms] [DELAY ms | AT unix-ms] [TAG tag]... "
          "[QUEUE queue] [ORDER key] [ATTEMPTS n] [METADATA json] [ID id [NEWID]] "
          "[ONMISMATCH RETURN] [WAIT ms]" RAW,
      .summary = "Make a run, or find the one that its key leads to" },
    { .name = "ONCE.RUN",
      .args_min = 2,
      .args_max = RESP_ARGS_MAX,
      .writes = true,
      .parse_run = resp_parse_run,
      .usage =
          "GET id | LIST [TASK task] [QUEUE queue] [STATUS status]... [TAG tag] [BEFORE id] "
          "[COUNT n] | TAG id [ENV env] tag... | METADATA id json [VERSION n] | "
          "OPERATE id operations | CANCEL id [REASON text | ERROR json] | RESCHEDULE id "
          "unix-ms | "
          "REPLAY id [ID id] | RESET task key; each [ENV env]" RAW,
      .summary = "Look at runs, and change them" },
    { .name = "ONCE.PULL",
      .args_min = 2,
      .args_max = 12,
      .writes = true,
      .parse_run = resp_parse_pull,
      .usage = "queue [ENV env] [COUNT n] [LEASE ms] [WAIT ms]" RAW,
      .summary = "Lease runs of a queue, to carry them out" },
    { .name = "ONCE.ACK",
      .args_min = 3,
      .args_max = 8,
      .writes = true,
      .parse_run = resp_parse_ack,
      .usage = "id token [output] [ENV env]" RAW,
      .summary = "A leased run is done" },
    { .name = "ONCE.NACK",
      .args_min = 4,
      .args_max = 10,
      .writes = true,
      .parse_run = resp_parse_nack,
      .usage = "id token error|RETURN [RETRY ms] [ENV env]" RAW,
      .summary = "A leased run has failed, or nobody has worked on it" },
    { .name = "ONCE.BEAT",
      .args_min = 3,
      .args_max = 9,
      .writes = true,
      .parse_run = resp_parse_beat,
      .usage = "id token [LEASE ms] [ENV env]" RAW,
      .summary = "Stay the one who works on a run" },
    { .name = "ONCE.MUTATION.BEGIN",
      .args_min = 3,
      .args_max = 18,
      .writes = true,
      .parse_mutation = resp_parse_mutation_begin,
      .usage = "user-id request-id" MUTATION " [EPOCH epoch] [LEASE ms] [WAIT ms] "
               "[TOKEN token]",
      .summary = "Begin a mutation, or get the response of one that is done" },
    { .name = "ONCE.MUTATION.COMPLETE",
      .args_min = 5,
      .args_max = 17,
      .writes = true,
      .parse_mutation = resp_parse_mutation_complete,
      .usage = "user-id request-id token response" MUTATION " [EPOCH epoch] [RETAIN ms] [OMIT]",
      .summary = "Keep the response of a mutation that was committed" },
    { .name = "ONCE.MUTATION.ABORT",
      .args_min = 4,
      .args_max = 11,
      .writes = true,
      .parse_mutation = resp_parse_mutation_abort,
      .usage = "user-id request-id token" MUTATION,
      .summary = "A mutation was rolled back: the next one may begin" },
    { "PING", 1, 2, false, resp_ping, NULL, "[message]", "Is anybody there?" },
    { "ECHO", 2, 2, false, resp_echo, NULL, "message", "The same back" },
    { "HELLO", 1, 7, false, resp_hello, NULL, "[2|3 [AUTH username token] [SETNAME name]]",
      "Choose the protocol", true },
    { "AUTH", 2, 3, false, resp_auth, NULL, "[username] token", "Say who you are", true },
    { "CLIENT", 2, RESP_ARGS_MAX, false, resp_client, NULL,
      "ID|GETNAME|SETNAME name|SETINFO attr value|NO-EVICT on|NO-TOUCH on",
      "About this connection" },
    { "COMMAND", 1, RESP_ARGS_MAX, false, resp_command_list, NULL,
      "[COUNT|LIST|INFO name...|DOCS name...]", "What can be asked" },
    { "INFO", 1, RESP_ARGS_MAX, false, resp_info, NULL, "[section...]", "About this daemon" },
    { "SELECT", 2, 2, false, resp_select, NULL, "0", "There is one database" },
    { "RESET", 1, 1, false, resp_reset, NULL, "", "Forget what was said about the connection",
      true },
    { "QUIT", 1, 1, false, resp_quit, NULL, "", "Close the connection", true },
    { 0 },
};

const struct resp_entry *resp_find(struct bytes name)
{
    for (const struct resp_entry *e = resp_table; e->name; e++)
        if (resp_word_is(name, e->name)) return e;
    return NULL;
}

/* As Redis words it: some clients look. */
void resp_unknown(const struct resp_command *in, struct resp_writer *w)
{
    struct buf text;
    buf_init(&text, 512);
    int shown = (int)(in->args[0].len < 64 ? in->args[0].len : 64);
    buf_printf(&text, "unknown command '%.*s', with args beginning with:", shown,
               (const char *)in->args[0].data);
    for (size_t i = 1; i < in->count && i < 4; i++) {
        shown = (int)(in->args[i].len < 32 ? in->args[i].len : 32);
        buf_printf(&text, " '%.*s'", shown, (const char *)in->args[i].data);
    }
    resp_error(w, "ERR", buf_bytes(&text));
    buf_fini(&text);
}

/* ---- COMMAND ---- */

static size_t table_count(void)
{
    size_t n = 0;
    while (resp_table[n].name) n++;
    return n;
}

/* Clients know commands by their names in small letters. */
static void write_name(struct resp_writer *w, const struct resp_entry *e)
{
    char name[32];
    size_t len = strlen(e->name);
    for (size_t i = 0; i < len; i++) {
        char c = e->name[i];
        name[i] = c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
    }
    resp_bulk(w, bytes_of(name, len));
}

/* Name, arity (negative: at least), flags, three places of keys, and four lists that are empty:
 * categories, tips, key specifications, subcommands. No argument is a Redis key. */
static void write_info(struct resp_writer *w, const struct resp_entry *e)
{
    int64_t least = (int64_t)e->args_min;
    resp_array(w, 10);
    write_name(w, e);
    resp_integer(w, e->args_min == e->args_max ? least : -least);
    resp_array(w, 1);
    resp_simple(w, e->writes ? "write" : "fast");
    for (int i = 0; i < 3; i++) resp_integer(w, 0);
    for (int i = 0; i < 4; i++) resp_array(w, 0);
}

static void write_docs(struct resp_writer *w, const struct resp_entry *e)
{
    write_name(w, e);
    resp_map(w, 3);
    resp_text(w, "summary");
    resp_text(w, e->summary);
    resp_text(w, "group");
    bool asks = e->parse || e->parse_run || e->parse_mutation;
    resp_text(w, asks ? "once" : "connection");
    resp_text(w, "usage");
    resp_text(w, e->usage);
}

static void list_infos(const struct resp_command *in, struct resp_writer *w)
{
    if (in->count <= 2) {
        resp_array(w, table_count());
        for (const struct resp_entry *e = resp_table; e->name; e++) write_info(w, e);
        return;
    }
    resp_array(w, in->count - 2);
    for (size_t i = 2; i < in->count; i++) {
        const struct resp_entry *e = resp_find(in->args[i]);
        if (e)
            write_info(w, e);
        else
            resp_null_array(w);
    }
}

static void list_docs(const struct resp_command *in, struct resp_writer *w)
{
    size_t known = 0;
    for (size_t i = 2; i < in->count; i++) known += resp_find(in->args[i]) != NULL;
    resp_map(w, in->count > 2 ? known : table_count());
    for (const struct resp_entry *e = resp_table; in->count == 2 && e->name; e++)
        write_docs(w, e);
    for (size_t i = 2; i < in->count; i++) {
        const struct resp_entry *e = resp_find(in->args[i]);
        if (e) write_docs(w, e);
    }
}

void resp_command_list(struct resp_session *s, const struct resp_command *in,
                       struct resp_writer *w)
{
    (void)s;
    struct bytes what = in->count > 1 ? in->args[1] : bytes_str("INFO");
    if (resp_word_is(what, "INFO")) {
        list_infos(in, w);
    } else if (resp_word_is(what, "DOCS")) {
        list_docs(in, w);
    } else if (resp_word_is(what, "COUNT")) {
        resp_integer(w, (int64_t)table_count());
    } else if (resp_word_is(what, "LIST")) {
        resp_array(w, table_count());
        for (const struct resp_entry *e = resp_table; e->name; e++) write_name(w, e);
    } else {
        resp_say_error(w, "ERR", "unknown subcommand of COMMAND: COUNT, LIST, INFO, DOCS");
    }
}
