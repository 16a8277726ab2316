import { CauseBar } from "../chat/cause-bar";
import { CAUSE_TEXT, causeColor } from "../causes";
import type { Causes } from "../api/types";
import { shares, totalTokens } from "./causes";
import { count, percent, tokens } from "./format";

/** Prompt tokens by cause as a bar, with a legend that has the figures. */
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
