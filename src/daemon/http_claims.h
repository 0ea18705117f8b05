/* http_claims.h - claims over HTTP: the handlers of their routes, and what came of their calls. */
#ifndef DAEMON_HTTP_CLAIMS_H
#define DAEMON_HTTP_CLAIMS_H

#include "daemon/http_routes.h"

http_handler http_claim, http_publish, http_release, http_renew, http_peek, http_forget,
    http_list;
http_done http_claim_done, http_list_done;

#endif
