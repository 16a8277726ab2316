import assert from "node:assert/strict";
import { test } from "node:test";
import { EVERYTHING, Forest, WHOLE_TREE } from "../src/engine/tree/forest";
import { cellAt, layOut, MIN_CELL, neighbour } from "../src/engine/tree/layout";
import { focusOf, START, zoomed } from "../src/engine/tree/trail";
import type { TreeAnswer, TreeNode } from "../src/engine/types";

type Given = { id: number; parent: number | null; tokens: number } & Partial<TreeNode>;

/** The sums are made here. */
function answer(given: Given[]): TreeAnswer {
  const nodes = given.map((node) => ({
    locks: 0,
    age: 0,
    namespace: 0,
    folded_nodes: 0,
    folded_tokens: 0,
    subtree_tokens: 0,
    subtree_nodes: 1,
    ...node,
  }));
  for (const node of [...nodes].reverse()) {
    node.subtree_tokens += node.tokens + node.folded_tokens;
    const parent = nodes.find((other) => other.id === node.parent);
    if (parent) {
      parent.subtree_tokens += node.subtree_tokens;
      parent.subtree_nodes += node.subtree_nodes;
    }
  }
  const num_tokens = nodes.filter((node) => node.parent === null).reduce((sum, node) => sum + node.subtree_tokens, 0);
  return { clock: 9, page_size: 1, num_nodes: nodes.length, num_tokens, root: nodes[0]!.id, nodes };
}

const SMALL = answer([
  { id: 0, parent: null, tokens: 0 },
  { id: 1, parent: 0, tokens: 100 },
  { id: 2, parent: 1, tokens: 60 },
  { id: 3, parent: 1, tokens: 40 },
]);

test("heights are tokens, with all that is below", () => {
  const { byKey } = layOut(new Forest(SMALL), WHOLE_TREE, 800, 400);
  const height = (key: string): number => byKey.get(key)!.y1 - byKey.get(key)!.y0;
  assert.deepEqual(["-1", "1", "2", "3"].map(height), [400, 400, 120, 80]);
});

test("children lie right of their parent, inside its height", () => {
  const { byKey } = layOut(new Forest(SMALL), WHOLE_TREE, 800, 400);
  const [parent, child] = [byKey.get("1")!, byKey.get("3")!];
  assert.equal(child.x0, parent.x1);
  assert.ok(child.y0 >= parent.y0 && child.y1 <= parent.y1);
});

test("what is too low to be seen is one cell, with all its tokens", () => {
  const many = Array.from({ length: 500 }, (_, number) => ({ id: number + 2, parent: 1, tokens: 1 }));
  const forest = new Forest(answer([{ id: 0, parent: null, tokens: 0 }, { id: 1, parent: 0, tokens: 500 }, ...many]));
  const { cells } = layOut(forest, WHOLE_TREE, 800, 400);
  const more = cells.find((cell) => cell.kind === "more")!;
  assert.deepEqual([more.id, more.nodes, more.tokens, more.largest], [1, 500, 500, 1]);
  assert.ok(cells.every((cell) => cell.y1 - cell.y0 >= MIN_CELL - 1e-6));
});

test("what the server left out is in that cell too", () => {
  const forest = new Forest(
    answer([
      { id: 0, parent: null, tokens: 0 },
      { id: 1, parent: 0, tokens: 10, folded_nodes: 7, folded_tokens: 90 },
    ]),
  );
  const more = layOut(forest, WHOLE_TREE, 800, 400).cells.find((cell) => cell.kind === "more")!;
  assert.deepEqual([more.nodes, more.tokens, more.largest], [7, 90, 0]);
});

test("a hundred thousand nodes become as many cells as there is room for", () => {
  const nodes: Given[] = [{ id: 0, parent: null, tokens: 0 }];
  for (let id = 1; id < 100_000; id += 1) nodes.push({ id, parent: id < 50 ? 0 : id % 50, tokens: 1 + (id % 7) });
  const sums = nodes.map((node) => ({ ...node, subtree_tokens: node.tokens }));
  for (let id = sums.length - 1; id > 0; id -= 1) sums[sums[id]!.parent!]!.subtree_tokens += sums[id]!.subtree_tokens;
  const whole = { ...SMALL, nodes: sums.map((node) => ({ ...SMALL.nodes[0]!, ...node })) };
  assert.ok(layOut(new Forest(whole), WHOLE_TREE, 1200, 500).cells.length < 500);
});

test("deeper nodes than there are columns are told by the last one", () => {
  const chain = Array.from({ length: 40 }, (_, id) => ({
    id,
    parent: id === 0 ? null : id - 1,
    tokens: id === 0 ? 0 : 10,
  }));
  const { cells } = layOut(new Forest(answer(chain)), WHOLE_TREE, 400, 300);
  assert.equal(cells.filter((cell) => cell.deeper).length, 1);
  assert.ok(Math.max(...cells.map((cell) => cell.x1)) <= 400);
});

test("siblings keep their order when sizes change", () => {
  const first = new Forest(SMALL);
  const ranks = first.ranks();
  const grown = answer([
    ...SMALL.nodes.map(({ id, parent, tokens }) => ({ id, parent, tokens: id === 3 ? 400 : tokens })),
    { id: 9, parent: 1, tokens: 900 },
  ]);
  const ids = (forest: Forest): number[] => forest.childrenOf(1).map((node) => node.id);
  assert.deepEqual(ids(first), [2, 3]);
  assert.deepEqual(ids(new Forest(grown, 0, (id) => ranks.get(id) ?? Infinity)), [2, 3, 9]);
  assert.deepEqual(ids(new Forest(grown)), [9, 3, 2]);
});

test("a lone namespace is everything, several are drawn", () => {
  assert.deepEqual(
    new Forest(SMALL).childrenOf(EVERYTHING).map((node) => node.id),
    [1],
  );
  const two = answer([
    { id: 0, parent: null, tokens: 0 },
    { id: 5, parent: null, tokens: 0, namespace: 1 },
    { id: 1, parent: 0, tokens: 9 },
  ]);
  assert.deepEqual(
    new Forest(two).childrenOf(EVERYTHING).map((node) => node.id),
    [0, 5],
  );
});

test("zooming goes down step by step, and knows how far it is from the prompt's begin", () => {
  const forest = new Forest(SMALL);
  const layout = layOut(forest, WHOLE_TREE, 800, 400);
  const trail = zoomed(START, layout.byKey.get("3")!, forest);
  assert.deepEqual(
    trail.map((crumb) => crumb.focus.id),
    [EVERYTHING, 1, 3],
  );
  assert.deepEqual(focusOf(trail), { id: 3, atMost: null, above: 100 });
});

test("zooming into what is folded shows it alone", () => {
  const many = Array.from({ length: 500 }, (_, number) => ({ id: number + 2, parent: 1, tokens: 1 }));
  const forest = new Forest(
    answer([
      { id: 0, parent: null, tokens: 0 },
      { id: 1, parent: 0, tokens: 1 },
      { id: 999, parent: 1, tokens: 9000 },
      ...many,
    ]),
  );
  const more = layOut(forest, WHOLE_TREE, 800, 400).cells.find((cell) => cell.kind === "more")!;
  const focus = focusOf(zoomed(START, more, forest));
  assert.equal(focus.atMost, 1);
  const closer = layOut(forest, focus, 800, 4000).cells;
  assert.equal(closer.filter((cell) => cell.kind === "node").length, 501);
  assert.ok(!closer.some((cell) => cell.id === 999));
});

test("arrow keys go to what lies there", () => {
  const layout = layOut(new Forest(SMALL), WHOLE_TREE, 800, 400);
  const [one, two, three] = ["1", "2", "3"].map((key) => layout.byKey.get(key)!);
  assert.equal(neighbour(layout, one!, "ArrowRight"), two);
  assert.equal(neighbour(layout, two!, "ArrowDown"), three);
  assert.equal(neighbour(layout, three!, "ArrowUp"), two);
  assert.equal(neighbour(layout, three!, "ArrowLeft"), one);
  assert.equal(neighbour(layout, three!, "ArrowRight"), three);
});

test("a point finds its cell", () => {
  const layout = layOut(new Forest(SMALL), WHOLE_TREE, 800, 400);
  const { x0, x1, y0, y1 } = layout.byKey.get("3")!;
  assert.equal(cellAt(layout, (x0 + x1) / 2, (y0 + y1) / 2)?.id, 3);
  assert.equal(cellAt(layout, 799, 399), undefined);
});
