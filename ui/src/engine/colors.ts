/** The theme's colours for canvases and charts, read once for each change of the theme. */

import { colorOf, paint } from "../shell/theme";

const known = new Map<string, string>();
paint.subscribe(() => known.clear());

/** color("--accent") as rgb(). */
export function color(variable: string): string {
  let value = known.get(variable);
  if (value === undefined) known.set(variable, (value = colorOf(variable)));
  return value;
}

/** Black or white, whichever is easier to read on this rgb(). */
export function inkOn(fill: string): string {
  const [red = 0, green = 0, blue = 0] = (fill.match(/[\d.]+/g) ?? []).map(Number);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#14171a" : "#ffffff";
}
