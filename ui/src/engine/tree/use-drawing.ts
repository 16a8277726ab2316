/** Keeps a canvas showing a layout, and moves it softly to the next one. */

import type { RefObject } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { paint } from "../../shell/theme";
import { useStore } from "../../store";
import { cleared, wantsNoMotion } from "../canvas";
import { drawTree, type Marks } from "./draw";
import type { Layout } from "./layout";
import { between, differs, GLIDE_MS, still } from "./motion";

const MOST_CELLS_MOVED = 3000; // more of them are set in place at once

export function useDrawing(canvas: RefObject<HTMLCanvasElement | null>, layout: Layout, marks: Marks): void {
  const shown = useRef<Layout>(layout);
  const frame = useRef(0);
  const latest = useRef(marks);
  latest.current = marks;
  const painted = useStore(paint);

  const draw = (before: Layout | null, progress: number): void => {
    if (!canvas.current || layout.width === 0) return;
    const context = cleared(canvas.current, layout);
    drawTree(context, before ? between(before, layout, progress) : still(layout), latest.current);
  };

  useLayoutEffect(() => {
    const before = shown.current;
    shown.current = layout;
    cancelAnimationFrame(frame.current);
    frame.current = 0;
    const moves = before.cells.length > 0 && before.cells.length + layout.cells.length < MOST_CELLS_MOVED;
    if (!moves || wantsNoMotion() || !differs(before, layout)) {
      draw(null, 1);
      return;
    }
    const begin = performance.now();
    const step = (): void => {
      const progress = Math.min(1, (performance.now() - begin) / GLIDE_MS);
      draw(progress < 1 ? before : null, progress);
      frame.current = progress < 1 ? requestAnimationFrame(step) : 0;
    };
    step();
  }, [layout]);

  useLayoutEffect(() => {
    if (frame.current === 0) draw(null, 1);
  }, [painted, marks.by, marks.hovered, marks.cursor, marks.selected, marks.found, marks.forest]);

  useLayoutEffect(() => () => cancelAnimationFrame(frame.current), []);
}
