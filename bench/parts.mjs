// parts.mjs - the parts of `make bench`, in the order of its table. Each is a file of numbers, and a
// table in docs/performance.md.
export const parts = ["core", "fleet", "doors", "runs", "mutations", "peers", "limits", "growth"];
