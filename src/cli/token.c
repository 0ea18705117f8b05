/* token.c - once token: who may ask a daemon. Changes the file that `once serve` reads; needs no
 * daemon, and tells none: they read it again on SIGHUP. */
#include "base/buf.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/now.h"
#include "daemon/tokens_file.h"

#include <string.h>

enum { TOKEN_NAME, TOKEN_SCOPE, TOKEN_VERB, TOKEN_EXPIRES, TOKEN_FILE, TOKEN_END };

static const struct option token_options[] = {
    [TOKEN_NAME] = { "name", .kind = OPTION_TEXT, .value = "NAME",
                     .help = "create: whose it is; for people" },
    [TOKEN_SCOPE] = { "scope", .kind = OPTION_LIST, .value = "SCOPE", .fallback = "*",
                      .help =
                          "create: where it counts, exact or a prefix and *; repeat for more" },
    [TOKEN_VERB] = { "verb", .kind = OPTION_LIST, .value = "VERB", .fallback = "read,write",
                     .help = "create: claim publish renew release peek forget scan metrics, "
                             "read, write, all; repeat" },
    [TOKEN_EXPIRES] = { "expires", .kind = OPTION_DURATION, .value = "D",
                        .help = "create: how long it lives (default: until it is revoked)" },
    [TOKEN_FILE] = { "tokens", .kind = OPTION_TEXT, .value = "FILE",
                     .help = "the file (default: tokens in the data directory)" },
    [TOKEN_END] = { 0 },
};

struct token_call {
    struct cli *cli;
    const struct args *args;
    char path[4096 + sizeof "/tokens"];
};

static int find_file(struct token_call *call, bool make)
{
    struct err err;
    const char *given = call->args->values[TOKEN_FILE].text;
    if (given) {
        snprintf(call->path, sizeof call->path, "%s", given);
        return 0;
    }
    int status = 0;
    if (make)
        status = cli_make_data_dir(call->cli);
    else if (cli_data_dir(call->cli, &err) < 0)
        status = cli_fail(call->cli, err.code, err.text);
    snprintf(call->path, sizeof call->path, "%s/tokens", call->cli->data_dir);
    return status;
}

/* ---- showing ---- */

static json_t *json_words(const char *text)
{
    json_t *list = json_array();
    while (*text) {
        size_t len = strcspn(text, ",");
        json_array_append_new(list, json_stringn(text, len));
        text += len + (text[len] == ',');
    }
    return list;
}

struct verbs_text {
    char text[128];
};

static struct verbs_text verbs_of(const struct access_token *token)
{
    struct verbs_text verbs = { "" };
    struct buf out;
    buf_init(&out, sizeof verbs.text - 1);
    rights_write(token->rights, &out);
    if (out.len) memcpy(verbs.text, out.data, out.len);
    buf_fini(&out);
    return verbs;
}

static json_t *json_token(const struct access_token *token)
{
    struct verbs_text verbs = verbs_of(token);
    bool forever = token->expires_ms == INT64_MAX;
    return json_pack("{s:s, s:s, s:o, s:o, s:I, s:o}", "id", token->id, "name", token->name,
                     "verbs", json_words(verbs.text), "scopes", json_words(token->scopes),
                     "created_at_ms", (json_int_t)token->created_ms, "expires_at_ms",
                     forever ? json_null() : json_integer(token->expires_ms));
}

static void print_token(const struct cli *cli, const struct access_token *token)
{
    char created[TIME_TEXT_BYTES], expires[TIME_TEXT_BYTES];
    bool over = token->expires_ms <= now_wall_ms();
    token_time_show(token->created_ms, created);
    token_time_show(token->expires_ms, expires);
    printf("%s  %-16s  %s  %s%-20s%s  %s  %s\n", token->id, token->name, created,
           over && cli->color ? "\033[31m" : "", over ? "expired" : expires,
           over && cli->color ? "\033[0m" : "", token->scopes, verbs_of(token).text);
}

/* ---- create ---- */

static struct bytes join(const struct option_value *value, struct buf *into)
{
    for (size_t i = 0; i < value->count; i++)
        buf_printf(into, "%s%s", i ? "," : "", value->texts[i]);
    return buf_bytes(into);
}

static int show_created(const struct token_call *call, const struct access_token *token,
                        const char *text)
{
    if (call->cli->json) {
        json_t *o = json_token(token);
        if (o) json_object_set_new(o, "token", json_string(text));
        return print_json(stdout, o);
    }
    printf("%s\n", text);
    cli_note(call->cli, "this is the only time it is shown. Scopes %s, verbs %s", token->scopes,
             verbs_of(token).text);
    cli_note(call->cli, "a daemon that runs takes it up on SIGHUP; %s has its hash",
             call->path);
    return STATUS_OK;
}

static int create_in(const struct token_call *call, const struct token_wish *wish)
{
    char text[TOKEN_TEXT_BYTES + 1];
    struct tokens_change change;
    struct rng_system rng;
    struct bytes id;
    struct err err;
    rng_system_init(&rng);
    int r = tokens_change_begin(&change, call->path, &err);
    if (r) return cli_fail(call->cli, r, err.text);
    r = tokens_create(&change.tokens, wish, &rng.base, text, &err);
    if (!r) r = tokens_change_save(&change, &err);
    if (!r) r = token_text_parse(bytes_str(text), &id, &err);
    int status = r ? cli_fail(call->cli, r, err.text)
                   : show_created(call, tokens_find(&change.tokens, id), text);
    explicit_bzero(text, sizeof text);
    explicit_bzero(&rng, sizeof rng);
    tokens_change_end(&change);
    return status;
}

static int token_create(struct token_call *call)
{
    const struct option_value *values = call->args->values;
    struct token_wish wish = { .name = bytes_str(values[TOKEN_NAME].text),
                               .now_ms = now_wall_ms(),
                               .expires_ms = INT64_MAX };
    struct buf scopes, verbs;
    struct err err;
    if (values[TOKEN_EXPIRES].given) wish.expires_ms = values[TOKEN_EXPIRES].number;
    buf_init(&scopes, TOKEN_SCOPES_BYTES_MAX + 1);
    buf_init(&verbs, 1024);
    wish.scopes = join(&values[TOKEN_SCOPE], &scopes);
    int r = rights_parse(join(&values[TOKEN_VERB], &verbs), &wish.rights, &err);
    if (!r) r = scopes_check(wish.scopes, &err); /* before the directory is made */
    if (!r && !wish.name.len)
        r = err_set(&err, ERR_INVALID, "a token needs a name: --name NAME");
    int status = r ? cli_fail(call->cli, r, err.text) : find_file(call, true);
    if (!status) status = create_in(call, &wish);
    buf_fini(&scopes);
    buf_fini(&verbs);
    return status;
}

/* ---- list, revoke ---- */

static int token_list(struct token_call *call)
{
    struct tokens tokens;
    struct err err;
    bool found;
    int status = find_file(call, false);
    if (status) return status;
    int r = tokens_load(call->path, false, &tokens, &found, &err);
    if (r) return cli_fail(call->cli, r, err.text);
    if (!found)
        cli_note(call->cli, "there is no %s: no token is required", call->path);
    else if (!tokens.count)
        cli_note(call->cli, "no tokens: nobody may ask anything");
    else if (!call->cli->json)
        printf("%-8s  %-16s  %-20s  %-20s  SCOPES  VERBS\n", "ID", "NAME", "CREATED",
               "EXPIRES");
    for (size_t i = 0; i < tokens.count && !status; i++) {
        if (call->cli->json)
            status = print_json(stdout, json_token(&tokens.rows[i]));
        else
            print_token(call->cli, &tokens.rows[i]);
    }
    tokens_fini(&tokens);
    return status;
}

static int token_revoke(struct token_call *call)
{
    const char *id = call->args->operands[1];
    struct tokens_change change;
    struct err err;
    int status = find_file(call, false);
    if (status) return status;
    int r = tokens_change_begin(&change, call->path, &err);
    if (r) return cli_fail(call->cli, r, err.text);
    if (!tokens_remove(&change.tokens, bytes_str(id))) {
        cli_error("there is no token '%.16s'; see: once token list", id);
        status = STATUS_ABSENT;
    } else if ((r = tokens_change_save(&change, &err)) < 0) {
        status = cli_fail(call->cli, r, err.text);
    } else {
        cli_note(call->cli, "%s is revoked; a daemon that runs takes that up on SIGHUP", id);
    }
    tokens_change_end(&change);
    return status;
}

/* ---- the command ---- */

static const struct {
    const char *name;
    size_t operands;
    int (*run)(struct token_call *call);
} actions[] = { { "create", 1, token_create },
                { "list", 1, token_list },
                { "revoke", 2, token_revoke } };

static int token_run(struct cli *cli, const struct args *args)
{
    struct token_call call = { .cli = cli, .args = args };
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (strcmp(args->operands[0], actions[i].name) != 0) continue;
        if (args->operand_count == actions[i].operands) return actions[i].run(&call);
        cli_error(actions[i].operands > 1 ? "token %s needs an ID; see: once token list"
                                          : "token %s takes no operand",
                  actions[i].name);
        return STATUS_USAGE;
    }
    cli_error("there is no 'token %.40s': create, list or revoke", args->operands[0]);
    return STATUS_USAGE;
}

const struct command token_command = {
    .name = "token",
    .summary = "Who may ask a daemon: create, list and revoke tokens",
    .operands = "create|list|revoke [ID]",
    .operands_min = 1,
    .operands_max = 2,
    .options = token_options,
    .words = "create list revoke",
    .details =
        "As soon as there is a tokens file, everybody who asks the daemon has to show a token\n"
        "of it: as a bearer over HTTP, by AUTH over RESP. It is good for its verbs in its\n"
        "scopes; read is peek and scan, write is claim, publish, renew and release. The file\n"
        "has hashes only: a token is printed once, when it is created. SIGHUP makes a daemon\n"
        "read the file again; a token that was revoked then ends at its next use.\n"
        "\n"
        "  once token create --name worker --scope orders --scope 'tmp:*' --verb write\n",
    .local = true,
    .run = token_run,
};
