import { getJson } from "../../api/http";
import { CloseIcon } from "../../shell/icons";
import { count, plural, visible } from "../../format";
import { usePoll } from "../poll";
import type { NodeAnswer, NodeUser } from "../types";

interface Props {
  id: number;
  paused: boolean;
  version: string | undefined;
  onClose: () => void;
  onZoom: () => void;
}

const EVERY_MS = 1000;

/** Who uses a node, and what is known of it. */
export function NodeDetails({ id, paused, version, onClose, onZoom }: Props) {
  const polled = usePoll(`${id}`, (signal) => getJson<NodeAnswer>(`inspect/tree/${id}`, signal), {
    everyMs: EVERY_MS,
    paused,
    version,
  });
  const node = polled.answer;
  const gone = polled.trouble === "missing";
  return (
    <aside class="node-details scroll" aria-label="Node">
      <header>
        <h3>{node ? `${count(node.tokens)} tokens` : "Node"}</h3>
        <button class="quiet icon" onClick={onClose} aria-label="Close" title="Close">
          <CloseIcon />
        </button>
      </header>
      {gone && <p class="muted">It is no longer in the tree.</p>}
      {polled.trouble && !gone && <p class="muted">{polled.message}</p>}
      {!node && !polled.trouble && <p class="muted">Asking …</p>}
      {node && !gone && (
        <>
          <dl class="facts">
            <dt>in the prompt</dt>
            <dd class="number">
              tokens {count(node.path_tokens - node.tokens)} to {count(node.path_tokens)}
            </dd>
            <dt>last used</dt>
            <dd class="number">{node.age === 0 ? "just now" : `${plural(node.age, "use")} of the cache ago`}</dd>
            <dt>locks</dt>
            <dd class="number">{node.locks === 0 ? "none, may be evicted" : count(node.locks)}</dd>
          </dl>
          <Users title="Used by" users={node.users} none="Nobody: it is kept for whoever comes next." />
          {node.waiting.length > 0 && <Users title="Waited for by" users={node.waiting} none="" />}
          {node.text && (
            <>
              <h4>Ends with</h4>
              <p class="mono node-text">{visible(node.text)}</p>
            </>
          )}
          <button onClick={onZoom}>Zoom in</button>
        </>
      )}
    </aside>
  );
}

const MOST = 20;

function Users({ title, users, none }: { title: string; users: NodeUser[]; none: string }) {
  return (
    <>
      <h4>{title}</h4>
      {users.length === 0 && <p class="muted">{none}</p>}
      <ul>
        {users.slice(0, MOST).map((user) => (
          <li key={user.uid}>
            <span class="mono">{user.request_id ?? `uid ${user.uid}`}</span> <span class="muted">{user.state}</span>
          </li>
        ))}
      </ul>
      {users.length > MOST && <p class="muted">and {users.length - MOST} more</p>}
    </>
  );
}
