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

export interface Wish {
  /** the least pause after an answer; one that took long is given a longer one */
  everyMs: number;
  /** a new topic is asked once, an old one no more */
  paused: boolean;
  /** while it is the same, nothing that the answer tells of can have changed, and nothing is asked; none: it always may */
  version?: string | undefined;
}

const RETRY_MS: Record<Trouble, number> = { missing: 30_000, waiting: 2_000, gone: 3_000 };

export function troubleOf(error: unknown): Trouble {
  const status = error instanceof ApiError ? error.status : 0;
  if (status === 404 || status === 405 || status === 501) return "missing";
  return status === 401 || status === 503 || status === 429 ? "waiting" : "gone";
}

const PATIENCE_MS = 35_000; // the server's own is 30 s
/** The server itself rests so long between two answers that cost it something: who asks sooner only waits. */
const REST = 2; // times what the answer took

/**
 * One question at a time, and none while the tab is hidden. A change of `topic` drops the answer that is under way and
 * asks at once.
 */
export function usePoll<Answer>(
  topic: string,
  ask: (signal: AbortSignal) => Promise<Answer>,
  { everyMs, paused, version }: Wish,
): Polled<Answer> {
  const [state, setState] = useState<Polled<Answer>>({ answer: null, topic: "", trouble: null, message: "" });
  const latest = useRef({ ask, version });
  latest.current = { ask, version };
  const poller = useRef<Poller | null>(null);
  const failed = useRef("");
  const answered = state.topic === topic && state.answer !== null;
  useEffect(() => {
    if (paused && answered) return;
    poller.current = poll(
      (signal) => latest.current.ask(signal),
      everyMs,
      () => latest.current.version,
      (answer) => setState({ answer, topic, trouble: null, message: "" }),
      (error) => {
        failed.current = topic;
        setState((before) => ({ ...before, trouble: troubleOf(error), message: messageOf(error) }));
      },
    );
    return poller.current.end;
  }, [topic, everyMs, paused, paused && answered]);
  useEffect(() => poller.current?.wake(), [version]);
  return failed.current === topic ? state : { ...state, trouble: null }; // that of another topic is not ours
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

interface Poller {
  /** There is another version. */
  wake: () => void;
  end: () => void;
}

function poll<Answer>(
  ask: (signal: AbortSignal) => Promise<Answer>,
  everyMs: number,
  version: () => string | undefined,
  onAnswer: (answer: Answer) => void,
  onError: (error: unknown) => void,
): Poller {
  const ended = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let asking = false;
  let sleeps = false; // until there is another version
  let answered: string | undefined;

  const round = async (): Promise<void> => {
    if (asking || document.hidden || ended.signal.aborted) return;
    const asked = version();
    sleeps = asked !== undefined && asked === answered;
    if (sleeps) return;
    asking = true;
    let pauseMs = everyMs;
    const begin = performance.now();
    try {
      const answer = await ask(AbortSignal.any([ended.signal, AbortSignal.timeout(PATIENCE_MS)]));
      if (!ended.signal.aborted) onAnswer(answer);
      answered = asked;
      pauseMs = Math.max(everyMs, REST * (performance.now() - begin));
    } catch (error) {
      if (!ended.signal.aborted) onError(error);
      pauseMs = Math.max(everyMs, RETRY_MS[troubleOf(error)]);
    }
    asking = false;
    if (!ended.signal.aborted) timer = setTimeout(round, pauseMs);
  };
  const again = (): void => {
    clearTimeout(timer);
    void round();
  };
  document.addEventListener("visibilitychange", again);
  const forget = keyNeeded.subscribe(again);
  void round();
  return {
    wake: () => {
      if (sleeps) void round();
    },
    end: () => {
      ended.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", again);
      forget();
    },
  };
}
