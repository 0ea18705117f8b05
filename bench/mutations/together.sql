-- together.sql - the same transaction, whose marker is sent together with BEGIN: no round trip more.
\set id random(1, 100000)
\set request random(1, 9223372036854775807)
\startpipeline
BEGIN;
SELECT once_mutation_begin(:id, :request, 'UseItem');
\endpipeline
UPDATE bench_items SET version = version + 1 WHERE id = :id;
COMMIT;
