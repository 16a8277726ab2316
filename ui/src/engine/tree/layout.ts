/** Where each node of the tree is drawn: an icicle from left to right, heights by tokens, small ones folded. */

import { hierarchy, partition, type HierarchyRectangularNode } from "d3-hierarchy";
import { EVERYTHING, type Focus, type Forest } from "./forest";
import type { TreeNode } from "../types";

export const MIN_CELL = 4; // pixels; what is lower is folded with its like
const MIN_MORE = 3; // a lower one would be a line that nobody can point at
const FIRST_COLUMN = 18; // of everything, which needs no label
const MIN_COLUMN = 64;
const MAX_COLUMN = 220;

/** One rectangle. kind "more": children of node `id` that are too small to be drawn, or that the server left out. */
export interface Cell {
  key: string;
  kind: "node" | "more";
  id: number;
  node: TreeNode | undefined;
  column: number;
  x0: number;
  x1: number;
  y0: number;
  y1: number;
  /** of the subtree, or of all that is folded */
  tokens: number;
  nodes: number;
  /** of the largest that is folded here; 0: the server named none of them */
  largest: number;
  /** there is more to the right than columns */
  deeper: boolean;
}

export interface Layout {
  cells: Cell[];
  byKey: Map<string, Cell>;
  width: number;
  height: number;
}

interface Datum {
  key: string;
  kind: "node" | "more";
  id: number;
  node: TreeNode | undefined;
  own: number;
  nodes: number;
  largest: number;
  children: Datum[];
}

export function layOut(forest: Forest, focus: Focus, width: number, height: number): Layout {
  const total = focusTokens(forest, focus);
  const first = focus.id === EVERYTHING ? FIRST_COLUMN : 0;
  if (total === 0 || width < MIN_COLUMN || height < MIN_CELL) return { cells: [], byKey: new Map(), width, height };
  const columns = Math.max(1, Math.floor((width - first) / MIN_COLUMN) - (first ? 0 : 1));
  const data = unfold(forest, focus, height / total, columns);
  const root = partition<Datum>().size([height, 1])(
    hierarchy(data, (datum) => datum.children).sum((datum) => datum.own),
  );
  const numColumns = Math.max(1, root.height + (first ? 0 : 1));
  const step = Math.min(MAX_COLUMN, (width - first) / numColumns);
  const cells = root
    .descendants()
    .map((place) => cell(place, { first, step, columns }, forest))
    .filter((one) => one.kind === "node" || one.y1 - one.y0 >= MIN_MORE);
  return { cells, byKey: new Map(cells.map((one) => [one.key, one])), width, height };
}

/** Tokens of what is shown. */
export function focusTokens(forest: Forest, focus: Focus): number {
  const node = forest.node(focus.id);
  if (node && focus.atMost === null) return node.subtree_tokens;
  return shown(forest, focus).reduce((sum, child) => sum + child.subtree_tokens, node?.folded_tokens ?? 0);
}

function shown(forest: Forest, { id, atMost }: Focus): TreeNode[] {
  const children = forest.childrenOf(id);
  return atMost === null ? children : children.filter((child) => child.subtree_tokens <= atMost);
}

/** The tree of what is high enough to be seen. scale: pixels a token. */
function unfold(forest: Forest, focus: Focus, scale: number, columns: number): Datum {
  const top = datumOf(forest.node(focus.id), focus.id);
  if (focus.atMost !== null) top.own = 0;
  const grow = (datum: Datum, children: TreeNode[], column: number): void => {
    if (column > columns) {
      datum.own = subtreeTokens(datum);
      return;
    }
    const more = { nodes: datum.node?.folded_nodes ?? 0, own: datum.node?.folded_tokens ?? 0, largest: 0 };
    for (const child of children) {
      if (child.subtree_tokens * scale < MIN_CELL) {
        more.nodes += child.subtree_nodes;
        more.own += child.subtree_tokens;
        more.largest = Math.max(more.largest, child.subtree_tokens);
        continue;
      }
      const next = datumOf(child, child.id);
      datum.children.push(next);
      grow(next, forest.childrenOf(child.id), column + 1);
    }
    if (more.own > 0)
      datum.children.push({ ...datumOf(datum.node, datum.id), ...more, key: `more${datum.id}`, kind: "more" });
  };
  grow(top, shown(forest, focus), 1);
  return top;
}

function datumOf(node: TreeNode | undefined, id: number): Datum {
  return {
    key: `${id}`,
    kind: "node",
    id,
    node,
    own: node?.tokens ?? 0,
    nodes: node?.subtree_nodes ?? 0,
    largest: 0,
    children: [],
  };
}

/** Of a node whose children have no column left. */
function subtreeTokens(datum: Datum): number {
  return datum.node?.subtree_tokens ?? datum.own;
}

/** first: width of the first column, 0 if it is as wide as the others. */
interface Columns {
  first: number;
  step: number;
  columns: number;
}

function cell(place: HierarchyRectangularNode<Datum>, { first, step, columns }: Columns, forest: Forest): Cell {
  const { key, kind, id, node, nodes, largest } = place.data;
  const column = place.depth;
  const x0 = first === 0 || column === 0 ? column * step : first + (column - 1) * step;
  const x1 = column === 0 && first > 0 ? first : x0 + step;
  const hasChildren = id !== EVERYTHING && ((node?.folded_nodes ?? 0) > 0 || forest.childrenOf(id).length > 0);
  const deeper = kind === "node" && column >= columns && hasChildren;
  const tokens = place.value ?? 0;
  return { key, kind, id, node, column, x0, x1, y0: place.x0, y1: place.x1, tokens, nodes, largest, deeper };
}

/** The cell under a point, if there is one. */
export function cellAt(layout: Layout, x: number, y: number): Cell | undefined {
  return layout.cells.find((cell) => x >= cell.x0 && x < cell.x1 && y >= cell.y0 && y < cell.y1);
}

/** Where an arrow key leads from a cell; the same cell if there is nothing in that direction. */
export function neighbour(layout: Layout, from: Cell, key: "ArrowLeft" | "ArrowRight" | "ArrowUp" | "ArrowDown"): Cell {
  const nearest = (cells: Cell[], distance: (cell: Cell) => number): Cell =>
    cells.reduce<Cell | undefined>(
      (best, cell) => (!best || distance(cell) < distance(best) ? cell : best),
      undefined,
    ) ?? from;
  const inside = (outer: Cell, inner: Cell): boolean => outer.y0 <= inner.y0 + 1e-6 && outer.y1 >= inner.y1 - 1e-6;
  switch (key) {
    case "ArrowLeft":
      return layout.cells.find((cell) => cell.column === from.column - 1 && inside(cell, from)) ?? from;
    case "ArrowRight":
      return nearest(
        layout.cells.filter((cell) => cell.column === from.column + 1 && inside(from, cell)),
        (cell) => cell.y0,
      );
    case "ArrowDown":
      return nearest(
        layout.cells.filter((cell) => cell.column === from.column && cell.y0 > from.y0 + 1e-6),
        (cell) => cell.y0,
      );
    case "ArrowUp":
      return nearest(
        layout.cells.filter((cell) => cell.column === from.column && cell.y0 < from.y0 - 1e-6),
        (cell) => -cell.y0,
      );
  }
}
