/** The way from the whole tree down to what is shown. */

import type { TreeNode } from "../types";
import type { Cell } from "./layout";
import { EVERYTHING, WHOLE_TREE, type Focus, type Forest } from "./forest";
import { nodeName } from "./words";

export interface Crumb {
  focus: Focus;
  name: string;
}

export type Trail = readonly Crumb[];

export const START: Trail = [{ focus: WHOLE_TREE, name: "Everything" }];

export function focusOf(trail: Trail): Focus {
  return trail[trail.length - 1]!.focus;
}

/** The same trail if there is nothing to see closer. */
export function zoomed(trail: Trail, cell: Cell, forest: Forest): Trail {
  const here = focusOf(trail);
  const toNode = nodeTrail(trail, cell.id, forest);
  if (cell.kind === "node") return cell.id === here.id ? trail : toNode;
  const isCloser = cell.largest > 0 && (here.id !== cell.id || here.atMost === null || cell.largest < here.atMost);
  if (!isCloser) return toNode;
  return [
    ...toNode,
    { focus: { ...focusOf(toNode), atMost: cell.largest }, name: `the smaller ones, up to ${cell.largest} tokens` },
  ];
}

export function nodeTrail(trail: Trail, id: number, forest: Forest): Trail {
  const here = focusOf(trail);
  if (id === here.id || id === EVERYTHING) return id === EVERYTHING ? START : trail;
  const path = forest.pathTo(id).filter((node) => !trail.some((crumb) => crumb.focus.id === node.id));
  const crumb = (node: TreeNode): Crumb => ({
    focus: { id: node.id, atMost: null, above: forest.pathTokens(node.id) - node.tokens },
    name: nodeName(node, forest),
  });
  return [...trail, ...path.map(crumb)];
}
