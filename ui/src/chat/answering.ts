import { noteFailure } from "../api/connection";
import { readEvents } from "../api/events";
import { ApiError, getJson, post, postJson } from "../api/http";
import type { Explanation, Usage } from "../api/types";
import { Store } from "../store";
import { change, changeTurn, find } from "./conversations";
import { newId, PAGE_MAX_TOKENS, promptOf, type AnswerStats, type Sampling, type Turn } from "./model";

/** Of a chat (delta) or of a completion (text). */
interface Chunk {
  choices: { delta?: { content?: string }; text?: string; token_ids?: number[]; finish_reason: "stop" | "length" | null }[];
  usage?: Usage | null;
  explanation?: Explanation | null;
  error?: { message: string };
}

/** Conversations whose answer is being written, and how it is stopped. */
export const running = new Store<ReadonlyMap<string, AbortController>>(new Map());
/** false once the server has refused to explain. */
let explains = true;

export function stop(id: string): void {
  running.value.get(id)?.abort();
}

/** Say something, and have it answered. */
export function send(id: string, text: string): void {
  change(id, ({ turns }) => ({ turns: [...turns, { id: newId(), role: "user", text }] }));
  void answer(id);
}

/** Have the turn before this one answered anew; what came after it is gone. */
export function regenerate(id: string, turnId: string): void {
  stop(id);
  change(id, ({ turns }) => ({ turns: turns.slice(0, turns.findIndex((turn) => turn.id === turnId)) }));
  void answer(id);
}

/** Have something else said at this turn, and answered; what came after it is gone. */
export function sayInstead(id: string, turnId: string, text: string): void {
  stop(id);
  change(id, ({ turns }) => {
    const place = turns.findIndex((turn) => turn.id === turnId);
    return { turns: [...turns.slice(0, place), { id: newId(), role: "user", text }] };
  });
  void answer(id);
}

/** Have the last answer, which was cut or stopped, taken up where it ends. */
export function goOn(id: string, turnId: string): void {
  const conversation = find(id);
  const turn = conversation?.turns.at(-1);
  if (conversation === undefined || turn?.id !== turnId || running.value.has(id)) return;
  const { error: _, ...rest } = turn;
  change(id, ({ turns }) => ({ turns: [...turns.slice(0, -1), rest] }));
  void run(id, new Writing(id, turn), async (signal, writing) => {
    const { messages } = promptOf(conversation, conversation.turns.slice(0, -1));
    const tokenIds = await knownTokens(turn, signal);
    if (tokenIds === null) {
      writing.forgetTokens();
      const last = { role: "assistant", content: turn.text };
      return { path: CHAT, body: { messages: [...messages, last], continue_final_message: true, add_generation_prompt: false } };
    }
    const { tokens } = await postJson<{ tokens: number[] }>("tokenize", { messages }, signal);
    return { path: "v1/completions", body: { prompt: [...tokens, ...tokenIds] } };
  });
}

async function answer(id: string): Promise<void> {
  const conversation = find(id);
  if (conversation === undefined) return;
  const turn: Turn = { id: newId(), role: "assistant", text: "" };
  change(id, ({ turns }) => ({ turns: [...turns, turn] }));
  const { messages } = promptOf(conversation);
  await run(id, new Writing(id, turn), () => Promise.resolve({ path: CHAT, body: { messages } }));
}

const CHAT = "v1/chat/completions";

interface Request {
  path: string;
  body: object;
}

/** The tokens of an answer, if they still are its text: it may have been changed, or another model be served by now. */
async function knownTokens({ text, tokenIds }: Turn, signal: AbortSignal): Promise<number[] | null> {
  if (tokenIds === undefined || tokenIds.length === 0) return null;
  return plain(await textOf(tokenIds, signal)) === plain(text) ? tokenIds : null;
}

async function textOf(tokens: readonly number[], signal?: AbortSignal): Promise<string> {
  return (await postJson<{ text: string }>("detokenize", { tokens, skip_special_tokens: true }, signal)).text;
}

/** Without a character that was cut off at the end, and a space at the beginning, which decoders treat as they like. */
function plain(text: string): string {
  return whole(text).trimStart();
}

/** Without a character that was cut off at the end. */
function whole(text: string): string {
  return text.replace(/\uFFFD+$/, "");
}

async function run(id: string, writing: Writing, prepare: (signal: AbortSignal, writing: Writing) => Promise<Request>): Promise<void> {
  const abort = new AbortController();
  running.update((all) => new Map(all).set(id, abort));
  try {
    const { path, body } = await prepare(abort.signal, writing);
    await write(path, { ...body, ...given(find(id)!.sampling) }, writing, abort.signal);
  } catch (error) {
    noteFailure(error);
    writing.fail(error, abort.signal.aborted);
  } finally {
    await writing.close();
    if (running.value.get(id) === abort) {
      running.update((all) => new Map([...all].filter(([each]) => each !== id)));
    }
  }
  void writing.askForQueue();
}

async function write(path: string, what: object, writing: Writing, signal: AbortSignal): Promise<void> {
  const body = { ...what, stream: true, stream_options: { include_usage: true }, return_token_ids: true };
  const response = await ask(path, body, signal);
  writing.requestId = response.headers.get("x-request-id");
  for await (const event of readEvents(response)) {
    const chunk = event as Chunk;
    if (chunk.error) throw new ApiError(response.status, chunk.error.message);
    writing.take(chunk);
  }
}

/** A server that cannot explain refuses the field; then it is asked without, from then on. */
async function ask(path: string, body: object, signal: AbortSignal): Promise<Response> {
  try {
    return await post(path, explains ? { ...body, explain: true } : body, signal);
  } catch (error) {
    if (!(explains && error instanceof ApiError && error.status === 400 && /\bexplain\b/.test(error.message))) throw error;
    explains = false;
    return post(path, body, signal);
  }
}

function given(sampling: Sampling): Partial<Sampling> {
  const set = Object.fromEntries(Object.entries(sampling).filter(([, value]) => value !== null));
  return { max_tokens: PAGE_MAX_TOKENS, ...set };
}

/** One answer as it comes: its text goes to the page once a frame, however fast tokens are. */
class Writing {
  requestId: string | null = null;
  private readonly startedAt = performance.now();
  private text: string;
  /** null: not known. */
  private tokenIds: number[] | null;
  /** Whether the text that there was ends within a character. */
  private readonly isTorn: boolean;
  private frame: number | null = null;
  private stats: AnswerStats = {
    finish: null,
    promptTokens: null,
    cachedTokens: null,
    generatedTokens: null,
    firstMs: null,
    totalMs: 0,
    queueMs: null,
    explanation: null,
  };
  private error: string | null = null;

  /** turn: what there is of the answer, maybe nothing. */
  constructor(
    private readonly id: string,
    private readonly turn: Turn,
  ) {
    this.text = whole(turn.text);
    this.tokenIds = turn.text === "" ? [] : (turn.tokenIds ?? null);
    this.isTorn = this.text !== turn.text;
  }

  /** The text was changed: what comes is behind other tokens. */
  forgetTokens(): void {
    this.tokenIds = null;
  }

  take(chunk: Chunk): void {
    const choice = chunk.choices[0];
    if (choice?.token_ids && this.tokenIds !== null) this.tokenIds = [...this.tokenIds, ...choice.token_ids];
    const text = choice?.delta?.content ?? choice?.text;
    if (text) {
      this.stats.firstMs ??= performance.now() - this.startedAt;
      this.text += text;
      this.frame ??= requestAnimationFrame(() => this.show());
    }
    if (choice?.finish_reason) this.stats.finish = choice.finish_reason;
    if (chunk.explanation) this.stats.explanation = chunk.explanation;
    if (chunk.usage) {
      this.stats.promptTokens = chunk.usage.prompt_tokens;
      this.stats.cachedTokens = chunk.usage.prompt_tokens_details?.cached_tokens ?? null;
      this.stats.generatedTokens = chunk.usage.completion_tokens;
    }
  }

  fail(error: unknown, wasStopped: boolean): void {
    this.stats.finish = wasStopped ? "stopped" : "failed";
    if (!wasStopped) this.error = error instanceof Error ? error.message : String(error);
  }

  async close(): Promise<void> {
    if (this.frame !== null) cancelAnimationFrame(this.frame);
    this.stats.totalMs = performance.now() - this.startedAt;
    await this.mend();
    const stats = this.text === "" && this.error !== null ? {} : { stats: { ...this.stats } };
    const error = this.error === null ? {} : { error: this.error };
    const tokens = this.tokenIds === null || this.stats.finish === "stop" ? {} : { tokenIds: this.tokenIds };
    change(this.id, ({ turns }) => ({
      turns: turns.map((turn) => {
        if (turn.id !== this.turn.id) return turn;
        const { tokenIds: _, ...rest } = turn;
        return { ...rest, text: this.text, ...tokens, ...stats, ...error };
      }),
    }));
  }

  /** A character whose first bytes came in one answer and the others in the next is in none of their texts. */
  private async mend(): Promise<void> {
    if (!this.isTorn || this.tokenIds === null) return;
    try {
      this.text = /^\s*/.exec(this.text)![0] + (await textOf(this.tokenIds)).trimStart();
    } catch {
      // The server is gone: the text stays as it came.
    }
  }

  /** How long the engine let it wait, of which a stream says nothing. */
  async askForQueue(): Promise<void> {
    if (this.requestId === null || this.stats.firstMs === null) return;
    try {
      const path = "inspect/requests?limit=64";
      const { requests } = await getJson<{ requests: { request_id: string; queue_s: number | null }[] }>(path);
      const queue = requests.find((each) => each.request_id === this.requestId)?.queue_s;
      if (queue != null) changeTurn(this.id, this.turn.id, { stats: { ...this.stats, queueMs: queue * 1000 } });
    } catch {
      // An older server, or one that is just going: the figure is left out.
    }
  }

  private show(): void {
    this.frame = null;
    changeTurn(this.id, this.turn.id, { text: this.text });
  }
}
