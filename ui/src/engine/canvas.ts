/** What drawings on a canvas share. */

import { useEffect, useState } from "preact/hooks";
import type { RefObject } from "preact";

export interface Size {
  width: number;
  height: number;
}

/** Of the element, in CSS pixels; 0 before it is there. */
export function useSize(ref: RefObject<HTMLElement | null>): Size {
  const [size, set] = useState<Size>({ width: 0, height: 0 });
  useEffect(() => {
    const element = ref.current;
    if (!element) return;
    const look = (): void => {
      const { clientWidth: width, clientHeight: height } = element;
      set((before) => (before.width === width && before.height === height ? before : { width, height }));
    };
    const observer = new ResizeObserver(look);
    observer.observe(element);
    look();
    return () => observer.disconnect();
  }, []);
  return size;
}

/** Empty, and as fine as the screen; its unit is the CSS pixel. */
export function cleared(canvas: HTMLCanvasElement, { width, height }: Size): CanvasRenderingContext2D {
  const scale = window.devicePixelRatio || 1;
  const [pixelsX, pixelsY] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== pixelsX || canvas.height !== pixelsY) {
    canvas.width = pixelsX;
    canvas.height = pixelsY;
  }
  const context = canvas.getContext("2d")!;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** As much of the text as fits, with an ellipsis if that is not all; "" if not even that would tell anything. */
export function fitted(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return low < 2 ? "" : `${text.slice(0, low)}…`;
}

export function wantsNoMotion(): boolean {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}
