import type { Explanation } from "../api/types";
import { causeColor, shares } from "./causes";
import { LeftAt } from "./left-at";
import { adviceFor, causeInWords, leftAtInWords } from "./words";

/** Why a prompt was cached or not, in words: its tokens by cause, and the place where it left what came closest. */
export function Explained({ explanation }: { explanation: Explanation }) {
  const advice = adviceFor(explanation);
  return (
    <div class="explained">
      <ul>
        {shares(explanation.causes).map((part) => (
          <li key={part.cause}>
            <i class="swatch" style={{ background: causeColor(part.cause) }} aria-hidden="true" />
            <span>{causeInWords(part, explanation)}</span>
          </li>
        ))}
      </ul>
      <p>{leftAtInWords(explanation)}</p>
      <LeftAt explanation={explanation} />
      {advice && <p class="advice">{advice}</p>}
    </div>
  );
}
