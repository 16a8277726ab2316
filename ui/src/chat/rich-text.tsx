import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";

/** What models write most of Markdown: code, bold, headings, lists. All else stays as it is, and nothing becomes HTML. */
export function RichText({ text }: { text: string }) {
  return useMemo(() => <>{text.split(/^```/m).map(block)}</>, [text]); // others are not read again while one is written
}

/** Those at odd places stood between fences. */
function block(text: string, index: number) {
  return index % 2 === 1 ? <Code key={index} block={text} /> : <Prose key={index} text={text} />;
}

function Code({ block }: { block: string }) {
  const end = block.indexOf("\n");
  return (
    <pre class="code" tabIndex={0}>
      <code>{end < 0 ? "" : block.slice(end + 1).replace(/\n$/, "")}</code>
    </pre>
  );
}

function Prose({ text }: { text: string }) {
  return (
    <>
      {text
        .replace(/^\n|\n$/g, "")
        .split("\n")
        .flatMap((line, index) => (index === 0 ? [inline(line)] : ["\n", inline(line)]))}
    </>
  );
}

function inline(line: string): ComponentChildren {
  const heading = /^#{1,6} (.*)$/.exec(line);
  if (heading) return <strong>{spans(heading[1]!)}</strong>;
  const item = /^(\s*)[*-] (.*)$/.exec(line);
  return item ? [item[1], "• ", spans(item[2]!)] : spans(line);
}

function spans(text: string): ComponentChildren[] {
  return text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/).map((part, index) => {
    if (index % 2 === 0) return part;
    return part.startsWith("`") ? <code key={index}>{part.slice(1, -1)}</code> : <strong key={index}>{part.slice(2, -2)}</strong>;
  });
}
