import { CAUSE_TEXT, causeColor } from "../explain/causes";
import type { Range } from "./shared-prefix";

interface Props {
  text: string;
  ranges: readonly Range[];
}

/** A text with what is cached of it lit up. */
export function MarkedText({ text, ranges }: Props) {
  const parts = [];
  let at = 0;
  for (const { begin, end, cause } of ranges) {
    if (begin > at) parts.push(text.slice(at, begin));
    parts.push(
      <mark key={begin} data-cause={cause} style={{ "--cause": causeColor(cause) }} title={CAUSE_TEXT[cause].name}>
        {text.slice(begin, end)}
      </mark>,
    );
    at = end;
  }
  return (
    <>
      {parts}
      {text.slice(at)}
    </>
  );
}
