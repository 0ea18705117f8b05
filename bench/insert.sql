-- insert.sql - what pgbench does: a new row as a claim has it, its key of the same size.
\set k random(1, 9223372036854775807)
INSERT INTO bench_rows (rev, fence, claimed_at_ms, lease_ms, lease_until_ms, retain_ms, done_at_ms, gone_at_ms,
    sweep_at_ms, state, key, token, fingerprint)
VALUES (1, :k, :k, 30000, :k, 86400000, 0, :k, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint, 1,
    '\x62656e6368206f726465722d'::bytea || int8send(:k) || int8send(:k),
    '\x00000000000000000000000000000000', '');
