import { useEffect, useState } from "preact/hooks";
import { ApiError, postJson } from "../api/http";
import type { Cause, ExplainedPrompt } from "../api/types";
import type { Message } from "./model";

/** Characters from `begin` on, to `end`, that have this cause. */
export interface Range {
  begin: number;
  end: number;
  cause: Cause;
}

/** Messages explained, and for each of them where its text has which cause; nowhere if it was not found. */
export interface SharedPrefix {
  messages: Message[];
  prompt: ExplainedPrompt;
  ranges: Range[][];
}

const DEBOUNCE_MS = 250;
/** false once the server had no such endpoint. */
let isServed = true;

/** What of these messages a request would find cached right now; null until it is known. `messages` null: nothing is asked. */
export function useSharedPrefix(messages: readonly Message[] | null): SharedPrefix | null {
  const [shared, set] = useState<SharedPrefix | null>(null);
  const asked = messages === null || messages.length === 0 ? null : JSON.stringify(messages);
  useEffect(() => {
    if (asked === null) set(null);
    if (asked === null || !isServed) return;
    const abort = new AbortController();
    const timer = setTimeout(() => void explain(asked, abort.signal).then((found) => !abort.signal.aborted && set(found)), DEBOUNCE_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [asked]);
  return shared;
}

async function explain(asked: string, signal: AbortSignal): Promise<SharedPrefix | null> {
  const messages = JSON.parse(asked) as Message[];
  try {
    const prompt = await postJson<ExplainedPrompt>("cache/explain", { messages }, signal);
    return { messages, prompt, ranges: mapSegments(prompt, messages) };
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) isServed = false;
    return null;
  }
}

/** Of a message as it reads by now: what was typed since the answer came is not lit. */
export function rangesOf(shared: SharedPrefix | null, index: number | undefined, text: string): Range[] {
  if (shared === null || index === undefined) return [];
  const known = shared.messages[index]?.content;
  if (known === undefined) return [];
  const same = known === text ? text.length : commonLength(known, text);
  return shared.ranges[index]!.filter(({ begin }) => begin < same).map((range) => ({ ...range, end: Math.min(range.end, same) }));
}

function commonLength(a: string, b: string): number {
  let length = 0;
  while (length < a.length && a[length] === b[length]) length += 1;
  return length;
}

/** What templates write around messages: special tokens, and the name of a role behind one. */
const MARKUP = /(?:<[^<>\s]{1,40}>|\[\/?[A-Z_]{3,}\])(?:system|user|assistant|model|tool)?/g;

/** The template writes its own words around the messages, and may cut white space from their ends. */
export function mapSegments(prompt: ExplainedPrompt, messages: readonly Message[]): Range[][] {
  const rendered = prompt.segments.map(({ text }) => text).join("");
  const markup = [...rendered.matchAll(MARKUP)].map(({ index, 0: { length } }) => ({ begin: index, end: index + length }));
  let from = 0;
  return messages.map(({ content }) => {
    const text = [content, content.trim()].find((each) => each !== "" && rendered.includes(each, from));
    if (text === undefined) return [];
    const begin = findOutside(markup, rendered, text, from);
    from = begin + text.length;
    const shift = content.indexOf(text) - begin;
    return rangesWithin(prompt, begin, from).map((range) => ({ ...range, begin: range.begin + shift, end: range.end + shift }));
  });
}

/** The first place of a text that is there, but not one within markup if there is another: "user" may be said too. */
function findOutside(markup: readonly { begin: number; end: number }[], rendered: string, text: string, from: number): number {
  const first = rendered.indexOf(text, from);
  for (let at = first; at >= 0; at = rendered.indexOf(text, at + 1)) {
    if (!markup.some(({ begin, end }) => begin <= at && at + text.length <= end)) return at;
  }
  return first;
}

function rangesWithin(prompt: ExplainedPrompt, begin: number, end: number): Range[] {
  const found: Range[] = [];
  let at = 0;
  for (const { cause, text } of prompt.segments) {
    const range = { begin: Math.max(at, begin), end: Math.min(at + text.length, end), cause };
    if (range.begin < range.end) found.push(range);
    at += text.length;
  }
  return found;
}
