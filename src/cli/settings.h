/* settings.h - what the command line does not say: a variable, then a line of a file.
 *
 * A setting is a row of an option table: --tls-cert on the command line is ONCE_TLS_CERT in the
 * environment and "tls-cert = ..." in the file. The command line is stronger than the environment,
 * that than the file, that than the default. A file is read as a whole or refused: a name that
 * does not exist, one that is there twice, a value that its row does not take. */
#ifndef CLI_SETTINGS_H
#define CLI_SETTINGS_H

#include "cli/args.h"

enum { SETTING_NAME_BYTES = 48, SETTINGS_FILE_BYTES_MAX = 64 * 1024 };

void setting_variable(const struct option *o, char out[SETTING_NAME_BYTES]); /* ONCE_TLS_CERT */

int settings_from_environment(const struct option_table *tables, size_t table_count,
                              struct err *reterr);

/* Values point into `text`, which is changed (text[len] too) and has to outlive them. */
int settings_from_text(const char *path, char *text, size_t len,
                       const struct option_table *tables, size_t table_count,
                       struct err *reterr);

/* The text is the caller's to free. */
int settings_from_file(const char *path, const struct option_table *tables, size_t table_count,
                       char **ret_text, struct err *reterr);

#endif
