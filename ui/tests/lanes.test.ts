import assert from "node:assert/strict";
import { test } from "node:test";
import { arrange, runAt } from "../src/engine/lanes/arrange";
import { LaneHistory } from "../src/engine/lanes/history";
import { Series } from "../src/engine/series";
import type { Activity, OpenRequest, Stats, Step } from "../src/engine/types";

function step(number: number, begin: number, given: Partial<Step> = {}): Step {
  const nothing = {
    plan_s: 0,
    launch_s: 0,
    wait_s: 0,
    commit_s: 0,
    prefills: [],
    decodes: [],
    admitted: [],
    retracted: [],
    finished: [],
  };
  const sizes = { evicted_tokens: 0, free_tokens: 0, evictable_tokens: 0, protected_tokens: 0, num_waiting: 0 };
  return { step: number, begin_s: begin, device_s: [begin, begin + 0.1], ...nothing, ...sizes, ...given };
}

function open(uid: number, given: Partial<OpenRequest> = {}): OpenRequest {
  const sizes = { prompt_tokens: 9, cached_tokens: 0, done_tokens: 0, generated_tokens: 0 };
  return {
    uid,
    request_id: `r${uid}`,
    state: "decode",
    arrived_s: 0,
    admitted_s: 0,
    waits_for: null,
    ...sizes,
    ...given,
  };
}

function activity(now_s: number, steps: Step[], requests: OpenRequest[], stats: Partial<Stats> = {}): Activity {
  const next = (steps[steps.length - 1]?.step ?? -1) + 1;
  const latency = { first_token_s: null, token_gap_s: null, total_s: null, queue_s: null };
  return { now_s, next, steps, requests, stats: stats as Stats, capacity: [], causes: {}, latency };
}

test("decodes that follow each other are one run, chunks of a prefill are several", () => {
  const history = new LaneHistory();
  const steps = [
    step(0, 1, { prefills: [[7, 0, 512]] }),
    step(1, 1.1, { prefills: [[7, 512, 600]] }),
    step(2, 1.2, { decodes: [7] }),
    step(3, 1.3, { decodes: [7] }),
  ];
  history.add(activity(1.4, steps, [open(7, { arrived_s: 0.5, admitted_s: 1 })]));
  const [track] = history.all();
  assert.deepEqual(
    track!.runs.map((run) => [run.kind, run.tokens]),
    [
      ["wait", 0],
      ["prefill", 512],
      ["prefill", 88],
      ["decode", 2],
    ],
  );
  assert.deepEqual(track!.runs.map((run) => run.position).slice(1, 3), [0, 512]);
});

test("a retracted request is marked, and waits until it goes on", () => {
  const history = new LaneHistory();
  history.add(
    activity(1.2, [step(0, 1, { decodes: [7] }), step(1, 1.1, { retracted: [7] })], [open(7, { state: "waiting" })]),
  );
  history.add(activity(2.1, [step(2, 2, { prefills: [[7, 0, 10]] })], [open(7, { state: "prefill" })]));
  const [track] = history.all();
  assert.equal(track!.retractions.length, 1);
  assert.deepEqual(track!.runs.map((run) => run.kind).slice(-3), ["decode", "wait", "prefill"]);
  const wait = track!.runs.at(-2)!;
  assert.ok(wait.end - wait.begin > 0.7);
});

test("a lane is used again when its request is over, and not before", () => {
  const history = new LaneHistory();
  history.add(activity(1.1, [step(0, 1, { decodes: [1, 2] })], [open(1), open(2)]));
  history.add(
    activity(
      3.1,
      [step(1, 1.1, { decodes: [1, 2], finished: [1] }), step(2, 3, { decodes: [3, 2] })],
      [open(2), open(3, { arrived_s: 3 })],
    ),
  );
  const lanes = Object.fromEntries(history.all().map((track) => [track.uid, track.lane]));
  assert.deepEqual(lanes, { 1: 0, 2: 1, 3: 0 });
});

test("what is long over is forgotten", () => {
  const history = new LaneHistory();
  for (let second = 0; second < 2000; second += 1) {
    history.add(activity(second + 0.2, [step(second, second, { decodes: [second], finished: [second] })], []));
  }
  assert.ok(history.all().length < 60);
  assert.ok(history.load().length < 60);
});

test("a request that runs for hours holds no more than the last seconds", () => {
  const history = new LaneHistory();
  for (let second = 0; second < 2000; second += 1)
    history.add(activity(second + 0.2, [step(second, second, { decodes: [1] })], [open(1)]));
  assert.ok(history.all()[0]!.runs.length < 60);
});

test("steps that come twice count once, and those of a new engine begin anew", () => {
  const history = new LaneHistory();
  const steps = [step(0, 1, { decodes: [1] }), step(1, 1.1, { decodes: [1] })];
  history.add(activity(1.2, steps, [open(1)]));
  history.add(activity(1.3, steps, [open(1)]));
  assert.equal(history.load().length, 2);
  history.add(activity(0.4, [step(0, 0.2, { decodes: [5] })], [open(5, { arrived_s: 0.1 })]));
  assert.deepEqual(
    history.all().map((track) => track.uid),
    [5],
  );
});

test("lanes get thinner, and then fold", () => {
  assert.equal(arrange(4, 200).laneHeight, 18);
  assert.deepEqual(arrange(60, 300), { laneHeight: 5, shown: 60, folded: 0 });
  const many = arrange(400, 300);
  assert.equal(many.shown + many.folded, 400);
  assert.ok(many.shown * many.laneHeight <= 300);
});

test("a point in a lane finds the run", () => {
  const history = new LaneHistory();
  history.add(activity(1.2, [step(0, 1, { decodes: [1] })], [open(1, { arrived_s: 1 })]));
  assert.equal(runAt(history.all(), 0, 1.05, 0)?.run.kind, "decode");
  assert.equal(runAt(history.all(), 0, 0.5, 0), null);
  assert.equal(runAt(history.all(), 1, 1.05, 0), null);
});

test("rates are per second, and a new engine starts a new series", () => {
  const totals = {
    num_pages: 100,
    page_size: 2,
    free_pages: 30,
    evictable_tokens: 40,
    evicted_tokens: 0,
    computed_tokens: 0,
    num_retracted: 0,
  };
  const series = new Series();
  series.add(activity(10, [], [], { ...totals, generated_tokens: 100 }));
  series.add(activity(12, [], [], { ...totals, generated_tokens: 300 }));
  const [point] = series.all();
  assert.equal(point!.generated, 100);
  assert.deepEqual([point!.used, point!.cached, point!.free], [100, 40, 60]);
  series.add(activity(1, [], [], { ...totals, generated_tokens: 5 }));
  assert.equal(series.all().length, 0);
});
