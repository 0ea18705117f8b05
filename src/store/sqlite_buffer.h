/* sqlite_buffer.h - what the files of the buffer in a SQLite file share; private to them. What the
 * store asks of it is in sqlite_db.h.
 *
 *   sqlite_buffer.c         entries as rows, how many there are, and the verbs
 *   sqlite_buffer_lease.c   one of the verbs: which entries are handed out */
#ifndef STORE_SQLITE_BUFFER_H
#define STORE_SQLITE_BUFFER_H

#include "store/sqlite_db.h"

enum { ANSWER_BYTES_MAX = 16 << 20 }; /* more than that waits for the next */

/* As the schema has it: an entry whose lease lapsed comes before those that came before it. */
enum { TURN_LAPSED, TURN_USUAL };

/* An entry as read, and its place. Its bytes are SQLite's until the next step. */
struct entry_row {
    struct entry entry;
    int64_t seq, turn, written_at_ms;
    bool leased; /* in the file; perhaps it has lapsed, or is a pause */
};

int sqlite_entry_row_decode(sqlite3_stmt *q, int64_t now_ms, struct entry_row *ret_row,
                            struct err *reterr);

/* Adds the one that `which` finds by `what` to the answer; its bytes are not to be looked at any
 * more. 1: found, 0: there is none. */
int sqlite_entry_row_tell(struct sqlite *s, enum sql which, struct buffer_ask *a,
                          struct bytes what, struct entry_row *ret_row, struct err *reterr);
int sqlite_entry_tell(struct buffer_ask *a, const struct entry *e, struct err *reterr);
size_t sqlite_entry_bytes(const struct entry *e);

/* So many more of them, by what this transaction has done. */
void sqlite_buffer_more(struct sqlite *s, int64_t queued, int64_t leased);

/* Changed by the statement that was finished last. */
int64_t sqlite_buffer_changed(struct sqlite *s);

/* As SQL takes it. */
int64_t sqlite_buffer_limit(size_t limit);

/* DRAIN_LEASE. */
int sqlite_buffer_lease(struct sqlite *s, struct op *op, struct err *reterr);

#endif
