import { noteFailure } from "../api/connection";
import { readEvents } from "../api/events";
import { ApiError, getJson, post } from "../api/http";
import type { Explanation, Usage } from "../api/types";
import { Store } from "../store";
import { change, changeTurn, find } from "./conversations";
import { newId, promptOf, type AnswerStats, type Conversation, type Sampling, type Turn } from "./model";

interface Chunk {
  choices: { delta: { content?: string }; finish_reason: "stop" | "length" | null }[];
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

async function answer(id: string): Promise<void> {
  const conversation = find(id);
  if (conversation === undefined) return;
  const turn: Turn = { id: newId(), role: "assistant", text: "" };
  const abort = new AbortController();
  change(id, ({ turns }) => ({ turns: [...turns, turn] }));
  running.update((all) => new Map(all).set(id, abort));
  const writing = new Writing(id, turn.id);
  try {
    await write(conversation, writing, abort.signal);
  } catch (error) {
    noteFailure(error);
    writing.fail(error, abort.signal.aborted);
  } finally {
    writing.close();
    if (running.value.get(id) === abort) {
      running.update((all) => new Map([...all].filter(([each]) => each !== id)));
    }
  }
  void writing.askForQueue();
}

async function write(conversation: Conversation, writing: Writing, signal: AbortSignal): Promise<void> {
  const body = {
    messages: promptOf(conversation).messages,
    stream: true,
    stream_options: { include_usage: true },
    ...given(conversation.sampling),
  };
  const response = await ask(body, signal);
  writing.requestId = response.headers.get("x-request-id");
  for await (const event of readEvents(response)) {
    const chunk = event as Chunk;
    if (chunk.error) throw new ApiError(response.status, chunk.error.message);
    writing.take(chunk);
  }
}

/** A server that cannot explain refuses the field; then it is asked without, from then on. */
async function ask(body: object, signal: AbortSignal): Promise<Response> {
  try {
    return await post("v1/chat/completions", explains ? { ...body, explain: true } : body, signal);
  } catch (error) {
    if (!(explains && error instanceof ApiError && error.status === 400 && /\bexplain\b/.test(error.message))) throw error;
    explains = false;
    return post("v1/chat/completions", body, signal);
  }
}

function given(sampling: Sampling): Partial<Sampling> {
  return Object.fromEntries(Object.entries(sampling).filter(([, value]) => value !== null));
}

/** One answer as it comes: its text goes to the page once a frame, however fast tokens are. */
class Writing {
  requestId: string | null = null;
  private readonly startedAt = performance.now();
  private text = "";
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

  constructor(
    private readonly id: string,
    private readonly turnId: string,
  ) {}

  take(chunk: Chunk): void {
    const choice = chunk.choices[0];
    if (choice?.delta.content) {
      this.stats.firstMs ??= performance.now() - this.startedAt;
      this.text += choice.delta.content;
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

  close(): void {
    if (this.frame !== null) cancelAnimationFrame(this.frame);
    this.stats.totalMs = performance.now() - this.startedAt;
    const stats = this.text === "" && this.error !== null ? {} : { stats: { ...this.stats } };
    const error = this.error === null ? {} : { error: this.error };
    changeTurn(this.id, this.turnId, { text: this.text, ...stats, ...error });
  }

  /** How long the engine let it wait, of which a stream says nothing. */
  async askForQueue(): Promise<void> {
    if (this.requestId === null || this.stats.firstMs === null) return;
    try {
      const path = "inspect/requests?limit=64";
      const { requests } = await getJson<{ requests: { request_id: string; queue_s: number | null }[] }>(path);
      const queue = requests.find((each) => each.request_id === this.requestId)?.queue_s;
      if (queue != null) changeTurn(this.id, this.turnId, { stats: { ...this.stats, queueMs: queue * 1000 } });
    } catch {
      // An older server, or one that is just going: the figure is left out.
    }
  }

  private show(): void {
    this.frame = null;
    changeTurn(this.id, this.turnId, { text: this.text });
  }
}
