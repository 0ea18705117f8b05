/* names.h - a resolver that does as it is told: it hangs, fails, or says that a server has moved.
 * getaddrinfo() of every program of the tests is this one; what is not said here is the system's. */
#ifndef TESTS_SUPPORT_NAMES_H
#define TESTS_SUPPORT_NAMES_H

void names_hang(void);                 /* lookups of names do not come back ... */
void names_go_on(void);                /* ... until this */
unsigned names_waiting(void);          /* lookups that hang */
void names_say(const char *addresses); /* of NAMES_HOST, by spaces; NULL: it does not exist */

#define NAMES_HOST "server.test"

#endif
