/* resp_auth.c - who speaks on a RESP connection, and may they? Refusals are worded as Redis words
 * them, because clients look. */
#include "daemon/resp_session.h"

enum { WRONG_MAX = 5 }; /* tokens on one connection: nobody mistypes more often */

/* What a stranger may send: enough for HELLO with everything behind it. */
static const struct resp_limits stranger_limits = {
    .args_max = 8, .bulk_bytes_max = 1024, .inline_bytes_max = 4096, .command_bytes_max = 8192
};

void resp_meet(struct resp_session *s)
{
    bool stranger = !auth_known(s->door->auth, &s->grant);
    s->reader.limits = stranger ? &stranger_limits : &s->door->limits;
}

static bool refuse(struct resp_session *s, const struct err *why, struct resp_writer *w)
{
    resp_say_error(w, "WRONGPASS", "invalid username-password pair or user is disabled: %s",
                   why->text);
    if (++s->wrong == WRONG_MAX) conn_end(s->conn, CLOSE_REFUSED);
    return false;
}

/* The token says who it is: any name will do. Without tokens there is one user, and any password is
 * hers: as a Redis without a password. */
bool resp_authenticate(struct resp_session *s, struct bytes user, struct bytes token,
                       struct resp_writer *w)
{
    struct err err;
    if (!auth_required(s->door->auth)) {
        if (resp_word_is(user, "default")) return true;
        err_set(&err, ERR_INVALID, "there are no tokens here, and one user: default");
        return refuse(s, &err, w);
    }
    if (auth_login(s->door->auth, token, &s->grant, &err) < 0) return refuse(s, &err, w);
    resp_meet(s);
    return true;
}

void resp_auth(struct resp_session *s, const struct resp_command *in, struct resp_writer *w)
{
    bool named = in->count == 3;
    if (!named && !auth_required(s->door->auth))
        resp_say_error(w, "ERR",
                       "AUTH <password> called without any password configured for the default "
                       "user. Are you sure your configuration is correct?");
    else if (resp_authenticate(s, named ? in->args[1] : bytes_str("default"),
                               in->args[in->count - 1], w))
        resp_simple(w, "OK");
}

void resp_say_noauth(struct resp_session *s, const struct resp_command *in,
                     struct resp_writer *w)
{
    (void)s, (void)in;
    resp_say_error(w, "NOAUTH", "Authentication required.");
}

/* The same for every key: whether there is a record is nobody's business who may not ask. */
void resp_say_noperm(struct resp_session *s, const struct resp_command *in,
                     struct resp_writer *w)
{
    (void)s;
    const struct resp_entry *e = resp_find(in->args[0]);
    resp_say_error(w, "NOPERM", "this token has no permissions to run %s in this scope",
                   e->name);
}
