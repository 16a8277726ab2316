import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { getJson } from "../../api/http";
import { plural } from "../../format";
import { Notice } from "../notice";
import { useOnScreen } from "../on-screen";
import { usePoll } from "../poll";
import type { TreeAnswer } from "../types";
import { AgeLegend, OwnerLegend } from "./legend";
import { BiggestPrefixes } from "./biggest-prefixes";
import type { ColorBy } from "./colors";
import { EVERYTHING, Forest, type Focus } from "./forest";
import { NodeDetails } from "./node-details";
import { Search, useSearch } from "./search";
import { focusOf, nodeTrail, START, zoomed, type Trail } from "./trail";
import { TreeCanvas } from "./tree-canvas";

const EVERY_MS = 1000;
const MAX_NODES = 1500;

/** The radix tree as it is now. version: another one whenever it may have changed. */
export function TreePanel({ paused, version }: { paused: boolean; version: string | undefined }) {
  const panel = useRef<HTMLElement>(null);
  const quiet = !useOnScreen(panel) || paused;
  const [trail, setTrail] = useState<Trail>(START);
  const [by, setBy] = useState<ColorBy>("age");
  const [selected, setSelected] = useState<number | null>(null);
  const focus = focusOf(trail);
  const polled = usePoll(`${focus.id}`, (signal) => askTree(focus, signal), { everyMs: EVERY_MS, paused: quiet, version });
  const forest = useForest(polled.answer, focus.above);
  const search = useSearch(forest);
  const back = useCallback(() => setTrail((before) => (before.length > 1 ? before.slice(0, -1) : before)), []);
  const gone = polled.trouble === "missing" && focus.id !== EVERYTHING;
  useEffect(() => {
    if (gone) back(); // the prefix was evicted while it was looked at
  }, [gone, focus]);

  // until the new answer is there the old one is drawn, from where it has what is wanted
  const covered = useRef<Focus>(focus);
  if (forest && (polled.topic === `${focus.id}` || forest.node(focus.id))) covered.current = focus;
  const isEmpty = forest !== null && forest.answer.num_tokens === 0;
  return (
    <section class="panel tree" aria-labelledby="tree-title" ref={panel}>
      <header>
        <h2 id="tree-title">Radix tree</h2>
        {forest && <span class="muted small number">{sizeInWords(forest.answer)}</span>}
        <ColorSwitch by={by} onChange={setBy} />
      </header>
      <p class="lead">
        What the cache holds. Prompts read from left to right; those that begin alike share their beginning. Click a part
        for who uses it, click twice to see it larger.
      </p>
      <Notice polled={polled} what="the radix tree" />
      {isEmpty && <p class="empty">The tree is empty. Send a prompt in Chat, and it grows here.</p>}
      {forest && !isEmpty && (
        <>
          <div class="tree-tools">
            <Trail trail={trail} onGo={(length) => setTrail(trail.slice(0, length))} />
            <Search search={search} />
          </div>
          <div class="tree-body" data-open={selected !== null}>
            <TreeCanvas
              forest={forest}
              focus={covered.current}
              by={by}
              selected={selected}
              found={search.found}
              onSelect={(cell) => setSelected(cell.id === EVERYTHING || cell.id === selected ? null : cell.id)}
              onZoom={(cell) => setTrail(zoomed(trail, cell, forest))}
              onBack={back}
            />
            {selected !== null && (
              <NodeDetails
                key={selected}
                id={selected}
                paused={quiet}
                version={version}
                onClose={() => setSelected(null)}
                onZoom={() => setTrail(nodeTrail(trail, selected, forest))}
              />
            )}
          </div>
          {by === "age" ? <AgeLegend /> : <OwnerLegend forest={forest} />}
          <BiggestPrefixes
            forest={forest}
            onShow={setSelected}
            onZoom={(id) => setTrail(nodeTrail(trail, id, forest))}
          />
        </>
      )}
    </section>
  );
}

function askTree({ id }: Focus, signal: AbortSignal): Promise<TreeAnswer> {
  const where = id === EVERYTHING ? "" : `node=${id}&`;
  return getJson<TreeAnswer>(`inspect/tree?${where}max_nodes=${MAX_NODES}`, signal);
}

/** Siblings keep their order from one answer to the next. */
function useForest(answer: TreeAnswer | null, above: number): Forest | null {
  const ranks = useRef(new Map<number, number>());
  return useMemo(() => {
    if (!answer) return null;
    const forest = new Forest(answer, above, (id) => ranks.current.get(id) ?? Infinity);
    ranks.current = forest.ranks();
    return forest;
  }, [answer]);
}

function sizeInWords({ num_tokens, num_nodes }: TreeAnswer): string {
  return `${plural(num_tokens, "token")} in ${plural(num_nodes, "node")}`;
}

function Trail({ trail, onGo }: { trail: Trail; onGo: (length: number) => void }) {
  return (
    <nav class="trail" aria-label="Where in the tree">
      {trail.map((crumb, place) => (
        <button
          key={place}
          class="quiet"
          aria-current={place === trail.length - 1 ? "location" : undefined}
          onClick={() => onGo(place + 1)}
        >
          <span>{crumb.name}</span>
        </button>
      ))}
    </nav>
  );
}

function ColorSwitch({ by, onChange }: { by: ColorBy; onChange: (by: ColorBy) => void }) {
  return (
    <div class="segments" role="group" aria-label="Colour by">
      {(["age", "owner"] as const).map((each) => (
        <button key={each} aria-pressed={by === each} onClick={() => onChange(each)}>
          {each === "age" ? "Age" : "Owner"}
        </button>
      ))}
    </div>
  );
}
