import assert from "node:assert/strict";
import { test } from "node:test";
import { capacityInWords } from "../src/engine/capacity";
import { mainMiss, shares } from "../src/explain/causes";
import { adviceFor, causeInWords, leftAtInWords } from "../src/explain/words";
import { count, duration, percent, plural } from "../src/format";
import { Ring } from "../src/engine/ring";

test("numbers are short", () => {
  assert.deepEqual([0, 950, 1234, 12_345, 100_003, 4_560_000].map(count), [
    "0",
    "950",
    "1,234",
    "12.3k",
    "100k",
    "4.6M",
  ]);
  assert.deepEqual([0, 0.0032, 0.45, 1.239, 200, 7500].map(duration), [
    "0 s",
    "3.2 ms",
    "450 ms",
    "1.24 s",
    "3 min 20 s",
    "2 h 5 min",
  ]);
  assert.deepEqual([0, 0.0001, 0.004, 0.62, 0.997, 0.99999, 1].map(percent), [
    "0 %",
    "< 0.1 %",
    "0.4 %",
    "62 %",
    "99.7 %",
    "> 99.9 %",
    "100 %",
  ]);
  assert.deepEqual([plural(1, "token"), plural(2, "token")], ["1 token", "2 tokens"]);
});

test("the cause of a miss is that of most of what was not found", () => {
  assert.equal(mainMiss({ hit: 90, last_token: 5, evicted: 3, never_seen: 2 }), "evicted");
  assert.equal(mainMiss({ hit: 90, last_token: 1 }), null);
});

test("shares add up", () => {
  assert.deepEqual(
    shares({ hit: 3, never_seen: 1, evicted: 0 }).map(({ cause, share }) => [cause, share]),
    [
      ["hit", 0.75],
      ["never_seen", 0.25],
    ],
  );
  assert.deepEqual(shares({}), []);
});

test("an explanation says what was found, what was not, and where it left", () => {
  const explanation = {
    causes: { hit: 36, evicted: 64, never_seen: 20 },
    left_at: 100,
    evicted_s: 12.5,
    evicted_tokens: 4096,
  };
  assert.deepEqual(
    shares(explanation.causes).map((part) => causeInWords(part, explanation)),
    [
      "36 tokens were found in the cache.",
      "64 tokens had been cached, and were evicted for want of memory, 12.5 s and 4,096 evicted tokens earlier.",
      "20 tokens were new: no prompt before had them at this place.",
    ],
  );
  assert.equal(leftAtInWords(explanation), "It left the closest prompt at token 100 of 120.");
  assert.match(leftAtInWords({ causes: { never_seen: 5 }, left_at: 0 }), /no beginning/);
  assert.match(leftAtInWords({ causes: { hit: 5 }, left_at: 5 }), /All of it was known/);
  assert.match(leftAtInWords({ causes: { not_looked_up: 5 }, left_at: null }), /never asked/);
});

test("the same text in other tokens is told apart from another text", () => {
  const left = { causes: { hit: 50, never_seen: 60 }, left_at: 50 };
  const around = { before: "a", after: "bc", branch: "bc" };
  assert.match(adviceFor({ ...left, around: { ...around, same_text: true } }) ?? "", /same there, in other tokens/);
  assert.match(adviceFor({ ...left, around: { ...around, same_text: false } }) ?? "", /computed anew/);
});

test("advice is given where much is lost, and a conversation that goes on is left alone", () => {
  assert.match(adviceFor({ causes: { hit: 25, never_seen: 40 }, left_at: 25 })!, /stand last/);
  assert.match(adviceFor({ causes: { hit: 25, evicted: 40 }, left_at: 65 })!, /More memory/);
  assert.equal(adviceFor({ causes: { hit: 100, never_seen: 40 }, left_at: 100 }), null);
  assert.equal(adviceFor({ causes: { never_seen: 40 }, left_at: 0 }), null);
});

test("what more memory would buy is said as it is", () => {
  const curve = (...rates: number[]) => [0.5, 1, 2, 4, 8].map((factor, place) => ({ factor, hit_rate: rates[place]! }));
  assert.match(capacityInWords(curve(0.4, 0.62, 0.71, 0.8, 0.8))!, /twice the memory 71 % .* instead of 62 %/);
  assert.match(capacityInWords(curve(0.4, 0.6, 0.6, 0.6, 0.8))!, /8 times would give 80 % instead of 60 %/);
  assert.match(capacityInWords(curve(0.6, 0.6, 0.6, 0.6, 0.6))!, /half of it would do/);
  assert.match(capacityInWords(curve(0.4, 0.6, 0.6, 0.6, 0.6))!, /would change nothing: 60 % hits now/);
  assert.equal(capacityInWords([]), null);
});

test("a ring keeps the last ones", () => {
  const ring = new Ring<number>(3);
  for (let value = 0; value < 100; value += 1) ring.push(value);
  assert.deepEqual(ring.toArray(), [97, 98, 99]);
  assert.equal(ring.last, 99);
});
