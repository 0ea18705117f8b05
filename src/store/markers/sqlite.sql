-- sqlite.sql - markers: what makes a mutation happen once, inside the caller's own transaction.
--
-- A plain script for the sqlite3 shell as it stands; it may be run again. SQLite has no functions of
-- ours: a transaction (BEGIN IMMEDIATE) has this as its first statement, and goes on only if that
-- returns a row. The conflict of one that has expired is settled in the same statement.
--
--     INSERT INTO once_mutations (user_id, request_id, method, fingerprint)
--     VALUES ('user-1', 'req-9', 'UseItem', NULL)
--     ON CONFLICT DO UPDATE SET created_at_ms = excluded.created_at_ms, method = excluded.method,
--         fingerprint = excluded.fingerprint, attempt = excluded.attempt, outcome = NULL
--     WHERE created_at_ms + (SELECT ttl_ms FROM once_mutation_meta) <= excluded.created_at_ms
--     RETURNING created_at_ms;
--
-- No row: roll back and look at the one that is there. Another method or fingerprint: a mismatch,
-- and nothing else of it counts. Else it is done: never retry, read again. SQLITE_BUSY: somebody
-- else is undecided; retry. Before COMMIT a small answer may be left for duplicates:
--
--     UPDATE once_mutations SET outcome = x'7b7d'
--     WHERE user_id = 'user-1' AND request_id = 'req-9' AND outcome IS NULL;
--
-- Cleanup, in batches (the program does it by itself):
--
--     DELETE FROM once_mutations WHERE (user_id, request_id) IN (
--         SELECT user_id, request_id FROM once_mutations
--         WHERE created_at_ms <= strftime('%s', 'now') * 1000 - (SELECT ttl_ms FROM once_mutation_meta)
--         ORDER BY created_at_ms LIMIT 1000);

BEGIN IMMEDIATE;

CREATE TABLE IF NOT EXISTS once_mutations (
    user_id TEXT NOT NULL CHECK (length(CAST(user_id AS BLOB)) BETWEEN 1 AND 256),
    request_id TEXT NOT NULL CHECK (length(CAST(request_id AS BLOB)) BETWEEN 1 AND 256),
    created_at_ms INTEGER NOT NULL
        DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)),
    method TEXT CHECK (length(CAST(method AS BLOB)) <= 128),
    fingerprint BLOB CHECK (length(fingerprint) <= 64),
    attempt BLOB, -- random, of who has to know its own marker after a lost COMMIT
    outcome BLOB CHECK (length(outcome) <= 8192),
    PRIMARY KEY (user_id, request_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS once_mutations_created_at ON once_mutations (created_at_ms);

-- How long a marker counts is a promise to callers, not a cache time. The epoch is another one in
-- another file: an answer that was kept elsewhere under another epoch is void.
CREATE TABLE IF NOT EXISTS once_mutation_meta (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    version INTEGER NOT NULL,
    ttl_ms INTEGER NOT NULL CHECK (ttl_ms >= 1000),
    epoch TEXT NOT NULL
);
INSERT OR IGNORE INTO once_mutation_meta VALUES (1, 1, 3600000, lower(hex(randomblob(8))));

COMMIT;
