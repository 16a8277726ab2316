/** Prompt tokens by cause: shares, differences, and what they mean in sentences. */

import { CAUSES, type Cause, type Causes, type Explanation } from "../api/types";
import { count, duration, tokens } from "./format";

/** Of these nothing had to be computed. */
const FOUND: readonly Cause[] = ["hit", "joined"];

export interface CauseShare {
  cause: Cause;
  tokens: number;
  share: number;
}

/** Those that are not 0, in the order of CAUSES. */
export function shares(causes: Causes): CauseShare[] {
  const total = totalTokens(causes);
  return CAUSES.map((cause) => ({
    cause,
    tokens: causes[cause] ?? 0,
    share: (causes[cause] ?? 0) / (total || 1),
  })).filter((part) => part.tokens > 0);
}

export function totalTokens(causes: Causes): number {
  return CAUSES.reduce((sum, cause) => sum + (causes[cause] ?? 0), 0);
}

export function foundTokens(causes: Causes): number {
  return FOUND.reduce((sum, cause) => sum + (causes[cause] ?? 0), 0);
}

/** The cause of most of the tokens that were not found; null if all were, or only the last one was not. */
export function mainMiss(causes: Causes): Cause | null {
  const missed = CAUSES.filter((cause) => !FOUND.includes(cause) && cause !== "last_token");
  const worst = missed.reduce((a, b) => ((causes[b] ?? 0) > (causes[a] ?? 0) ? b : a));
  return causes[worst] ? worst : null;
}

/** One sentence for each cause, and one for where the prompt left what came closest. */
export function inWords(explanation: Explanation): string[] {
  const { causes } = explanation;
  const total = totalTokens(causes);
  const sentences = shares(causes).map((part) => sentence(part, explanation));
  if (foundTokens(causes) === 0) sentences.unshift(`None of its ${tokens(total)} were found in the cache.`);
  return [...sentences, whereItLeft(explanation, total)];
}

function sentence({ cause, tokens: number }: CauseShare, explanation: Explanation): string {
  const some = tokens(number);
  const were = number === 1 ? "was" : "were";
  switch (cause) {
    case "hit":
      return `${some} ${were} found in the cache.`;
    case "joined":
      return `${some} ${were} being computed by a running request; this one waited for it, and computed none of them.`;
    case "last_token":
      return `${some} had to be computed in any case: the model must see the last one, with its page, to answer.`;
    case "below_page":
      return `${some} ${number === 1 ? "is" : "are"} known, but fill no whole page, and only whole pages are cached.`;
    case "evicted":
      return `${some} had been cached, and ${were} evicted for want of memory${evictedWhen(explanation)}.`;
    case "other_namespace":
      return `${some} ${were} cached under another cache salt, and salts share nothing.`;
    case "never_seen":
      return `${some} ${were} new: no prompt before had them at this place.`;
    case "not_looked_up":
      return `For ${some} the cache was not asked: log-probabilities of the prompt were wanted, or nothing is cached.`;
  }
}

function evictedWhen({ evicted_s, evicted_tokens }: Explanation): string {
  const parts = [
    evicted_s == null ? "" : duration(evicted_s),
    evicted_tokens == null ? "" : `${count(evicted_tokens)} evicted tokens`,
  ].filter(Boolean);
  return parts.length ? `, ${parts.join(" and ")} earlier` : "";
}

function whereItLeft({ left_at }: Explanation, total: number): string {
  if (left_at === null) return "It never asked the cache.";
  if (left_at >= total) return "All of it was known: it never left what was seen before.";
  if (left_at === 0) return "It shares no beginning with anything seen before.";
  return `It left the closest prompt at token ${left_at.toLocaleString("en-US")} of ${total.toLocaleString("en-US")}.`;
}
