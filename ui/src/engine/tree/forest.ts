/** The server's list of nodes as a tree that can be walked. */

import type { TreeAnswer, TreeNode } from "../types";

/** The column left of all namespaces, which no node of the server stands for. */
export const EVERYTHING = -1;

/** What of the tree is shown: below a node, or of its children only those of at most so many tokens. */
export interface Focus {
  id: number;
  atMost: number | null;
  /** tokens of a prompt before the node begins */
  above: number;
}

export const WHOLE_TREE: Focus = { id: EVERYTHING, atMost: null, above: 0 };

export class Forest {
  private readonly byId = new Map<number, TreeNode>();
  private readonly children = new Map<number, TreeNode[]>();
  readonly roots: TreeNode[] = [];
  readonly maxAge: number;
  /** the only namespace, which then is not drawn: it is everything */
  private readonly only: TreeNode | undefined;

  private readonly salts = new Map<number, string>();

  /**
   * above: tokens before the first node. rank: the place of a node among its siblings in the drawing before, so that
   * nothing jumps when sizes change.
   */
  constructor(
    readonly answer: TreeAnswer,
    private readonly above = 0,
    rank: (id: number) => number = () => Infinity,
  ) {
    let maxAge = 0;
    for (const node of answer.nodes) {
      this.byId.set(node.id, node);
      maxAge = Math.max(maxAge, node.age);
    }
    this.maxAge = maxAge;
    for (const node of answer.nodes) this.siblings(node).push(node);
    for (const root of this.roots) {
      const salt = answer.salts?.[root.id];
      if (salt) this.salts.set(root.namespace, salt);
    }
    const order = (a: TreeNode, b: TreeNode): number =>
      rankOrder(rank(a.id), rank(b.id)) || b.subtree_tokens - a.subtree_tokens;
    for (const list of [this.roots, ...this.children.values()]) list.sort(order);
    const [first, ...others] = this.roots;
    if (first && others.length === 0 && first.parent === null && first.tokens === 0) this.only = first;
  }

  node(id: number): TreeNode | undefined {
    if (id === EVERYTHING) return this.only;
    return this.byId.get(id);
  }

  childrenOf(id: number): TreeNode[] {
    if (id === EVERYTHING) return this.only ? this.childrenOf(this.only.id) : this.roots;
    return this.children.get(id) ?? [];
  }

  parentOf(node: TreeNode): TreeNode | undefined {
    return node.parent === null ? undefined : this.byId.get(node.parent);
  }

  /** From the outermost known one down to the node itself. */
  pathTo(id: number): TreeNode[] {
    const path: TreeNode[] = [];
    for (let node = this.byId.get(id); node && node !== this.only; node = this.parentOf(node)) path.unshift(node);
    return path;
  }

  /** Tokens from the root to the end of the node. */
  pathTokens(id: number): number {
    return this.pathTo(id).reduce((sum, node) => sum + node.tokens, this.above);
  }

  ownerName(namespace: number): string {
    if (namespace === 0) return "public";
    const salt = this.salts.get(namespace);
    return salt ? `salt ${salt}` : `salt no. ${namespace}`;
  }

  /** Ids from first to last as they are drawn: the ranks of the next drawing. */
  ranks(): Map<number, number> {
    const ranks = new Map<number, number>();
    for (const list of [this.roots, ...this.children.values()])
      list.forEach((node, place) => ranks.set(node.id, place));
    return ranks;
  }

  private siblings(node: TreeNode): TreeNode[] {
    if (node.parent === null || !this.byId.has(node.parent)) return this.roots;
    let list = this.children.get(node.parent);
    if (!list) this.children.set(node.parent, (list = []));
    return list;
  }
}

/** Infinity - Infinity is no number. */
function rankOrder(a: number, b: number): number {
  return a === b ? 0 : a - b;
}
