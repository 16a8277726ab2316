/** From one drawing of the tree to the next: what stays glides, what is new fades in, what is gone fades out. */

import type { Cell, Layout } from "./layout";

export const GLIDE_MS = 260;

export interface Drawn {
  cell: Cell;
  x0: number;
  x1: number;
  y0: number;
  y1: number;
  alpha: number;
}

export function still(layout: Layout): Drawn[] {
  return layout.cells.map((cell) => ({ cell, x0: cell.x0, x1: cell.x1, y0: cell.y0, y1: cell.y1, alpha: 1 }));
}

/** progress: 0 to 1. */
export function between(before: Layout, after: Layout, progress: number): Drawn[] {
  const done = 1 - (1 - progress) ** 3;
  const mix = (from: number, to: number): number => from + (to - from) * done;
  const leaving = before.cells
    .filter((cell) => !after.byKey.has(cell.key))
    .map((cell) => ({ cell, x0: cell.x0, x1: cell.x1, y0: cell.y0, y1: cell.y1, alpha: 1 - done }));
  const staying = after.cells.map((cell) => {
    const old = before.byKey.get(cell.key);
    if (!old) return { cell, x0: cell.x0, x1: cell.x1, y0: cell.y0, y1: cell.y1, alpha: done };
    return {
      cell,
      x0: mix(old.x0, cell.x0),
      x1: mix(old.x1, cell.x1),
      y0: mix(old.y0, cell.y0),
      y1: mix(old.y1, cell.y1),
      alpha: 1,
    };
  });
  return [...leaving, ...staying];
}

/** Whether anything would be seen to move. */
export function differs(before: Layout, after: Layout): boolean {
  if (before.cells.length !== after.cells.length || before.width !== after.width) return true;
  return after.cells.some((cell) => {
    const old = before.byKey.get(cell.key);
    return (
      !old || Math.abs(old.y0 - cell.y0) > 0.5 || Math.abs(old.y1 - cell.y1) > 0.5 || Math.abs(old.x0 - cell.x0) > 0.5
    );
  });
}
