import type { Explanation } from "../api/types";
import { count, duration, tokens } from "../engine/format";
import { CauseList } from "./cause-bar";

/** Why a prompt was not cached: its tokens by cause, and the place where it left what was. */
export function Why({ explanation, promptTokens }: { explanation: Explanation; promptTokens: number }) {
  const { causes, around, left_at: leftAt, evicted_s: evictedS, evicted_tokens: evictedTokens } = explanation;
  return (
    <div class="why">
      <CauseList causes={causes} />
      <p>
        {leftAt >= promptTokens
          ? "All of it was known."
          : leftAt === 0
            ? "Nothing that is known begins like this prompt."
            : `The first ${tokens(leftAt)} of ${count(promptTokens)} were known. There the prompt left what came closest to it:`}
      </p>
      {around && leftAt > 0 && leftAt < promptTokens && (
        <p class="around">
          <span>…{around.before}</span>
          <span class="cut" role="img" aria-label="here" />
          <span class="new">{around.after}…</span>
        </p>
      )}
      {evictedS != null && (
        <p class="muted">
          The first of the evicted tokens went {duration(evictedS)} before
          {evictedTokens != null && `, ${tokens(evictedTokens)} ago`}.
        </p>
      )}
    </div>
  );
}
