-- plain.sql - what pgbench does without a marker: a transaction about one row.
\set id random(1, 100000)
BEGIN;
UPDATE bench_items SET version = version + 1 WHERE id = :id;
COMMIT;
