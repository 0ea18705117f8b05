/* http_poll.c - a long poll: GET of a record with `seen`, answered when its version is not that any
 * more, or when the time is over.
 *
 *   http_poll() --watch--> changed, or time over, or the peer stopped sending --peek--> answered
 *                          '-- the daemon stops, a plane is gone: a problem
 *
 * What a watch saw may be older than the change it tells of: so the answer is that of a peek which
 * comes after it. Somebody who asks with the version of that answer misses nothing in between. */
#include "daemon/http_args.h"

#include <stdlib.h>

struct http_poll {
    struct grant grant; /* of who asks: it has to be good for the answer, too */
    struct token token;
    struct key key; /* into `frame` */
    uint8_t frame[KEY_FRAME_BYTES_MAX];
};

static struct http_poll *poll_new(const struct http_input *in, const struct call_args *call)
{
    struct http_poll *p = malloc(sizeof *p);
    if (!p) return NULL;
    p->grant = in->grant;
    p->token = call->in.token;
    p->key = key_unframe(bytes_of(p->frame, key_frame(&call->key, p->frame)));
    return p;
}

/* Without time to wait it is over before it begins, in the next turn. */
int http_poll(struct http_exchange *x, const struct http_input *in, struct http_args *args,
              struct err *reterr)
{
    struct call_args *call = &args->call;
    int r = key_check(&call->key, reterr);
    if (r) return r;
    if (!(x->poll = poll_new(in, call)))
        return err_set(reterr, ERR_NOMEM, "out of memory; nothing was changed");
    x->meta = args->meta;
    call->verb = VERB_WATCH;
    call->in.token = (struct token){ 0 };
    r = http_ask(x, call, reterr);
    if (!r) http_ask_at_most(x, call->wait_ms);
    return r;
}

static int look(struct http_exchange *x, const struct http_poll *p, struct err *reterr)
{
    struct call_args call = { .verb = VERB_PEEK, .key = p->key, .in.token = p->token };
    return http_ask_again(x, &call, reterr);
}

static void refuse(struct http_exchange *x)
{
    struct http_problem p = { .status = 403,
                              .code = "forbidden",
                              .detail = "the token does not allow this any more" };
    http_answer_problem(x, &p);
}

/* Nothing has happened, and it is not waited for any more. */
static bool is_enough(const struct http_exchange *x, const struct call *call)
{
    return call_error(call)->code == ERR_CANCELED && (x->late || x->session->conn->peer_ended);
}

void http_poll_over(struct http_exchange *x, struct call *call)
{
    struct http_poll *p = x->poll;
    struct err err = *call_error(call);
    x->poll = NULL;
    x->polled_ms = x->door->loop->now_ms - x->since_ms;
    timer_stop(x->door->loop, &x->timer);
    if (err.code && !is_enough(x, call))
        http_answer_error(x, &err);
    else if (!auth_may(x->door->auth, &p->grant, VERB_PEEK, p->key.scope))
        refuse(x);
    else if (look(x, p, &err))
        http_answer_error(x, &err);
    free(p);
}
