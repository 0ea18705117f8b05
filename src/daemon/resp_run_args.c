/* resp_run_args.c - see resp_run_args.h. */
#include "daemon/resp_run_args.h"

#include "base/check.h"
#include "core/key.h"
#include "proto/number.h"

/* ---- values of options ---- */

static int take_id(const struct resp_option *o, struct bytes text, void *at, struct err *reterr)
{
    (void)o;
    if (run_id_parse(text, at)) return 0;
    return err_set(reterr, ERR_INVALID,
                   "an id is run_ and 26 digits of Crockford's base 32, as in a ULID");
}

/* What was not set somewhere else arrives as nothing, and must not be taken for "none": a key that is
 * not there makes a run each time. */
static int take_name(const struct resp_option *o, struct bytes text, void *at,
                     struct err *reterr)
{
    if (text.len == 0)
        return err_set(reterr, ERR_INVALID, "%s is empty: leave it out if there is none",
                       o->name);
    *(struct bytes *)at = text;
    return 0;
}

/* Milliseconds since 1970, by the wall clock. */
static int take_time(const struct resp_option *o, struct bytes text, void *at,
                     struct err *reterr)
{
    int64_t ms;
    if (!number_parse(text, &ms) || ms < 0 || ms > TIME_MS_MAX)
        return err_set(reterr, ERR_INVALID, "%s wants a time, in milliseconds since 1970",
                       o ? o->name : "RESCHEDULE");
    *(int64_t *)at = ms;
    return 0;
}

static int take_attempts(const struct resp_option *o, struct bytes text, void *at,
                         struct err *reterr)
{
    int64_t n;
    if (!number_parse(text, &n) || n < 1 || n > RUN_ATTEMPTS_MAX)
        return err_set(reterr, ERR_INVALID, "%s wants a number from 1 to %d", o->name,
                       RUN_ATTEMPTS_MAX);
    *(uint32_t *)at = (uint32_t)n;
    return 0;
}

static int take_version(const struct resp_option *o, struct bytes text, void *at,
                        struct err *reterr)
{
    if (number_parse_unsigned(text, at) && *(uint64_t *)at != RUN_ANY_VERSION) return 0;
    return err_set(reterr, ERR_INVALID, "%s wants a version of the metadata", o->name);
}

static int take_raw(const struct resp_option *o, struct bytes text, void *at,
                    struct err *reterr)
{
    int64_t id;
    if (!number_parse(text, &id) || id < 0)
        return err_set(reterr, ERR_INVALID, "%s wants a number of yours, from 0", o->name);
    *(int64_t *)at = id;
    return 0;
}

static int take_tag(const struct resp_option *o, struct bytes text, void *at,
                    struct err *reterr)
{
    struct resp_tags *tags = at;
    (void)o;
    if (text.len == 0) return err_set(reterr, ERR_INVALID, "a tag is empty");
    if (text.len > TAG_BYTES_MAX)
        return err_set(reterr, ERR_LIMIT, "a tag has at most %d bytes", TAG_BYTES_MAX);
    if (tags_count(bytes_of(tags->bytes, tags->len)) == TAGS_MAX)
        return err_set(reterr, ERR_LIMIT, "a run has at most %d tags", TAGS_MAX);
    tags->bytes[tags->len] = (uint8_t)text.len;
    memcpy(tags->bytes + tags->len + 1, text.data, text.len);
    tags->len += 1 + text.len;
    return 0;
}

static int take_return(const struct resp_option *o, struct bytes text, void *at,
                       struct err *reterr)
{
    if (!resp_word_is(text, "RETURN"))
        return err_set(reterr, ERR_INVALID, "%s wants RETURN", o->name);
    *(bool *)at = true;
    return 0;
}

/* A delayed run is a queued one: the time decides, not the store. */
static int take_status(const struct resp_option *o, struct bytes text, void *at,
                       struct err *reterr)
{
    static const char *const names[] = { [RUN_QUEUED] = "QUEUED",
                                         [RUN_EXECUTING] = "EXECUTING",
                                         [RUN_COMPLETED] = "COMPLETED",
                                         [RUN_FAILED] = "FAILED",
                                         [RUN_CANCELED] = "CANCELED" };
    for (size_t i = RUN_QUEUED; i < sizeof names / sizeof names[0]; i++) {
        if (!resp_word_is(text, names[i])) continue;
        *(unsigned *)at |= BIT(i);
        return 0;
    }
    return err_set(reterr, ERR_INVALID,
                   "%s is QUEUED (delayed ones, too), EXECUTING, COMPLETED, FAILED or CANCELED",
                   o->name);
}

/* ---- options ---- */

#define AT(field) offsetof(struct resp_run, field)
#define COMMON                                                                                 \
    { "ENV", resp_take_bytes, AT(args.env) },                                                  \
    {                                                                                          \
        "RAW", take_raw, AT(raw_id)                                                            \
    }

static const struct resp_option trigger_options[] = {
    COMMON,
    { "KEY", take_name, AT(args.run.key) },
    { "KEYTTL", resp_take_ms, AT(args.key_ms) },
    { "DELAY", resp_take_ms, AT(args.delay_ms) },
    { "AT", take_time, AT(at_ms) },
    { "TAG", take_tag, AT(tags), true },
    { "QUEUE", take_name, AT(args.run.queue) },
    { "ORDER", take_name, AT(args.run.ordering_key) },
    { "ATTEMPTS", take_attempts, AT(args.run.attempts_max) },
    { "METADATA", resp_take_bytes, AT(args.run.metadata) },
    { "ID", take_id, AT(args.run.id) },
    { "NEWID", resp_take_flag, AT(args.id_is_new) },
    { "ONMISMATCH", take_return, AT(args.mismatch_returns) },
    { "WAIT", resp_take_ms, AT(args.wait_ms) },
    { 0 },
};

static const struct resp_option common_options[] = { COMMON, { 0 } };

static const struct resp_option list_options[] = {
    COMMON,
    { "TASK", resp_take_bytes, AT(args.task) },
    { "QUEUE", resp_take_bytes, AT(args.queue) },
    { "STATUS", take_status, AT(args.states), true },
    { "TAG", resp_take_bytes, AT(args.tag) },
    { "BEFORE", take_id, AT(args.before) },
    { "COUNT", resp_take_count, AT(args.limit) },
    { 0 },
};

static const struct resp_option metadata_options[] = {
    COMMON,
    { "VERSION", take_version, AT(args.change.version) },
    { 0 },
};

static const struct resp_option cancel_options[] = {
    COMMON,
    { "REASON", resp_take_bytes, AT(reason) },
    { "ERROR", resp_take_bytes, AT(args.change.body) },
    { 0 },
};

static const struct resp_option replay_options[] = {
    COMMON,
    { "ID", take_id, AT(args.run.id) },
    { 0 },
};

static const struct resp_option pull_options[] = {
    COMMON,
    { "COUNT", resp_take_count, AT(args.limit) },
    { "LEASE", resp_take_ms, AT(args.lease_ms) },
    { "WAIT", resp_take_ms, AT(args.wait_ms) },
    { 0 },
};

static const struct resp_option nack_options[] = {
    COMMON,
    { "RETRY", resp_take_ms, AT(args.change.retry_ms) },
    { 0 },
};

static const struct resp_option beat_options[] = {
    COMMON,
    { "LEASE", resp_take_ms, AT(args.change.lease_ms) },
    { 0 },
};

/* ---- questions ---- */

static void start(enum run_question question, enum run_form form, enum verb right,
                  struct resp_run *ret)
{
    struct run_args args = RUN_ARGS_INIT;
    args.question = question;
    args.env = bytes_str("default");
    ret->args = args;
    ret->form = form;
    ret->right = right;
    ret->raw_id = ret->at_ms = -1;
    ret->tags.len = 0;
    ret->reason = (struct bytes){ 0 };
}

static void start_change(enum run_change_kind kind, enum run_form form, enum verb right,
                         struct resp_run *ret)
{
    start(ASK_CHANGE, form, right, ret);
    ret->args.change = (struct run_change){
        .kind = kind, .version = RUN_ANY_VERSION, .lease_ms = -1, .retry_ms = -1
    };
}

/* An env that is none would be taken for all of them, by who asks what a token is good for. */
static int end(const struct resp_command *in, size_t from, const struct resp_option *options,
               struct resp_run *ret, struct err *reterr)
{
    int r = resp_take_options(in, from, options, ret, reterr);
    return r ? r : run_name_check(ret->args.env, ENV_BYTES_MAX, "env", reterr);
}

int resp_parse_trigger(const struct resp_command *in, struct resp_run *ret, struct err *reterr)
{
    start(ASK_TRIGGER, FORM_TRIGGER, VERB_RUN_PUT, ret);
    ret->args.run.task = in->args[1];
    ret->args.run.payload = in->args[2];
    int r = end(in, 3, trigger_options, ret, reterr);
    if (r) return r;
    if (ret->at_ms >= 0 && ret->args.delay_ms >= 0)
        return err_set(reterr, ERR_INVALID, "syntax error: DELAY and AT exclude each other");
    if (ret->at_ms >= 0) ret->args.run.delay_until_ms = ret->at_ms;
    ret->args.run.tags = bytes_of(ret->tags.bytes, ret->tags.len);
    return 0;
}

int resp_parse_pull(const struct resp_command *in, struct resp_run *ret, struct err *reterr)
{
    start(ASK_LEASE, FORM_PULL, VERB_RUN_LEASE, ret);
    ret->args.queue = in->args[1];
    ret->args.limit = 1;
    int r = end(in, 2, pull_options, ret, reterr);
    if (ret->args.limit > PULL_COUNT_MAX) ret->args.limit = PULL_COUNT_MAX;
    return r;
}

/* ---- who holds a lease: id token ... ---- */

static int start_held(const struct resp_command *in, enum run_change_kind kind,
                      struct resp_run *ret, struct err *reterr)
{
    start_change(kind, FORM_OK, VERB_RUN_LEASE, ret);
    int r = take_id(NULL, in->args[1], &ret->args.id, reterr);
    return r ? r : resp_take_token(NULL, in->args[2], &ret->args.change.token, reterr);
}

/* The words of options are no JSON, so that an output cannot be taken for one. */
int resp_parse_ack(const struct resp_command *in, struct resp_run *ret, struct err *reterr)
{
    int r = start_held(in, RUN_COMPLETE, ret, reterr);
    if (r) return r;
    bool has_output = in->count > 3 && !resp_option_find(common_options, in->args[3]);
    if (has_output) ret->args.change.body = in->args[3];
    return end(in, has_output ? 4 : 3, common_options, ret, reterr);
}

/* Nor is RETURN an error. */
int resp_parse_nack(const struct resp_command *in, struct resp_run *ret, struct err *reterr)
{
    bool unused = resp_word_is(in->args[3], "RETURN");
    int r = start_held(in, unused ? RUN_RETURN : RUN_FAIL, ret, reterr);
    if (r) return r;
    if (!unused) ret->args.change.body = in->args[3];
    return end(in, 4, unused ? common_options : nack_options, ret, reterr);
}

int resp_parse_beat(const struct resp_command *in, struct resp_run *ret, struct err *reterr)
{
    int r = start_held(in, RUN_HEARTBEAT, ret, reterr);
    return r ? r : end(in, 3, beat_options, ret, reterr);
}

/* ---- RUN ... ---- */

static int parse_get(const struct resp_command *in, struct resp_run *ret, struct err *reterr)
{
    start(ASK_GET, FORM_RUN, VERB_RUN_GET, ret);
    int r = take_id(NULL, in->args[2], &ret->args.id, reterr);
    return r ? r : end(in, 3, common_options, ret, reterr);
}

static int parse_list(const struct resp_command *in, struct resp_run *ret, struct err *reterr)
{
    start(ASK_LIST, FORM_LIST, VERB_RUN_LIST, ret);
    ret->args.limit = LIST_COUNT_DEFAULT;
    return end(in, 2, list_options, ret, reterr);
}

static int start_change_of(const struct resp_command *in, enum run_change_kind kind,
                           enum run_form form, struct resp_run *ret, struct err *reterr)
{
    start_change(kind, form, VERB_RUN_CHANGE, ret);
    return take_id(NULL, in->args[2], &ret->args.id, reterr);
}

/* Options come first: what follows them is a tag, whatever it is called. */
static size_t options_end(const struct resp_command *in, size_t from)
{
    bool seen[2] = { false };
    while (from + 1 < in->count) {
        const struct resp_option *o = resp_option_find(common_options, in->args[from]);
        if (!o || seen[o - common_options]) break;
        seen[o - common_options] = true;
        from += 2;
    }
    return from;
}

static int parse_tag(const struct resp_command *in, struct resp_run *ret, struct err *reterr)
{
    size_t tags_from = options_end(in, 3);
    struct resp_command options = { .args = in->args, .count = tags_from };
    int r = start_change_of(in, RUN_ADD_TAGS, FORM_OK, ret, reterr);
    if (!r) r = end(&options, 3, common_options, ret, reterr);
    for (size_t i = tags_from; !r && i < in->count; i++)
        r = take_tag(NULL, in->args[i], &ret->tags, reterr);
    if (!r && ret->tags.len == 0)
        r = err_set(reterr, ERR_INVALID, "syntax error: which tags are to be added?");
    ret->args.change.body = bytes_of(ret->tags.bytes, ret->tags.len);
    return r;
}

static int parse_metadata(const struct resp_command *in, struct resp_run *ret,
                          struct err *reterr)
{
    int r = start_change_of(in, RUN_SET_METADATA, FORM_VERSION, ret, reterr);
    ret->args.change.body = in->args[3];
    return r ? r : end(in, 4, metadata_options, ret, reterr);
}

static int parse_operate(const struct resp_command *in, struct resp_run *ret,
                         struct err *reterr)
{
    int r = start_change_of(in, RUN_OPERATE, FORM_VERSION, ret, reterr);
    ret->args.change.body = in->args[3];
    return r ? r : end(in, 4, common_options, ret, reterr);
}

static int parse_cancel(const struct resp_command *in, struct resp_run *ret, struct err *reterr)
{
    int r = start_change_of(in, RUN_CANCEL, FORM_OK, ret, reterr);
    if (!r) r = end(in, 3, cancel_options, ret, reterr);
    if (r || !ret->reason.data || !ret->args.change.body.data) return r;
    return err_set(reterr, ERR_INVALID, "syntax error: REASON and ERROR exclude each other");
}

static int parse_reschedule(const struct resp_command *in, struct resp_run *ret,
                            struct err *reterr)
{
    int r = start_change_of(in, RUN_RESCHEDULE, FORM_OK, ret, reterr);
    if (!r) r = take_time(NULL, in->args[3], &ret->args.change.at_ms, reterr);
    return r ? r : end(in, 4, common_options, ret, reterr);
}

static int parse_replay(const struct resp_command *in, struct resp_run *ret, struct err *reterr)
{
    start(ASK_REPLAY, FORM_TRIGGER, VERB_RUN_PUT, ret);
    int r = take_id(NULL, in->args[2], &ret->args.id, reterr);
    return r ? r : end(in, 3, replay_options, ret, reterr);
}

static int parse_reset(const struct resp_command *in, struct resp_run *ret, struct err *reterr)
{
    start(ASK_RESET, FORM_OK, VERB_RUN_RESET, ret);
    ret->args.task = in->args[2];
    ret->args.key = in->args[3];
    return end(in, 4, common_options, ret, reterr);
}

static const struct {
    const char *name;
    size_t args_min; /* with ONCE.RUN itself; how many at most, the options say */
    resp_run_parse *parse;
} subcommands[] = {
    { "GET", 3, parse_get },
    { "LIST", 2, parse_list },
    { "TAG", 4, parse_tag },
    { "METADATA", 4, parse_metadata },
    { "OPERATE", 4, parse_operate },
    { "CANCEL", 3, parse_cancel },
    { "RESCHEDULE", 4, parse_reschedule },
    { "REPLAY", 3, parse_replay },
    { "RESET", 4, parse_reset },
};

int resp_parse_run(const struct resp_command *in, struct resp_run *ret, struct err *reterr)
{
    for (size_t i = 0; i < sizeof subcommands / sizeof subcommands[0]; i++) {
        if (!resp_word_is(in->args[1], subcommands[i].name)) continue;
        if (in->count >= subcommands[i].args_min) return subcommands[i].parse(in, ret, reterr);
        return err_set(reterr, ERR_INVALID, "wrong number of arguments for 'ONCE.RUN %s'",
                       subcommands[i].name);
    }
    return err_set(reterr, ERR_INVALID,
                   "unknown subcommand of ONCE.RUN: GET, LIST, TAG, METADATA, OPERATE, CANCEL, "
                   "RESCHEDULE, REPLAY, RESET");
}
