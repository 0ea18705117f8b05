// express.mjs - an Express server on a free port of loopback, with express-idempotency in front of its
// one handler and records in the memory of this process. Prints the port; ends with its input.
//
// What costs without being asked for is off: no entity tags, no header that says who serves.
import express from "express";
import idempotency from "express-idempotency";

const app = express();
app.disable("etag");
app.disable("x-powered-by");
app.post("/", idempotency.idempotency(), (request, response) => {
  if (idempotency.getSharedIdempotencyService().isHit(request)) return;
  response.json({ answer: "static" });
});
const server = app.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.on("end", () => process.exit()).resume();
