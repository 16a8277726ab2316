/** The icicle on its canvas. */

import { fitted } from "../canvas";
import { color, inkOn } from "../colors";
import { count } from "../../format";
import { cellColor, type ColorBy } from "./colors";
import { EVERYTHING, type Forest } from "./forest";
import type { Cell } from "./layout";
import type { Drawn } from "./motion";
import { cellName } from "./words";

export interface Marks {
  forest: Forest;
  by: ColorBy;
  /** keys of cells */
  hovered: string | null;
  cursor: string | null;
  /** ids of nodes */
  selected: number | null;
  found: ReadonlySet<number> | null;
}

const GAP = 1;
const LOCK_EDGE = 4;
const ONE_LINE = 14;
const TWO_LINES = 32;
const FAINT = 0.4;

export function drawTree(context: CanvasRenderingContext2D, drawn: Drawn[], marks: Marks): void {
  context.textBaseline = "middle";
  for (const one of drawn) drawCell(context, one, marks);
  context.globalAlpha = 1;
  for (const one of drawn) outline(context, one, marks);
}

function drawCell(context: CanvasRenderingContext2D, { cell, x0, x1, y0, y1, alpha }: Drawn, marks: Marks): void {
  const [width, height] = [x1 - x0 - GAP, Math.max(1, y1 - y0 - GAP)];
  const fill = cellColor(cell, marks.by, marks.forest.maxAge);
  context.globalAlpha = alpha * (isFaint(cell, marks) ? FAINT : 1);
  context.fillStyle = fill;
  context.fillRect(x0, y0, width, height);
  const ink = inkOn(fill);
  if (cell.kind === "more") hatch(context, x0, y0, width, height);
  if (cell.kind === "node" && cell.id !== EVERYTHING && cell.node && cell.node.locks > 0) {
    context.fillStyle = color("--tree-lock");
    context.fillRect(x0, y0, LOCK_EDGE, height);
  }
  if (height >= ONE_LINE - GAP && width > 34)
    label(context, cell, cellName(cell, marks.forest), ink, x0, y0, width, height);
  if (cell.deeper && height >= 8) chevron(context, ink, x0 + width - 7, y0 + height / 2);
}

/** With a search that found something, only that is drawn as always. */
function isFaint(cell: Cell, { found }: Marks): boolean {
  return found !== null && found.size > 0 && cell.column > 0 && !(cell.kind === "node" && found.has(cell.id));
}

function label(
  context: CanvasRenderingContext2D,
  cell: Cell,
  title: string,
  ink: string,
  x0: number,
  y0: number,
  width: number,
  height: number,
): void {
  const left = x0 + LOCK_EDGE + 4;
  const room = width - LOCK_EDGE - 8 - (cell.deeper ? 8 : 0);
  const hasText = cell.kind === "node" && !!cell.node?.text;
  const two = height >= TWO_LINES;
  const middle = y0 + Math.min(height / 2, two ? 11 : height / 2);
  context.fillStyle = ink;
  context.font = `${hasText ? "" : "500 "}11px ${hasText ? MONO : SANS}`;
  const name = fitted(context, title, room);
  if (name) context.fillText(name, left, middle);
  if (!two) return;
  const second = secondLine(cell, hasText);
  context.font = `10px ${SANS}`;
  context.globalAlpha *= 0.8;
  if (second) context.fillText(fitted(context, second, room), left, middle + 14);
}

const SANS = `system-ui, "Segoe UI", Roboto, "Noto Sans", sans-serif`;
const MONO = `ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace`;

function secondLine(cell: Cell, hasText: boolean): string {
  if (cell.kind === "more") return `${count(cell.tokens)} tokens`;
  const node = cell.node;
  if (!node) return "";
  const below = node.subtree_tokens - node.tokens;
  const own = hasText ? `${count(node.tokens)} tok` : "";
  return [own, below > 0 ? `${count(below)} below` : ""].filter(Boolean).join(" · ");
}

function hatch(context: CanvasRenderingContext2D, x0: number, y0: number, width: number, height: number): void {
  context.save();
  context.beginPath();
  context.rect(x0, y0, width, height);
  context.clip();
  context.strokeStyle = color("--tree-hatch");
  context.lineWidth = 1;
  context.beginPath();
  for (let x = x0 - height; x < x0 + width; x += 7) {
    context.moveTo(x, y0 + height);
    context.lineTo(x + height, y0);
  }
  context.stroke();
  context.restore();
}

function chevron(context: CanvasRenderingContext2D, ink: string, x: number, y: number): void {
  context.strokeStyle = ink;
  context.lineWidth = 1.4;
  context.beginPath();
  context.moveTo(x - 2, y - 3);
  context.lineTo(x + 1, y);
  context.lineTo(x - 2, y + 3);
  context.stroke();
}

function outline(context: CanvasRenderingContext2D, { cell, x0, x1, y0, y1 }: Drawn, marks: Marks): void {
  const isNode = cell.kind === "node";
  const style = [
    cell.key === marks.cursor && { line: color("--focus"), width: 2.5 },
    isNode && cell.id === marks.selected && { line: color("--text"), width: 2.5 },
    cell.key === marks.hovered && { line: color("--text"), width: 1.5 },
    isNode && marks.found?.has(cell.id) && { line: color("--accent"), width: 2 },
  ].find(Boolean);
  if (!style) return;
  for (const { line, width } of [{ line: color("--surface"), width: style.width + 2 }, style]) {
    context.strokeStyle = line;
    context.lineWidth = width;
    const inset = width / 2;
    context.strokeRect(x0 + inset, y0 + inset, x1 - x0 - GAP - width, Math.max(1, y1 - y0 - GAP - width));
  }
}
