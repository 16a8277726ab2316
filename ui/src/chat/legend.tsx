import { CAUSE_TEXT, causeColor, shares } from "../explain/causes";
import { count, percent } from "../format";
import type { SharedPrefix } from "./shared-prefix";

/** What the tones mean, and how much of the prompt would be found cached. */
export function Legend({ shared }: { shared: SharedPrefix }) {
  const { prompt_tokens: all, cached_tokens: cached, causes } = shared.prompt;
  return (
    <p class="legend small" role="status">
      <span class="number">
        <b>{count(cached)}</b> of {count(all)} tokens are cached{all > 0 && `, ${percent(cached / all)}`}
      </span>
      {shares(causes).map(({ cause }) => (
        <span key={cause} class="key" title={CAUSE_TEXT[cause].meaning}>
          <i class="swatch" style={{ background: causeColor(cause) }} aria-hidden="true" />{" "}
          {CAUSE_TEXT[cause].name}
        </span>
      ))}
    </p>
  );
}
