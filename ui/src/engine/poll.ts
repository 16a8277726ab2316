/** Asks the server for the same thing again and again, while somebody looks. */

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, keyNeeded } from "../api/http";

/** "missing": the server is older than the page, or does not give this. "waiting": it loads, or wants a key. */
export type Trouble = "missing" | "waiting" | "gone";

export interface Polled<Answer> {
  answer: Answer | null;
  /** what was asked when the answer came */
  topic: string;
  /** null while all is well; the last answer stays */
  trouble: Trouble | null;
  message: string;
}

const RETRY_MS: Record<Trouble, number> = { missing: 30_000, waiting: 2_000, gone: 3_000 };

export function troubleOf(error: unknown): Trouble {
  const status = error instanceof ApiError ? error.status : 0;
  if (status === 404 || status === 405 || status === 501) return "missing";
  return status === 401 || status === 503 || status === 429 ? "waiting" : "gone";
}

/**
 * One question at a time; the next is asked `every_ms` after the answer. None while the tab is hidden. A change of
 * `topic` drops the answer that is under way and asks at once. paused: a new topic is asked once, an old one no more.
 */
export function usePoll<Answer>(
  topic: string,
  ask: (signal: AbortSignal) => Promise<Answer>,
  every_ms: number,
  paused: boolean,
): Polled<Answer> {
  const [state, setState] = useState<Polled<Answer>>({ answer: null, topic: "", trouble: null, message: "" });
  const latest = useRef(ask);
  latest.current = ask;
  const failed = useRef("");
  const answered = state.topic === topic && state.answer !== null;
  useEffect(() => {
    if (paused && answered) return;
    return poll(
      (signal) => latest.current(signal),
      every_ms,
      (answer) => setState({ answer, topic, trouble: null, message: "" }),
      (error) => {
        failed.current = topic;
        setState((before) => ({ ...before, trouble: troubleOf(error), message: messageOf(error) }));
      },
    );
  }, [topic, every_ms, paused, paused && answered]);
  return failed.current === topic ? state : { ...state, trouble: null }; // that of another topic is not ours
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Until what it returns is called. */
function poll<Answer>(
  ask: (signal: AbortSignal) => Promise<Answer>,
  every_ms: number,
  onAnswer: (answer: Answer) => void,
  onError: (error: unknown) => void,
): () => void {
  const ended = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let asking = false;

  const round = async (): Promise<void> => {
    if (asking || document.hidden || ended.signal.aborted) return;
    asking = true;
    let pause_ms = every_ms;
    try {
      const answer = await ask(ended.signal);
      if (!ended.signal.aborted) onAnswer(answer);
    } catch (error) {
      if (!ended.signal.aborted) onError(error);
      pause_ms = Math.max(every_ms, RETRY_MS[troubleOf(error)]);
    }
    asking = false;
    if (!ended.signal.aborted) timer = setTimeout(round, pause_ms);
  };
  const again = (): void => {
    clearTimeout(timer);
    void round();
  };
  document.addEventListener("visibilitychange", again);
  const forget = keyNeeded.subscribe(again);
  void round();
  return () => {
    ended.abort();
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", again);
    forget();
  };
}
