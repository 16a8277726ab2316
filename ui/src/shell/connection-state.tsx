import { useEffect } from "preact/hooks";
import { connection, model, type Connection } from "../api/connection";
import { useStore } from "../store";

const WORDS: Record<Connection, string> = {
  connecting: "connecting",
  loading: "loading the model",
  ready: "ready",
  draining: "shutting down",
  dead: "the engine has died",
  gone: "no server, trying again",
  locked: "wants a key",
};

/** Which model answers, and whether it does. */
export function ConnectionState() {
  const state = useStore(connection);
  const current = useStore(model);
  useEffect(() => {
    document.title = current ? `${current.id} · minisgl` : "minisgl";
  }, [current]);
  return (
    <div class="connection" data-state={state} role="status">
      <span class="dot" aria-hidden="true" />
      {current && <span class="model">{current.id}</span>}
      <span class={state === "ready" ? "hidden-label" : "state"}>{WORDS[state]}</span>
    </div>
  );
}
