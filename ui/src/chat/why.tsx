import type { Explanation } from "../api/types";
import { count, duration, tokens } from "../engine/format";
import { CauseList } from "./cause-bar";

/** Why a prompt was not cached: its tokens by cause, and the place where it left what was. */
export function Why({ explanation, promptTokens }: { explanation: Explanation; promptTokens: number }) {
  const { causes, around, left_at: leftAt, evicted_s: evictedS, evicted_tokens: evictedTokens } = explanation;
  const isLeft = leftAt !== null && leftAt > 0 && leftAt < promptTokens;
  return (
    <div class="why">
      <CauseList causes={causes} />
      <p>{storyOf(leftAt, promptTokens)}</p>
      {around && isLeft && (
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

function storyOf(leftAt: number | null, promptTokens: number): string {
  if (leftAt === null) return "The cache was not asked.";
  if (leftAt >= promptTokens) return "All of it was known.";
  if (leftAt === 0) return "Nothing that is known begins like this prompt.";
  return `The first ${tokens(leftAt)} of ${count(promptTokens)} were known. There the prompt left what came closest to it:`;
}
