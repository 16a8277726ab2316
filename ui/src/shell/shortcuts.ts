import { useEffect, useRef } from "preact/hooks";
import { Store } from "../store";

interface Shortcut {
  /** As KeyboardEvent.key has it: "n", "?", "Escape". */
  key: string;
  does: string;
  run: () => void;
}

/** All that work now, in the order in which they came. */
export const shortcuts = new Store<readonly Shortcut[]>([]);

/** While the component is there, the key does this, but not while somebody types in a field. */
export function useShortcut(key: string, does: string, run: () => void): void {
  const latest = useRef(run);
  latest.current = run;
  useEffect(() => {
    const shortcut = { key, does, run: () => latest.current() };
    shortcuts.update((all) => [...all, shortcut]);
    return () => shortcuts.update((all) => all.filter((each) => each !== shortcut));
  }, [key, does]);
}

export function listenForShortcuts(): void {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]") !== null) return;
    const found = shortcuts.value.findLast((each) => each.key === event.key);
    if (found === undefined) return;
    event.preventDefault();
    found.run();
  });
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest("input, textarea, select, [contenteditable]") !== null;
}
