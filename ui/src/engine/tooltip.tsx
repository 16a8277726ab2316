import { useLayoutEffect, useRef } from "preact/hooks";
import type { Size } from "./canvas";
import type { Fact } from "../format";

export interface Spot {
  x: number;
  y: number;
}

interface Props {
  at: Spot;
  /** of what it must stay in */
  size: Size;
  /** the head line; text, where there is some, takes its place */
  title: string;
  facts: readonly Fact[];
  text?: string;
  hint?: string;
}

const OFFSET = 14;

/** What a drawing says of the place under the pointer. It never gets in the pointer's way. */
export function Tooltip({ at, size, title, facts, text, hint }: Props) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const element = box.current!;
    const { offsetWidth: width, offsetHeight: height } = element;
    const right = at.x + OFFSET;
    const left = right + width <= size.width ? right : Math.max(0, at.x - OFFSET - width);
    const top = Math.max(0, Math.min(at.y + OFFSET, size.height - height));
    element.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  });
  return (
    <div class="tooltip" ref={box} aria-hidden="true">
      {text ? <p class="mono tooltip-text">{text}</p> : <strong>{title}</strong>}
      <dl>
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd class="number">{value}</dd>
          </div>
        ))}
      </dl>
      {hint && <p class="muted">{hint}</p>}
    </div>
  );
}
