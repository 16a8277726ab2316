import type { Cause } from "./api/types";

/** What people read for a cause; the colour is --cause-NAME with hyphens. */
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

export function causeColor(cause: Cause): string {
  return `var(--cause-${cause.replaceAll("_", "-")})`;
}
