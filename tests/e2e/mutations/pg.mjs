// pg.mjs URL - the SQL door from node: one function that makes a mutation happen once, with `pg` as it
// comes, and what its caller is told. Prints one result per line.
import pg from "pg";

const pool = new pg.Pool({ connectionString: process.argv[2], max: 8 });

// Carries `work` out once for this user and request. Its answer, as text, is what duplicates get.
async function once(pool, user, request, method, work) {
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    await client.query("SELECT once_mutation_begin($1, $2, $3)", [user, request, method]);
    const answer = await work(client);
    await client.query("SELECT once_mutation_finish($1, $2, $3)", [user, request, Buffer.from(answer)]);
    await client.query("COMMIT");
    return { outcome: "ok", answer };
  } catch (error) {
    await client.query("ROLLBACK");
    const outcome = { ON001: "already_done", ON002: "mismatch", ON003: "in_progress" }[error.code];
    if (!outcome) throw error;
    const kept = /^outcome=\\x([0-9a-f]*)$/.exec(error.detail ?? "");
    return { outcome, answer: kept ? Buffer.from(kept[1], "hex").toString() : undefined };
  } finally {
    client.release();
  }
}

const useItem = async (client) => {
  const { rows } = await client.query("UPDATE items SET used = used + 1 WHERE id = 1 RETURNING used");
  return `used ${rows[0].used}`;
};

const say = (what, { outcome, answer }) => console.log(`${what}: ${outcome}${answer === undefined ? "" : `, ${answer}`}`);

say("first", await once(pool, "node", "r1", "UseItem", useItem));
say("again", await once(pool, "node", "r1", "UseItem", useItem));
say("another method", await once(pool, "node", "r1", "SellItem", useItem));
const failed = await once(pool, "node", "r2", "UseItem", async () => {
  throw new Error("out of stock");
}).catch((error) => ({ outcome: error.message }));
say("one that fails", failed);
say("its retry", await once(pool, "node", "r2", "UseItem", useItem));

// Twenty at once, then until each has its answer: one was carried out.
async function untilDecided() {
  for (;;) {
    const answer = await once(pool, "node", "r3", "UseItem", useItem);
    if (answer.outcome !== "in_progress") return answer;
  }
}
const many = await Promise.all(Array.from({ length: 20 }, untilDecided));
console.log(`twenty at once: ${many.filter((a) => a.outcome === "ok").length} ok, ` +
  `${many.filter((a) => a.outcome === "already_done" && a.answer === "used 3").length} already_done`);
await pool.end();
