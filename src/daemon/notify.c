/* notify.c - see notify.h. */
#include "daemon/notify.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* A path, or a name behind "@", which stands for the NUL of an abstract address. 0: neither. */
static socklen_t address_of(const char *name, struct sockaddr_un *out)
{
    size_t len = strlen(name);
    if ((name[0] != '/' && name[0] != '@') || len >= sizeof out->sun_path) return 0;
    *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
    memcpy(out->sun_path, name, len);
    if (name[0] == '@') out->sun_path[0] = '\0';
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
}

void notify_manager(const char *socket_name, const char *state)
{
    struct sockaddr_un to;
    socklen_t len = socket_name ? address_of(socket_name, &to) : 0;
    if (!len) return;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return;
    (void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to, len);
    close(fd);
}

void notify_reloading(const char *socket_name)
{
    struct timespec now;
    char state[96];
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%lld",
             (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    notify_manager(socket_name, state);
}
