import { CAUSES, type Causes } from "../api/types";
import { CAUSE_TEXT, causeColor } from "../causes";
import { count } from "../engine/format";

/** A prompt's tokens by cause, side by side. */
export function CauseBar({ causes }: { causes: Causes }) {
  const shown = CAUSES.filter((cause) => causes[cause]);
  const label = shown.map((cause) => `${count(causes[cause]!)} ${CAUSE_TEXT[cause].name}`).join(", ");
  return (
    <span class="cause-bar" role="img" aria-label={label}>
      {shown.map((cause) => (
        <span key={cause} style={{ flexGrow: causes[cause]!, background: causeColor(cause) }} />
      ))}
    </span>
  );
}

/** The same as a list, with what each means. */
export function CauseList({ causes }: { causes: Causes }) {
  return (
    <dl class="causes">
      {CAUSES.filter((cause) => causes[cause]).map((cause) => (
        <div key={cause}>
          <dt>
            <span class="swatch" style={{ background: causeColor(cause) }} />
            {CAUSE_TEXT[cause].name}
          </dt>
          <dd class="number">{count(causes[cause]!)}</dd>
          <dd class="muted">{CAUSE_TEXT[cause].meaning}</dd>
        </div>
      ))}
    </dl>
  );
}
