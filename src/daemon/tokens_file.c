/* tokens_file.c - see tokens_file.h. */
#include "daemon/tokens_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = 32 * 1024 * 1024, READ_BYTES = 16 * 1024 };

static int cannot(const char *what, const char *path, struct err *reterr)
{
    return err_set(reterr, errno == ENOMEM ? ERR_NOMEM : ERR_INVALID, "cannot %s %.100s: %s",
                   what, path, strerror(errno));
}

/* ---- reading ---- */

static int check_mode(int fd, const char *path, struct err *reterr)
{
    struct stat st;
    if (fstat(fd, &st) < 0) return cannot("look at", path, reterr);
    if (!S_ISREG(st.st_mode)) return err_set(reterr, ERR_INVALID, "%.100s is not a file", path);
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return err_set(reterr, ERR_INVALID,
                       "others may write to %.100s and let themselves in: chmod 600 it", path);
    return 0;
}

static int read_all(int fd, const char *path, struct buf *into, struct err *reterr)
{
    uint8_t part[READ_BYTES];
    ssize_t n;
    while ((n = read(fd, part, sizeof part)) > 0) buf_add(into, bytes_of(part, (size_t)n));
    if (n < 0) return cannot("read", path, reterr);
    if (buf_failed(into)) return err_set(reterr, buf_failed(into), "%.100s is too long", path);
    return 0;
}

static int load_open(int fd, const char *path, struct tokens *ret, struct err *reterr)
{
    struct buf lines;
    struct err why;
    int r = check_mode(fd, path, reterr);
    if (r) return r;
    buf_init(&lines, FILE_BYTES_MAX);
    r = read_all(fd, path, &lines, reterr);
    if (!r && (r = tokens_read(buf_bytes(&lines), ret, &why)) < 0)
        err_set(reterr, r, "%.70s, %s", path, why.text);
    buf_fini(&lines);
    return r;
}

int tokens_load(const char *path, bool must_exist, struct tokens *ret_tokens, bool *ret_found,
                struct err *reterr)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && (errno != ENOENT || must_exist))
        return cannot("open the tokens file", path, reterr);
    if (fd < 0) {
        *ret_tokens = (struct tokens){ 0 };
        *ret_found = false;
        return 0;
    }
    int r = load_open(fd, path, ret_tokens, reterr);
    close(fd);
    if (!r) *ret_found = true;
    return r;
}

/* ---- changing ---- */

static int open_directory(const char *path)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int n =
        slash ? snprintf(dir, sizeof dir, "%.*s", slash == path ? 1 : (int)(slash - path), path)
              : snprintf(dir, sizeof dir, ".");
    if (n < 0 || (size_t)n >= sizeof dir) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* The directory is locked, not the file: that is another one after every change. */
int tokens_change_begin(struct tokens_change *c, const char *path, struct err *reterr)
{
    bool found;
    *c = (struct tokens_change){ .path = path, .dir = open_directory(path) };
    if (c->dir < 0) return cannot("open the directory of", path, reterr);
    int r = flock(c->dir, LOCK_EX) < 0 ? cannot("lock the directory of", path, reterr)
                                       : tokens_load(path, false, &c->tokens, &found, reterr);
    if (r) tokens_change_end(c);
    return r;
}

static int write_all(int fd, struct bytes content)
{
    while (content.len) {
        ssize_t n = write(fd, content.data, content.len);
        if (n < 0) return -1;
        content = bytes_of(content.data + n, content.len - (size_t)n);
    }
    return fsync(fd);
}

/* -1 with errno set. What a crash has left of an earlier try is written over. */
static int replace(const struct tokens_change *c, struct bytes content)
{
    char other[PATH_MAX];
    int n = snprintf(other, sizeof other, "%s.new", c->path);
    if (n < 0 || (size_t)n >= sizeof other) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int fd = open(other, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return -1;
    int r = fchmod(fd, 0600) < 0 ? -1 : write_all(fd, content);
    if (close(fd) < 0) r = -1;
    if (r == 0) r = rename(other, c->path);
    if (r == 0) return fsync(c->dir);
    unlink(other);
    return -1;
}

int tokens_change_save(struct tokens_change *c, struct err *reterr)
{
    struct buf lines;
    buf_init(&lines, FILE_BYTES_MAX);
    tokens_write(&c->tokens, &lines);
    int r = buf_failed(&lines);
    if (r)
        err_set(reterr, r, "the tokens do not fit into a file");
    else if (replace(c, buf_bytes(&lines)) < 0)
        r = cannot("write", c->path, reterr);
    buf_fini(&lines);
    return r;
}

void tokens_change_end(struct tokens_change *c)
{
    tokens_fini(&c->tokens);
    if (c->dir >= 0) close(c->dir);
    c->dir = -1;
}
