/* spec.c - reads a spec. One statement per line, words separated by blanks, # starts a comment:
 *
 *   session NAME
 *     step NAME ACTION ...                   in order within the session
 *   require|forbid CONDITION [if CONDITION]  holds, or does not, in every interleaving
 *   sometimes CONDITION                      holds in at least one
 *   permutation STEP...                      only these orders instead of all
 *   processes one|each                       only this arrangement instead of both
 *
 * Conditions are in cond.c; README.md has the whole language. A mistake is reported with its
 * line; nothing is guessed. */
#include "tests/schedule/spec.h"

#include "base/text.h"
#include "core/record.h"

#include <stdio.h>
#include <string.h>

enum { WORDS_MAX = 64 };

struct line {
    char words[WORDS_MAX][WORD_MAX];
    size_t count;
    const char *text;
};

static const char *const action_names[ACTIONS] = {
    [ACT_CLAIM] = "claim",     [ACT_PUBLISH] = "publish", [ACT_RELEASE] = "release",
    [ACT_RENEW] = "renew",     [ACT_PEEK] = "peek",       [ACT_FORGET] = "forget",
    [ACT_SWEEP] = "sweep",     [ACT_CANCEL] = "cancel",   [ACT_CRASH] = "crash",
    [ACT_ADVANCE] = "advance", [ACT_CLOCK] = "clock",
};

const char *result_name(unsigned result)
{
    static const char *const extra[] = { "skipped", "canceled", "failed" };
    if (result == RESULT_NONE) return "waiting";
    if (result >= RESULT_SKIPPED) return extra[result - RESULT_SKIPPED];
    return outcome_name((enum outcome)result);
}

int spec_step(const struct spec *s, const char *name)
{
    for (size_t i = 0; i < s->step_count; i++)
        if (strcmp(s->steps[i].name, name) == 0) return (int)i;
    return -1;
}

static bool fail(char *why, size_t len, const char *text, const char *word)
{
    snprintf(why, len, "%s \"%.100s\"", text, word);
    return false;
}

static bool split(const char *text, struct line *ret)
{
    ret->count = 0;
    ret->text = text;
    const char *at = text + strspn(text, " \t");
    while (*at && *at != '#' && *at != '\n') {
        bool bracket = *at == '(' || *at == ')';
        size_t len = bracket ? 1 : strcspn(at, " \t\n#()");
        if (ret->count == WORDS_MAX || len >= WORD_MAX) return false;
        snprintf(ret->words[ret->count++], WORD_MAX, "%.*s", (int)len, at);
        at += len;
        at += strspn(at, " \t");
    }
    return true;
}

static bool duration(const char *word, int64_t *ret_ms)
{
    return duration_parse(bytes_str(word), DURATION_MS_MAX, ret_ms);
}

static bool parse_option(struct step *st, const struct line *l, size_t *at, char *why,
                         size_t len)
{
    const char *word = l->words[*at];
    if (strcmp(word, "renew") == 0) return st->renew = true;
    if (*at + 1 >= l->count) return fail(why, len, "nothing behind", word);
    const char *arg = l->words[++*at];
    if (strcmp(word, "fingerprint") == 0)
        return snprintf(st->fingerprint, WORD_MAX, "%s", arg) > 0;
    int64_t *to = strcmp(word, "lease") == 0    ? &st->lease_ms
                  : strcmp(word, "retain") == 0 ? &st->retain_ms
                  : strcmp(word, "wait") == 0   ? &st->wait_ms
                                                : NULL;
    if (!to) return fail(why, len, "unknown option", word);
    if (!duration(arg, to)) return fail(why, len, "not a duration:", arg);
    return true;
}

/* clock back 1h, clock forward 1h, advance 31s */
static bool parse_time(struct step *st, const struct line *l, size_t at, char *why, size_t len)
{
    bool back = false;
    if (st->action == ACT_CLOCK) {
        if (at >= l->count) return fail(why, len, "where to?", st->name);
        back = strcmp(l->words[at], "back") == 0;
        if (!back && strcmp(l->words[at], "forward") != 0)
            return fail(why, len, "neither back nor forward:", l->words[at]);
        at++;
    }
    if (at + 1 != l->count || !duration(l->words[at], &st->by_ms))
        return fail(why, len, "one duration belongs to", st->name);
    if (back) st->by_ms = -st->by_ms;
    return true;
}

static bool parse_keyed(struct step *st, const struct line *l, size_t at, char *why, size_t len)
{
    if (at >= l->count) return fail(why, len, "no key in", st->name);
    snprintf(st->key, WORD_MAX, "%s", l->words[at++]);
    if (st->action == ACT_PUBLISH) {
        if (at >= l->count) return fail(why, len, "no value in", st->name);
        const char *value = l->words[at++];
        st->has_value = strcmp(value, "nothing") != 0;
        bool bare = !st->has_value || strcmp(value, "empty") == 0;
        snprintf(st->value, WORD_MAX, "%s", bare ? "" : value);
    }
    for (; at < l->count; at++)
        if (!parse_option(st, l, &at, why, len)) return false;
    return true;
}

static bool parse_step(struct spec *s, const struct line *l, char *why, size_t len)
{
    if (s->session_count == 0) return fail(why, len, "a step without a session:", l->text);
    if (l->count < 3 || s->step_count == STEPS_MAX)
        return fail(why, len, "cannot take", l->text);
    if (spec_step(s, l->words[1]) >= 0) return fail(why, len, "a second step", l->words[1]);
    struct step *st = &s->steps[s->step_count++];
    *st = (struct step){ .session = (unsigned)s->session_count - 1,
                         .lease_ms = -1,
                         .retain_ms = -1 };
    snprintf(st->name, WORD_MAX, "%s", l->words[1]);
    while (st->action < ACTIONS && strcmp(action_names[st->action], l->words[2]) != 0)
        st->action++;
    switch (st->action) {
    case ACT_CLAIM:
        st->lease_ms = LEASE_MS_DEFAULT;
        st->retain_ms = RETAIN_MS_DEFAULT;
        return parse_keyed(st, l, 3, why, len);
    case ACT_PUBLISH:
    case ACT_RELEASE:
    case ACT_RENEW:
    case ACT_PEEK:
    case ACT_FORGET:
        return parse_keyed(st, l, 3, why, len);
    case ACT_ADVANCE:
    case ACT_CLOCK:
        return parse_time(st, l, 3, why, len);
    case ACT_SWEEP:
    case ACT_CANCEL:
    case ACT_CRASH:
        return l->count == 3 || fail(why, len, "too many words in", st->name);
    case ACTIONS:
        break;
    }
    return fail(why, len, "unknown action", l->words[2]);
}

static bool parse_rule(struct spec *s, const struct line *l, enum rule_kind kind, char *why,
                       size_t len)
{
    if (s->rule_count == RULES_MAX) return fail(why, len, "too many rules at", l->text);
    struct rule *r = &s->rules[s->rule_count++];
    *r = (struct rule){ .kind = kind, .only_if = -1 };
    snprintf(r->text, sizeof r->text, "%.*s", (int)strcspn(l->text, "\n"), l->text);
    char words[WORDS_MAX][WORD_MAX];
    memcpy(words, l->words, sizeof words);
    size_t at = 1;
    r->cond = cond_parse(s, words, l->count, &at, why, len);
    if (r->cond < 0) return false;
    if (at < l->count && strcmp(words[at], "if") == 0) {
        at++;
        r->only_if = cond_parse(s, words, l->count, &at, why, len);
        if (r->only_if < 0) return false;
    }
    return at == l->count || fail(why, len, "unexpected", words[at]);
}

bool spec_permutation(const struct spec *s, const char *names, struct permutation *ret)
{
    *ret = (struct permutation){ 0 };
    struct line l;
    if (!split(names, &l) || l.count > STEPS_MAX) return false;
    for (size_t i = 0; i < l.count; i++) {
        int step = spec_step(s, l.words[i]);
        if (step < 0) return false;
        ret->steps[ret->count++] = (uint8_t)step;
    }
    return ret->count > 0;
}

static bool parse_permutation(struct spec *s, const struct line *l, char *why, size_t len)
{
    if (s->listed_count == LISTED_MAX) return fail(why, len, "too many", l->text);
    const char *names = l->text + strspn(l->text, " \t") + strlen("permutation");
    if (spec_permutation(s, names, &s->listed[s->listed_count++])) return true;
    return fail(why, len, "not a list of steps:", names);
}

static bool parse_line(struct spec *s, const struct line *l, char *why, size_t len)
{
    if (l->count == 0) return true;
    const char *word = l->words[0];
    if (strcmp(word, "step") == 0) return parse_step(s, l, why, len);
    if (strcmp(word, "require") == 0) return parse_rule(s, l, RULE_REQUIRE, why, len);
    if (strcmp(word, "forbid") == 0) return parse_rule(s, l, RULE_FORBID, why, len);
    if (strcmp(word, "sometimes") == 0) return parse_rule(s, l, RULE_SOMETIMES, why, len);
    if (strcmp(word, "permutation") == 0) return parse_permutation(s, l, why, len);
    if (strcmp(word, "session") == 0 && l->count == 2 && s->session_count < SESSIONS_MAX)
        return snprintf(s->sessions[s->session_count++], WORD_MAX, "%s", l->words[1]) > 0;
    if (strcmp(word, "processes") == 0 && l->count == 2) {
        s->processes = strcmp(l->words[1], "one") == 0 ? PROCESSES_ONE : PROCESSES_EACH;
        return true;
    }
    return fail(why, len, "cannot read", l->text);
}

bool spec_load(struct spec *s, const char *path, char *why, size_t len)
{
    *s = (struct spec){ 0 };
    snprintf(s->path, sizeof s->path, "%s", path);
    FILE *f = fopen(path, "r");
    if (!f) return fail(why, len, "cannot open", path);
    char text[512], reason[256];
    struct line l;
    bool ok = true;
    for (unsigned n = 1; ok && fgets(text, sizeof text, f); n++) {
        if (n == 1 && text[0] == '#')
            snprintf(s->title, sizeof s->title, "%.*s", (int)strcspn(text + 2, "\n"), text + 2);
        ok = split(text, &l) ? parse_line(s, &l, reason, sizeof reason)
                             : fail(reason, sizeof reason, "too long", text);
        if (!ok) snprintf(why, len, "%s:%u: %s", path, n, reason);
    }
    fclose(f);
    return ok;
}
