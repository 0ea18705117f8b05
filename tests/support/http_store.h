/* http_store.h - a daemon as a store, through its HTTP door: so that the suites that every store
 * passes are passed by the door, too. For tests alone; the store for users is src/store/remote.h. */
#ifndef TESTS_SUPPORT_HTTP_STORE_H
#define TESTS_SUPPORT_HTTP_STORE_H

#include "tests/support/door.h"

struct store *http_store_open(struct daemon *d, const struct store_env *env);

#endif
