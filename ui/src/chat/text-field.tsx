import { useLayoutEffect, useRef } from "preact/hooks";
import { MarkedText } from "./marked-text";
import type { Range } from "./shared-prefix";

interface Props {
  value: string;
  label: string;
  placeholder?: string;
  ranges?: readonly Range[];
  /** Take the keyboard when it appears. */
  takesFocus?: boolean;
  id?: string;
  onInput: (value: string) => void;
  onEnter: () => void;
  onEscape: () => void;
}

/** A field as high as its text, which can be lit up: the same text lies behind it, and the field's own is in front. */
export function TextField({ value, label, placeholder, ranges = [], takesFocus, id, onInput, onEnter, onEscape }: Props) {
  const field = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => {
    if (!takesFocus) return; // before the next key comes
    field.current!.focus();
    field.current!.setSelectionRange(value.length, value.length);
  }, []);
  return (
    <div class="text-field">
      <div class="behind" aria-hidden="true">
        <MarkedText text={value} ranges={ranges} />{" "}
      </div>
      <textarea
        ref={field}
        id={id}
        rows={1}
        value={value}
        aria-label={label}
        placeholder={placeholder}
        spellcheck={false}
        onInput={(event) => onInput(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") onEscape();
          else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) onEnter();
          else return;
          event.preventDefault();
        }}
      />
    </div>
  );
}
