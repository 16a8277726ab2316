import type { Causes } from "../api/types";
import { count, percent, tokens } from "../format";
import { CauseBar } from "./cause-bar";
import { causeColor, CAUSE_TEXT, shares } from "./causes";

/** Prompt tokens by cause as a bar, with a legend that has the figures. */
export function CauseSummary({ causes }: { causes: Causes }) {
  const parts = shares(causes);
  return (
    <>
      <CauseBar causes={causes} />
      <ul class="cause-list small">
        {parts.map(({ cause, share, tokens: number }) => (
          <li key={cause} title={CAUSE_TEXT[cause].meaning}>
            <i class="swatch" style={{ background: causeColor(cause) }} aria-hidden="true" /> {CAUSE_TEXT[cause].name}{" "}
            <span class="number">
              <b>{percent(share)}</b> <span class="muted">{count(number)}</span>
            </span>
          </li>
        ))}
        {parts.length === 0 && <li class="muted">{tokens(0)} so far</li>}
      </ul>
    </>
  );
}
