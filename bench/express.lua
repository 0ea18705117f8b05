-- express.lua - for wrk: what replay.lua asks, the way express-idempotency wants it asked.
wrk.method = "POST"
wrk.headers["Idempotency-Key"] = "done"
