/** Prompt tokens by cause: what the causes are called, and how much there is of each. */

import { CAUSES, type Cause, type Causes } from "../api/types";

export const CAUSE_TEXT: Record<Cause, { name: string; meaning: string }> = {
  hit: { name: "cached", meaning: "found in the prefix cache" },
  joined: { name: "joined", meaning: "a running request was computing them; this one waited and shares" },
  evicted: { name: "evicted", meaning: "had been cached, and went for want of memory" },
  below_page: { name: "below a page", meaning: "known, but they fill no whole page" },
  other_namespace: { name: "other salt", meaning: "cached under another cache_salt" },
  last_token: { name: "last token", meaning: "always computed, for the first answer comes from it" },
  never_seen: { name: "never seen", meaning: "nothing is known of them" },
  not_looked_up: { name: "not looked up", meaning: "the cache was not asked" },
};

/** Of these nothing had to be computed. */
const FOUND: readonly Cause[] = ["hit", "joined"];
/** Of these something else could have been; the last token is nobody's fault. */
export const MISSED: readonly Cause[] = CAUSES.filter((cause) => !FOUND.includes(cause) && cause !== "last_token");

/** The name of its colour in theme.css. */
export function causeVariable(cause: Cause): string {
  return `--cause-${cause.replaceAll("_", "-")}`;
}

export function causeColor(cause: Cause): string {
  return `var(${causeVariable(cause)})`;
}

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
  const worst = MISSED.reduce((a, b) => ((causes[b] ?? 0) > (causes[a] ?? 0) ? b : a));
  return causes[worst] ? worst : null;
}
