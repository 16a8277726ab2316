/** How high each lane is, and which of them are folded into one. */

import type { Run, Track } from "./history";

const BEST = 18;
const MIN = 3;

export interface Arrangement {
  laneHeight: number;
  /** lanes that are drawn; those above it are folded */
  shown: number;
  folded: number;
}

/** numLanes: the highest that is taken, plus one. height: pixels for all of them. */
export function arrange(numLanes: number, height: number): Arrangement {
  if (numLanes * MIN <= height) {
    return { laneHeight: Math.min(BEST, height / Math.max(1, numLanes)), shown: numLanes, folded: 0 };
  }
  const shown = Math.floor((height - BEST) / MIN);
  return { laneHeight: MIN, shown, folded: numLanes - shown };
}

/** As many pixels as the lanes want, between what always looks well and what leaves room for the rest of the page. */
export function wantedHeight(numLanes: number, least: number, most: number): number {
  return Math.min(most, Math.max(least, numLanes * BEST));
}

/** What a lane was doing at a moment: the run, and whose it is. */
export function runAt(tracks: Track[], lane: number, at: number, slack: number): { track: Track; run: Run } | null {
  for (const track of tracks) {
    if (track.lane !== lane) continue;
    for (const run of track.runs) if (at >= run.begin - slack && at <= run.end + slack) return { track, run };
  }
  return null;
}
