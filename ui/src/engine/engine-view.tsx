import { useMemo, useState } from "preact/hooks";
import { getJson } from "../api/http";
import { useShortcut } from "../shell/shortcuts";
import { Charts } from "./charts/charts";
import { Headline } from "./headline";
import { LanesPanel } from "./lanes/lanes-panel";
import { Notice } from "./notice";
import { usePoll } from "./poll";
import { RequestsPanel } from "./requests/requests-panel";
import { lanes, remember, series } from "./stores";
import { TreePanel } from "./tree/tree-panel";
import type { Activity } from "./types";

const EVERY_MS = 1000;

/** The engine at work. It asks the server while it is looked at, and stops when it is paused. */
export function EngineView() {
  const [paused, setPaused] = useState(false);
  const pause = (): void => setPaused((before) => !before);
  useShortcut("p", "pause the engine's view, or go on", pause);
  const polled = usePoll("activity", askActivity, { everyMs: EVERY_MS, paused });
  const { answer } = polled;
  const points = useMemo(() => series.all(), [answer]);
  return (
    <section class="engine scroll" aria-label="Engine">
      <header class="engine-bar">
        <h2 class="hidden-label">Engine</h2>
        <span class="small muted" role="status">
          {paused ? "Paused: this is how it was." : "Live, asked about once a second while it is looked at."}
        </span>
        <button aria-pressed={paused} onClick={pause} title="Pause or go on (p)">
          {paused ? "Go on" : "Pause"}
        </button>
      </header>
      <Notice polled={polled} what="what the engine does" />
      {answer && <Headline answer={answer} last={points[points.length - 1]} />}
      <TreePanel paused={paused} version={answer ? treeVersion(answer) : undefined} />
      {answer && <LanesPanel history={lanes} answer={answer} />}
      {answer && <Charts points={points} answer={answer} />}
      <RequestsPanel paused={paused} />
    </section>
  );
}

/** Another one whenever the tree may have changed. */
function treeVersion({ next, stats }: Activity): string {
  return [next, stats.free_pages, stats.evictable_tokens, stats.protected_tokens].join();
}

async function askActivity(signal: AbortSignal): Promise<Activity> {
  return remember(await getJson<Activity>(`inspect/activity?since=${lanes.since}`, signal));
}
