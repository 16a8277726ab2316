/** Answers of the server, as docs/api.md has them. */

export const CAUSES = [
  "hit",
  "joined",
  "evicted",
  "below_page",
  "other_namespace",
  "last_token",
  "never_seen",
  "not_looked_up",
] as const;
export type Cause = (typeof CAUSES)[number];
export type Causes = Partial<Record<Cause, number>>;

export interface Model {
  id: string;
  max_model_len: number;
  sampling_defaults: Record<string, number>;
}

export interface ModelList {
  data: Model[];
}

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  prompt_tokens_details?: { cached_tokens: number } | null;
}

/** Why a prompt's tokens had to be computed, or did not have to be. */
export interface Explanation {
  prompt_tokens?: number;
  cached_tokens?: number;
  causes: Causes;
  /** null: nothing was looked up. */
  left_at: number | null;
  evicted_s?: number | null;
  evicted_tokens?: number | null;
  around?: { before: string; after: string; branch?: string; same_text?: boolean } | null;
}

export interface Segment {
  cause: Cause;
  tokens: number;
  text: string;
}

export interface ExplainedPrompt extends Explanation {
  prompt_tokens: number;
  cached_tokens: number;
  segments: Segment[];
}
