import { useEffect, useId, useState } from "preact/hooks";
import { model } from "../api/connection";
import { useStore } from "../store";
import { change } from "./conversations";
import { PAGE_MAX_TOKENS, SERVER_SAMPLING, type Conversation, type Sampling } from "./model";

interface Control {
  name: keyof Sampling;
  min: number;
  max?: number;
  step: number;
  fallback: string;
  meaning: string;
}

const CONTROLS: Control[] = [
  { name: "temperature", min: 0, max: 2, step: 0.05, fallback: "1", meaning: "0 always takes the likeliest token" },
  { name: "top_p", min: 0, max: 1, step: 0.01, fallback: "1", meaning: "choose among the likeliest tokens with this probability together" },
  { name: "top_k", min: -1, step: 1, fallback: "all", meaning: "choose among so many of the likeliest tokens" },
  { name: "max_tokens", min: 1, step: 1, fallback: String(PAGE_MAX_TOKENS), meaning: "longest answer; what is cut can go on" },
  { name: "seed", min: 0, step: 1, fallback: "random", meaning: "the same seed gives the same answer" },
];

/** How this conversation's tokens are chosen, and what the model is told before it. */
export function SamplingPanel({ conversation }: { conversation: Conversation }) {
  const defaults = useStore(model)?.sampling_defaults ?? {};
  const system = useId();
  const set = (name: keyof Sampling, value: number | null): void =>
    change(conversation.id, ({ sampling }) => ({ sampling: { ...sampling, [name]: value } }));
  return (
    <section class="sampling" aria-label="Settings of this conversation">
      <label class="small muted" for={system}>
        System prompt
      </label>
      <textarea
        id={system}
        rows={2}
        value={conversation.system}
        placeholder="As the model's template has it"
        onInput={(event) => {
          const text = event.currentTarget.value;
          change(conversation.id, () => ({ system: text }));
        }}
      />
      <div class="controls">
        {CONTROLS.map((control) => (
          <SamplingField
            key={control.name}
            control={control}
            value={conversation.sampling[control.name]}
            fallback={defaults[control.name]?.toString() ?? control.fallback}
            onChange={(value) => set(control.name, value)}
          />
        ))}
        <button class="quiet" onClick={() => change(conversation.id, () => ({ sampling: SERVER_SAMPLING }))}>
          Reset
        </button>
      </div>
      <p class="small muted defaults">
        Where nothing is set: {shown(defaults)}, at most {PAGE_MAX_TOKENS} tokens at a time.
      </p>
    </section>
  );
}

/** Such as "temperature 0.2, top_p 0.9"; nothing is known before the model is loaded. */
function shown(defaults: Record<string, number>): string {
  const named = Object.entries(defaults).map(([name, value]) => `${name} ${value}`);
  return named.length > 0 ? named.join(", ") : "as the server does";
}

interface FieldProps {
  control: Control;
  value: number | null;
  fallback: string;
  onChange: (value: number | null) => void;
}

function SamplingField({ control, value, fallback, onChange }: FieldProps) {
  const { name, min, max, step, meaning } = control;
  const id = useId();
  const [text, write] = useState(textOf(value));
  useEffect(() => {
    if (Number(text) !== value) write(textOf(value)); // it was reset; "0." while 0.5 is typed stays
  }, [value]);
  const take = (written: string): void => {
    write(written);
    const number = Number(written);
    if (written.trim() === "") onChange(null);
    else if (Number.isFinite(number) && number >= min && number <= (max ?? Infinity)) onChange(number);
  };
  return (
    <div class="control" title={meaning}>
      <label class="small muted" for={id}>
        {name}
      </label>
      <input
        id={id}
        class="number"
        type="number"
        inputMode="decimal"
        {...{ min, max, step }}
        value={text}
        placeholder={fallback}
        onInput={(event) => take(event.currentTarget.value)}
      />
    </div>
  );
}

function textOf(value: number | null): string {
  return value === null ? "" : String(value);
}
