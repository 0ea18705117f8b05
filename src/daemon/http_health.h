/* http_health.h - how the daemon is, over HTTP: handlers of the routes that are about no
 * record. */
#ifndef DAEMON_HTTP_HEALTH_H
#define DAEMON_HTTP_HEALTH_H

#include "daemon/http_routes.h"

http_handler http_livez, http_readyz, http_metrics, http_version, http_openapi;
http_done http_readyz_done;

#endif
