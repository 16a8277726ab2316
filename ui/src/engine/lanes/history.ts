/** What each request did in the last seconds, put together from the steps of many answers. */

import type { Activity, OpenRequest, Step } from "../types";

export const WINDOW_S = 30;
const KEPT_S = WINDOW_S + 5;
const SAME_RUN_S = 0.3; // decodes that are no further apart are drawn as one
const LANE_REST_S = 0.8; // before the next request takes the lane, so that the two can be told apart
const MAX_LANES = 1024;

export type RunKind = "wait" | "prefill" | "decode";

/** tokens: computed in it. steps: how many steps it is made of. */
export interface Run {
  kind: RunKind;
  begin: number;
  end: number;
  tokens: number;
  steps: number;
  /** of a prefill: the first position of the prompt */
  position: number;
}

export interface Track {
  uid: number;
  requestId: string | null;
  lane: number;
  begin: number;
  end: number;
  over: boolean;
  runs: Run[];
  retractions: number[];
  prompt: number | null;
  cached: number | null;
}

/** What a step computed, for the strip below the lanes. */
export interface Load {
  begin: number;
  end: number;
  prefill: number;
  decode: number;
}

export class LaneHistory {
  private tracks = new Map<number, Track>();
  private loads: Load[] = [];
  private nextStep = 0;
  now = 0;

  /** What to ask with for the steps that come next. */
  get since(): number {
    return this.nextStep;
  }

  add({ now_s, next, steps, requests }: Activity): void {
    if (now_s < this.now || next < this.nextStep) this.clear();
    this.now = now_s;
    for (const step of steps) if (step.step >= this.nextStep) this.addStep(step);
    this.nextStep = next;
    for (const request of requests) this.addRequest(request);
    this.closeGone(requests);
    this.forget();
  }

  clear(): void {
    this.tracks.clear();
    this.loads = [];
    this.nextStep = 0;
    this.now = 0;
  }

  /** In the order of their lanes. */
  all(): Track[] {
    return [...this.tracks.values()].sort((a, b) => a.lane - b.lane);
  }

  load(): Load[] {
    return this.loads;
  }

  private addStep(step: Step): void {
    const [begin, end] = step.device_s ?? wholeStep(step);
    for (const [uid, at, prompt] of step.arrived ?? []) {
      const track = this.track(uid, at);
      track.prompt = prompt;
      if (track.runs.length === 0)
        track.runs.push({ kind: "wait", begin: at, end: begin, tokens: 0, steps: 0, position: 0 });
    }
    let prefilled = 0;
    for (const [uid, from, to] of step.prefills) {
      prefilled += to - from;
      const track = this.track(uid, begin);
      this.endWait(track, begin);
      track.runs.push({
        kind: "prefill",
        begin: this.after(track, begin),
        end,
        tokens: to - from,
        steps: 1,
        position: from,
      });
      track.end = end;
    }
    for (const uid of step.decodes) this.addDecode(this.track(uid, begin), begin, end);
    for (const uid of step.retracted) {
      const track = this.track(uid, begin);
      track.retractions.push(end);
      track.runs.push({ kind: "wait", begin: end, end, tokens: 0, steps: 0, position: 0 });
    }
    for (const uid of step.finished) {
      const track = this.tracks.get(uid);
      if (track) track.over = true;
    }
    this.loads.push({ begin, end, prefill: prefilled, decode: step.decodes.length });
  }

  private addDecode(track: Track, begin: number, end: number): void {
    this.endWait(track, begin);
    const last = track.runs[track.runs.length - 1];
    if (last?.kind === "decode" && begin - last.end < SAME_RUN_S) {
      last.end = end;
      last.tokens += 1;
      last.steps += 1;
    } else {
      track.runs.push({ kind: "decode", begin: this.after(track, begin), end, tokens: 1, steps: 1, position: 0 });
    }
    track.end = end;
  }

  private addRequest(request: OpenRequest): void {
    const track = this.track(request.uid, request.arrived_s);
    if (track.over) return;
    track.requestId = request.request_id;
    track.prompt = request.prompt_tokens;
    if (request.state !== "waiting") track.cached = request.cached_tokens;
    const first = track.runs[0];
    if (!first || (first.kind !== "wait" && request.arrived_s < first.begin)) {
      const end = Math.min(request.admitted_s ?? this.now, first?.begin ?? this.now);
      const begin = Math.max(request.arrived_s, this.now - KEPT_S, this.laneFreeSince(track));
      if (end > begin) track.runs.unshift({ kind: "wait", begin, end, tokens: 0, steps: 0, position: 0 });
      track.begin = Math.min(track.begin, begin);
    }
    const last = track.runs[track.runs.length - 1];
    if (request.state === "waiting" && last?.kind === "wait") last.end = this.now;
    track.end = this.now;
  }

  /** Requests whose end was not seen: their last steps were not asked for in time. */
  private closeGone(requests: OpenRequest[]): void {
    if (requests.length >= 512) return; // the list is cut: who is missing may be there
    const open = new Set(requests.map((request) => request.uid));
    for (const track of this.tracks.values()) if (!open.has(track.uid)) track.over = true;
  }

  private forget(): void {
    const oldest = this.now - KEPT_S;
    for (const [uid, track] of this.tracks) {
      if (track.over && track.end < oldest) this.tracks.delete(uid);
      else if (track.runs.length > 1 && track.runs[0]!.end < oldest) {
        track.runs = track.runs.filter((run, place) => run.end >= oldest || place === track.runs.length - 1);
        track.retractions = track.retractions.filter((at) => at >= oldest);
      }
    }
    const first = this.loads.findIndex((load) => load.end >= oldest);
    this.loads = first < 0 ? [] : this.loads.slice(first);
  }

  private track(uid: number, begin: number): Track {
    let track = this.tracks.get(uid);
    if (!track) {
      const lane = this.freeLane(begin);
      track = {
        uid,
        requestId: null,
        lane,
        begin,
        end: begin,
        over: false,
        runs: [],
        retractions: [],
        prompt: null,
        cached: null,
      };
      this.tracks.set(uid, track);
    }
    return track;
  }

  /** The lowest that nobody was in for a while. */
  private freeLane(begin: number): number {
    const taken = new Set<number>();
    for (const track of this.tracks.values()) if (!track.over || track.end + LANE_REST_S > begin) taken.add(track.lane);
    let lane = 0;
    while (taken.has(lane) && lane < MAX_LANES) lane += 1;
    return lane;
  }

  /** When the request before it in its lane had ended. */
  private laneFreeSince({ uid, lane }: Track): number {
    let since = 0;
    for (const track of this.tracks.values())
      if (track.lane === lane && track.uid !== uid) since = Math.max(since, track.end);
    return since;
  }

  private endWait(track: Track, at: number): void {
    const last = track.runs[track.runs.length - 1];
    if (last?.kind === "wait") last.end = Math.max(last.begin, at);
  }

  /** Steps overlap where the next is launched before the last is done; a lane does one thing at a time. */
  private after(track: Track, begin: number): number {
    const last = track.runs[track.runs.length - 1];
    return last ? Math.max(begin, last.end) : begin;
  }
}

function wholeStep(step: Step): [number, number] {
  return [step.begin_s, step.begin_s + step.plan_s + step.launch_s + step.wait_s + step.commit_s];
}
