import { Store } from "../store";

const KEY_NAME = "minisgl-key";

/** What the server wants before it answers: the key, which lives as long as this tab. */
export const keyNeeded = new Store<"no" | "missing" | "wrong">("no");

/** An answer that is no success. status 0: there was no answer. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly code: string | null = null,
    readonly param: string | null = null,
  ) {
    super(message);
  }
}

export function setKey(key: string): void {
  sessionStorage.setItem(KEY_NAME, key);
  keyNeeded.set("no");
}

/** `path` without a slash in front: the page may be served below another path. ApiError if it does not succeed. */
export async function call(path: string, init: RequestInit = {}): Promise<Response> {
  const key = sessionStorage.getItem(KEY_NAME);
  const headers = new Headers(init.headers);
  if (key !== null) headers.set("Authorization", `Bearer ${key}`);
  let response: Response;
  try {
    response = await fetch(path, { cache: "no-store", ...init, headers });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "the server does not answer");
  }
  if (response.ok) return response;
  if (response.status === 401) keyNeeded.set(key === null ? "missing" : "wrong");
  throw await readError(response);
}

export async function getJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await call(path, signal ? { signal } : {});
  return (await response.json()) as T;
}

export async function postJson<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  const response = await post(path, body, signal);
  return (await response.json()) as T;
}

export function post(path: string, body: unknown, signal?: AbortSignal): Promise<Response> {
  const headers = { "Content-Type": "application/json" };
  return call(path, { method: "POST", body: JSON.stringify(body), headers, ...(signal ? { signal } : {}) });
}

async function readError(response: Response): Promise<ApiError> {
  try {
    const { error } = (await response.json()) as { error: { message: string; code: string | null; param: string | null } };
    return new ApiError(response.status, error.message, error.code, error.param);
  } catch {
    return new ApiError(response.status, `the server answered with status ${response.status}`);
  }
}
