/** The colour of a node: by age or by owner. */

import { color } from "../colors";
import type { TreeNode } from "../types";
import { EVERYTHING } from "./forest";
import type { Cell } from "./layout";

export type ColorBy = "age" | "owner";
export const AGES = 6;
export const OWNERS = 8;
const YOUNG = 32; // uses of the cache; with fewer in all nothing is called old

/** 0: used last; AGES - 1: as long ago as the oldest. Each step is some times as long ago as the one before. */
export function ageStep(age: number, maxAge: number): number {
  const share = Math.log1p(age) / Math.log1p(Math.max(maxAge, YOUNG));
  return Math.min(AGES - 1, Math.floor(share * AGES));
}

export function cellColor(cell: Cell, by: ColorBy, maxAge: number): string {
  if (cell.kind === "more") return color("--tree-more");
  if (!cell.node || cell.id === EVERYTHING) return color("--tree-root");
  return color(nodeVariable(cell.node, by, maxAge));
}

export function nodeVariable(node: TreeNode, by: ColorBy, maxAge: number): string {
  return by === "age" ? `--tree-age-${ageStep(node.age, maxAge)}` : ownerVariable(node.namespace);
}

export function ownerVariable(namespace: number): string {
  return `--tree-owner-${namespace % OWNERS}`;
}
