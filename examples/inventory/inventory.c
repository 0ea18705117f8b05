/* inventory.c - a game's inventory: an item is used once, however often the request comes.
 *
 *     inventory new-player alice 3          # three potions, version 42
 *     inventory use-item alice req-1        # ok: potions 2, ..., version 43
 *     inventory use-item alice req-1        # already_done: the same
 *
 * Every change is a compare-and-set on the row's version. That keeps two changes at once apart, and
 * does nothing against one that comes again: the retry reads the new version, and its
 * compare-and-set succeeds. What makes a request count once is a marker in the same transaction:
 * once_mutate(). With --backstop off there is none, only a cache in front; see the README for what
 * happens then. */
#include "players.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_VERSION = 42, HEALTH = 40, TRIES = 20, FAILED = -1, REFUSED = -2 };

struct game {
    const char *db_url, *cache_url;
    bool backstop;
    const struct players *players;
    struct once_db db;
    struct once *once;
    char line[512]; /* the reply to the command at hand */
};

/* ---- a change of a player ---- */

struct action {
    const char *command, *method;
    int health, coins;
};

static const struct action actions[] = {
    { "use-item", "UseItem", 10, 0 },
    { "sell-item", "SellItem", 0, 5 },
};

struct change {
    struct game *game;
    const struct action *action;
    const char *user;
    const char *refused; /* why there is no response */
    bool ran;
    char text[128]; /* the response */
};

static void describe(const struct player *p, char *text, size_t len)
{
    snprintf(text, len, "potions %lld, health %lld, coins %lld, version %lld", p->potions,
             p->health, p->coins, p->version);
}

static int refuse(struct change *c, const char *why)
{
    c->refused = why;
    return REFUSED;
}

/* Compare-and-set: read, change, write if the version is still the one that was read. */
static int change_try(void *ctx, int attempt)
{
    struct change *c = ctx;
    const struct players *players = c->game->players;
    struct player p;
    (void)attempt;
    int found = players->read(c->game->db, c->user, &p);
    if (found < 0) return FAILED;
    if (found == 0) return refuse(c, "there is no such player");
    if (p.potions == 0) return refuse(c, "no potions left");
    long long version = p.version++;
    p.potions--;
    p.health += c->action->health;
    p.coins += c->action->coins;
    int written = players->write(c->game->db, c->user, version, &p);
    if (written == 0) return ONCE_VERSION_LOST;
    describe(&p, c->text, sizeof c->text);
    return written == 1 ? 0 : FAILED;
}

/* Inside the transaction; what it returns is the response, for duplicates, too. */
static int change_run(void *ctx, struct once_db db, struct once_bytes *ret_response)
{
    struct change *c = ctx;
    (void)db; /* it is the game's */
    int r = once_with_version_retry(TRIES, change_try, c);
    *ret_response = once_str(c->text);
    return r;
}

/* ---- replies ---- */

static void reply(struct game *g, const char *outcome, struct once_bytes text)
{
    snprintf(g->line, sizeof g->line, "%s%s%.*s", outcome, text.len ? ": " : "", (int)text.len,
             text.len ? (const char *)text.data : "");
}

/* CLAIMED: it was rolled back, so nothing has happened. */
static void reply_mutation(struct change *c, int r, const struct once_mutation_answer *answer)
{
    struct once_bytes why = once_str(c->refused ? c->refused : answer->error.text);
    if (r < 0)
        reply(c->game, "no answer", once_str(answer->error.text));
    else if (answer->outcome == ONCE_CLAIMED)
        reply(c->game, "rolled back", why);
    else
        reply(c->game, once_outcome_name(answer->outcome), answer->value);
}

/* ---- with the backstop ---- */

static void change_with_marker(struct change *c, const char *request)
{
    struct once_mutation in = ONCE_MUTATION_INIT;
    struct once_mutation_answer answer;
    in.user = once_str(c->user);
    in.request = once_str(request);
    in.method = once_str(c->action->method);
    int r = once_mutate(c->game->once, c->game->db, &in, change_run, c, &answer);
    reply_mutation(c, r, &answer);
    once_mutation_answer_clear(&answer);
}

/* ---- without: the design that has the hole ---- */

/* A transaction with the compare-and-set, and no marker: a mutation without a request. */
static int change_unmarked(void *ctx, const struct once_lease *lease,
                           struct once_bytes *ret_value)
{
    struct change *c = ctx;
    struct once_mutation in = ONCE_MUTATION_INIT;
    struct once_mutation_answer answer;
    (void)lease;
    int r = once_mutate(NULL, c->game->db, &in, change_run, c, &answer);
    reply_mutation(c, r, &answer);
    bool committed = r == 0 && answer.outcome == ONCE_OK;
    once_mutation_answer_clear(&answer);
    c->ran = true;
    *ret_value = once_str(c->text);
    return committed ? 0 : FAILED;
}

/* The cache knows what was done. If it is away, it goes on without: better slow than closed. */
static void change_with_cache(struct change *c, const char *request)
{
    char key[520];
    struct once_answer answer;
    struct once_bytes ignored;
    snprintf(key, sizeof key, "%s/%s", c->user, request);
    int r = once_do(c->game->once, "replay", key, change_unmarked, c, &answer);
    if (r < 0 && !c->ran)
        change_unmarked(c, NULL, &ignored);
    else if (!c->ran)
        reply(c->game, once_outcome_name(answer.outcome), answer.value);
    once_answer_clear(&answer);
}

/* ---- commands ---- */

static int fail(struct game *g, const char *why)
{
    reply(g, "no answer", once_str(why));
    return 1;
}

static int act(struct game *g, const struct action *action, const char *user,
               const char *request)
{
    struct change c = { .game = g, .action = action, .user = user };
    /* To the library that is an internal mutation, which nobody repeats. */
    if (!request[0]) return fail(g, "a request id is missing");
    if (g->backstop)
        change_with_marker(&c, request);
    else
        change_with_cache(&c, request);
    return 0;
}

static int show(struct game *g, const char *user)
{
    struct player p;
    int found = g->players->read(g->db, user, &p);
    if (found < 0) return fail(g, "the database failed");
    if (found == 0) return fail(g, "there is no such player");
    describe(&p, g->line, sizeof g->line);
    return 0;
}

static void ignore(void *ctx, const char *text)
{
    (void)ctx;
    (void)text;
}

/* The marker's table is in the game's own database, beside the players. */
static int new_player(struct game *g, const char *user, const char *potions)
{
    struct player p = { FIRST_VERSION, atoll(potions), HEALTH, 0 };
    struct once_error error;
    if (once_migrate(g->db_url, ONCE_MIGRATE_MUTATIONS, ignore, NULL, &error) < 0)
        return fail(g, error.text);
    if (g->players->create(g->db, user, &p) < 0) return fail(g, "the database failed");
    describe(&p, g->line, sizeof g->line);
    return 0;
}

static int command(struct game *g, const char *name, const char *user, const char *argument)
{
    size_t count = sizeof actions / sizeof actions[0];
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, actions[i].command) == 0) return act(g, &actions[i], user, argument);
    if (strcmp(name, "new-player") == 0) return new_player(g, user, argument);
    if (strcmp(name, "show") == 0) return show(g, user);
    reply(g, "no such command", once_str(name));
    return 2;
}

/* A reply that nobody is there to hear is said on stderr. What was committed stays committed. */
static void send_reply(const struct game *g)
{
    char line[sizeof g->line + 1];
    int len = snprintf(line, sizeof line, "%s\n", g->line);
    if (write(STDOUT_FILENO, line, (size_t)len) != len)
        fprintf(stderr, "the client has gone; it did not hear: %s\n", g->line);
}

/* Clients are lines: COMMAND USER REQUEST. */
static int serve(struct game *g)
{
    char *line = NULL;
    size_t size = 0;
    signal(SIGPIPE, SIG_IGN);
    while (getline(&line, &size, stdin) > 0) {
        char name[32] = "", user[257] = "", argument[257] = "";
        sscanf(line, "%31s %256s %256s", name, user, argument);
        command(g, name, user, argument);
        send_reply(g);
    }
    free(line);
    return 0;
}

/* ---- main ---- */

static const struct players *players_of(const char *url)
{
    static const struct players *const kinds[] = { &players_postgres, &players_sqlite };
    for (size_t i = 0; i < 2; i++)
        if (strncmp(url, kinds[i]->scheme, strlen(kinds[i]->scheme)) == 0) return kinds[i];
    return NULL;
}

/* Without the backstop the handle is a cache and nothing else. */
static int game_open(struct game *g)
{
    struct once_config config = ONCE_CONFIG_INIT;
    struct once_error error;
    char ledger[2048];
    g->players = players_of(g->db_url);
    if (!g->players) {
        fprintf(stderr, "%s: neither postgres:// nor sqlite:\n", g->db_url);
        return -1;
    }
    if (g->players->open(g->db_url, &g->db) < 0) return -1;
    g->players->ledger(g->db_url, ledger, sizeof ledger);
    config.coord = g->cache_url;
    config.ledger = g->backstop ? ledger : "none";
    if (once_open(&config, &g->once, &error) == 0) return 0;
    fprintf(stderr, "cannot open: %s\n", error.text);
    return -1;
}

static void game_close(struct game *g)
{
    once_close(g->once);
    if (g->players) g->players->close(g->db);
}

static int run(struct game *g, char **words, int count)
{
    if (count == 1 && strcmp(words[0], "serve") == 0) return serve(g);
    int status = command(g, words[0], words[1], count > 2 ? words[2] : "");
    send_reply(g);
    return status;
}

/* The words behind the options, or NULL. */
static char **options(struct game *g, char **argv)
{
    char **at = argv + 1;
    for (; at[0] && strncmp(at[0], "--", 2) == 0; at += 2) {
        if (!at[1]) return NULL;
        if (strcmp(at[0], "--db") == 0)
            g->db_url = at[1];
        else if (strcmp(at[0], "--cache") == 0)
            g->cache_url = at[1];
        else if (strcmp(at[0], "--backstop") == 0)
            g->backstop = strcmp(at[1], "off") != 0;
        else
            return NULL;
    }
    return at;
}

int main(int argc, char **argv)
{
    struct game g = {
        .db_url = "sqlite:inventory.db", .cache_url = "memory:", .backstop = true
    };
    char **words = options(&g, argv);
    int count = words ? (int)(argv + argc - words) : 0;
    if (count < 1 || count > 3 || (count == 1 && strcmp(words[0], "serve") != 0)) {
        fprintf(stderr,
                "usage: inventory [--db URL] [--cache URL] [--backstop on|off] COMMAND\n"
                "  new-player USER POTIONS, show USER, use-item USER REQUEST,\n"
                "  sell-item USER REQUEST, serve (these as lines, on stdin)\n");
        return 2;
    }
    int status = game_open(&g) < 0 ? 1 : run(&g, words, count);
    game_close(&g);
    return status;
}
