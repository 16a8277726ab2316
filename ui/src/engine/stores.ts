/** What the page remembers of the engine while it is open, whichever view is shown. Bounded. */

import { LaneHistory } from "./lanes/history";
import { Series } from "./series";
import type { Activity } from "./types";

export const lanes = new LaneHistory();
export const series = new Series();

export function remember(answer: Activity): Activity {
  lanes.add(answer);
  series.add(answer);
  return answer;
}
