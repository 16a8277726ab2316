import { Store } from "../store";
import { ApiError, getJson, keyNeeded } from "./http";
import type { Model, ModelList } from "./types";

/** "gone": nobody answers. "locked": it wants a key. */
export type Connection = "connecting" | "loading" | "ready" | "draining" | "dead" | "gone" | "locked";

export const connection = new Store<Connection>("connecting");
/** The one model; null until it is known. */
export const model = new Store<Model | null>(null);

const READY_MS = 5000;
const WAITING_MS = 1000;
const PATIENCE_MS = 10_000; // a server that hangs answers nothing at all

/** Asks the server again and again how it is; the page is drawn by what comes. Call it once. */
export async function watchConnection(): Promise<void> {
  for (;;) {
    connection.set(await look());
    await pause(connection.value === "ready" ? READY_MS : WAITING_MS);
  }
}

/** Somebody noticed that the server is gone before the next look. */
export function noteFailure(error: unknown): void {
  if (error instanceof ApiError && error.status === 0) connection.set("gone");
}

async function look(): Promise<Connection> {
  const health = await askHealth();
  if (health !== "ready") {
    if (health === "gone") model.set(null);
    return health;
  }
  if (keyNeeded.value !== "no") return "locked";
  if (model.value !== null) return "ready";
  try {
    const { data } = await getJson<ModelList>("v1/models");
    model.set(data[0] ?? null);
    return "ready";
  } catch (error) {
    return error instanceof ApiError && error.status === 401 ? "locked" : "connecting";
  }
}

async function askHealth(): Promise<Connection> {
  try {
    const response = await fetch("health", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    const { status } = (await response.json()) as { status: string };
    if (status === "ok") return "ready";
    return status === "loading" || status === "draining" || status === "dead" ? status : "gone";
  } catch {
    return "gone";
  }
}

/** Shorter when the tab comes back to the front or the key was given. */
function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", done);
      forget();
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    document.addEventListener("visibilitychange", done);
    const forget = keyNeeded.subscribe(done);
  });
}
