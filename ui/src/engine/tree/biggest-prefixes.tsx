import { useMemo, useState } from "preact/hooks";
import { count } from "../../format";
import type { TreeNode } from "../types";
import type { Forest } from "./forest";
import { isNamespace, nodeName } from "./words";

interface Props {
  forest: Forest;
  onShow: (id: number) => void;
  onZoom: (id: number) => void;
}

const MOST = 20;

/** The drawing as a table: what a screen reader, or anybody who wants figures, looks at. */
export function BiggestPrefixes({ forest, onShow, onZoom }: Props) {
  const [open, setOpen] = useState(false);
  return (
    <details class="biggest" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Biggest prefixes as a table</summary>
      {open && <Table forest={forest} onShow={onShow} onZoom={onZoom} />}
    </details>
  );
}

function Table({ forest, onShow, onZoom }: Props) {
  const nodes = useMemo(() => biggest(forest.answer.nodes), [forest]);
  return (
    <div class="scroll">
      <table class="rows">
        <thead>
          <tr>
            <th scope="col">Prefix</th>
            <th scope="col" class="figure">
              Own tokens
            </th>
            <th scope="col" class="figure">
              With what is below
            </th>
            <th scope="col" class="figure">
              Nodes
            </th>
            <th scope="col" class="figure">
              Locks
            </th>
            <th scope="col" class="figure">
              Age
            </th>
            <th scope="col">Owner</th>
            <th scope="col">
              <span class="hidden-label">What can be done</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {nodes.map((node) => (
            <tr key={node.id}>
              <th scope="row" class="name">
                {node.text ? (
                  <span class="mono">{nodeName(node, forest)}</span>
                ) : (
                  `${count(forest.pathTokens(node.id))} tokens long`
                )}
              </th>
              <td class="figure">{count(node.tokens)}</td>
              <td class="figure">{count(node.subtree_tokens)}</td>
              <td class="figure">{count(node.subtree_nodes)}</td>
              <td class="figure">{count(node.locks)}</td>
              <td class="figure">{count(node.age)}</td>
              <td>{forest.ownerName(node.namespace)}</td>
              <td class="row-buttons">
                <button class="quiet" onClick={() => onShow(node.id)}>
                  Users
                </button>
                <button class="quiet" onClick={() => onZoom(node.id)}>
                  Zoom
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function biggest(nodes: TreeNode[]): TreeNode[] {
  const real = nodes.filter((node) => !isNamespace(node));
  return real.sort((a, b) => b.subtree_tokens - a.subtree_tokens).slice(0, MOST);
}
