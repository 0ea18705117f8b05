-- marked.sql - the same transaction, with a marker as its first statement.
\set id random(1, 100000)
\set request random(1, 9223372036854775807)
BEGIN;
SELECT once_mutation_begin(:id, :request, 'UseItem');
UPDATE bench_items SET version = version + 1 WHERE id = :id;
COMMIT;
