import { useLayoutEffect, useRef } from "preact/hooks";
import type { Turn } from "./model";
import type { Range } from "./shared-prefix";
import { TurnView, type Edit, type TurnActions } from "./turn-view";

const NEAR_PX = 40;

interface Props {
  turns: readonly Turn[];
  /** What of a turn's text, as it reads now, is cached; null: it is not shown. */
  rangesOf: ((turnId: string, text: string) => Range[]) | null;
  edit: Edit | null;
  isBusy: boolean;
  actions: TurnActions;
}

/** All that was said. It stays at its end while that grows, unless somebody has scrolled up. */
export function Turns({ turns, rangesOf, edit, isBusy, actions }: Props) {
  const list = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  useLayoutEffect(() => {
    if (isAtEnd.current && edit === null) list.current!.scrollTop = list.current!.scrollHeight;
  });
  return (
    <div
      ref={list}
      class="turns scroll"
      role="log"
      aria-label="Messages"
      aria-busy={isBusy}
      tabIndex={0}
      onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
        isAtEnd.current = scrollHeight - scrollTop - clientHeight < NEAR_PX;
      }}
    >
      {turns.length === 0 && <Welcome />}
      <ol>
        {turns.map((turn, index) => {
          const edited = edit?.turnId === turn.id ? edit : null;
          return (
            <TurnView
              key={turn.id}
              turn={turn}
              ranges={rangesOf && rangesOf(turn.id, edited?.text ?? turn.text)}
              edit={edited}
              isWriting={isBusy && index === turns.length - 1}
              isLast={index === turns.length - 1}
              actions={actions}
            />
          );
        })}
      </ol>
    </div>
  );
}

function Welcome() {
  return (
    <div class="welcome">
      <p>Every prompt’s beginning stays cached until its memory is needed.</p>
      <p class="muted">
        Say something, then edit a turn: you see what of the conversation stays shared with what is cached, and where it is left.
      </p>
    </div>
  );
}
