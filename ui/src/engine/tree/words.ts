/** What is said of a part of the tree: labels, tooltips, and what a screen reader hears. */

import { count, percent, plural, tokens, visible, type Fact } from "../../format";
import type { TreeNode } from "../types";
import { EVERYTHING, type Forest } from "./forest";
import type { Cell } from "./layout";

export function isNamespace(node: TreeNode): boolean {
  return node.parent === null && node.tokens === 0;
}

/** The name of a node in few words. */
export function nodeName(node: TreeNode, forest: Forest): string {
  if (isNamespace(node)) return forest.ownerName(node.namespace);
  return node.text ? visible(node.text) : tokens(node.tokens);
}

export function cellName(cell: Cell, forest: Forest): string {
  if (cell.kind === "more") return `${count(cell.nodes)} more`;
  if (cell.id === EVERYTHING) return "Everything";
  return cell.node ? nodeName(cell.node, forest) : "";
}

/** What there is to know of a cell. total: tokens of the whole tree. */
export function facts(cell: Cell, forest: Forest): Fact[] {
  const share = ` (${percent(cell.tokens / Math.max(1, forest.answer.num_tokens))} of the tree)`;
  if (cell.kind === "more") {
    return [
      ["folded", plural(cell.nodes, "node")],
      ["tokens", count(cell.tokens) + share],
    ];
  }
  const { node } = cell;
  if (!node)
    return [
      ["tokens", count(cell.tokens)],
      ["nodes", count(forest.answer.num_nodes)],
    ];
  const list: Fact[] = isNamespace(node)
    ? []
    : [["tokens", `${count(node.tokens)}, up to ${count(forest.pathTokens(node.id))} of the prompt`]];
  list.push(["subtree", `${tokens(node.subtree_tokens)} in ${plural(node.subtree_nodes, "node")}${share}`]);
  list.push(["locks", node.locks === 0 ? "none: may be evicted" : `${count(node.locks)}: held by requests`]);
  if (!isNamespace(node))
    list.push(["age", node.age === 0 ? "used last" : `${plural(node.age, "use")} of the cache ago`]);
  list.push(["owner", forest.ownerName(node.namespace)]);
  return list;
}

/** For a screen reader. */
export function spoken(cell: Cell, forest: Forest): string {
  return [cellName(cell, forest), ...facts(cell, forest).map(([name, value]) => `${name} ${value}`)].join("; ");
}
