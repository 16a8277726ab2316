import type { RefObject } from "preact";
import { useEffect, useState } from "preact/hooks";

/** Whether any part of the element is scrolled into view: nothing is asked for what nobody sees. */
export function useOnScreen(ref: RefObject<Element | null>): boolean {
  const [seen, set] = useState(true);
  useEffect(() => {
    const observer = new IntersectionObserver((entries) => set(entries[entries.length - 1]!.isIntersecting));
    observer.observe(ref.current!);
    return () => observer.disconnect();
  }, []);
  return seen;
}
