/* remote.c - what a daemon may answer: any bytes are replies that the client of one takes for what they
 * are, or a clear error. The first byte says which verb they answer. */
#include "store/remote.h"
#include "tests/fuzz/fuzz.h"

enum { NODES_MAX = 256 };

static const struct reply_limits limits = { .depth_max = 8,
                                            .bytes_max = 4096,
                                            .line_bytes_max = 256 };

static struct op *op_of(enum verb verb)
{
    struct key key = { bytes_str("s"), bytes_str("k") };
    struct op *op = op_new(verb, verb_info[verb].keyed ? &key : NULL, NULL);
    CHECK(op);
    op->wants_facts = true;
    return op;
}

/* An answer has an outcome, an error a code and a text. */
static void check_answer(enum verb verb, const struct heard *h)
{
    struct op *op = op_of(verb);
    if (wire_error(op, h))
        CHECK(op->err.code && op->out.outcome == 0);
    else if (verb != VERB_WATCH && wire_answer(op, h))
        CHECK(op->out.outcome >= 1 && op->out.outcome <= OUTCOMES && !op->err.code);
    op_free(op);
}

static void check_push(const struct heard *h)
{
    int64_t id;
    if (h->nodes->type != REPLY_PUSH || !wire_pushed(h, &id)) return;
    struct op *op = op_of(VERB_WATCH);
    if (wire_told(op, h)) CHECK(!op->answers || (op->out.outcome && !op->err.code));
    op_free(op);
}

/* Of questions about runs: an answer has an outcome and, where it is about one run, that run. */
static void check_run_push(enum run_question question, const struct heard *h)
{
    struct run_args args = { .question = question };
    struct run_call_ask call = { .args = &args };
    int64_t id;
    if (h->nodes->type != REPLY_PUSH || !wire_pushed(h, &id)) return;
    struct op *op = op_of(VERB_RUN_CALL);
    op->call = &call;
    if (wire_told(op, h) && !op->err.code) {
        CHECK(call.answer.outcome >= 1 && call.answer.outcome <= OUTCOMES);
        bool found = call.answer.outcome == OUTCOME_OK;
        CHECK(question != ASK_GET || !found || call.answer.rows.count == 1);
    }
    op_free(op);
    run_call_ask_clear(&call);
}

/* Of mutations: an outcome, and what is done has what was kept of it. */
static void check_mutation(const struct heard *h)
{
    struct mutation_args args = MUTATION_ARGS_INIT;
    struct mutation_ask ask = { .args = &args };
    struct op *op = op_of(VERB_MUTATION);
    op->mutation = &ask;
    if (!wire_error(op, h) && wire_answer(op, h)) {
        enum outcome outcome = ask.answer.outcome;
        bool done = outcome == OUTCOME_CACHED || outcome == OUTCOME_ALREADY_DONE;
        CHECK(outcome >= 1 && outcome <= OUTCOMES);
        CHECK(!done || ask.answer.packed);
    }
    op_free(op);
    mutation_ask_clear(&ask);
}

static void check_greeting(const struct heard *h)
{
    struct remote_hello hello;
    struct err err = { 0 };
    if (!wire_greeted(h, &hello, &err)) CHECK(err.code);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct reply_node nodes[NODES_MAX];
    struct reply_reader reader;
    struct err err;
    if (size == 0) return 0;
    enum verb verb = (enum verb)(data[0] % CLAIM_VERBS);
    struct bytes in = bytes_of(data + 1, size - 1);
    reply_reader_init(&reader, &limits, nodes, NODES_MAX);
    while (in.len && reply_read(&reader, in, &err) == RESP_READY) {
        struct heard h = { nodes, in };
        check_greeting(&h);
        check_push(&h);
        check_run_push((enum run_question)(data[0] % RUN_QUESTIONS), &h);
        check_answer(verb, &h);
        check_mutation(&h);
        in = bytes_of(in.data + reader.at, in.len - reader.at);
        reply_reader_clear(&reader);
    }
    return 0;
}
