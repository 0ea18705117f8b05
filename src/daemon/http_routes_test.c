/* http_routes_test.c - paths to routes, and the table beside the OpenAPI document. */
#include "daemon/http_routes.h"

#include <criterion/criterion.h>
#include <jansson.h>

extern const char openapi_document[];

static struct http_match match(enum http_method method, const char *path)
{
    static uint8_t memory[256];
    struct http_match m;
    http_match(method, bytes_str(path), memory, &m);
    return m;
}

static void is_part(struct bytes part, const char *text)
{
    cr_assert(bytes_eq(part, bytes_str(text)), "%.*s", (int)part.len, part.data);
}

Test(http_routes, parts_are_unescaped_after_they_are_found)
{
    struct http_match m = match(HTTP_GET, "/v1/claims/a%2Fb/k%2Frenew%20x");
    cr_assert(m.route && m.route->verb == VERB_PEEK && !m.malformed);
    is_part(m.parts[0], "a/b");
    is_part(m.parts[1], "k/renew x");
    m = match(HTTP_POST, "/v1/claims/s/k/renew");
    cr_assert(m.route && m.route->verb == VERB_RENEW);
    is_part(m.parts[1], "k");
}

Test(http_routes, a_path_fits_as_a_whole)
{
    static const char *const none[] = { "",
                                        "/",
                                        "/v1",
                                        "/v1/claims/",
                                        "/v1/claims/s",
                                        "/livez/",
                                        "//livez",
                                        "/LIVEZ",
                                        "/v1/claims/s/k/renew/x",
                                        "/v1%2Fclaims" };
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        cr_assert_eq(match(HTTP_GET, none[i]).methods, 0, "%s", none[i]);
    cr_assert(match(HTTP_GET, "/v1/claims/s/%4").malformed);
}

Test(http_routes, head_is_get_and_others_are_told_what_there_is)
{
    char allow[HTTP_ALLOW_BYTES];
    cr_assert_eq(match(HTTP_HEAD, "/livez").route, match(HTTP_GET, "/livez").route);
    struct http_match m = match(HTTP_PATCH, "/v1/claims/s/k/forget");
    cr_assert(!m.route);
    http_allow(m.methods, allow);
    cr_assert_str_eq(allow, "POST, OPTIONS");
}

/* ---- the document ---- */

static const char *const method_keys[] = {
    [HTTP_GET] = "get", [HTTP_POST] = "post", [HTTP_PUT] = "put", [HTTP_DELETE] = "delete"
};

static size_t operations(json_t *paths)
{
    static const char *const methods[] = { "get", "post", "put", "delete", "patch", "head" };
    const char *path;
    json_t *item;
    size_t n = 0;
    json_object_foreach(paths, path, item) for (size_t i = 0; i < 6; i++) n +=
        json_object_get(item, methods[i]) != NULL;
    return n;
}

Test(http_routes, the_document_has_what_the_table_has)
{
    json_error_t error;
    json_t *doc = json_loads(openapi_document, JSON_REJECT_DUPLICATES, &error);
    cr_assert(doc, "%d: %s", error.line, error.text);
    json_t *paths = json_object_get(doc, "paths");
    size_t rows = 0;
    for (const struct http_route *r = http_routes; r->path; r++, rows++) {
        const char *method = method_keys[r->method];
        json_t *op = json_object_get(json_object_get(paths, r->path), method);
        cr_assert(op, "%s %s is not in openapi.json", method, r->path);
        cr_assert_str_eq(json_string_value(json_object_get(op, "summary")), r->summary);
        json_t *security = json_object_get(op, "security");
        cr_assert_eq(security && json_array_size(security) == 0, r->open, "%s", r->path);
        bool has_body = json_object_get(op, "requestBody") != NULL;
        cr_assert_eq(has_body, r->takes != HTTP_CONTENT_NONE, "%s", r->path);
    }
    cr_assert_eq(operations(paths), rows, "openapi.json has more than the table");
    json_decref(doc);
}
