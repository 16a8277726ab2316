import type { Explanation } from "../api/types";

/** How tokens are chosen. null: as the server does when it is not told. */
export interface Sampling {
  temperature: number | null;
  top_p: number | null;
  top_k: number | null;
  max_tokens: number | null;
  seed: number | null;
}

/** What is shown under an answer. Times in milliseconds, as this page saw them; queueMs as the server did. */
export interface AnswerStats {
  finish: "stop" | "length" | "stopped" | "failed" | null;
  promptTokens: number | null;
  cachedTokens: number | null;
  generatedTokens: number | null;
  firstMs: number | null;
  totalMs: number;
  queueMs: number | null;
  explanation: Explanation | null;
}

export interface Turn {
  id: string;
  role: "user" | "assistant";
  text: string;
  /** The tokens of an answer, as the model wrote them; absent once somebody has changed its text. */
  tokenIds?: number[];
  stats?: AnswerStats;
  /** Why there is no answer, or no more of it. */
  error?: string;
}

export interface Conversation {
  id: string;
  /** Given by the user; null: the beginning of what they said first. */
  title: string | null;
  system: string;
  sampling: Sampling;
  turns: Turn[];
  changedAt: number;
}

export interface Message {
  role: "system" | "user" | "assistant";
  content: string;
}

export const SERVER_SAMPLING: Sampling = { temperature: null, top_p: null, top_k: null, max_tokens: null, seed: null };

/** Longest answer where nothing is set: a small model may go round in circles, and "Go on" takes up what was cut. */
export const PAGE_MAX_TOKENS = 512;

/** Whether there is more to come of an answer, as far as the page knows. */
export function mayGoOn({ role, text, stats }: Turn): boolean {
  const finish = stats?.finish ?? "stop";
  return role === "assistant" && text !== "" && finish !== "stop";
}

export function newId(): string {
  return crypto.getRandomValues(new Uint32Array(2)).reduce((id, part) => id + part.toString(36), "");
}

export function titleOf(conversation: Conversation): string {
  const said = conversation.turns[0]?.text.trim().replace(/\s+/g, " ") ?? "";
  return conversation.title ?? (said === "" ? "New conversation" : said.length > 60 ? `${said.slice(0, 59)}…` : said);
}

/** What the model is to read, and at which place of it a turn stands: answers that never came are left out. */
export interface Prompt {
  messages: Message[];
  places: ReadonlyMap<string, number>;
}

export function promptOf(conversation: Conversation, turns: readonly Turn[] = conversation.turns): Prompt {
  const messages: Message[] = [];
  const places = new Map<string, number>();
  if (conversation.system.trim() !== "") messages.push({ role: "system", content: conversation.system });
  for (const { id, role, text } of turns) {
    if (role === "assistant" && text === "") continue;
    places.set(id, messages.length);
    messages.push({ role, content: text });
  }
  return { messages, places };
}
