/* http_serve.c - from a request to its handler: who asks, what for, in which form. In this order,
 * so that a stranger learns nothing about records, and nothing is asked of a store for what will
 * not be answered (H3). */
#include "base/check.h"
#include "daemon/http_session.h"
#include "proto/chars.h"

static bool refuse(struct http_exchange *x, int status, const char *code, const char *detail)
{
    struct http_problem p = { .status = status, .code = code, .detail = detail };
    http_answer_problem(x, &p);
    return false;
}

/* ---- which route ---- */

static bool find_route(struct http_exchange *x, struct http_input *in)
{
    const struct http_request *request = &in->request;
    struct http_match *m = &in->match;
    http_match(request->method, request->path, x->door->path, m);
    x->route = m->route;
    x->methods = m->methods;
    if (m->malformed) return refuse(x, 400, "invalid", "malformed escape in the path");
    if (m->route) return true;
    if (request->method == HTTP_OTHER)
        return refuse(x, 501, "unsupported", "there is no such method");
    if (m->methods) return refuse(x, 405, "method", "not with this method: see Allow");
    return refuse(x, 404, "no_route", "there is nothing under this path: see /openapi.json");
}

/* What can be asked of a path; "*" stands for all. */
static bool is_options(struct http_exchange *x, struct http_input *in)
{
    if (in->request.method != HTTP_OPTIONS) return false;
    http_match(HTTP_OPTIONS, in->request.path, x->door->path, &in->match);
    x->methods = in->match.methods;
    if (in->request.form == HTTP_ASTERISK_FORM)
        x->methods = BIT(HTTP_GET) | BIT(HTTP_POST) | BIT(HTTP_PUT) | BIT(HTTP_DELETE);
    return x->methods != 0;
}

/* ---- who asks ---- */

/* Of what the request is about; empty: of all scopes. A scope that is malformed, too, is somebody's
 * only in name: the handler refuses it. */
static struct bytes scope_of(struct http_exchange *x, const struct http_input *in)
{
    struct bytes query = in->request.query;
    struct http_parameter p;
    size_t len;
    if (in->match.parts[0].data) return in->match.parts[0];
    while (http_next_parameter(&query, &p))
        if (bytes_eq(p.name, bytes_str("scope")) &&
            http_unescape_parameter(p.value, x->door->path, &len))
            return bytes_of(x->door->path, len);
    return (struct bytes){ 0 };
}

/* Where runs and mutations are meant: as it says, or as its token does, if that is good for one alone. */
static struct bytes env_of(const struct http_exchange *x, const struct http_input *in)
{
    struct bytes said = http_known_field(&in->request, HTTP_ONCE_ENV);
    if (said.data) return said;
    struct bytes only = auth_only_scope(x->door->auth, &in->grant);
    return only.len ? only : bytes_str("default");
}

static bool is_allowed(struct http_exchange *x, struct http_input *in)
{
    struct auth *auth = x->door->auth;
    enum verb verb = x->route->verb;
    bool of_env = verb_is_run(verb) || verb == VERB_MUTATION;
    if (auth_may(auth, &in->grant, verb, of_env ? in->env : scope_of(x, in))) return true;
    return refuse(x, 403, "forbidden",
                  of_env ? "the token does not allow this in this env"
                         : "the token does not allow this verb in this scope");
}

/* Open to everybody, but not everything is shown to everybody. */
static bool let_in(struct http_exchange *x, const struct http_request *request)
{
    struct bytes text;
    struct grant grant;
    struct err err;
    x->trusted = http_bearer(http_known_field(request, HTTP_AUTHORIZATION), &text) &&
                 auth_login(x->door->auth, text, &grant, &err) == 0;
    return true;
}

static bool log_in(struct http_exchange *x, const struct http_request *request,
                   struct grant *ret)
{
    struct bytes text;
    struct err err;
    if (!http_bearer(http_known_field(request, HTTP_AUTHORIZATION), &text))
        return refuse(x, 401, "unauthorized", "say who you are: Authorization: Bearer TOKEN");
    if (auth_login(x->door->auth, text, ret, &err) == 0) return true;
    return refuse(x, 401, "unauthorized", err.text);
}

/* Before anything is known about records: foreign and unknown ones look the same. */
static bool authorise(struct http_exchange *x, struct http_input *in)
{
    struct auth *auth = x->door->auth;
    in->grant = (struct grant){ 0 };
    if (!auth_required(auth)) {
        x->trusted = true;
        in->env = env_of(x, in);
        if (!http_is_foreign(x->session, &in->request)) return true;
        return refuse(x, 403, "browser",
                      "this may be a page in a browser: no Origin, and an address as Host");
    }
    if (x->route->open) return let_in(x, &in->request);
    if (!log_in(x, &in->request, &in->grant)) return false;
    if (x->route->metrics) {
        if (auth_may_metrics(auth, &in->grant)) return true;
        return refuse(x, 403, "forbidden", "the token does not allow reading metrics");
    }
    in->env = env_of(x, in);
    return is_allowed(x, in);
}

/* ---- in which form ---- */

static bool is_plain_json(const struct http_media *media)
{
    struct bytes charset = media->charset;
    return http_media_is(media, "application", "json") &&
           (charset.len == 0 || bytes_eq_nocase(charset, bytes_str("utf-8")));
}

static bool takes_content(const struct http_route *route, const struct http_request *request)
{
    struct http_media media;
    struct bytes type = http_known_field(request, HTTP_CONTENT_TYPE);
    if (!type.data || !http_parse_media(type, &media)) return false;
    if (route->takes == HTTP_CONTENT_VALUE &&
        http_media_is(&media, "application", "octet-stream"))
        return true;
    return is_plain_json(&media);
}

/* A type has to be said: without one, a page in a browser could send what we would take. */
static bool check_content(struct http_exchange *x, const struct http_request *request)
{
    const struct http_route *route = x->route;
    bool none = !request->has_body || request->length == 0;
    struct bytes coding = http_known_field(request, HTTP_CONTENT_ENCODING);
    if (none) return true;
    if (route->takes == HTTP_CONTENT_NONE)
        return refuse(x, 400, "invalid", "this request takes no content");
    if (coding.len > 0 && !bytes_eq_nocase(coding, bytes_str("identity")))
        return refuse(x, 415, "media_type", "content is not taken compressed");
    if (takes_content(route, request)) return true;
    return refuse(x, 415, "media_type",
                  route->takes == HTTP_CONTENT_VALUE
                      ? "Content-Type: application/json or application/octet-stream is wanted"
                      : "Content-Type: application/json is wanted");
}

/* Problems are told as they are, whatever is accepted. */
static bool check_accept(struct http_exchange *x, const struct http_request *request)
{
    struct bytes accept = http_known_field(request, HTTP_ACCEPT);
    bool several = request->repeated & BIT(HTTP_ACCEPT); /* lines: something will do */
    if (!accept.data || several || x->route->gives) return true;
    int json = http_accepts(accept, "application", "json");
    int raw = x->route->gives_raw ? http_accepts(accept, "application", "octet-stream") : 0;
    x->raw = raw > json;
    if (json || raw) return true;
    return refuse(x, 406, "not_acceptable", "answers are application/json");
}

static bool check_repeated(struct http_exchange *x, const struct http_request *request)
{
    unsigned once = BIT(HTTP_CONTENT_TYPE) | BIT(HTTP_CONTENT_ENCODING) |
                    BIT(HTTP_AUTHORIZATION) | BIT(HTTP_IDEMPOTENCY_KEY) | BIT(HTTP_ORIGIN) |
                    BIT(HTTP_ONCE_ENV);
    if (!(request->repeated & once)) return true;
    return refuse(x, 400, "invalid", "a field that may come once came twice");
}

bool http_foresee(struct http_exchange *x, struct http_input *in)
{
    const struct http_request *request = &in->request;
    return check_repeated(x, request) && find_route(x, in) && authorise(x, in) &&
           check_content(x, request) && check_accept(x, request);
}

void http_serve(struct http_exchange *x, struct http_input *in)
{
    if (is_options(x, in))
        http_answer_options(x);
    else if (http_foresee(x, in))
        x->route->handle(x, in);
}
