/* notify.h - telling the service manager: ready, reloading, stopping.
 *
 * The protocol of systemd's sd_notify(3) is one datagram to a socket that the manager names in
 * the environment (NOTIFY_SOCKET); that is all there is to it, so there is no library for it here.
 * Without a name nothing is told. */
#ifndef DAEMON_NOTIFY_H
#define DAEMON_NOTIFY_H

/* Lines of VARIABLE=value, as in "READY=1\nSTATUS=serving". Never blocks, never fails: a manager that
 * does not listen is not the daemon's problem. */
void notify_manager(const char *socket_name, const char *state);

/* The same for a reload that begins: the manager wants to know since when, by CLOCK_MONOTONIC. */
void notify_reloading(const char *socket_name);

#endif
