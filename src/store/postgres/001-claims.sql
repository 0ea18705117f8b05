-- 001-claims.sql - the claims of a ledger, and the three ways to touch them.
--
-- Runs with search_path set to the schema it lives in, inside a transaction, and may be run again.
-- Nothing here decides anything: the rules are in the program, which reads, decides, and writes
-- only what is still as it was read (rev and fence). The functions keep their plans for as long as
-- a session lasts, also behind a pooler that moves clients between sessions, and never plan to go
-- through the whole table, whatever it looked like when they were first called.

CREATE TABLE IF NOT EXISTS versions (
    version integer PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE IF NOT EXISTS meta (
    id integer PRIMARY KEY CHECK (id = 1),
    epoch bigint NOT NULL,      -- random at creation; another one: everything was forgotten
    fence_floor bigint NOT NULL -- the highest fence of a row that was deleted
);
INSERT INTO meta
VALUES (1, ('x' || substr(md5(random()::text || clock_timestamp()::text), 1, 15))::bit(60)::bigint | 1, 0)
ON CONFLICT DO NOTHING;

-- The widest first, so that nothing is padded. A row is written twice, by claim and by publish:
-- room on its page and an index that publish leaves alone make the second write a heap-only one.
CREATE TABLE IF NOT EXISTS claims (
    rev bigint NOT NULL,         -- one more with every change
    fence bigint NOT NULL,
    claimed_at_ms bigint NOT NULL,
    lease_ms bigint NOT NULL,
    lease_until_ms bigint NOT NULL,
    retain_ms bigint NOT NULL,
    done_at_ms bigint NOT NULL,
    gone_at_ms bigint NOT NULL,  -- from then on it counts as absent
    sweep_at_ms bigint NOT NULL, -- not after gone_at_ms: when the sweep looks at it first
    state smallint NOT NULL,     -- 0 dropped, only its fence counts; 1 pending; 2 done
    key bytea PRIMARY KEY,       -- scope, a space, name: one column is a fifth faster than two
    token bytea NOT NULL,
    fingerprint bytea NOT NULL,
    value bytea                  -- NULL: not kept; an empty answer is an empty value
) WITH (fillfactor = 50);
ALTER TABLE claims ALTER COLUMN value SET STORAGE EXTERNAL;
CREATE INDEX IF NOT EXISTS claims_sweep ON claims (sweep_at_ms);

CREATE OR REPLACE FUNCTION clock_ms() RETURNS bigint
LANGUAGE sql VOLATILE
AS $$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- One row per key, in any order, n counts from 1; without keys one row with the first three columns.
CREATE OR REPLACE FUNCTION claims_read(keys bytea[])
RETURNS TABLE (
    now_ms bigint, epoch bigint, fence_floor bigint, n integer, place tid, rev bigint,
    sweep_at_ms bigint, state smallint, token bytea, fence bigint, claimed_at_ms bigint,
    lease_ms bigint, lease_until_ms bigint, retain_ms bigint, done_at_ms bigint,
    fingerprint bytea, value bytea
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
    WITH moment AS MATERIALIZED (SELECT clock_ms() AS now_ms)
    SELECT moment.now_ms, meta.epoch, meta.fence_floor, k.n::integer, c.ctid, c.rev,
        c.sweep_at_ms, c.state, c.token, c.fence, c.claimed_at_ms,
        c.lease_ms, c.lease_until_ms, c.retain_ms, c.done_at_ms,
        c.fingerprint, c.value
    FROM moment
    JOIN meta ON meta.id = 1
    LEFT JOIN unnest(keys) WITH ORDINALITY AS k (key, n) ON true
    LEFT JOIN claims c ON c.key = k.key;
END $$;

-- Rows, numbered from 1: the first new_rows are of new keys, the others of known ones; both sorted.
-- Returns the numbers and places of those that were new indeed, or still as they had been seen, and
-- are now as given. If the new ones surely are new, one that is not fails everything, which makes
-- them cheaper by a quarter. A decision that was not made in the last within_ms, or that gives a
-- fence to a new key which a deleted row may have had, is not carried out.
--
-- A known row is found by its place, without a look into an index, and is another one if its key is
-- (IS NOT DISTINCT FROM keeps the planner from the index). Arrays are read by number: an unnest() for
-- each column would have a tuple store each, and cost a small batch more than its rows do.
CREATE OR REPLACE FUNCTION claims_write(
    at_ms bigint, within_ms bigint, seen_epoch bigint, lowest_fence bigint, surely boolean,
    new_rows bigint, keys bytea[], places tid[], seen_revs bigint[], seen_fences bigint[],
    states smallint[], tokens bytea[], fences bigint[], claimed_ats bigint[], leases bigint[],
    lease_untils bigint[], retains bigint[], done_ats bigint[], gone_ats bigint[],
    sweep_ats bigint[], fingerprints bytea[], vals bytea[]
)
RETURNS TABLE (n bigint, place tid)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
BEGIN
    IF clock_ms() - at_ms NOT BETWEEN 0 AND within_ms THEN RETURN; END IF;
    IF new_rows > 0 AND EXISTS (
        SELECT FROM meta WHERE id = 1 AND epoch = seen_epoch AND fence_floor < lowest_fence)
    THEN
        IF surely THEN
            RETURN QUERY
            INSERT INTO claims (rev, key, state, token, fence, claimed_at_ms, lease_ms,
                lease_until_ms, retain_ms, done_at_ms, gone_at_ms, sweep_at_ms,
                fingerprint, value)
            SELECT i, keys[i], states[i], tokens[i], fences[i], claimed_ats[i], leases[i],
                lease_untils[i], retains[i], done_ats[i], gone_ats[i], sweep_ats[i],
                fingerprints[i], vals[i]
            FROM generate_series(1, new_rows::integer) AS i
            RETURNING rev, ctid;
        ELSE
            RETURN QUERY
            INSERT INTO claims (rev, key, state, token, fence, claimed_at_ms, lease_ms,
                lease_until_ms, retain_ms, done_at_ms, gone_at_ms, sweep_at_ms,
                fingerprint, value)
            SELECT i, keys[i], states[i], tokens[i], fences[i], claimed_ats[i], leases[i],
                lease_untils[i], retains[i], done_ats[i], gone_ats[i], sweep_ats[i],
                fingerprints[i], vals[i]
            FROM generate_series(1, new_rows::integer) AS i
            ON CONFLICT DO NOTHING
            RETURNING rev, ctid;
        END IF;
    END IF;
    IF new_rows < cardinality(keys) THEN
        RETURN QUERY
        UPDATE claims c
        SET rev = c.rev + 1, state = states[i], token = tokens[i], fence = fences[i],
            claimed_at_ms = claimed_ats[i], lease_ms = leases[i],
            lease_until_ms = lease_untils[i], retain_ms = retains[i],
            done_at_ms = done_ats[i], gone_at_ms = gone_ats[i], sweep_at_ms = sweep_ats[i],
            fingerprint = fingerprints[i], value = vals[i]
        FROM generate_series(new_rows::integer + 1, cardinality(keys)) AS i
        WHERE c.ctid = places[i] AND c.key IS NOT DISTINCT FROM keys[i]
            AND c.rev = seen_revs[i] AND c.fence = seen_fences[i]
        RETURNING i::bigint, c.ctid;
    END IF;
END $$;

-- Deletes up to at_most claims, and dropped ones beside them, that were gone at before_ms. What
-- their fences were is kept in the same transaction.
CREATE OR REPLACE FUNCTION claims_sweep(before_ms bigint, at_most bigint, dropped_at_most bigint)
RETURNS TABLE (removed bigint, fence_floor bigint)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    gone bigint;
    dropped bigint;
    highest bigint;
    highest_dropped bigint;
BEGIN
    WITH deleted AS (
        DELETE FROM claims WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM claims
            WHERE sweep_at_ms <= before_ms AND gone_at_ms <= before_ms AND state <> 0
            ORDER BY sweep_at_ms LIMIT at_most FOR UPDATE SKIP LOCKED))
        RETURNING fence)
    SELECT count(*), max(fence) INTO gone, highest FROM deleted;
    WITH deleted AS (
        DELETE FROM claims WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM claims
            WHERE sweep_at_ms <= before_ms AND gone_at_ms <= before_ms AND state = 0
            ORDER BY sweep_at_ms LIMIT dropped_at_most FOR UPDATE SKIP LOCKED))
        RETURNING fence)
    SELECT count(*), max(fence) INTO dropped, highest_dropped FROM deleted;
    IF gone + dropped > 0 THEN
        UPDATE meta SET fence_floor = greatest(fence_floor, highest, highest_dropped) WHERE id = 1;
    END IF;
    RETURN QUERY SELECT gone, meta.fence_floor FROM meta WHERE id = 1;
END $$;

INSERT INTO versions VALUES (1) ON CONFLICT DO NOTHING;
