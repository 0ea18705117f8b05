/* warden.h - the process between once run and its command, which outlives neither.
 *
 *     once run --fork--> warden --fork--> command --fork--> whatever it starts
 *
 * The kernel can kill a child when its parent dies, but not a grandchild: a shell script would
 * die with a killed owner while the program it runs goes on, next to the one of whoever takes
 * over. So a process that does nothing else watches the owner, adopts every orphan below it,
 * and kills all of them when the owner is gone, or when it is told to.
 *
 * It ends as the command ended, so that waiting for it is waiting for the command. */
#ifndef CLI_WARDEN_H
#define CLI_WARDEN_H

#include <signal.h>
#include <sys/types.h>

/* Sent by the owner: end the command and everything below it, now. */
enum { WARDEN_KILL = SIGUSR1 };

/* In a fork of the owner. `become` turns a fork of the warden into the command, or returns its
 * exit status: only what a signal handler may do, there and here, because the owner has
 * threads. */
_Noreturn void warden_run(pid_t owner, int (*become)(void *ctx), void *ctx);

#endif
