import assert from "node:assert/strict";
import { test } from "node:test";
import { arranged, foundShare, type Filter } from "../src/engine/requests/table";
import type { PastRequest } from "../src/engine/types";

function past(request_id: string, given: Partial<PastRequest> = {}): PastRequest {
  const times = { queue_s: 0, first_token_s: 0.1, total_s: 1, started_at: 5 };
  const sizes = { prompt_tokens: 10, cached_tokens: 5, generated_tokens: 3 };
  return {
    request_id,
    uids: [1],
    endpoint: "/generate",
    status: 200,
    finish_reason: "stop",
    explanation: null,
    ...times,
    ...sizes,
    ...given,
  };
}

const ALL: Filter = { text: "", cause: "any" };
const names = (requests: PastRequest[]): string[] => requests.map((request) => request.request_id);

test("requests are sorted, and those without a value come last either way", () => {
  const requests = [
    past("none", { first_token_s: null }),
    past("slow", { first_token_s: 3 }),
    past("fast", { first_token_s: 0.1 }),
  ];
  assert.deepEqual(names(arranged(requests, ALL, { column: "first", down: true })), ["slow", "fast", "none"]);
  assert.deepEqual(names(arranged(requests, ALL, { column: "first", down: false })), ["fast", "slow", "none"]);
});

test("requests are filtered by what is said of them and by why they missed", () => {
  const evicted = past("a", { explanation: { causes: { hit: 1, evicted: 9 }, left_at: 10 } });
  const found = past("b", {
    explanation: { causes: { hit: 9, last_token: 1 }, left_at: 10 },
    endpoint: "/v1/completions",
  });
  const kept = (filter: Partial<Filter>): string[] =>
    names(arranged([evicted, found, past("c")], { ...ALL, ...filter }, { column: "total", down: true }));
  assert.deepEqual(kept({ cause: "missed" }), ["a"]);
  assert.deepEqual(kept({ cause: "evicted" }), ["a"]);
  assert.deepEqual(kept({ cause: "never_seen" }), []);
  assert.deepEqual(kept({ text: "COMPLETIONS" }), ["b"]);
});

test("what was found is a share of the prompt, with or without an explanation", () => {
  assert.equal(
    foundShare(past("a", { explanation: { causes: { hit: 3, joined: 1, never_seen: 4 }, left_at: 4 } })),
    0.5,
  );
  assert.equal(foundShare(past("b")), 0.5);
  assert.equal(foundShare(past("c", { prompt_tokens: null })), null);
});
