/* process.h - what the kernel says of this process, for metrics. What it does not say is 0. */
#ifndef DAEMON_PROCESS_H
#define DAEMON_PROCESS_H

#include <stdint.h>

struct process {
    uint64_t resident_bytes, open_fds, max_fds;
    uint64_t cpu_us; /* all threads, user and system */
};

struct process process_look(void);

#endif
