/** What the server answers under /inspect, as docs/api.md describes it. Times are in seconds. */

import type { Causes, Explanation } from "../api/types";

export interface Stats {
  num_running: number;
  num_waiting: number;
  num_pages: number;
  page_size: number;
  free_pages: number;
  evictable_tokens: number;
  protected_tokens: number;
  queried_tokens: number;
  hit_tokens: number;
  evicted_tokens: number;
  computed_tokens: number;
  generated_tokens: number;
  num_finished: number;
  num_retracted: number;
}

/** begin_s and device_s are on the clock of now_s, the other times are durations. */
export interface Step {
  step: number;
  begin_s: number;
  plan_s: number;
  launch_s: number;
  wait_s: number;
  commit_s: number;
  device_s: [number, number] | null;
  prefills: [uid: number, begin: number, end: number][];
  decodes: number[];
  admitted: number[];
  retracted: number[];
  finished: number[];
  arrived?: [uid: number, at: number, prompt_tokens: number][];
  evicted_tokens: number;
  free_tokens: number;
  evictable_tokens: number;
  protected_tokens: number;
  num_waiting: number;
}

export interface OpenRequest {
  uid: number;
  request_id: string | null;
  state: "waiting" | "prefill" | "decode";
  prompt_tokens: number;
  cached_tokens: number;
  done_tokens: number;
  generated_tokens: number;
  arrived_s: number;
  admitted_s: number | null;
  waits_for: number | null;
}

export interface Quantiles {
  p50: number;
  p90: number;
  p99: number;
}

export interface Latency {
  first_token_s: Quantiles | null;
  token_gap_s: Quantiles | null;
  total_s: Quantiles | null;
  queue_s: Quantiles | null;
}

export interface CapacityPoint {
  factor: number;
  hit_rate: number;
}

export interface Activity {
  now_s: number;
  next: number;
  stats: Stats;
  capacity: CapacityPoint[];
  causes: Causes;
  steps: Step[];
  requests: OpenRequest[];
  latency: Latency;
}

/** folded: children that the list leaves out, with what is below them. text only with --ui-show-text. */
export interface TreeNode {
  id: number;
  parent: number | null;
  tokens: number;
  subtree_tokens: number;
  subtree_nodes: number;
  locks: number;
  age: number;
  namespace: number;
  folded_nodes: number;
  folded_tokens: number;
  text?: string;
}

/** nodes: parents before their children. */
export interface TreeAnswer {
  clock: number;
  page_size: number;
  num_nodes: number;
  num_tokens: number;
  root: number;
  nodes: TreeNode[];
  /** of namespaces, by the id of their root; only with --ui-show-text */
  salts?: Record<string, string>;
}

export interface NodeUser {
  uid: number;
  request_id: string | null;
  state: string;
}

export interface NodeAnswer {
  id: number;
  path_tokens: number;
  tokens: number;
  locks: number;
  age: number;
  users: NodeUser[];
  waiting: NodeUser[];
  text?: string;
}

export interface PathAnswer {
  prompt_tokens: number;
  matched_tokens: number;
  nodes: number[];
}

export interface PastRequest {
  request_id: string;
  uids: number[];
  endpoint: string;
  /** seconds since 1970 */
  started_at: number;
  status: number;
  prompt_tokens: number | null;
  cached_tokens: number | null;
  generated_tokens: number | null;
  queue_s: number | null;
  first_token_s: number | null;
  total_s: number | null;
  finish_reason: string | null;
  explanation: Explanation | null;
}
