import { SendIcon, StopIcon } from "../shell/icons";
import type { Range } from "./shared-prefix";
import { TextField } from "./text-field";

const FIELD_ID = "composer";

export function focusComposer(): void {
  document.getElementById(FIELD_ID)?.focus();
}

interface Props {
  draft: string;
  ranges: readonly Range[];
  isBusy: boolean;
  /** Why nothing can be sent now. */
  obstacle: string | null;
  onInput: (draft: string) => void;
  onSend: () => void;
  onStop: () => void;
}

/** Where the next message is written. */
export function Composer({ draft, ranges, isBusy, obstacle, onInput, onSend, onStop }: Props) {
  const canSend = obstacle === null && !isBusy && draft.trim() !== "";
  return (
    <div class="composer">
      <TextField
        id={FIELD_ID}
        value={draft}
        label="Message"
        placeholder={obstacle ?? "Ask something"}
        ranges={ranges}
        onInput={onInput}
        onEnter={() => canSend && onSend()}
        onEscape={() => (isBusy ? onStop() : document.getElementById(FIELD_ID)?.blur())}
      />
      {isBusy ? (
        <button class="icon round" aria-label="Stop" title="Stop (Escape)" onClick={onStop}>
          <StopIcon />
        </button>
      ) : (
        <button class="primary icon round" aria-label="Send" title="Send (Enter)" disabled={!canSend} onClick={onSend}>
          <SendIcon />
        </button>
      )}
    </div>
  );
}
