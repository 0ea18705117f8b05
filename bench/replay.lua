-- replay.lua - for wrk: a claim of a key that is done, again and again. An answer that is not the
-- cached one is counted as an error by bench/doors.mjs, which looks at what wrk says of them.
wrk.method = "POST"
wrk.path = "/v1/claims/bench/done"
