/* remote_mutations.c - questions about the replay cache of mutations as commands of the RESP door.
 *
 * They are answered in turn, and nobody waits there: a daemon says in_progress at once. */
#include "store/remote.h"

#include "base/text.h"

static void add_option(struct words *w, const char *name, struct bytes value)
{
    if (value.len == 0) return;
    words_text(w, name);
    words_add(w, value);
}

static void start(struct words *w, const char *command, const struct mutation_args *a)
{
    words_text(w, command);
    words_add(w, a->mutation.user);
    words_add(w, a->mutation.request);
}

static void add_common(struct words *w, const struct mutation_args *a)
{
    add_option(w, "METHOD", a->mutation.method);
    add_option(w, "FP", a->mutation.fingerprint);
    add_option(w, "ENV", a->env);
    words_text(w, "META");
}

static void begin_words(struct words *w, const struct mutation_args *a)
{
    start(w, "ONCE.MUTATION.BEGIN", a);
    add_common(w, a);
    add_option(w, "EPOCH", a->epoch);
    words_ms(w, "LEASE", a->lease_ms);
    if (!token_is_set(&a->token)) return;
    words_text(w, "TOKEN");
    words_token(w, &a->token);
}

static void complete_words(struct words *w, const struct mutation_args *a)
{
    start(w, "ONCE.MUTATION.COMPLETE", a);
    words_token(w, &a->token);
    words_add(w, a->response);
    add_common(w, a);
    add_option(w, "EPOCH", a->epoch);
    words_ms(w, "RETAIN", a->retain_ms);
    if (!a->has_response) words_text(w, "OMIT");
}

static void abort_words(struct words *w, const struct mutation_args *a)
{
    start(w, "ONCE.MUTATION.ABORT", a);
    words_token(w, &a->token);
    add_common(w, a);
}

void wire_mutation_words(struct words *w, const struct op *op)
{
    static void (*const words_of[MUTATION_STEPS])(struct words *,
                                                  const struct mutation_args *) = {
        [MUTATION_BEGIN] = begin_words,
        [MUTATION_COMPLETE] = complete_words,
        [MUTATION_ABORT] = abort_words,
    };
    const struct mutation_args *a = op->mutation->args;
    words_of[a->step](w, a);
}

int wire_mutation_check(const struct mutation_args *a, const struct remote_hello *hello,
                        struct err *reterr)
{
    if (a->response.len <= (uint64_t)hello->value_bytes_max) return 0;
    return err_set(reterr, ERR_LIMIT,
                   "the response is longer than the daemon keeps: complete without it");
}

/* ---- answers ---- */

static bool take_token(const struct heard *h, const struct reply_node *n, struct token *ret)
{
    if (!n || n->type != REPLY_TEXT) return false;
    struct bytes text = reply_bytes(n, h->in);
    return text.len == 0 || hex_decode(text, ret->bytes, sizeof ret->bytes);
}

static bool take_kept(const struct heard *h, struct mutation_answer *a)
{
    const struct reply_node *epoch = wire_entry(h, h->nodes, "epoch"),
                            *response = wire_entry(h, h->nodes, "response");
    if (!epoch || epoch->type != REPLY_TEXT || epoch->len > MUTATION_EPOCH_BYTES_MAX)
        return false;
    bool kept = response && response->type == REPLY_TEXT;
    struct bytes content = kept ? reply_bytes(response, h->in) : bytes_of(NULL, 0);
    a->packed = mutation_pack(reply_bytes(epoch, h->in), kept ? &content : NULL);
    return a->packed && mutation_unpack(a->packed, &a->kept);
}

bool wire_mutation_answer(struct op *op, const struct heard *h)
{
    struct mutation_answer *a = &op->mutation->answer;
    const struct reply_node *outcome = wire_entry(h, h->nodes, "outcome");
    if (!outcome || !wire_outcome(h, outcome, &a->outcome)) return false;
    a->degraded = wire_number(h, h->nodes, "degraded") != 0;
    a->lease_left_ms = wire_number(h, h->nodes, "lease_left_ms");
    op->out.outcome = OUTCOME_OK;
    if (a->outcome == OUTCOME_CLAIMED)
        return take_token(h, wire_entry(h, h->nodes, "token"), &a->token);
    bool done = a->outcome == OUTCOME_CACHED || a->outcome == OUTCOME_ALREADY_DONE;
    return !done || take_kept(h, a);
}
