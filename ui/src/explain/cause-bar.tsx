import type { Causes } from "../api/types";
import { count } from "../format";
import { causeColor, CAUSE_TEXT, shares } from "./causes";

/** A prompt's tokens by cause, side by side. */
export function CauseBar({ causes }: { causes: Causes }) {
  const shown = shares(causes);
  const label = shown.map(({ cause, tokens }) => `${count(tokens)} ${CAUSE_TEXT[cause].name}`).join(", ");
  return (
    <span class="cause-bar" role="img" aria-label={label}>
      {shown.map(({ cause, tokens }) => (
        <span key={cause} style={{ flexGrow: tokens, background: causeColor(cause) }} />
      ))}
    </span>
  );
}
