/* redis_facts.c - what a Redis server says of itself, and what that means for us.
 *
 * Asked for with the greeting, so that whoever starts can say what it stands on. CONFIG may be
 * forbidden (managed servers): then that is not known, and said. */
#include "store/redis.h"

#include <stdio.h>
#include <stdlib.h>

enum { VERSION_MIN = 6 };

static void info_field(const char *info, const char *name, char *out, size_t len)
{
    char line[40];
    snprintf(line, sizeof line, "\n%s:", name);
    const char *at = strstr(info, line);
    *out = '\0';
    if (!at) return;
    at += strlen(line);
    snprintf(out, len, "%.*s", (int)strcspn(at, "\r\n"), at);
}

static bool info_is(const char *info, const char *name, const char *value)
{
    char field[32];
    info_field(info, name, field, sizeof field);
    return strcmp(field, value) == 0;
}

void facts_from_info(struct redis_facts *f, const char *info)
{
    char limit[24];
    f->known = true;
    f->cluster = info_is(info, "cluster_enabled", "1");
    f->replica = info_is(info, "role", "slave");
    f->aof = info_is(info, "aof_enabled", "1");
    info_field(info, "maxmemory", limit, sizeof limit);
    f->limited = limit[0] && strcmp(limit, "0") != 0;
    info_field(info, "redis_version", f->version, sizeof f->version);
    info_field(info, "maxmemory_policy", f->policy, sizeof f->policy);
}

/* What a script does is passed on, not the script, since 5; 6 is the oldest that was tried. A cluster's
 * replica says where its master is. */
const char *facts_unfit(const struct redis_facts *f)
{
    if (*f->version && atoi(f->version) < VERSION_MIN) return "Redis 6.0 or later is needed";
    if (f->replica && !f->cluster) return "it is a replica";
    return NULL;
}

/* CONFIG GET: [name, value]. */
void facts_from_config(struct redis_facts *f, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY) return;
    for (size_t i = 0; i + 1 < reply->elements; i += 2) {
        const char *name = reply->element[i]->str, *value = reply->element[i + 1]->str;
        if (!name || !value) continue;
        if (strcmp(name, "appendfsync") == 0) snprintf(f->fsync, sizeof f->fsync, "%s", value);
        if (strcmp(name, "save") != 0) continue;
        snprintf(f->save, sizeof f->save, "%s", value);
        f->save_known = true;
    }
}

/* ---- several servers ---- */

/* The larger, the more may be lost. */
static int persistence_rank(const struct redis_facts *f)
{
    if (f->aof && strcmp(f->fsync, "always") == 0) return 0;
    if (f->aof && strcmp(f->fsync, "everysec") == 0) return 1;
    if (f->aof) return 2;
    if (f->save[0]) return 3;
    return f->save_known ? 5 : 4;
}

static int eviction_rank(const struct redis_facts *f)
{
    if (strcmp(f->policy, "noeviction") == 0) return 0;
    if (f->policy[0] && !f->limited) return 1;
    return f->policy[0] ? 3 : 2;
}

void facts_worst(struct redis_facts *f, const struct redis_facts *other)
{
    if (persistence_rank(other) > persistence_rank(f)) {
        f->aof = other->aof;
        f->save_known = other->save_known;
        memcpy(f->fsync, other->fsync, sizeof f->fsync);
        memcpy(f->save, other->save, sizeof f->save);
    }
    if (eviction_rank(other) > eviction_rank(f)) {
        f->limited = other->limited;
        memcpy(f->policy, other->policy, sizeof f->policy);
    }
    f->replica = f->replica || other->replica;
}

/* ---- in words ---- */

/* What an acknowledged write may lose. */
static void tell_persistence(struct op *op, const struct redis_facts *f)
{
    static const char alone[] =
        "as the only plane (no ledger) it would lose answers with a crash; "
        "in front of a ledger nothing is lost";
    if (f->aof && strcmp(f->fsync, "always") == 0)
        fact_add(op, FACT_OK, "persistence", NULL, "AOF, synced with every write");
    else if (f->aof && f->fsync[0])
        fact_add(op, FACT_OK, "persistence", alone, "AOF, appendfsync %s: a crash may lose %s",
                 f->fsync, strcmp(f->fsync, "everysec") == 0 ? "the last second" : "more");
    else if (f->aof)
        fact_add(op, FACT_OK, "persistence", alone, "AOF, how often it syncs is not told");
    else if (f->save[0])
        fact_add(op, FACT_OK, "persistence", alone, "snapshots only: a crash loses minutes");
    else if (!f->save_known)
        fact_add(op, FACT_OK, "persistence", alone,
                 "not told (CONFIG GET is refused): no AOF, perhaps snapshots");
    else
        fact_add(op, FACT_OK, "persistence", alone, "none: a restart forgets everything");
}

bool facts_evicts(const struct redis_facts *f)
{
    return f->limited && f->policy[0] && strcmp(f->policy, "noeviction") != 0;
}

/* What was accepted into the buffer is nowhere else until a drainer has written it. */
static void tell_buffer(struct op *op, const struct redis_facts *f, bool evictable)
{
    static const char always[] = "appendonly yes and appendfsync always lose nothing";
    if (facts_evicts(f) && !evictable)
        fact_add(op, FACT_WARN, "buffer",
                 "maxmemory-policy noeviction, or evictable=1 in the URL",
                 "refused: %s may drop what was accepted", f->policy);
    else if (facts_evicts(f))
        fact_add(op, FACT_WARN, "buffer", "maxmemory-policy noeviction",
                 "%s may drop what was accepted", f->policy);
    else if (f->aof && strcmp(f->fsync, "always") == 0)
        fact_add(op, FACT_OK, "buffer", NULL, "what was accepted survives a crash");
    else if (f->aof)
        fact_add(op, FACT_OK, "buffer", always, "a crash may lose %s of what was accepted",
                 strcmp(f->fsync, "everysec") == 0 ? "the last second" : "some");
    else
        fact_add(op, FACT_OK, "buffer", always,
                 "a crash loses what was accepted and not written yet");
}

static void tell_eviction(struct op *op, const struct redis_facts *f)
{
    if (!f->policy[0])
        fact_add(op, FACT_WARN, "eviction", "look at maxmemory-policy", "not told");
    else if (strcmp(f->policy, "noeviction") == 0)
        fact_add(op, FACT_OK, "eviction", NULL, "noeviction");
    else
        fact_add(op, f->limited ? FACT_WARN : FACT_OK, "eviction",
                 f->cluster
                     ? "CONFIG SET maxmemory-policy noeviction: a key that is evicted is "
                       "a 256th of all records, forgotten at once"
                     : "CONFIG SET maxmemory-policy noeviction: all records are one key, "
                       "so an eviction forgets all of them",
                 "%s%s", f->policy, f->limited ? "" : " (no maxmemory: nothing is evicted)");
}

void facts_tell(struct op *op, const struct redis_facts *f, unsigned servers, bool evictable)
{
    char worst[48] = "";
    if (!f->known) return;
    if (servers > 1)
        snprintf(worst, sizeof worst, "; below is the worst of %u servers", servers);
    fact_add(op, FACT_OK, "server", NULL, "redis %s%s%s", f->version,
             f->cluster ? ", a cluster" : "", worst);
    if (f->replica && !f->cluster)
        fact_add(op, FACT_FAIL, "role", "point the URL at the master", "a replica");
    tell_persistence(op, f);
    tell_eviction(op, f);
    tell_buffer(op, f, evictable);
}

/* Each node that answers, by one of its connections. */
void facts_tell_all(struct op *op, const struct redis *r)
{
    struct redis_facts worst = { 0 };
    unsigned servers = 0;
    const struct link *end = &r->nodes.head;
    for (const struct link *at = end->next; at != end; at = at->next) {
        const struct node *n = container_of(at, struct node, link);
        const struct conn *c = &n->lanes[0].conn;
        for (unsigned i = 1; c->state != CONN_READY && i < LANES_MAX; i++)
            c = &n->lanes[i].conn;
        if (c->state != CONN_READY) continue;
        if (servers++)
            facts_worst(&worst, &c->facts);
        else
            worst = c->facts;
    }
    facts_tell(op, &worst, servers, r->options.evictable);
}
