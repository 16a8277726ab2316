import type { Explanation } from "../../api/types";
import { visible } from "../tree/words";

/** The text around the place where a prompt left what came closest, if the server shows text. */
export function LeftAt({ explanation: { around } }: { explanation: Explanation }) {
  if (!around) return null;
  return (
    <div class="left-at mono" role="group" aria-label="Text around the place where it left">
      <span class="common">{visible(around.before)}</span>
      <span class="ways">
        <span class="new">
          <span class="small muted">this prompt</span>
          {visible(around.after) || "(its end)"}
        </span>
        {around.branch !== undefined && (
          <span class="old">
            <span class="small muted">what was seen before</span>
            {visible(around.branch) || "(its end)"}
          </span>
        )}
      </span>
    </div>
  );
}
