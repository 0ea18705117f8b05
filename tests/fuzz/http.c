/* http.c - HTTP requests: however the input arrives, requests, contents and faults are the same;
 * a head that was taken has no byte in it that another server could read otherwise; what was read
 * can be written plainly and is read back as it was; no value gets more than its line. */
#include "proto/http.h"
#include "proto/http_answer.h"
#include "proto/http_fields.h"
#include "tests/fuzz/cuts.h"

enum { FIELDS_MAX = 16 };

static const struct http_limits limits = {
    .line_bytes_max = 200,
    .field_bytes_max = 150,
    .head_bytes_max = 600,
    .fields_max = FIELDS_MAX,
    .extra_bytes_max = 60,
    .body_bytes_max = 300,
};

struct server {
    struct cuts_peer peer;
    struct http_reader reader;
    bool in_body;
};

static void note_request(struct buf *log, const struct http_request *q)
{
    buf_printf(log, " %d.%d.%d.%d %lld.%zu [", q->method, q->form, q->minor, q->keep_alive,
               (long long)q->length, q->count);
    const struct bytes parts[] = { q->method_name, q->authority, q->path, q->query };
    for (size_t i = 0; i < 4; i++) {
        buf_add(log, parts[i]);
        buf_byte(log, ' ');
    }
    buf_byte(log, ']');
}

static void note_fields(struct buf *log, const struct http_request *q)
{
    for (size_t i = 0; i < q->count; i++) {
        buf_add(log, q->fields[i].name);
        buf_byte(log, '=');
        buf_add(log, q->fields[i].value);
        buf_byte(log, '\n');
    }
}

/* ---- what can be said of a head that was taken ---- */

/* Lines end with CR LF, and neither is anywhere else; no other control character but tab. */
static void check_head(struct bytes head)
{
    CHECK(head.len >= 4 && memcmp(head.data + head.len - 4, "\r\n\r\n", 4) == 0);
    for (size_t i = 0; i < head.len; i++) {
        uint8_t c = head.data[i];
        if (c == '\r') CHECK(i + 1 < head.len && head.data[i + 1] == '\n');
        if (c == '\n') CHECK(i > 0 && head.data[i - 1] == '\r');
        if (c != '\r' && c != '\n' && c != '\t') CHECK(c >= 0x20 && c != 0x7f);
    }
}

static void check_target(const struct http_request *q)
{
    struct bytes path = q->path, query = q->query, segment;
    struct http_parameter parameter;
    uint8_t out[256];
    size_t len;
    while (http_next_segment(&path, &segment))
        if (http_unescape(segment, out, &len))
            CHECK(len <= segment.len && !memchr(out, 0, len));
    while (http_next_parameter(&query, &parameter)) {
        http_unescape_parameter(parameter.name, out, &len);
        http_unescape_parameter(parameter.value, out, &len);
    }
}

static void check_value(struct bytes value)
{
    struct bytes found, list = value;
    struct http_media media;
    struct http_traceparent parent;
    while (http_next_in_list(&list, &found)) CHECK(found.len > 0);
    http_parse_media(value, &media);
    int quality = http_accepts(value, "application", "json");
    CHECK(quality >= 0 && quality <= 1000);
    http_preference(value, "wait", &found);
    if (http_bearer(value, &found)) CHECK(found.len > 0);
    if (http_parse_traceparent(value, &parent)) {
        char text[HTTP_TRACEPARENT_BYTES + 1];
        http_write_traceparent(&parent, text);
        CHECK(http_parse_traceparent(bytes_str(text), &parent));
    }
}

/* ---- written plainly ---- */

static bool is_framing(const struct http_request *q, size_t index)
{
    return q->known[HTTP_CONTENT_LENGTH] == index + 1 ||
           q->known[HTTP_TRANSFER_ENCODING] == index + 1;
}

static void write_plainly(struct buf *out, const struct http_request *q, struct bytes content)
{
    buf_add(out, q->method_name);
    buf_byte(out, ' ');
    buf_add(out, q->target);
    buf_printf(out, " HTTP/1.%d\r\n", q->minor);
    for (size_t i = 0; i < q->count; i++) {
        if (is_framing(q, i)) continue;
        buf_add(out, q->fields[i].name);
        buf_add(out, bytes_str(": "));
        buf_add(out, q->fields[i].value);
        buf_add(out, bytes_str("\r\n"));
    }
    if (q->has_body) buf_printf(out, "Content-Length: %zu\r\n", content.len);
    buf_add(out, bytes_str("\r\n"));
    buf_add(out, content);
}

/* The content of the request whose head was read; false: it is not all there, or malformed. */
static bool collect(struct http_reader *r, struct bytes *in, struct buf *content)
{
    for (;;) {
        struct bytes data;
        size_t used;
        enum http_progress p = http_read_body(r, *in, &data, &used);
        CHECK(used <= in->len);
        *in = bytes_of(in->data + used, in->len - used);
        if (p == HTTP_READY) return true;
        if (p != HTTP_DATA) return false;
        buf_add(content, data);
    }
}

static void check_plain(const struct http_request *q, struct bytes content)
{
    static const struct http_limits wide = {
        4096, 4096, 65536, FIELDS_MAX + 1, 0, 4096, false
    };
    struct http_field fields[FIELDS_MAX + 1];
    struct http_request again = { .fields = fields };
    struct http_reader r;
    struct buf out, back;
    buf_init(&out, 1 << 16);
    buf_init(&back, 1 << 16);
    write_plainly(&out, q, content);
    http_reader_init(&r, &wide);
    CHECK(http_read_head(&r, buf_bytes(&out), &again) == HTTP_READY);
    CHECK(again.method == q->method && again.keep_alive == q->keep_alive);
    CHECK(again.has_body == q->has_body && bytes_eq(again.authority, q->authority));
    CHECK(bytes_eq(again.path, q->path) && bytes_eq(again.query, q->query));
    struct bytes rest = bytes_of(out.data + again.used, out.len - again.used);
    CHECK(collect(&r, &rest, &back) && rest.len == 0);
    CHECK(bytes_eq(buf_bytes(&back), content));
    buf_fini(&out);
    buf_fini(&back);
}

/* All requests of an input that stays where it is. */
static void check_requests(struct bytes in)
{
    struct http_field fields[FIELDS_MAX];
    struct http_request q = { .fields = fields };
    struct http_reader r;
    struct buf content;
    http_reader_init(&r, &limits);
    buf_init(&content, 1 << 16);
    bool whole = true;
    while (whole && in.len && http_read_head(&r, in, &q) == HTTP_READY) {
        CHECK(q.used <= in.len);
        check_head(bytes_of(in.data, q.used));
        check_target(&q);
        for (size_t i = 0; i < q.count; i++) check_value(q.fields[i].value);
        in = bytes_of(in.data + q.used, in.len - q.used);
        buf_clear(&content);
        whole = collect(&r, &in, &content);
        if (whole) check_plain(&q, buf_bytes(&content));
    }
    buf_fini(&content);
}

/* ---- cut ---- */

static size_t read_head(struct server *s, struct bytes in)
{
    struct http_field fields[FIELDS_MAX];
    struct http_request q = { .fields = fields };
    enum http_progress p = http_read_head(&s->reader, in, &q);
    CHECK(p != HTTP_DATA);
    s->peer.bad = p == HTTP_BAD;
    s->in_body = p == HTTP_READY;
    if (p != HTTP_READY) return 0;
    note_request(&s->peer.log, &q);
    note_fields(&s->peer.log, &q);
    return q.used;
}

static size_t read_body(struct server *s, struct bytes in)
{
    struct bytes data;
    size_t used;
    enum http_progress p = http_read_body(&s->reader, in, &data, &used);
    CHECK(used <= in.len);
    s->peer.bad = p == HTTP_BAD;
    if (p == HTTP_DATA) CHECK(data.len > 0);
    if (p == HTTP_DATA) buf_add(&s->peer.log, data);
    if (p == HTTP_READY) s->in_body = false;
    if (p == HTTP_READY) buf_byte(&s->peer.log, ';');
    return used;
}

static size_t read_requests(struct cuts_peer *peer, uint8_t *in, size_t len)
{
    struct server *s = container_of(peer, struct server, peer);
    size_t used = 0, n;
    bool was_body;
    do {
        was_body = s->in_body;
        struct bytes left = bytes_of(in + used, len - used);
        n = was_body ? read_body(s, left) : read_head(s, left);
        used += n;
    } while (!peer->bad && (n > 0 || was_body != s->in_body));
    CHECK(peer->bad == (s->reader.fault != HTTP_FAULT_NONE));
    if (peer->bad) buf_printf(&peer->log, " !%s", http_fault_text(s->reader.fault));
    return used;
}

static struct buf requests_in(struct bytes in, size_t step)
{
    struct server s = { .peer.read = read_requests };
    http_reader_init(&s.reader, &limits);
    cuts_tell(&s.peer, in, step);
    return s.peer.log;
}

/* ---- answers ---- */

static void check_answer(struct bytes value)
{
    struct http_writer w;
    struct buf out;
    buf_init(&out, 1 << 16);
    http_start(&w, &out,
               &(struct http_answer){ .status = 200, .minor = 1, .keep_alive = true });
    http_put(&w, "Value", value);
    if (!buf_failed(&out)) {
        http_finish(&w, bytes_str(""));
        size_t lines = 0;
        for (size_t i = 0; i < out.len; i++)
            lines += out.data[i] == '\n' || out.data[i] == '\r';
        CHECK(lines == 2 * 4);
    }
    buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes in = bytes_of(data, size);
    cuts_check(requests_in, in);
    check_requests(in);
    check_value(in);
    check_answer(in);
    return 0;
}
