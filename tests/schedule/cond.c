/* cond.c - conditions: parsed once per spec, evaluated at the end of every interleaving.
 *
 *   condition  = term { ("and" | "or") term }           from left to right; use brackets
 *   term       = "not" term | "(" condition ")" | atom
 *   atom       = STEP result{|result}                    p1 ok     c2 claimed|cached
 *              | STEP "got" VALUE                        c2 got A  c2 got nothing
 *              | STEP "took" "over"
 *              | STEP "before" STEP                      was started before
 *              | STEP "ends" "before" STEP
 *              | "key" KEY "is" (VALUE|pending|absent|nothing)    at the very end
 *              | ("exactly"|"most"|"least") N "of" STEP... ":" result{|result} */
#include "tests/schedule/cond.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parser {
    struct spec *spec;
    char (*words)[WORD_MAX];
    size_t count, *at;
    char *why;
    size_t len;
};

static int refuse(struct parser *p, const char *text)
{
    snprintf(p->why, p->len, "%s at \"%s\"", text,
             *p->at < p->count ? p->words[*p->at] : "the end of the line");
    return -1;
}

static bool next_is(const struct parser *p, const char *word)
{
    return *p->at < p->count && strcmp(p->words[*p->at], word) == 0;
}

static bool take(struct parser *p, const char *word)
{
    if (!next_is(p, word)) return false;
    ++*p->at;
    return true;
}

static const char *take_word(struct parser *p)
{
    return *p->at < p->count ? p->words[(*p->at)++] : "";
}

static int add(struct parser *p, struct cond c)
{
    if (p->spec->cond_count == CONDS_MAX) return refuse(p, "too many conditions");
    p->spec->conds[p->spec->cond_count] = c;
    return (int)p->spec->cond_count++;
}

static uint32_t result_bit(const char *name)
{
    for (unsigned r = 1; r < RESULTS; r++)
        if (strcmp(result_name(r), name) == 0) return UINT32_C(1) << r;
    return 0;
}

static bool take_results(struct parser *p, uint32_t *ret)
{
    char text[WORD_MAX], *save = NULL;
    snprintf(text, sizeof text, "%s", take_word(p));
    *ret = 0;
    for (char *name = strtok_r(text, "|", &save); name; name = strtok_r(NULL, "|", &save)) {
        uint32_t bit = result_bit(name);
        if (!bit) return false;
        *ret |= bit;
    }
    return *ret != 0;
}

static int parse_key(struct parser *p)
{
    struct cond c = { .kind = COND_KEY };
    snprintf(c.text, WORD_MAX, "%s", take_word(p));
    if (!take(p, "is")) return refuse(p, "expected \"is\"");
    snprintf(c.other, WORD_MAX, "%s", take_word(p));
    return add(p, c);
}

static int parse_count(struct parser *p, const char *how)
{
    unsigned n = (unsigned)atoi(take_word(p));
    struct cond c = { .kind = COND_COUNT, .low = n, .high = n };
    if (strcmp(how, "most") == 0) c.low = 0;
    if (strcmp(how, "least") == 0) c.high = STEPS_MAX;
    if (!take(p, "of")) return refuse(p, "expected \"of\"");
    while (!take(p, ":")) {
        int step = spec_step(p->spec, take_word(p));
        if (step < 0) return refuse(p, "no such step before this");
        c.steps |= UINT32_C(1) << step;
    }
    if (!take_results(p, &c.results)) return refuse(p, "expected results before this");
    return add(p, c);
}

static int parse_order(struct parser *p, unsigned first, enum cond_kind kind)
{
    int second = spec_step(p->spec, take_word(p));
    if (second < 0) return refuse(p, "no such step before this");
    return add(p, (struct cond){ .kind = kind, .first = first, .second = (unsigned)second });
}

static int parse_atom(struct parser *p)
{
    const char *word = take_word(p);
    if (strcmp(word, "key") == 0) return parse_key(p);
    if (strcmp(word, "exactly") == 0 || strcmp(word, "most") == 0 || strcmp(word, "least") == 0)
        return parse_count(p, word);
    int step = spec_step(p->spec, word);
    if (step < 0) return refuse(p, "no such step before this");
    struct cond c = { .kind = COND_COUNT, .steps = UINT32_C(1) << step, .low = 1, .high = 1 };
    if (take(p, "before")) return parse_order(p, (unsigned)step, COND_BEFORE);
    if (take(p, "ends")) {
        if (!take(p, "before")) return refuse(p, "expected \"before\"");
        return parse_order(p, (unsigned)step, COND_ENDS_BEFORE);
    }
    if (take(p, "got")) {
        c.kind = COND_VALUE;
        c.first = (unsigned)step;
        snprintf(c.text, WORD_MAX, "%s", take_word(p));
    } else if (take(p, "took")) {
        if (!take(p, "over")) return refuse(p, "expected \"over\"");
        c.kind = COND_TOOK_OVER;
        c.first = (unsigned)step;
    } else if (!take_results(p, &c.results)) {
        return refuse(p, "expected a result before this");
    }
    return add(p, c);
}

static int parse_condition(struct parser *p);

static int parse_term(struct parser *p)
{
    if (take(p, "not")) {
        int of = parse_term(p);
        return of < 0 ? -1 : add(p, (struct cond){ .kind = COND_NOT, .left = of });
    }
    if (!take(p, "(")) return parse_atom(p);
    int inner = parse_condition(p);
    if (inner >= 0 && !take(p, ")")) return refuse(p, "expected \")\"");
    return inner;
}

static int parse_condition(struct parser *p)
{
    int left = parse_term(p);
    while (left >= 0 && (next_is(p, "and") || next_is(p, "or"))) {
        enum cond_kind kind = next_is(p, "and") ? COND_AND : COND_OR;
        ++*p->at;
        int right = parse_term(p);
        if (right < 0) return -1;
        left = add(p, (struct cond){ .kind = kind, .left = left, .right = right });
    }
    return left;
}

int cond_parse(struct spec *s, char words[][WORD_MAX], size_t count, size_t *at, char *why,
               size_t len)
{
    struct parser p = { s, words, count, at, why, len };
    return parse_condition(&p);
}

/* ---- evaluation ---- */

static bool same_value(bool has_value, const char *value, const char *text)
{
    if (strcmp(text, "nothing") == 0) return !has_value;
    if (strcmp(text, "empty") == 0) text = "";
    return has_value && strcmp(value, text) == 0;
}

static bool key_is(const struct findings *f, const struct cond *c)
{
    struct final_key k = f->peek(f->ctx, c->text);
    if (strcmp(c->other, "absent") == 0) return k.result == OUTCOME_ABSENT;
    if (strcmp(c->other, "pending") == 0) return k.result == OUTCOME_IN_PROGRESS;
    if (k.result != OUTCOME_CACHED && k.result != OUTCOME_ALREADY_DONE) return false;
    return same_value(k.has_value, k.value, c->other);
}

static bool counted(const struct findings *f, const struct cond *c)
{
    unsigned n = 0;
    for (size_t i = 0; i < f->spec->step_count; i++)
        if (c->steps >> i & 1) n += c->results >> f->results[i].result & 1;
    return n >= c->low && n <= c->high;
}

static bool earlier(unsigned a, unsigned b)
{
    return a && (!b || a < b);
}

bool cond_holds(const struct findings *f, int cond)
{
    const struct cond *c = &f->spec->conds[cond];
    const struct step_result *first = &f->results[c->first], *second = &f->results[c->second];
    switch (c->kind) {
    case COND_AND:
        return cond_holds(f, c->left) && cond_holds(f, c->right);
    case COND_OR:
        return cond_holds(f, c->left) || cond_holds(f, c->right);
    case COND_NOT:
        return !cond_holds(f, c->left);
    case COND_COUNT:
        return counted(f, c);
    case COND_VALUE:
        return same_value(first->has_value, first->value, c->text);
    case COND_TOOK_OVER:
        return first->taken_over;
    case COND_BEFORE:
        return earlier(first->started, second->started);
    case COND_ENDS_BEFORE:
        return earlier(first->ended, second->ended);
    case COND_KEY:
        return key_is(f, c);
    }
    return false;
}
