/** An explanation in sentences. */

import type { Explanation } from "../api/types";
import { count, duration, tokens } from "../format";
import { foundTokens, totalTokens, type CauseShare } from "./causes";

/** What became of the tokens of one cause. */
export function causeInWords({ cause, tokens: number }: CauseShare, explanation: Explanation): string {
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

/** Where the prompt left what came closest to it. */
export function leftAtInWords({ left_at, causes }: Explanation): string {
  const total = totalTokens(causes);
  if (left_at === null) return "It never asked the cache.";
  if (left_at >= total) return "All of it was known: it never left what was seen before.";
  if (left_at === 0) return "It shares no beginning with anything seen before.";
  return `It left the closest prompt at token ${left_at.toLocaleString("en-US")} of ${total.toLocaleString("en-US")}.`;
}

const MUCH = 0.5; // of a prompt; what is new at the end of a conversation is as it should be

/** What could be done about it; null if there is nothing, or little to win. */
export function adviceFor({ left_at, causes, around }: Explanation): string | null {
  if (around?.same_text) {
    return "The text is the same there, in other tokens: a sampled answer that comes back as text may be cut another way.";
  }
  const total = totalTokens(causes);
  if (left_at && left_at < total && (causes.never_seen ?? 0) >= MUCH * total) {
    return "From there on all is computed anew, even what is the same again: let what changes, such as a time or a name, stand last.";
  }
  if ((causes.evicted ?? 0) > foundTokens(causes)) return "More memory for the cache would have kept more of it.";
  return null;
}
