import type { Explanation } from "../api/types";
import { visible } from "../format";
import { totalTokens } from "./causes";

/** The text around the place where a prompt left what came closest, if the server shows text. */
export function LeftAt({ explanation: { around, left_at: leftAt, causes } }: { explanation: Explanation }) {
  if (!around || !leftAt || leftAt >= totalTokens(causes)) return null;
  return (
    <dl class="left-at" aria-label="Text around the place where it left">
      <div class="common">
        <dt>shared</dt>
        <dd class="mono">…{visible(around.before)}</dd>
      </div>
      <div class="new">
        <dt>then this prompt</dt>
        <dd class="mono">{around.after === "" ? "(ends)" : `${visible(around.after)}…`}</dd>
      </div>
      {around.branch !== undefined && (
        <div class="old">
          <dt>seen before</dt>
          <dd class="mono">{around.branch === "" ? "(ends)" : `${visible(around.branch)}…`}</dd>
        </div>
      )}
    </dl>
  );
}
