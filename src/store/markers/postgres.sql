-- postgres.sql - markers: what makes a mutation happen once, inside the caller's own transaction.
--
-- A plain script for psql as it stands, into the first schema of the search_path; it may be run
-- again, and by many at once. Two settings are read if they are there:
--     SET once.ttl = '1 hour';      how long a marker counts: a promise to callers, not a cache time
--     SET once.partitions = '16';   a new table is partitioned by hash of user_id
--
-- A transaction calls once_mutation_begin() first, and goes on only if that returns. What it raises:
--     ON001  already done: a transaction with this request was committed. Never retry; read again.
--     ON002  mismatch: this request was used for something else. Nothing else is told.
--     ON003  in progress: an undecided transaction has this request. Retry, in a new transaction.
--     ON004  a call that cannot be meant: ids empty or too long, finish without begin, ...
-- After any of them the transaction has to be rolled back. A rollback leaves nothing behind.
--
-- Who begins takes a lock named after the request, which ends with the transaction. Who does not get
-- it may wait, if nobody else does: a storm of retries costs one connection. Who gets it knows that
-- nobody else who begins is undecided. A batch, a sweep or an INSERT of somebody's own may be, who
-- hold no such lock: they are waited for, too, each for no longer than lock_ms. A marker
-- past its time counts as absent, whether or not it was deleted. Times are those of
-- clock_timestamp(): now() stands still in a transaction.

BEGIN;
SET LOCAL client_min_messages = warning;

-- The table is made once. Its text is compared as bytes, which is faster, and does not change with
-- the operating system. ttl and epoch are functions, so that who asks for them reads no row.
DO $install$
DECLARE
    partitions integer := nullif(current_setting('once.partitions', true), '');
    ttl interval := nullif(current_setting('once.ttl', true), '');
    present integer;
    elsewhere text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('once markers', 0));
    -- Two of them in one search_path: what was marked in the one that is hidden would be done again.
    SELECT nspname INTO elsewhere FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
    WHERE c.oid = to_regclass('once_mutations') AND nspname <> current_schema();
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'ON004',
            MESSAGE = format('there are markers in schema %I, which schema %I would hide',
                elsewhere, current_schema()),
            HINT = format('SET search_path = %I to update those; another one to have more.', elsewhere);
    END IF;
    PERFORM set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);
    IF partitions NOT BETWEEN 0 AND 1024 OR ttl < interval '1 second' THEN
        RAISE EXCEPTION USING ERRCODE = 'ON004',
            MESSAGE = 'once.partitions is from 0 to 1024, once.ttl at least a second';
    END IF;
    IF to_regclass('once_mutations') IS NULL THEN
        EXECUTE 'CREATE TABLE once_mutations (
            created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            user_id text COLLATE "C" NOT NULL,
            request_id text COLLATE "C" NOT NULL,
            method text COLLATE "C",
            fingerprint bytea,
            attempt bytea, -- random, of who has to know its own marker after a lost COMMIT
            outcome bytea,
            PRIMARY KEY (user_id, request_id))'
            || CASE WHEN partitions > 0 THEN ' PARTITION BY HASH (user_id)' ELSE '' END;
        FOR i IN 0 .. coalesce(partitions, 0) - 1 LOOP
            EXECUTE format('CREATE TABLE once_mutations_%s PARTITION OF once_mutations
                FOR VALUES WITH (MODULUS %s, REMAINDER %s)', i, partitions, i);
        END LOOP;
        CREATE INDEX once_mutations_created_at ON once_mutations (created_at);
    ELSIF NOT EXISTS (SELECT FROM pg_attribute
        WHERE attrelid = 'once_mutations'::regclass AND attname = 'attempt')
    THEN
        RAISE EXCEPTION USING ERRCODE = 'ON004',
            MESSAGE = 'there is a table once_mutations of somebody else: install into another schema';
    END IF;
    SELECT count(*) INTO present FROM pg_inherits WHERE inhparent = 'once_mutations'::regclass;
    IF partitions <> present THEN
        RAISE EXCEPTION USING ERRCODE = 'ON004',
            MESSAGE = format('once_mutations is there, with %s partitions', present),
            HINT = 'It stays as it is: docs/mutations.md, "Partitions", says how to move its rows into '
                'a new one.';
    END IF;
    IF ttl IS NOT NULL OR to_regprocedure('once_mutation_ttl()') IS NULL THEN
        EXECUTE format('CREATE OR REPLACE FUNCTION once_mutation_ttl() RETURNS interval
            LANGUAGE sql IMMUTABLE AS %L', format('SELECT interval %L',
            make_interval(secs => extract(epoch FROM coalesce(ttl, interval '1 hour'))::float8)));
    END IF;
    IF to_regprocedure('once_mutation_installation()') IS NULL THEN
        EXECUTE format('CREATE FUNCTION once_mutation_installation() RETURNS text
            LANGUAGE sql IMMUTABLE AS %L', format('SELECT text %L',
            substr(md5(random()::text || clock_timestamp()::text || txid_current()::text), 1, 16)));
    END IF;
END $install$;

-- ---- what the others are made of ----------------------------------------------------------------

CREATE OR REPLACE FUNCTION once_mutation_refuse_call(what text) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'ON004', MESSAGE = 'invalid: ' || what,
        HINT = 'user_id and request_id have 1 to 256 bytes, method up to 128, none of them control '
            'characters; fingerprint and attempt up to 64, outcome up to 8192; lock_ms is from 0 '
            'to 600000.';
END $$;

CREATE OR REPLACE FUNCTION once_mutation_refuse_progress(why text) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'ON003', MESSAGE = 'in_progress: ' || why,
        HINT = 'Roll back and retry in a new transaction: whether this request is done is undecided.';
END $$;

-- A visible row whose transaction is in progress is one of ours, of a subtransaction, too. xmin has
-- the lower half of a transaction id: the upper one is that which brings it next to ours. A row that
-- is older than half of all ids seems to come from the future, which is an error, and not ours.
CREATE OR REPLACE FUNCTION once_mutation_is_ours(xmin xid) RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
    ours bigint := pg_current_xact_id_if_assigned()::text;
BEGIN
    RETURN coalesce(pg_xact_status((ours + ((xmin::text::bigint - ours + 2147483648) & 4294967295)
        - 2147483648)::text::xid8) = 'in progress', false);
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN false;
END $$;

-- What is left of lock_ms, at least 0.
CREATE OR REPLACE FUNCTION once_mutation_left(lock_ms integer, since timestamptz) RETURNS integer
LANGUAGE sql VOLATILE
AS $$
    SELECT greatest($1 - floor(extract(epoch FROM clock_timestamp() - $2) * 1000)::integer, 0)
$$;

-- Returns with the lock of the request, or raises ON003: after lock_ms, or at once if somebody else
-- waits already. The wait is undone, lock and all, by an exception of its own: so lock_timeout is what
-- it was, and the next one may wait.
CREATE OR REPLACE FUNCTION once_mutation_wait(user_id text, request_id text, lock_ms integer)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    until timestamptz := clock_timestamp() + lock_ms * interval '1 millisecond';
    left_ms bigint;
BEGIN
    WHILE NOT pg_try_advisory_xact_lock(once_mutation_lock($1, $2)) LOOP
        left_ms := ceil(extract(epoch FROM until - clock_timestamp()) * 1000);
        IF left_ms <= 0 THEN
            PERFORM once_mutation_refuse_progress('another transaction has this request');
        END IF;
        BEGIN
            IF NOT pg_try_advisory_xact_lock(~once_mutation_lock($1, $2)) THEN
                PERFORM once_mutation_refuse_progress(
                    'another transaction has this request, and another one waits for it');
            END IF;
            PERFORM set_config('lock_timeout', left_ms::text, true);
            PERFORM pg_advisory_xact_lock(once_mutation_lock($1, $2));
            RAISE EXCEPTION USING ERRCODE = 'ON009';
        EXCEPTION
            WHEN SQLSTATE 'ON009' THEN NULL;
            WHEN lock_not_available OR deadlock_detected THEN
                PERFORM once_mutation_refuse_progress('another transaction has this request');
        END;
    END LOOP;
END $$;

-- Looks at the marker that is there: raises what it means, or puts a new one in the place of one that
-- has expired, or of none. A snapshot that is older than the marker cannot tell: that is ON003, too.
-- Leaves lock_timeout changed, which its caller puts back.
CREATE OR REPLACE FUNCTION once_mutation_settle(
    user_id text, request_id text, method text, fingerprint bytea, lock_ms integer, attempt bytea)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    found_one record;
    began timestamptz := clock_timestamp();
    turns integer := 0;
BEGIN
    LOOP
        -- Once or twice, unless something is met that cannot be seen from here, because of a policy.
        turns := turns + 1;
        IF turns > 3 AND once_mutation_left(lock_ms, began) = 0 THEN
            PERFORM once_mutation_refuse_progress('what has this request cannot be seen from here');
        END IF;
        PERFORM set_config('lock_timeout',
            greatest(once_mutation_left(lock_ms, began), 1)::text, true);
        SELECT m.created_at, m.method, m.fingerprint, m.outcome, m.xmin INTO found_one
        FROM once_mutations m WHERE m.user_id = $1 COLLATE "C" AND m.request_id = $2 COLLATE "C";
        IF NOT FOUND THEN
            INSERT INTO once_mutations (user_id, request_id, created_at, method, fingerprint, attempt)
            VALUES ($1, $2, clock_timestamp(), nullif($3, ''), nullif($4, ''), $6)
            ON CONFLICT DO NOTHING;
        ELSIF found_one.created_at + once_mutation_ttl() <= clock_timestamp() THEN
            UPDATE once_mutations m
            SET created_at = clock_timestamp(), method = nullif($3, ''),
                fingerprint = nullif($4, ''), attempt = $6, outcome = NULL
            WHERE m.user_id = $1 COLLATE "C" AND m.request_id = $2 COLLATE "C"
                AND m.created_at = found_one.created_at;
        ELSE
            EXIT;
        END IF;
        IF FOUND THEN
            RETURN;
        END IF;
    END LOOP;
    IF found_one.method IS DISTINCT FROM nullif($3 COLLATE "C", '')
        OR found_one.fingerprint IS DISTINCT FROM nullif($4, '') THEN
        RAISE EXCEPTION USING ERRCODE = 'ON002',
            MESSAGE = 'mismatch: this request was used with another method or fingerprint',
            HINT = 'Roll back and do not retry: a new mutation needs a request_id of its own.';
    END IF;
    IF once_mutation_is_ours(found_one.xmin) THEN
        PERFORM once_mutation_refuse_call('this transaction has begun this request already');
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'ON001',
        MESSAGE = 'already_done: a transaction with this request was committed',
        DETAIL = coalesce(E'outcome=\\x' || encode(found_one.outcome, 'hex'),
            'It has left no outcome.'),
        HINT = 'Roll back and do not retry: read what it did.';
EXCEPTION WHEN lock_not_available OR deadlock_detected OR serialization_failure THEN
    PERFORM once_mutation_refuse_progress('another transaction has just had this request');
END $$;

-- ---- for callers ----------------------------------------------------------------------------------

-- What each transaction calls. Here, and here alone, the schema is written out instead of being set for the
-- call: that would be a third of what it costs. Control characters have names of 0x80 to 0x9f only in some
-- encodings; in others these are letters, or parts of them.
DO $install$
DECLARE
    controls text := CASE WHEN getdatabaseencoding() ~ '^(UTF8|LATIN|ISO)'
        THEN E'[\\u0001-\\u001f\\u007f-\\u009f]' ELSE E'[\\u0001-\\u001f\\u007f]' END;
BEGIN
    EXECUTE format($create$

CREATE OR REPLACE FUNCTION once_mutation_valid(
    user_id text, request_id text, method text, fingerprint bytea) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $body$
    SELECT $1 <> '' AND octet_length($1) <= 256 AND $2 <> '' AND octet_length($2) <= 256
        AND coalesce(octet_length($3) <= 128, true) AND coalesce(octet_length($4) <= 64, true)
        AND ($1 || $2 || coalesce($3, '')) COLLATE "C" !~ %3$L
$body$;

-- The name of a lock: of a request, in this schema.
CREATE OR REPLACE FUNCTION once_mutation_lock(user_id text, request_id text) RETURNS bigint
LANGUAGE sql IMMUTABLE
AS $body$
    SELECT hashtextextended($1 COLLATE "C",
        hashtextextended($2 COLLATE "C", %2$L::regclass::oid::bigint))
$body$;

-- The first statement of the transaction. Returns: this transaction is the one.
--
-- The INSERT may meet a batch or a sweep that is undecided, so it has a time limit and a handler: for
-- itself alone, because a lock that is taken inside would have to be handed on. The limit is that of the
-- default, and ends with the call; another one costs who asks for it, as all that most do not say: each
-- function that is called here is set up anew in each transaction, which is much of what this costs. An
-- INSERT that is not ready for a conflict would be cheaper by a tenth, and a duplicate would leave a dead
-- row and use up a transaction id.
CREATE OR REPLACE FUNCTION once_mutation_begin(
    user_id text, request_id text, method text DEFAULT NULL, fingerprint bytea DEFAULT NULL,
    lock_ms integer DEFAULT 1000, attempt bytea DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql SET lock_timeout = 1000
AS $body$
DECLARE
    began timestamptz := clock_timestamp();
BEGIN
    IF fingerprint IS NOT NULL OR attempt IS NOT NULL OR lock_ms IS DISTINCT FROM 1000 THEN
        IF (coalesce(octet_length(fingerprint) <= 64, true) AND coalesce(octet_length(attempt) <= 64, true)
            AND lock_ms BETWEEN 0 AND 600000) IS NOT TRUE
        THEN
            PERFORM %1$I.once_mutation_refuse_call('once_mutation_begin()');
        END IF;
        PERFORM set_config('lock_timeout', greatest(lock_ms, 1)::text, true);
    END IF;
    IF (%1$I.once_mutation_valid($1, $2, $3, NULL)
        AND pg_try_advisory_xact_lock(%1$I.once_mutation_lock($1, $2))) IS NOT TRUE
    THEN
        IF %1$I.once_mutation_valid($1, $2, $3, NULL) IS NOT TRUE THEN
            PERFORM %1$I.once_mutation_refuse_call('once_mutation_begin()');
        END IF;
        PERFORM %1$I.once_mutation_wait($1, $2, lock_ms);
        lock_ms := %1$I.once_mutation_left(lock_ms, began);
        began := clock_timestamp();
        PERFORM set_config('lock_timeout', greatest(lock_ms, 1)::text, true);
    END IF;
    BEGIN
        INSERT INTO %1$I.once_mutations (user_id, request_id, created_at, method, fingerprint, attempt)
        VALUES ($1, $2, clock_timestamp(), nullif($3, ''), nullif($4, ''), $6)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN;
        END IF;
    EXCEPTION
        WHEN lock_not_available OR deadlock_detected OR serialization_failure THEN
            PERFORM %1$I.once_mutation_refuse_progress('another transaction has just had this request');
    END;
    PERFORM %1$I.once_mutation_settle($1, $2, $3, $4, %1$I.once_mutation_left(lock_ms, began), attempt);
END $body$;

-- Changes when what was committed may be gone: by a failover or a restore (the timeline, the oid of
-- the table), by another installation. An answer that was kept elsewhere under another epoch is void.
CREATE OR REPLACE FUNCTION once_mutation_epoch() RETURNS text
LANGUAGE plpgsql
AS $body$
BEGIN
    RETURN substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) || '-' || %2$L::regclass::oid || '-'
        || %1$I.once_mutation_installation();
END $body$;

-- Begin, for who keeps the answer elsewhere, too: of which database it is, for how long it counts, and which
-- transaction this is. No epoch: it must not be kept, because a crash may take back what is committed without
-- being flushed.
-- One call, because a statement that is not prepared is planned each time, and this is the least of it.
CREATE OR REPLACE FUNCTION once_mutation_enter(
    user_id text, request_id text, method text DEFAULT NULL, fingerprint bytea DEFAULT NULL,
    lock_ms integer DEFAULT 1000, attempt bytea DEFAULT NULL, OUT epoch text, OUT ttl_ms bigint, OUT xid xid8)
LANGUAGE plpgsql
AS $body$
BEGIN
    PERFORM %1$I.once_mutation_begin($1, $2, $3, $4, $5, $6);
    IF current_setting('synchronous_commit') <> 'off' THEN
        epoch := %1$I.once_mutation_epoch();
    END IF;
    ttl_ms := floor(extract(epoch FROM %1$I.once_mutation_ttl()) * 1000);
    xid := pg_current_xact_id();
END $body$;

-- In the same transaction: what a duplicate is told, as DETAIL of ON001.
CREATE OR REPLACE FUNCTION once_mutation_finish(user_id text, request_id text, outcome bytea)
RETURNS void
LANGUAGE plpgsql
AS $body$
BEGIN
    IF octet_length(outcome) > 8192 THEN
        PERFORM %1$I.once_mutation_refuse_call('an outcome of ' || octet_length(outcome) || ' bytes');
    END IF;
    UPDATE %1$I.once_mutations m SET outcome = $3
    WHERE m.user_id = $1 COLLATE "C" AND m.request_id = $2 COLLATE "C"
        AND %1$I.once_mutation_is_ours(m.xmin);
    IF NOT FOUND THEN
        PERFORM %1$I.once_mutation_refuse_call('this transaction has not begun this request');
    END IF;
END $body$;

    $create$, current_schema(), format('%I.once_mutations', current_schema()), controls);
END $install$;

-- Many at once, in one statement: the numbers, from 1, of those that are new. Of two that are the same
-- the first counts. An undecided one is waited for, up to lock_ms; then, and where the snapshot is too
-- old to tell, it is ON003. Rows are locked in one order, whatever order they came in, so
-- that two batches cannot wait for each other.
--
-- Where none is there yet, which is the rule, they are simply inserted: to be ready for a conflict
-- costs a third more. If there is one after all, all of them are tried again, ready for it.
DROP FUNCTION IF EXISTS once_mutation_begin_many(text[], text[], text[], bytea[]); -- version 2
CREATE OR REPLACE FUNCTION once_mutation_begin_many(
    user_ids text[], request_ids text[], methods text[] DEFAULT NULL,
    fingerprints bytea[] DEFAULT NULL, lock_ms integer DEFAULT 1000)
RETURNS SETOF integer
LANGUAGE plpgsql SET search_path FROM CURRENT
SET lock_timeout = 1000
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    invalid boolean;
    known boolean;
BEGIN
    IF cardinality(user_ids) IS DISTINCT FROM cardinality(request_ids)
        OR cardinality(methods) <> cardinality(user_ids)
        OR cardinality(fingerprints) <> cardinality(user_ids)
    THEN
        PERFORM once_mutation_refuse_call('arrays of different lengths');
    END IF;
    IF (lock_ms BETWEEN 0 AND 600000) IS NOT TRUE THEN
        PERFORM once_mutation_refuse_call('once_mutation_begin_many()');
    END IF;
    IF lock_ms <> 1000 THEN
        PERFORM set_config('lock_timeout', greatest(lock_ms, 1)::text, true);
    END IF;
    SELECT bool_or(once_mutation_valid(u, r, m, f) IS NOT TRUE), bool_or(there.one)
    INTO invalid, known
    FROM unnest(user_ids, request_ids, methods, fingerprints) AS a (u, r, m, f)
    LEFT JOIN LATERAL (
        SELECT true AS one FROM once_mutations
        WHERE user_id = u COLLATE "C" AND request_id = r COLLATE "C" OFFSET 0
    ) AS there ON true;
    IF invalid THEN
        PERFORM once_mutation_refuse_call('once_mutation_begin_many()');
    END IF;
    IF known IS NOT TRUE THEN
        BEGIN
            INSERT INTO once_mutations (user_id, request_id, created_at, method, fingerprint)
            SELECT u, r, clock_timestamp(), nullif(m, ''), nullif(f, '')
            FROM unnest(user_ids, request_ids, methods, fingerprints) AS a (u, r, m, f)
            ORDER BY u COLLATE "C", r COLLATE "C";
            RETURN QUERY SELECT generate_series(1, cardinality(user_ids));
            RETURN;
        EXCEPTION WHEN unique_violation THEN
            NULL;
        END;
    END IF;
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT DISTINCT ON (u COLLATE "C", r COLLATE "C") u, r, m, f, n
        FROM unnest(user_ids, request_ids, methods, fingerprints)
            WITH ORDINALITY AS a (u, r, m, f, n)
        ORDER BY u COLLATE "C", r COLLATE "C", n
    ), fresh AS (
        INSERT INTO once_mutations AS mine (user_id, request_id, created_at, method, fingerprint)
        SELECT u, r, clock_timestamp(), nullif(m, ''), nullif(f, '') FROM asked
        ON CONFLICT (user_id, request_id) DO UPDATE
        SET created_at = clock_timestamp(), method = excluded.method,
            fingerprint = excluded.fingerprint, attempt = NULL, outcome = NULL
        WHERE mine.created_at + once_mutation_ttl() <= clock_timestamp()
        RETURNING user_id, request_id
    )
    SELECT min(n)::integer FROM (
        SELECT u, r, n, false AS won FROM asked
        UNION ALL
        SELECT user_id, request_id, NULL, true FROM fresh
    ) AS both_of (u, r, n, won)
    GROUP BY u COLLATE "C", r COLLATE "C" HAVING bool_or(won) ORDER BY 1;
EXCEPTION WHEN lock_not_available OR deadlock_detected OR serialization_failure THEN
    PERFORM once_mutation_refuse_progress('another transaction has, or has just had, one of them');
END $$;

-- After a COMMIT whose answer was lost: waits until nobody who has begun is undecided, and returns the
-- marker, if there is one. Whose it is, its attempt tells. Raises ON003 after lock_ms. A batch holds no
-- lock that could be waited for: for one that is undecided, and was lost, this says nothing.
CREATE OR REPLACE FUNCTION once_mutation_look(
    user_id text, request_id text, lock_ms integer DEFAULT 1000)
RETURNS TABLE (created_at timestamptz, method text, fingerprint bytea, attempt bytea, outcome bytea)
LANGUAGE plpgsql SET search_path FROM CURRENT
SET lock_timeout = 1000
AS $$
DECLARE
    began timestamptz := clock_timestamp();
BEGIN
    IF (once_mutation_valid($1, $2, NULL, NULL) AND lock_ms BETWEEN 0 AND 600000) IS NOT TRUE THEN
        PERFORM once_mutation_refuse_call('once_mutation_look()');
    END IF;
    PERFORM once_mutation_wait($1, $2, $3);
    PERFORM set_config('lock_timeout',
        greatest(once_mutation_left(lock_ms, began), 1)::text, true);
    RETURN QUERY
    SELECT m.created_at, m.method, m.fingerprint, m.attempt, m.outcome FROM once_mutations m
    WHERE m.user_id = $1 COLLATE "C" AND m.request_id = $2 COLLATE "C"
        AND m.created_at + once_mutation_ttl() > clock_timestamp();
    -- A snapshot may be older than the marker: only an INSERT meets what it does not show. It is undone.
    IF NOT FOUND AND current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        BEGIN
            INSERT INTO once_mutations (user_id, request_id) VALUES ($1, $2) ON CONFLICT DO NOTHING;
            RAISE EXCEPTION USING ERRCODE = 'ON009';
        EXCEPTION WHEN SQLSTATE 'ON009' THEN NULL;
        END;
    END IF;
EXCEPTION WHEN lock_not_available OR deadlock_detected OR serialization_failure THEN
    PERFORM once_mutation_refuse_progress('another transaction has, or has just had, this request');
END $$;

-- ---- cleanup --------------------------------------------------------------------------------------

-- Deletes up to at_most that have expired, the oldest of each partition first. Rows that somebody else
-- deletes or takes over just now are left to them.
CREATE OR REPLACE FUNCTION once_mutation_sweep(at_most integer) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    before timestamptz := clock_timestamp() - once_mutation_ttl();
    part regclass;
    removed bigint := 0;
    here bigint;
BEGIN
    IF (at_most >= 0) IS NOT TRUE THEN
        PERFORM once_mutation_refuse_call('once_mutation_sweep() of ' || coalesce(at_most::text, 'null'));
    END IF;
    FOR part IN
        SELECT oid FROM pg_class WHERE oid = 'once_mutations'::regclass AND relkind = 'r'
        UNION ALL
        SELECT inhrelid FROM pg_inherits WHERE inhparent = 'once_mutations'::regclass
    LOOP
        BEGIN
            EXECUTE format('DELETE FROM %1$s WHERE ctid = ANY (ARRAY(
                SELECT ctid FROM %1$s WHERE created_at <= $1
                ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED))', part)
            USING before, at_most - removed;
            GET DIAGNOSTICS here = ROW_COUNT;
        EXCEPTION WHEN serialization_failure THEN
            here := 0; -- somebody else had them since the snapshot: left to the next sweep
        END;
        removed := removed + here;
        EXIT WHEN removed >= at_most;
    END LOOP;
    RETURN removed;
END $$;

-- For how many seconds the oldest expired one has been waiting to be deleted; 0: there is none.
CREATE OR REPLACE FUNCTION once_mutation_oldest() RETURNS double precision
LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$
    SELECT greatest(extract(epoch FROM clock_timestamp() - once_mutation_ttl() - min(created_at)), 0)
    FROM once_mutations
$$;

COMMENT ON TABLE once_mutations IS 'markers of once, version 3';
COMMIT;
