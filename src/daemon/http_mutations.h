/* http_mutations.h - the replay cache of mutations over HTTP: handlers, and what came of them. */
#ifndef DAEMON_HTTP_MUTATIONS_H
#define DAEMON_HTTP_MUTATIONS_H

#include "daemon/http_routes.h"

http_handler http_mutation_begin, http_mutation_complete, http_mutation_abort;
http_mutation_done http_mutation_answer;

#endif
