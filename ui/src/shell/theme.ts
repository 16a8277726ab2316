import { Store } from "../store";

export type Theme = "system" | "light" | "dark";
const NAME = "minisgl-theme";
const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };

export const theme = new Store<Theme>(stored());
/** Goes up whenever colours change, by the switch or by the system: what draws on a canvas draws again. */
export const paint = new Store(0);

export function startTheme(): void {
  apply();
  theme.subscribe(apply);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => paint.update((count) => count + 1));
}

export function nextTheme(): void {
  theme.update((current) => NEXT[current]);
  localStorage.setItem(NAME, theme.value);
}

/** What a variable of theme.css is now, such as colorOf("--accent"), as rgb() that a canvas takes. */
export function colorOf(variable: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${variable})`;
  probe.style.forcedColorAdjust = "none"; // a drawing of one colour would say nothing
  document.body.append(probe);
  const color = getComputedStyle(probe).color;
  probe.remove();
  return color;
}

function apply(): void {
  if (theme.value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
  paint.update((count) => count + 1);
}

function stored(): Theme {
  const value = localStorage.getItem(NAME);
  return value === "light" || value === "dark" ? value : "system";
}
