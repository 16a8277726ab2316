import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { CauseBar } from "../explain/cause-bar";
import { foundTokens, mainMiss, totalTokens } from "../explain/causes";
import { Explained } from "../explain/explained";
import { count, duration } from "../format";
import type { AnswerStats } from "./model";

const ENDS = { stop: null, length: "cut at its limit", stopped: "stopped", failed: null };

interface Props {
  stats: AnswerStats;
  /** null: there is no more of it, or it is not the last one. */
  onGoOn: (() => void) | null;
  children: ComponentChildren;
}

/** The line under an answer: where its tokens came from and where the time went; at its end what can be done with it. */
export function AnswerLine({ stats, onGoOn, children }: Props) {
  const [asks, ask] = useState(false);
  const { explanation, promptTokens, generatedTokens, firstMs, totalMs, queueMs } = stats;
  const cached = explanation ? foundTokens(explanation.causes) : stats.cachedTokens;
  const prompt = promptTokens ?? (explanation ? totalTokens(explanation.causes) : null);
  const causes = explanation?.causes ?? (prompt !== null && cached !== null ? { hit: cached, never_seen: prompt - cached } : null);
  const speed = speedOf(stats);
  const end = stats.finish && ENDS[stats.finish];
  return (
    <div class="answer-line small">
      <ul class="figures number">
        {causes && (
          <li>
            <CauseBar causes={causes} />
          </li>
        )}
        {prompt !== null && cached !== null && (
          <>
            <Figure value={count(cached)} name="cached" />
            <Figure value={count(prompt - cached)} name="computed" />
          </>
        )}
        {generatedTokens !== null && <Figure value={count(generatedTokens)} name="generated" />}
        {queueMs !== null && <Figure value={duration(queueMs / 1000)} name="queue" />}
        {firstMs !== null && <Figure value={duration(firstMs / 1000)} name="first token" />}
        <Figure value={duration(totalMs / 1000)} name="total" />
        {speed !== null && <Figure value={speed < 10 ? speed.toFixed(1) : count(speed)} name="tokens/s" />}
        {end && <li class="end">{end}</li>}
        {onGoOn && (
          <li>
            <button class="quiet small" title="Take it up where it ends (g)" onClick={onGoOn}>
              Go on
            </button>
          </li>
        )}
        {explanation && (
          <li>
            <button class="quiet small" aria-expanded={asks} onClick={() => ask(!asks)}>
              {mainMiss(explanation.causes) === null ? "Where from?" : "Why not cached?"}
            </button>
          </li>
        )}
        <li>{children}</li>
      </ul>
      {asks && explanation && <Explained explanation={explanation} />}
    </div>
  );
}

function Figure({ value, name }: { value: string; name: string }) {
  return (
    <li>
      <b>{value}</b> {name}
    </li>
  );
}

const SHORTEST_MS = 5; // what came at once has no speed

/** Of the tokens after the first one, as this page saw them come. */
function speedOf({ generatedTokens, firstMs, totalMs }: AnswerStats): number | null {
  if (generatedTokens === null || firstMs === null || generatedTokens < 2 || totalMs - firstMs < SHORTEST_MS) return null;
  return ((generatedTokens - 1) * 1000) / (totalMs - firstMs);
}
