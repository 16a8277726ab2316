import { ApiError } from "./http";

/**
 * The JSON of every event of a stream of the server's, until its [DONE]; an event that is an error is given as it is.
 * ApiError if the connection breaks off.
 */
export async function* readEvents(response: Response): AsyncGenerator<unknown> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read().catch(brokenOff);
      if (done) return;
      const events = (rest + value).split("\n\n");
      rest = events.pop()!;
      for (const event of events) {
        if (event.startsWith(":")) continue; // a comment, so that no proxy takes a slow stream for dead
        const data = event.replace(/^data: /, "");
        if (data === "[DONE]") return;
        yield JSON.parse(data);
      }
    }
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}

/** What browsers call it says little: "network error", "terminated". */
function brokenOff(error: unknown): never {
  throw error instanceof TypeError ? new ApiError(0, "the connection to the server broke off") : error;
}
