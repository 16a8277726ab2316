/** Values over time for the charts, from the totals that each answer holds. */

import { CAUSES, type Causes } from "../api/types";
import { Ring } from "./ring";
import type { Activity, Latency, Stats } from "./types";

const POINTS = 600; // ten minutes at one a second

/** Rates are per second since the point before. */
export interface Point {
  at: number;
  used: number;
  cached: number;
  free: number;
  running: number;
  waiting: number;
  generated: number;
  computed: number;
  evicted: number;
  causes: Causes;
  latency: Latency;
}

export class Series {
  private readonly points = new Ring<Point>(POINTS);
  private before: Activity | null = null;

  /** Totals that went down are those of an engine that was started anew. */
  add(answer: Activity): void {
    if (this.before && isAnother(this.before, answer)) {
      this.before = null;
      this.points.clear();
    }
    const before = this.before;
    this.before = answer;
    if (before && answer.now_s > before.now_s) this.points.push(pointOf(before, answer));
  }

  all(): Point[] {
    return this.points.toArray();
  }
}

function isAnother(before: Activity, after: Activity): boolean {
  return after.now_s < before.now_s || after.stats.generated_tokens < before.stats.generated_tokens;
}

function pointOf(before: Activity, after: Activity): Point {
  const seconds = after.now_s - before.now_s;
  const rate = (name: keyof Stats): number => Math.max(0, after.stats[name] - before.stats[name]) / seconds;
  const causes: Causes = {};
  for (const cause of CAUSES) causes[cause] = Math.max(0, (after.causes[cause] ?? 0) - (before.causes[cause] ?? 0));
  return {
    at: after.now_s,
    ...poolOf(after.stats),
    running: after.stats.num_running,
    waiting: after.stats.num_waiting,
    generated: rate("generated_tokens"),
    computed: rate("computed_tokens"),
    evicted: rate("evicted_tokens"),
    causes,
    latency: after.latency,
  };
}

/** Tokens that are read or written by requests, that are only kept, and that are free: together the pool. */
export function poolOf(stats: Stats): { used: number; cached: number; free: number } {
  const total = stats.num_pages * stats.page_size;
  const free = stats.free_pages * stats.page_size;
  const cached = stats.evictable_tokens;
  return { used: Math.max(0, total - free - cached), cached, free };
}
