/* notify_test.c - what arrives at a service manager's socket. */
#include "daemon/notify.h"

#include <criterion/criterion.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int listen_at(const char *path, size_t len)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    memcpy(at.sun_path, path, len);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    cr_assert_geq(fd, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&at,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)),
                 0);
    return fd;
}

static const char *heard(int fd)
{
    static char text[128];
    ssize_t len = recv(fd, text, sizeof text - 1, 0);
    text[len < 0 ? 0 : len] = '\0';
    return text;
}

Test(notify, arrives_at_a_path)
{
    char dir[] = "/tmp/notify-test-XXXXXX", path[64];
    cr_assert(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/s", dir);
    int fd = listen_at(path, strlen(path));
    notify_manager(path, "READY=1");
    cr_assert_str_eq(heard(fd), "READY=1");
    notify_reloading(path);
    cr_assert_eq(strncmp(heard(fd), "RELOADING=1\nMONOTONIC_USEC=", 27), 0);
    close(fd);
    unlink(path);
    rmdir(dir);
}

Test(notify, arrives_at_an_abstract_name)
{
    char name[64];
    snprintf(name, sizeof name, "@notify-test-%d", (int)getpid());
    char bound[64];
    memcpy(bound, name, sizeof bound);
    bound[0] = '\0';
    int fd = listen_at(bound, strlen(name));
    notify_manager(name, "STOPPING=1");
    cr_assert_str_eq(heard(fd), "STOPPING=1");
    close(fd);
}

/* Returns: that is what is tested. */
Test(notify, nobody_there_is_no_trouble)
{
    notify_manager(NULL, "READY=1");
    notify_manager("vsock:2:1234", "READY=1");
    notify_manager("/nowhere/at/all", "READY=1");
}
