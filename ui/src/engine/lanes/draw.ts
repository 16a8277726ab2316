/** The lanes and the strip of loads on their canvases. Both have the same axis of time. */

import { color, inkOn } from "../colors";
import { fitted } from "../canvas";
import { count } from "../../format";
import type { Arrangement } from "./arrange";
import { WINDOW_S, type Load, type Run, type RunKind, type Track } from "./history";

export const AXIS = 18;
export const LEFT = 4;
const FONT = `10px system-ui, "Segoe UI", Roboto, sans-serif`;
const RUN_COLORS: Record<RunKind, string> = {
  wait: "--lane-wait",
  prefill: "--lane-prefill",
  decode: "--lane-decode",
};

/** Pixels for seconds. end: the time at the right edge. */
export class TimeScale {
  constructor(
    readonly end: number,
    readonly width: number,
  ) {}

  x(at: number): number {
    return LEFT + ((at - this.end) / WINDOW_S + 1) * (this.width - LEFT);
  }

  at(x: number): number {
    return this.end + ((x - LEFT) / (this.width - LEFT) - 1) * WINDOW_S;
  }
}

export function drawLanes(
  context: CanvasRenderingContext2D,
  tracks: Track[],
  scale: TimeScale,
  { laneHeight, shown, folded }: Arrangement,
  height: number,
  hovered: Track | null,
): void {
  drawGrid(context, scale, height);
  for (const track of tracks) {
    if (track.lane >= shown) continue;
    const top = track.lane * laneHeight;
    const gap = laneHeight > 6 ? 2 : laneHeight > 4 ? 1 : 0.5;
    context.globalAlpha = hovered && hovered !== track ? 0.4 : 1;
    for (const run of track.runs) drawRun(context, run, scale, top, laneHeight - gap);
    for (const at of track.retractions) drawRetraction(context, scale.x(at), top, laneHeight - gap);
    if (track.over) drawEnd(context, scale.x(track.end), top, laneHeight - gap);
  }
  context.globalAlpha = 1;
  if (folded > 0) drawFolded(context, tracks, scale, shown, shown * laneHeight, height - shown * laneHeight);
}

function drawRun(context: CanvasRenderingContext2D, run: Run, scale: TimeScale, top: number, height: number): void {
  const left = Math.max(LEFT, scale.x(run.begin));
  const right = scale.x(run.end);
  if (right < LEFT) return;
  const width = Math.max(1, right - left - (run.kind === "prefill" && right - left > 3 ? 1 : 0));
  const fill = color(RUN_COLORS[run.kind]);
  context.fillStyle = fill;
  if (run.kind === "wait") {
    const thin = Math.max(1, Math.min(3, height / 3));
    context.fillRect(left, top + (height - thin) / 2, width, thin);
    return;
  }
  context.fillRect(left, top, width, height);
  if (height < 12 || width < 22) return;
  context.fillStyle = inkOn(fill);
  context.font = FONT;
  context.textBaseline = "middle";
  const text = fitted(context, `${count(run.tokens)}`, width - 6);
  if (text) context.fillText(text, left + 3, top + height / 2 + 0.5);
}

/** A cross: the request gave its pages up. */
function drawRetraction(context: CanvasRenderingContext2D, x: number, top: number, height: number): void {
  if (x < LEFT) return;
  const arm = Math.max(2, Math.min(5, height / 2));
  const middle = top + height / 2;
  context.strokeStyle = color("--lane-retracted");
  context.lineWidth = height > 6 ? 2.5 : 1.5;
  context.beginPath();
  context.moveTo(x - arm, middle - arm);
  context.lineTo(x + arm, middle + arm);
  context.moveTo(x - arm, middle + arm);
  context.lineTo(x + arm, middle - arm);
  context.stroke();
}

function drawEnd(context: CanvasRenderingContext2D, x: number, top: number, height: number): void {
  if (x < LEFT) return;
  context.fillStyle = color("--text");
  context.fillRect(x - 1, top, 1.5, height);
}

/** Of the lanes for which there is no room: how many were at work, as a curve, and how many there are. */
function drawFolded(
  context: CanvasRenderingContext2D,
  tracks: Track[],
  scale: TimeScale,
  shown: number,
  top: number,
  height: number,
): void {
  const hidden = tracks.filter((track) => track.lane >= shown);
  const working = hidden.filter((track) => !track.over).length;
  context.fillStyle = color("--tree-more");
  context.fillRect(LEFT, top + 1, scale.width - LEFT, height - 2);
  context.fillStyle = color("--text");
  context.font = FONT;
  context.textBaseline = "middle";
  context.fillText(`${hidden.length} more requests folded, ${working} of them open`, LEFT + 6, top + height / 2);
}

function drawGrid(context: CanvasRenderingContext2D, scale: TimeScale, height: number): void {
  context.fillStyle = color("--line");
  for (let back = 0; back <= WINDOW_S; back += 5)
    context.fillRect(Math.round(scale.x(scale.end - back)) - 0.5, 0, 1, height);
}

/** Above the middle the prompt tokens of a step, below it its decodes; each has its own scale. */
export function drawLoads(context: CanvasRenderingContext2D, loads: Load[], scale: TimeScale, height: number): void {
  drawGrid(context, scale, height - AXIS);
  const half = (height - AXIS) / 2;
  const most = { prefill: 1, decode: 1 };
  for (const load of loads) {
    most.prefill = Math.max(most.prefill, load.prefill);
    most.decode = Math.max(most.decode, load.decode);
  }
  for (const load of loads) {
    const left = scale.x(load.begin);
    const width = Math.max(1, scale.x(load.end) - left - 0.5);
    if (left + width < LEFT) continue;
    const up = (load.prefill / most.prefill) * (half - 2);
    const down = (load.decode / most.decode) * (half - 2);
    context.fillStyle = color("--lane-prefill");
    context.fillRect(Math.max(LEFT, left), half - up, width, up);
    context.fillStyle = color("--lane-decode");
    context.fillRect(Math.max(LEFT, left), half + 1, width, down);
  }
  context.fillStyle = color("--line-strong");
  context.fillRect(LEFT, half, scale.width - LEFT, 1);
  drawScales(context, half, most);
  drawTimes(context, scale, height);
}

function drawScales(context: CanvasRenderingContext2D, half: number, most: { prefill: number; decode: number }): void {
  const words: [string, number][] = [
    [`up to ${count(most.prefill)} prompt tokens a step`, 8],
    [`up to ${count(most.decode)} decodes a step`, 2 * half - 8],
  ];
  context.font = FONT;
  context.textBaseline = "middle";
  for (const [text, y] of words) {
    context.fillStyle = color("--surface");
    context.globalAlpha = 0.8;
    context.fillRect(LEFT + 2, y - 7, context.measureText(text).width + 8, 14);
    context.globalAlpha = 1;
    context.fillStyle = color("--muted");
    context.fillText(text, LEFT + 6, y);
  }
}

function drawTimes(context: CanvasRenderingContext2D, scale: TimeScale, height: number): void {
  const every = scale.width < 420 ? 10 : 5;
  context.fillStyle = color("--muted");
  context.font = FONT;
  context.textBaseline = "middle";
  for (let back = 0; back <= WINDOW_S; back += every) {
    const text = back === 0 ? "now" : `${back} s ago`;
    const x = scale.x(scale.end - back);
    const width = context.measureText(text).width;
    context.fillText(text, Math.min(scale.width - width, Math.max(LEFT, x - width / 2)), height - AXIS / 2 + 2);
  }
}
