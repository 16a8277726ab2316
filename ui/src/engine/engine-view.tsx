/** The engine at work. */
export function EngineView() {
  return <section class="engine" aria-label="Engine" />;
}
