/* scrape.c - see scrape.h. Blocking: it is for a command that does nothing else. */
#include "cli/scrape.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { TEXT_BYTES_MAX = 4 << 20, PART_BYTES = 300 };

/* ---- reading the text ---- */

/* One line, which ends with a NUL; false: it is not a sample. */
static bool parse_sample(char *line, struct sample *ret)
{
    char *end = line + strcspn(line, "{ "), *labels = end;
    if (end == line || !*end) return false;
    if (*end == '{') {
        bool quoted = false;
        for (labels = ++end; *end && (quoted || *end != '}'); end++) {
            if (quoted && *end == '\\' && end[1])
                end++;
            else if (*end == '"')
                quoted = !quoted;
        }
        if (!*end || end[1] != ' ') return false;
        labels[-1] = '\0';
        *end++ = '\0';
    } else {
        *labels = '\0';
    }
    char *number = end + 1, *stop;
    double value = strtod(number, &stop);
    if (stop == number || *stop) return false;
    *ret = (struct sample){ .name = line, .labels = labels, .value = value };
    return true;
}

static size_t count_lines(const char *text)
{
    size_t count = 1;
    for (; *text; text++) count += *text == '\n';
    return count;
}

int scrape_parse(char *text, struct scrape *ret_scrape, struct err *reterr)
{
    struct scrape s = { .text = text };
    s.samples = calloc(count_lines(text), sizeof *s.samples);
    if (!s.samples) {
        scrape_free(&s);
        return err_set(reterr, ERR_NOMEM, "out of memory");
    }
    for (char *line = text, *next; *line; line = next) {
        next = line + strcspn(line, "\n");
        if (*next) *next++ = '\0';
        if (*line == '#' || !*line) continue;
        if (parse_sample(line, &s.samples[s.count++])) continue;
        err_set(reterr, ERR_INVALID, "not metrics: %.60s", line);
        scrape_free(&s);
        return reterr->code;
    }
    *ret_scrape = s;
    return 0;
}

void scrape_free(struct scrape *s)
{
    free(s->text);
    free(s->samples);
    *s = (struct scrape){ 0 };
}

/* ---- looking up ---- */

static bool has(const struct sample *s, const char *name, const char *label)
{
    return strcmp(s->name, name) == 0 && (!label || strstr(s->labels, label));
}

const struct sample *scrape_find(const struct scrape *s, const char *name, const char *label)
{
    for (size_t i = 0; i < s->count; i++)
        if (has(&s->samples[i], name, label)) return &s->samples[i];
    return NULL;
}

double scrape_sum(const struct scrape *s, const char *name, const char *label)
{
    double sum = 0;
    for (size_t i = 0; i < s->count; i++)
        if (has(&s->samples[i], name, label)) sum += s->samples[i].value;
    return sum;
}

double scrape_delta(const struct scrape *now, const struct scrape *before, const char *name,
                    const char *label)
{
    return scrape_sum(now, name, label) - scrape_sum(before, name, label);
}

/* As histogram_quantile() of Prometheus: even within a bucket; above the last bound, that. */
double scrape_quantile(const struct scrape *now, const struct scrape *before,
                       const char *histogram, const char *label, double q)
{
    char name[PART_BYTES];
    snprintf(name, sizeof name, "%s_count", histogram);
    double rank = q * scrape_delta(now, before, name, label), below = 0, bound = 0;
    if (rank <= 0) return -1;
    snprintf(name, sizeof name, "%s_bucket", histogram);
    for (size_t i = 0; i < now->count; i++) {
        const struct sample *s = &now->samples[i];
        const char *le = strstr(s->labels, "le=\"");
        if (!has(s, name, label) || !le) continue;
        const struct sample *was = scrape_find(before, name, s->labels);
        double count = s->value - (was ? was->value : 0);
        if (strncmp(le + 4, "+Inf", 4) == 0) return bound;
        double upper = strtod(le + 4, NULL);
        if (count >= rank) return bound + (upper - bound) * (rank - below) / (count - below);
        below = count;
        bound = upper;
    }
    return bound;
}

/* ---- fetching ---- */

static int failed(const char *what, struct err *reterr)
{
    return err_set(reterr, ERR_UNAVAILABLE, "%s: %s", what, strerror(errno));
}

static int set_timeouts(int fd, int64_t ms)
{
    struct timeval limit = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0) return -1;
    return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

static int connect_to(int family, const struct sockaddr *address, socklen_t len,
                      int64_t timeout_ms)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    if (set_timeouts(fd, timeout_ms) == 0 && connect(fd, address, len) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static int connect_path(const char *path, int64_t timeout_ms, struct err *reterr)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (strlen(path) >= sizeof address.sun_path)
        return err_set(reterr, ERR_INVALID, "the path of the socket is too long");
    strcpy(address.sun_path, path);
    int fd = connect_to(AF_UNIX, (struct sockaddr *)&address, sizeof address, timeout_ms);
    return fd < 0 ? failed(path, reterr) : fd;
}

/* "HOST:PORT", "[::1]:PORT" */
static int connect_host(const char *authority, int64_t timeout_ms, struct err *reterr)
{
    char host[PART_BYTES];
    const char *colon = strrchr(authority, ':');
    size_t len = colon ? (size_t)(colon - authority) : 0;
    bool bracketed = len > 2 && authority[0] == '[' && authority[len - 1] == ']';
    if (len == 0 || len >= sizeof host || !colon[1])
        return err_set(reterr, ERR_INVALID, "an address is http://HOST:PORT, or unix:PATH");
    snprintf(host, sizeof host, "%.*s", (int)len - 2 * bracketed, authority + bracketed);
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *all;
    int r = getaddrinfo(host, colon + 1, &hints, &all), fd = -1;
    if (r) return err_set(reterr, ERR_UNAVAILABLE, "%.80s: %s", authority, gai_strerror(r));
    for (const struct addrinfo *a = all; a && fd < 0; a = a->ai_next)
        fd = connect_to(a->ai_family, a->ai_addr, a->ai_addrlen, timeout_ms);
    freeaddrinfo(all);
    return fd < 0 ? failed(authority, reterr) : fd;
}

static int ask(int fd, const char *host, const char *token, struct err *reterr)
{
    char request[1024];
    int len = snprintf(request, sizeof request,
                       "GET /metrics HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s%s%s\r\n",
                       host, token ? "Authorization: Bearer " : "", token ? token : "",
                       token ? "\r\n" : "");
    if (len < 0 || (size_t)len >= sizeof request)
        return err_set(reterr, ERR_INVALID, "the address or the token is too long");
    if (send(fd, request, (size_t)len, MSG_NOSIGNAL) != len)
        return failed("cannot ask for metrics", reterr);
    return 0;
}

/* Everything until the daemon closes. NULL: it did not work. */
static char *read_all(int fd, struct err *reterr)
{
    size_t len = 0;
    ssize_t n;
    char *text = malloc(TEXT_BYTES_MAX + 1);
    if (!text) {
        err_set(reterr, ERR_NOMEM, "out of memory");
        return NULL;
    }
    while ((n = recv(fd, text + len, TEXT_BYTES_MAX - len, 0)) > 0) len += (size_t)n;
    text[len] = '\0';
    if (n == 0 && len < TEXT_BYTES_MAX) return text;
    failed("no whole answer", reterr);
    free(text);
    return NULL;
}

/* Leaves the content. */
static int strip_head(char *text, struct err *reterr)
{
    char *content = strstr(text, "\r\n\r\n");
    int status;
    if (!content || sscanf(text, "HTTP/1.%*d %d", &status) != 1)
        return err_set(reterr, ERR_UNAVAILABLE, "that is not an HTTP server");
    if (status == 401 || status == 403)
        return err_set(reterr, ERR_INVALID,
                       "the daemon wants a token that may read metrics: set ONCE_TOKEN");
    if (status != 200)
        return err_set(reterr, ERR_UNAVAILABLE, "the daemon answered %d to GET /metrics",
                       status);
    memmove(text, content + 4, strlen(content + 4) + 1);
    return 0;
}

int scrape_fetch(const char *url, const char *token, int64_t timeout_ms,
                 struct scrape *ret_scrape, struct err *reterr)
{
    char host[PART_BYTES];
    bool path = strncmp(url, "unix:", 5) == 0, http = strncmp(url, "http://", 7) == 0;
    if (!path && !http)
        return err_set(reterr, ERR_INVALID, "an address is http://HOST:PORT, or unix:PATH");
    snprintf(host, sizeof host, "%.*s", path ? 9 : (int)strcspn(url + 7, "/"),
             path ? "localhost" : url + 7);
    int fd = path ? connect_path(url + 5, timeout_ms, reterr)
                  : connect_host(host, timeout_ms, reterr);
    if (fd < 0) return fd;
    int r = ask(fd, host, token, reterr);
    char *text = r ? NULL : read_all(fd, reterr);
    close(fd);
    if (!text) return reterr->code;
    r = strip_head(text, reterr);
    if (r) {
        free(text);
        return r;
    }
    return scrape_parse(text, ret_scrape, reterr);
}
