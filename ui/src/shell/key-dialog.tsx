import { useState } from "preact/hooks";
import { keyNeeded, setKey } from "../api/http";
import { useStore } from "../store";
import { Dialog } from "./dialog";

/** Asks for the server's key, when it wants one. */
export function KeyDialog() {
  const needed = useStore(keyNeeded);
  const [key, write] = useState("");
  if (needed === "no") return null;
  return (
    <Dialog title="This server wants an API key">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          setKey(key.trim());
          write("");
        }}
      >
        <p class="muted">It is kept in this tab until you close it, and sent to this server only.</p>
        <label class="field">
          <span>API key</span>
          <input type="password" autocomplete="off" required autofocus value={key} onInput={(event) => write(event.currentTarget.value)} />
        </label>
        <p class="error" role="alert">
          {needed === "wrong" ? "The server refused that key." : ""}
        </p>
        <div class="dialog-buttons">
          <button class="primary" type="submit">
            Go on
          </button>
        </div>
      </form>
    </Dialog>
  );
}
