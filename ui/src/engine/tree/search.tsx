import { useEffect, useMemo, useState } from "preact/hooks";
import { postJson } from "../../api/http";
import { count, plural } from "../../format";
import type { PathAnswer } from "../types";
import type { Forest } from "./forest";

type As = "prompt" | "chat";

export interface SearchState {
  query: string;
  setQuery: (query: string) => void;
  as: As;
  setAs: (as: As) => void;
  /** asks the server where the text lies as the beginning of a prompt */
  look: () => void;
  clear: () => void;
  /** ids of nodes; null: nothing is looked for */
  found: ReadonlySet<number> | null;
  said: string;
}

const SHORTEST = 2; // letters; one is nearly everywhere

export function useSearch(forest: Forest | null): SearchState {
  const [query, setQuery] = useState("");
  const [as, setAs] = useState<As>("chat");
  const [path, setPath] = useState<PathAnswer | null>(null);
  const [error, setError] = useState("");
  useEffect(() => {
    setPath(null);
    setError("");
  }, [query, as]);
  const matches = useMemo(() => (forest ? nodesWith(forest, query) : null), [forest, query]);

  const look = async (): Promise<void> => {
    if (!query) return;
    try {
      setPath(await postJson<PathAnswer>("inspect/path", bodyOf(query, as)));
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    }
  };
  const found = useMemo(() => (path ? new Set(path.nodes) : matches), [path, matches]);
  const said = error || (path ? pathInWords(path) : matches ? `${plural(matches.size, "node")} with this text` : "");
  return { query, setQuery, as, setAs, look: () => void look(), clear: () => setQuery(""), found, said };
}

function bodyOf(query: string, as: As): object {
  return as === "chat" ? { messages: [{ role: "user", content: query }] } : { prompt: query };
}

/** Those whose shown text has it; null if nothing is looked for, or no text is shown. */
function nodesWith({ answer }: Forest, query: string): Set<number> | null {
  if (query.length < SHORTEST || !answer.nodes.some((node) => node.text !== undefined)) return null;
  const wanted = query.toLowerCase();
  return new Set(answer.nodes.filter((node) => node.text?.toLowerCase().includes(wanted)).map((node) => node.id));
}

function pathInWords({ prompt_tokens, matched_tokens }: PathAnswer): string {
  if (matched_tokens === 0) return "No token of it is cached.";
  return `${count(matched_tokens)} of ${plural(prompt_tokens, "token")} cached.`;
}

export function Search({ search }: { search: SearchState }) {
  return (
    <form
      class="tree-search"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        search.look();
      }}
    >
      <input
        type="search"
        aria-label="Find a prompt in the tree"
        placeholder="Find a prompt …"
        value={search.query}
        onInput={(event) => search.setQuery(event.currentTarget.value)}
        onKeyDown={(event) => event.key === "Escape" && search.clear()}
      />
      <select
        aria-label="What the text is"
        value={search.as}
        onChange={(event) => search.setAs(event.currentTarget.value as As)}
      >
        <option value="chat">as a message</option>
        <option value="prompt">as raw text</option>
      </select>
      <button type="submit" disabled={!search.query}>
        Find
      </button>
      <span class="small muted" role="status">
        {search.said}
      </span>
    </form>
  );
}
