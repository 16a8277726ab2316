import type { Polled } from "./poll";

/** Why there is nothing to see, or why it stands still; nothing while all is well. */
export function Notice({ polled, what }: { polled: Polled<unknown>; what: string }) {
  if (polled.trouble === "missing")
    return <p class="empty">This server does not show {what}: it is older than this page.</p>;
  if (polled.trouble === "waiting") return <p class="empty">Waiting for the server: {polled.message}.</p>;
  if (polled.trouble === "gone")
    return (
      <p class="empty gone">
        The engine does not answer; trying again. {polled.answer ? "This is what it said last." : ""}
      </p>
    );
  if (!polled.answer) return <p class="empty">Asking for {what} …</p>;
  return null;
}
