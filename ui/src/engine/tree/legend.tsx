import type { ComponentChildren } from "preact";
import { AGES, ownerVariable, OWNERS } from "./colors";
import type { Forest } from "./forest";

export function AgeLegend() {
  const steps = Array.from({ length: AGES }, (_, step) => `var(--tree-age-${step})`);
  return (
    <Legend>
      <span>used last</span>
      <span class="ramp" aria-hidden="true">
        {steps.map((background) => (
          <i key={background} class="swatch" style={{ background }} />
        ))}
      </span>
      <span>long ago, first to go</span>
    </Legend>
  );
}

export function OwnerLegend({ forest }: { forest: Forest }) {
  const owners = [...new Set(forest.answer.nodes.map((node) => node.namespace))].sort((a, b) => a - b);
  return (
    <Legend>
      {owners.slice(0, OWNERS).map((owner) => (
        <span key={owner}>
          <i class="swatch" style={{ background: `var(${ownerVariable(owner)})` }} aria-hidden="true" /> {forest.ownerName(owner)}
        </span>
      ))}
      {owners.length > OWNERS && <span>and {owners.length - OWNERS} more, in the same colours again</span>}
    </Legend>
  );
}

function Legend({ children }: { children: ComponentChildren }) {
  return (
    <p class="marks small muted">
      {children}
      <span>
        <i class="swatch lock-mark" aria-hidden="true" /> held by a request
      </span>
      <span>
        <i class="swatch more-mark" aria-hidden="true" /> folded
      </span>
      <span>height: tokens with all that is below</span>
    </p>
  );
}
