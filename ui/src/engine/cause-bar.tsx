import { CAUSE_TEXT, causeColor } from "../causes";
import type { Causes } from "../api/types";
import { shares, totalTokens } from "./causes";
import { count, percent, tokens } from "./format";

/** A prompt's tokens by cause as one bar. */
export function CauseBar({ causes }: { causes: Causes }) {
  const parts = shares(causes);
  const words = parts.map((part) => `${CAUSE_TEXT[part.cause].name} ${count(part.tokens)}`).join(", ");
  return (
    <span class="cause-bar" role="img" aria-label={words || "no tokens"} title={words}>
      {parts.map((part) => (
        <i key={part.cause} style={{ flexGrow: part.tokens, background: causeColor(part.cause) }} />
      ))}
    </span>
  );
}

/** The same with a legend that has the figures. */
export function CauseSummary({ causes }: { causes: Causes }) {
  return (
    <>
      <CauseBar causes={causes} />
      <ul class="cause-list small">
        {shares(causes).map((part) => (
          <li key={part.cause} title={CAUSE_TEXT[part.cause].meaning}>
            <i style={{ background: causeColor(part.cause) }} aria-hidden="true" /> {CAUSE_TEXT[part.cause].name}{" "}
            <span class="number">
              <b>{percent(part.share)}</b> <span class="muted">{count(part.tokens)}</span>
            </span>
          </li>
        ))}
        {totalTokens(causes) === 0 && <li class="muted">{tokens(0)} so far</li>}
      </ul>
    </>
  );
}
