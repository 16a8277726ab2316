/** What more memory would buy, in words. */

import { percent } from "../format";
import type { CapacityPoint } from "./types";

const WORTH_SAYING = 0.01;

/** null while too little was asked for a curve. */
export function capacityInWords(curve: CapacityPoint[]): string | null {
  const now = curve.find((point) => point.factor === 1);
  if (!now) return null;
  const twice = curve.find((point) => point.factor === 2);
  const half = curve.find((point) => point.factor === 0.5);
  const here = percent(now.hit_rate);
  const most = curve.reduce((a, b) => (b.factor > a.factor ? b : a));
  if (twice && twice.hit_rate - now.hit_rate >= WORTH_SAYING) {
    return `With twice the memory ${percent(twice.hit_rate)} of prompt tokens would be hits instead of ${here}.`;
  }
  if (most.hit_rate - now.hit_rate >= WORTH_SAYING) {
    const then = percent(most.hit_rate);
    return `Twice the memory would change nothing; ${most.factor} times would give ${then} instead of ${here}.`;
  }
  if (half && now.hit_rate - half.hit_rate < WORTH_SAYING) {
    return `More memory would change nothing, and half of it would do: ${here} hits either way.`;
  }
  return `More memory would change nothing: ${here} hits now, and with any more.`;
}
