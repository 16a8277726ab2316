import { useMemo } from "preact/hooks";
import { CAUSES, type Causes } from "../../api/types";
import { CAUSE_TEXT, causeVariable, totalTokens } from "../../explain/causes";
import { count, duration, percent } from "../../format";
import { capacityInWords } from "../capacity";
import type { Point } from "../series";
import type { Activity, Latency } from "../types";
import { Chart, type Line } from "./chart";

/** Everything that is a curve over time, and what more memory would buy. */
export function Charts({ points, answer }: { points: Point[]; answer: Activity }) {
  const now = answer.now_s;
  const xs = useMemo(() => points.map((point) => point.at - now), [points, now]);
  const lines = useMemo(() => linesOf(points), [points]);
  const shared = { xs, xRange: times, formatX: ago };
  return (
    <div class="charts">
      <Chart {...shared} title="Pool, tokens" lead="The memory for keys and values: held by requests, kept for later ones, free." lines={lines.pool} stacked format={count} whole />
      <Chart {...shared} title="Prompt tokens by cause" lead="In about ten seconds: found in the cache, or why not." lines={lines.causes} stacked top={1} format={percent} />
      <Chart {...shared} title="Tokens a second" lead="The work done: prompts read, answers written." lines={lines.tokens} format={count} whole />
      <Chart {...shared} title="Requests" lead="In the running batch, and in the queue for it." lines={lines.requests} format={count} whole />
      <Chart {...shared} title="Time to the first token" lead="From a request’s arrival. Half are faster than p50, 1 in 100 slower than p99." lines={lines.first} format={duration} />
      <Chart {...shared} title="Time between tokens" lead="How evenly answers come, over the last minute." lines={lines.gap} format={duration} />
      <Chart {...shared} title="Evicted tokens a second" lead="Given up to make room; whoever sends them again computes them again." lines={lines.evicted} format={count} whole />
      <CapacityChart answer={answer} />
    </div>
  );
}

function linesOf(
  points: Point[],
): Record<"pool" | "causes" | "tokens" | "requests" | "first" | "gap" | "evicted", Line[]> {
  const line = (name: string, variable: string, value: (point: Point) => number | null): Line => ({
    name,
    variable,
    values: points.map(value),
  });
  return {
    pool: [
      line("in use", "--pool-used", (point) => point.used),
      line("cached", "--pool-cached", (point) => point.cached),
      line("free", "--pool-free", (point) => point.free),
    ],
    causes: causeLines(points),
    tokens: [
      line("prompt, computed", "--lane-prefill", (point) => point.computed),
      line("generated", "--lane-decode", (point) => point.generated),
    ],
    requests: [
      line("running", "--lane-decode", (point) => point.running),
      line("waiting", "--lane-wait", (point) => point.waiting),
    ],
    first: quantileLines(points, "first_token_s"),
    gap: quantileLines(points, "token_gap_s"),
    evicted: [line("evicted", "--cause-evicted", (point) => point.evicted)],
  };
}

function quantileLines(points: Point[], name: keyof Latency): Line[] {
  return (["p50", "p90", "p99"] as const).map((quantile, place) => ({
    name: quantile,
    variable: `--quantile-${place}`,
    values: points.map((point) => point.latency[name]?.[quantile] ?? null),
  }));
}

const SMOOTHED = 10; // points: a second with one short prompt says little

/** Shares of the prompt tokens of the last seconds before each point. */
function causeLines(points: Point[]): Line[] {
  const sums: Causes[] = points.map((_, place) => {
    const sum: Causes = {};
    for (const { causes } of points.slice(Math.max(0, place - SMOOTHED + 1), place + 1)) {
      for (const cause of CAUSES) sum[cause] = (sum[cause] ?? 0) + (causes[cause] ?? 0);
    }
    return sum;
  });
  const present = CAUSES.filter((cause) => sums.some((sum) => (sum[cause] ?? 0) > 0));
  return present.map((cause) => ({
    name: CAUSE_TEXT[cause].name,
    variable: causeVariable(cause),
    values: sums.map((sum) => (sum[cause] ?? 0) / Math.max(1, totalTokens(sum))),
  }));
}

function CapacityChart({ answer }: { answer: Activity }) {
  const curve = answer.capacity;
  const xs = useMemo(() => curve.map((point) => point.factor), [curve]);
  const lines = useMemo(
    () => [{ name: "hit rate", variable: "--cause-hit", values: curve.map((point) => point.hit_rate) }],
    [curve],
  );
  return (
    <Chart
      title="What more memory would buy"
      lead={capacityInWords(curve) ?? "The hit rate with a smaller or a larger pool. Too little was asked so far."}
      xs={xs}
      lines={lines}
      top={1}
      logarithmic
      rest={xs.indexOf(1)}
      format={percent}
      formatX={(factor) => `${factor}×`}
    />
  );
}

const LEAST_S = 60;

/** From some time ago to now. */
function times(first: number): [number, number] {
  return [Math.min(first, -LEAST_S), 0];
}

/** offsetS: negative. */
function ago(offsetS: number): string {
  const seconds = -offsetS;
  if (seconds < 0.5) return "now";
  if (seconds < 120) return `${Math.round(seconds)} s ago`;
  return `${(seconds / 60).toFixed(1).replace(/\.0$/, "")} min ago`;
}
