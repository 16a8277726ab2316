/** Which of the last requests are shown, and in what order. */

import type { Cause } from "../../api/types";
import { foundTokens, mainMiss, totalTokens } from "../../explain/causes";
import type { PastRequest } from "../types";

export type Column = "started" | "prompt" | "found" | "first" | "total";
export type Order = { column: Column; down: boolean };

export interface Filter {
  text: string;
  /** the cause of most of what was not found; "any": all requests */
  cause: Cause | "any" | "missed";
}

/** Larger comes first when down. null and NaN come last either way. */
export function arranged(requests: readonly PastRequest[], filter: Filter, { column, down }: Order): PastRequest[] {
  const kept = requests.filter((request) => passes(request, filter));
  return kept.sort((a, b) => {
    const [left, right] = [value(a, column), value(b, column)];
    if (left === null || right === null) return Number(left === null) - Number(right === null);
    return down ? right - left : left - right;
  });
}

function passes(request: PastRequest, { text, cause }: Filter): boolean {
  const said =
    `${request.request_id} ${request.endpoint} ${request.finish_reason ?? ""} ${request.status}`.toLowerCase();
  if (!said.includes(text.trim().toLowerCase())) return false;
  if (cause === "any") return true;
  const miss = request.explanation && mainMiss(request.explanation.causes);
  return cause === "missed" ? miss !== null : miss === cause;
}

function value(request: PastRequest, column: Column): number | null {
  switch (column) {
    case "started":
      return request.started_at;
    case "prompt":
      return request.prompt_tokens;
    case "found":
      return foundShare(request);
    case "first":
      return request.first_token_s;
    case "total":
      return request.total_s;
  }
}

/** Of its prompt; null if nothing is known of it. */
export function foundShare({ explanation, cached_tokens, prompt_tokens }: PastRequest): number | null {
  if (explanation && totalTokens(explanation.causes) > 0)
    return foundTokens(explanation.causes) / totalTokens(explanation.causes);
  if (cached_tokens === null || !prompt_tokens) return null;
  return cached_tokens / prompt_tokens;
}
