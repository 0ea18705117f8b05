-- 002-runs.sql - the runs of a ledger, and the ways to touch them.
--
-- Runs with search_path set to the schema it lives in, inside a transaction, and may be run again.
-- As with claims, nothing here decides anything: the program reads, decides by its rules, and writes
-- only what is still as it was read (rev). The exception is runs_lease(), which is the rule about
-- leases once more, because whom a run is handed to has to be decided where its row is locked.
--
-- Names, ids and keys are bytes: they are compared and sorted as such, whatever encoding and
-- collation the database has. `SET bytea_output = escape` shows them as text.

-- A run, or an alias of one: both are found by (env, id), so no id can ever be both. An alias has
-- nothing but rev, env, id, canonical_id, changes and created_at_ms, and state 0.
-- The widest first, so that nothing is padded; large ones are not compressed, which saves the time.
CREATE TABLE IF NOT EXISTS runs (
    rev bigint NOT NULL,         -- one more with every change
    key_until_ms bigint NOT NULL DEFAULT 0,
    metadata_version bigint NOT NULL DEFAULT 0,
    created_at_ms bigint NOT NULL,
    delay_until_ms bigint NOT NULL DEFAULT 0,
    available_at_ms bigint NOT NULL DEFAULT 0,
    started_at_ms bigint NOT NULL DEFAULT 0,
    finished_at_ms bigint NOT NULL DEFAULT 0,
    fence bigint NOT NULL DEFAULT 0,
    lease_ms bigint NOT NULL DEFAULT 0,
    lease_until_ms bigint NOT NULL DEFAULT 0,
    changes bigint NOT NULL DEFAULT 0, -- so many of those made in the buffer are in it
    due_at_ms bigint,            -- when somebody may lease it; NULL: it is final
    gone_at_ms bigint,           -- from then on nobody needs it; NULL: it is not final
    attempts integer NOT NULL DEFAULT 0,
    attempts_max integer NOT NULL DEFAULT 0,
    stalls integer NOT NULL DEFAULT 0,
    state smallint NOT NULL,     -- 0 alias, 1 queued, 2 executing, 3 completed, 4 failed, 5 canceled
    key_held boolean NOT NULL DEFAULT false,
    id bytea NOT NULL,
    env bytea NOT NULL,
    task bytea NOT NULL DEFAULT '',
    queue bytea NOT NULL DEFAULT '',
    key bytea NOT NULL DEFAULT '',
    ordering_key bytea NOT NULL DEFAULT '',
    fingerprint bytea NOT NULL DEFAULT '',
    token bytea NOT NULL DEFAULT '', -- of the last lease; empty: there was none
    tags bytea NOT NULL DEFAULT '',  -- one length byte and the text, each
    metadata bytea NOT NULL DEFAULT '',
    output bytea NOT NULL DEFAULT '',
    error bytea NOT NULL DEFAULT '',
    payload bytea NOT NULL DEFAULT '',
    canonical_id bytea,          -- an alias: of whom
    PRIMARY KEY (env, id)
);
ALTER TABLE runs ALTER COLUMN metadata SET STORAGE EXTERNAL;
ALTER TABLE runs ALTER COLUMN output SET STORAGE EXTERNAL;
ALTER TABLE runs ALTER COLUMN error SET STORAGE EXTERNAL;
ALTER TABLE runs ALTER COLUMN payload SET STORAGE EXTERNAL;

-- What tells most of them apart comes first: the fewer columns are compared.
CREATE UNIQUE INDEX IF NOT EXISTS runs_key ON runs (key, task, env) WHERE key_held;
CREATE INDEX IF NOT EXISTS runs_due ON runs (env, queue, due_at_ms, id) WHERE due_at_ms IS NOT NULL;
CREATE INDEX IF NOT EXISTS runs_ordered ON runs (env, queue, ordering_key, id)
    WHERE due_at_ms IS NOT NULL AND ordering_key <> '';
CREATE INDEX IF NOT EXISTS runs_gone ON runs (gone_at_ms) WHERE gone_at_ms IS NOT NULL;
CREATE INDEX IF NOT EXISTS runs_aliases ON runs (env, canonical_id) WHERE canonical_id IS NOT NULL;

CREATE OR REPLACE VIEW aliases AS
SELECT env, id, canonical_id, changes, created_at_ms AS made_at_ms
FROM runs WHERE canonical_id IS NOT NULL;

-- One question per element, n counts from 1: by id, or, where that is empty, by task and key. A row
-- for each that was found, and one without n first. Found by an alias: the run, and what of the
-- alias is in it. All of it is one moment, since the function is stable. OFFSET 0: a row is looked for
-- when the question is known, however small the table was when this was planned.
CREATE OR REPLACE FUNCTION runs_read(envs bytea[], ids bytea[], tasks bytea[], keys bytea[])
RETURNS TABLE (
    now_ms bigint, epoch bigint, n integer, alias_changes bigint, place tid,
    rev bigint, key_until_ms bigint, metadata_version bigint, created_at_ms bigint,
    delay_until_ms bigint, available_at_ms bigint, started_at_ms bigint, finished_at_ms bigint,
    fence bigint, lease_ms bigint, lease_until_ms bigint, changes bigint, due_at_ms bigint,
    gone_at_ms bigint, attempts integer, attempts_max integer, stalls integer, state smallint,
    key_held boolean, id bytea, env bytea, task bytea, queue bytea, key bytea, ordering_key bytea,
    fingerprint bytea, token bytea, tags bytea, metadata bytea, output bytea, error bytea,
    payload bytea, canonical_id bytea
)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT clock_ms(), meta.epoch, NULL::integer, NULL::bigint, r.ctid, r.*
    FROM meta LEFT JOIN runs r ON false WHERE meta.id = 1;
    IF '' <> ANY (ids) THEN
        RETURN QUERY
        SELECT NULL::bigint, NULL::bigint, i, NULL::bigint, r.*
        FROM generate_subscripts(ids, 1) AS i
        CROSS JOIN LATERAL (
            SELECT r.ctid, r.* FROM runs r WHERE r.env = envs[i] AND r.id = ids[i] OFFSET 0) AS r
        WHERE ids[i] <> '' AND r.canonical_id IS NULL;
        RETURN QUERY
        SELECT NULL::bigint, NULL::bigint, i, a.changes, r.*
        FROM generate_subscripts(ids, 1) AS i
        CROSS JOIN LATERAL (
            SELECT a.env, a.changes, a.canonical_id FROM runs a
            WHERE a.env = envs[i] AND a.id = ids[i] OFFSET 0) AS a
        CROSS JOIN LATERAL (
            SELECT r.ctid, r.* FROM runs r WHERE r.env = a.env AND r.id = a.canonical_id OFFSET 0) AS r
        WHERE ids[i] <> '' AND a.canonical_id IS NOT NULL;
    END IF;
    IF '' = ANY (ids) THEN
        RETURN QUERY
        SELECT NULL::bigint, NULL::bigint, i, NULL::bigint, r.*
        FROM generate_subscripts(ids, 1) AS i
        CROSS JOIN LATERAL (
            SELECT r.ctid, r.* FROM runs r
            WHERE r.env = envs[i] AND r.task = tasks[i] AND r.key = keys[i] AND r.key_held
            OFFSET 0) AS r
        WHERE ids[i] = '';
    END IF;
END $$;

-- New runs, sorted by key: returns the numbers of those whose id and key were free. A decision that
-- was not made in the last within_ms is not carried out; nor is one that had to wait for a lock for much
-- longer: it is undone, and made again by the clock as it is then. The first rev of a row is its number.
-- If they surely are new, one that is not fails everything, which makes them cheaper by a fifth. An
-- array that has only zeros, or only empty ones, may come without elements.
CREATE OR REPLACE FUNCTION runs_insert(
    at_ms bigint, within_ms bigint, surely boolean, envs bytea[], ids bytea[], places tid[],
    seen_revs bigint[], key_helds bigint[], states bigint[], metadata_versions bigint[], delay_untils bigint[],
    available_ats bigint[], started_ats bigint[], finished_ats bigint[], attempt_counts bigint[],
    stall_counts bigint[], fences bigint[], leases bigint[], lease_untils bigint[],
    change_counts bigint[], due_ats bigint[], gone_ats bigint[], tokens bytea[], tag_lists bytea[],
    metadatas bytea[], outputs bytea[], errors bytea[], key_untils bigint[], created_ats bigint[],
    attempt_maxes bigint[], tasks bytea[], queues bytea[], keys bytea[], ordering_keys bytea[],
    fingerprints bytea[], payloads bytea[]
)
RETURNS TABLE (n bigint)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
BEGIN
    IF clock_ms() - at_ms NOT BETWEEN 0 AND within_ms THEN RETURN; END IF;
    IF surely THEN
        RETURN QUERY
        INSERT INTO runs (rev, key_until_ms, metadata_version, created_at_ms, delay_until_ms,
            available_at_ms, started_at_ms, finished_at_ms, fence, lease_ms, lease_until_ms, changes,
            due_at_ms, gone_at_ms, attempts, attempts_max, stalls, state, key_held, id, env, task,
            queue, key, ordering_key, fingerprint, token, tags, metadata, output, error, payload)
        SELECT i, coalesce(key_untils[i], 0), coalesce(metadata_versions[i], 0),
            coalesce(created_ats[i], 0), coalesce(delay_untils[i], 0),
            coalesce(available_ats[i], 0), coalesce(started_ats[i], 0),
            coalesce(finished_ats[i], 0), coalesce(fences[i], 0), coalesce(leases[i], 0),
            coalesce(lease_untils[i], 0), coalesce(change_counts[i], 0), due_ats[i], gone_ats[i],
            coalesce(attempt_counts[i], 0), attempt_maxes[i], coalesce(stall_counts[i], 0),
            states[i], coalesce(key_helds[i] <> 0, false), ids[i], envs[i], tasks[i], queues[i],
            coalesce(keys[i], ''), coalesce(ordering_keys[i], ''), coalesce(fingerprints[i], ''),
            coalesce(tokens[i], ''), coalesce(tag_lists[i], ''), coalesce(metadatas[i], ''),
            coalesce(outputs[i], ''), coalesce(errors[i], ''), coalesce(payloads[i], '')
        FROM generate_subscripts(ids, 1) AS i
        RETURNING rev;
    ELSE
        RETURN QUERY
        INSERT INTO runs (rev, key_until_ms, metadata_version, created_at_ms, delay_until_ms,
            available_at_ms, started_at_ms, finished_at_ms, fence, lease_ms, lease_until_ms, changes,
            due_at_ms, gone_at_ms, attempts, attempts_max, stalls, state, key_held, id, env, task,
            queue, key, ordering_key, fingerprint, token, tags, metadata, output, error, payload)
        SELECT i, coalesce(key_untils[i], 0), coalesce(metadata_versions[i], 0),
            coalesce(created_ats[i], 0), coalesce(delay_untils[i], 0),
            coalesce(available_ats[i], 0), coalesce(started_ats[i], 0),
            coalesce(finished_ats[i], 0), coalesce(fences[i], 0), coalesce(leases[i], 0),
            coalesce(lease_untils[i], 0), coalesce(change_counts[i], 0), due_ats[i], gone_ats[i],
            coalesce(attempt_counts[i], 0), attempt_maxes[i], coalesce(stall_counts[i], 0),
            states[i], coalesce(key_helds[i] <> 0, false), ids[i], envs[i], tasks[i], queues[i],
            coalesce(keys[i], ''), coalesce(ordering_keys[i], ''), coalesce(fingerprints[i], ''),
            coalesce(tokens[i], ''), coalesce(tag_lists[i], ''), coalesce(metadatas[i], ''),
            coalesce(outputs[i], ''), coalesce(errors[i], ''), coalesce(payloads[i], '')
        FROM generate_subscripts(ids, 1) AS i
        ON CONFLICT DO NOTHING
        RETURNING rev;
    END IF;
    IF clock_ms() - at_ms - 4000 > within_ms THEN
        RAISE EXCEPTION 'it took too long' USING ERRCODE = '40001';
    END IF;
END $$;

-- Known runs, sorted: returns the numbers of those that were still as they had been seen, and are
-- now as given. What is NULL of the large columns stays as it is. A row is found by its place, as in
-- claims_write(). Of time it is the same as in runs_insert().
CREATE OR REPLACE FUNCTION runs_update(
    at_ms bigint, within_ms bigint, envs bytea[], ids bytea[], places tid[],
    seen_revs bigint[], key_helds bigint[], states bigint[], metadata_versions bigint[], delay_untils bigint[],
    available_ats bigint[], started_ats bigint[], finished_ats bigint[], attempt_counts bigint[],
    stall_counts bigint[], fences bigint[], leases bigint[], lease_untils bigint[],
    change_counts bigint[], due_ats bigint[], gone_ats bigint[], tokens bytea[], tag_lists bytea[],
    metadatas bytea[], outputs bytea[], errors bytea[]
)
RETURNS TABLE (n integer)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
BEGIN
    IF clock_ms() - at_ms NOT BETWEEN 0 AND within_ms THEN RETURN; END IF;
    RETURN QUERY
    UPDATE runs r
    SET rev = r.rev + 1, key_held = key_helds[i] <> 0, state = states[i],
        metadata_version = metadata_versions[i], delay_until_ms = delay_untils[i],
        available_at_ms = available_ats[i], started_at_ms = started_ats[i],
        finished_at_ms = finished_ats[i], attempts = attempt_counts[i], stalls = stall_counts[i],
        fence = fences[i], lease_ms = leases[i], lease_until_ms = lease_untils[i],
        changes = change_counts[i], due_at_ms = due_ats[i], gone_at_ms = gone_ats[i],
        token = tokens[i], tags = coalesce(tag_lists[i], r.tags),
        metadata = coalesce(metadatas[i], r.metadata), output = coalesce(outputs[i], r.output),
        error = coalesce(errors[i], r.error)
    FROM generate_subscripts(ids, 1) AS i
    WHERE r.ctid = places[i] AND r.rev = seen_revs[i] AND r.id IS NOT DISTINCT FROM ids[i]
        AND r.env IS NOT DISTINCT FROM envs[i]
    RETURNING i;
    IF clock_ms() - at_ms - 4000 > within_ms THEN
        RAISE EXCEPTION 'it took too long' USING ERRCODE = '40001';
    END IF;
END $$;

-- Aliases of runs that this transaction has just updated; of one that it has not, none is made. seen:
-- how many changes were in the run already, -1: the alias is new. If it is not as it was seen,
-- everything is undone: the run has been given what the alias says.
CREATE OR REPLACE FUNCTION runs_alias(
    envs bytea[], ids bytea[], canonical_ids bytea[], seen bigint[], change_counts bigint[],
    made_at_ms bigint
)
RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
BEGIN
    FOR i IN 1 .. cardinality(ids) LOOP
        CONTINUE WHEN NOT EXISTS (
            SELECT FROM runs c WHERE c.env = envs[i] AND c.id = canonical_ids[i]
                AND c.xmin = pg_current_xact_id()::xid);
        INSERT INTO runs AS a (rev, state, env, id, canonical_id, changes, created_at_ms)
        VALUES (1, 0, envs[i], ids[i], canonical_ids[i], change_counts[i], made_at_ms)
        ON CONFLICT (env, id) DO UPDATE SET rev = a.rev + 1, changes = change_counts[i]
        WHERE a.canonical_id = canonical_ids[i] AND a.changes = seen[i];
        IF NOT FOUND THEN
            RAISE EXCEPTION 'an alias was made by somebody else' USING ERRCODE = '40001';
        END IF;
    END LOOP;
END $$;

-- May a run that is queued be handed out, as far as its ordering key goes? Not while one of the same
-- key is executing, also with a lapsed lease, nor while one with a lower id is not final.
CREATE OR REPLACE FUNCTION run_turn(
    of_env bytea, of_queue bytea, of_ordering_key bytea, of_id bytea)
RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT NOT EXISTS (
        SELECT FROM runs o
        WHERE o.env = of_env AND o.queue = of_queue AND o.ordering_key = of_ordering_key
            AND o.due_at_ms IS NOT NULL AND o.ordering_key <> ''
            AND (o.id < of_id OR o.state = 2 AND o.id <> of_id))
$$;

-- Hands out up to at_most runs that are due, in the order in which they became due; new_tokens has 16
-- bytes for each. at_ms: negative is now. Returns them, and those that have stalled too often, which
-- are failed by now; and a row without a run last, with the time when the next one will be due.
-- The rule is rules_run_lease(); postgres_runs_test.c compares them.
--
-- Runs that somebody else is just handing out are passed by. That only one run of an ordering key is
-- handed out at a time is seen to by a lock on the key until the end of the transaction, and a second
-- look, which sees what those did that had the lock before.
CREATE OR REPLACE FUNCTION runs_lease(
    of_env bytea, of_queue bytea, at_most bigint, for_ms bigint, new_tokens bytea, at_ms bigint
)
RETURNS TABLE (
    now_ms bigint, next_due_ms bigint,
    rev bigint, key_until_ms bigint, metadata_version bigint, created_at_ms bigint,
    delay_until_ms bigint, available_at_ms bigint, started_at_ms bigint, finished_at_ms bigint,
    fence bigint, lease_ms bigint, lease_until_ms bigint, changes bigint, due_at_ms bigint,
    gone_at_ms bigint, attempts integer, attempts_max integer, stalls integer, state smallint,
    key_held boolean, id bytea, env bytea, task bytea, queue bytea, key bytea, ordering_key bytea,
    fingerprint bytea, token bytea, tags bytea, metadata bytea, output bytea, error bytea,
    payload bytea, canonical_id bytea
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_bitmapscan = off
SET enable_sort = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    moment bigint := CASE WHEN at_ms < 0 THEN clock_ms() ELSE at_ms END;
    picked tid[];
    ordered boolean;
    failed bigint;
    leased bigint;
    given bigint := 0;
BEGIN
    LOOP
        SELECT array_agg(c.ctid), bool_or(c.ordering_key <> '') INTO picked, ordered
        FROM (SELECT p.*, sum(p.bytes) OVER (ROWS UNBOUNDED PRECEDING) - p.bytes AS before FROM (
            SELECT r.ctid, r.ordering_key,
                length(r.payload) + length(r.metadata) + length(r.output) + length(r.error) AS bytes
            FROM runs r
            WHERE r.env = of_env AND r.queue = of_queue AND r.due_at_ms <= moment
                AND (r.ordering_key = '' OR r.state = 2
                    OR run_turn(r.env, r.queue, r.ordering_key, r.id))
            ORDER BY r.due_at_ms, r.id LIMIT at_most - given FOR UPDATE SKIP LOCKED) AS p) AS c
        WHERE c.before < 16777216; -- RUN_ROWS_BYTES_MAX
        IF ordered THEN
            SELECT array_agg(picked[i] ORDER BY i) INTO picked
            FROM generate_subscripts(picked, 1) AS i
            JOIN runs r ON r.ctid = picked[i]
            WHERE r.ordering_key = '' OR r.state = 2
                OR pg_try_advisory_xact_lock(hashtextextended(
                    concat_ws('/', current_schema(), of_env, of_queue, r.ordering_key), 0));
            SELECT array_agg(picked[i] ORDER BY i) INTO picked
            FROM generate_subscripts(picked, 1) AS i
            JOIN runs r ON r.ctid = picked[i]
            WHERE r.ordering_key = '' OR r.state = 2
                OR run_turn(r.env, r.queue, r.ordering_key, r.id);
        END IF;
        RETURN QUERY
        UPDATE runs r
        SET rev = r.rev + 1, state = 4, finished_at_ms = moment, lease_until_ms = 0,
            error = '"its workers vanished: the lease lapsed more often than is allowed"',
            due_at_ms = NULL, gone_at_ms = moment + 2592000000
        FROM generate_subscripts(picked, 1) AS i
        WHERE r.ctid = picked[i] AND r.state = 2 AND r.stalls >= 5
        RETURNING moment, NULL::bigint, r.*;
        GET DIAGNOSTICS failed = ROW_COUNT;
        IF failed > 0 THEN
            SELECT array_agg(picked[i] ORDER BY i) INTO picked
            FROM generate_subscripts(picked, 1) AS i
            JOIN runs r ON r.ctid = picked[i];
        END IF;
        RETURN QUERY
        UPDATE runs r
        SET rev = r.rev + 1, state = 2,
            token = substr(new_tokens, 16 * (given + i)::integer - 15, 16),
            attempts = r.attempts + (r.state = 1)::integer,
            stalls = r.stalls + (r.state = 2)::integer,
            fence = greatest(moment * 1000, r.fence + 1), lease_ms = for_ms,
            lease_until_ms = moment + for_ms, due_at_ms = moment + for_ms,
            started_at_ms = CASE WHEN r.started_at_ms = 0 THEN moment ELSE r.started_at_ms END
        FROM generate_subscripts(picked, 1) AS i
        WHERE r.ctid = picked[i]
        RETURNING moment, NULL::bigint, r.*;
        GET DIAGNOSTICS leased = ROW_COUNT;
        given := given + leased;
        EXIT WHEN failed = 0 OR given >= at_most;
    END LOOP;
    RETURN QUERY
    SELECT moment, (SELECT d.due_at_ms FROM runs d
        WHERE d.env = of_env AND d.queue = of_queue AND d.due_at_ms > moment
        ORDER BY d.due_at_ms LIMIT 1), r.*
    FROM (SELECT) AS one LEFT JOIN runs r ON false;
END $$;

-- Is it one of them?
CREATE OR REPLACE FUNCTION run_has_tag(tags bytea, tag bytea) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    at integer := 0;
BEGIN
    WHILE at < length(tags) LOOP
        IF get_byte(tags, at) = length(tag) AND substr(tags, at + 2, length(tag)) = tag THEN
            RETURN true;
        END IF;
        at := at + 1 + get_byte(tags, at);
    END LOOP;
    RETURN false;
END $$;

-- Deletes up to at_most runs that were gone at before_ms and aliases of them; those first, so that
-- none is left behind.
CREATE OR REPLACE FUNCTION runs_sweep(before_ms bigint, at_most bigint)
RETURNS bigint
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    picked tid[];
    aliases_gone bigint;
    runs_gone bigint;
BEGIN
    picked := ARRAY(
        SELECT ctid FROM runs WHERE gone_at_ms <= before_ms
        ORDER BY gone_at_ms LIMIT at_most FOR UPDATE SKIP LOCKED);
    IF cardinality(picked) = 0 THEN RETURN 0; END IF;
    DELETE FROM runs WHERE ctid = ANY (ARRAY(
        SELECT a.ctid FROM runs r
        CROSS JOIN LATERAL (
            SELECT ctid FROM runs WHERE env = r.env AND canonical_id = r.id OFFSET 0) AS a
        WHERE r.ctid = ANY (picked) LIMIT at_most));
    GET DIAGNOSTICS aliases_gone = ROW_COUNT;
    DELETE FROM runs WHERE ctid = ANY (ARRAY(
        SELECT r.ctid FROM runs r
        WHERE r.ctid = ANY (picked) AND NOT EXISTS (
            SELECT FROM runs a WHERE a.env = r.env AND a.canonical_id = r.id OFFSET 0)
        LIMIT at_most - aliases_gone));
    GET DIAGNOSTICS runs_gone = ROW_COUNT;
    RETURN aliases_gone + runs_gone;
END $$;

-- Claims, and then runs.
CREATE OR REPLACE FUNCTION ledger_sweep(before_ms bigint, at_most bigint, dropped_at_most bigint)
RETURNS TABLE (removed bigint, fence_floor bigint)
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    SELECT s.removed, s.fence_floor INTO removed, fence_floor
    FROM claims_sweep(before_ms, at_most, dropped_at_most) AS s;
    IF removed < at_most THEN
        removed := removed + runs_sweep(before_ms, at_most - removed);
    END IF;
    RETURN NEXT;
END $$;

INSERT INTO versions VALUES (2) ON CONFLICT DO NOTHING;
