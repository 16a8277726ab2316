import { useEffect, useState } from "preact/hooks";
import { Store } from "../store";

export type View = "chat" | "both" | "engine";
const NAME = "minisgl-view";
const WIDE = matchMedia("(min-width: 1180px)");

export const view = new Store<View>(stored());

export function show(next: View): void {
  view.set(next);
  localStorage.setItem(NAME, next);
}

/** Whether chat and engine fit beside each other. */
export function useIsWide(): boolean {
  const [isWide, set] = useState(WIDE.matches);
  useEffect(() => {
    const change = (): void => set(WIDE.matches);
    WIDE.addEventListener("change", change);
    return () => WIDE.removeEventListener("change", change);
  }, []);
  return isWide;
}

function stored(): View {
  const value = localStorage.getItem(NAME);
  return value === "chat" || value === "engine" ? value : "both";
}
