import { useMemo, useRef, useState } from "preact/hooks";
import { getJson } from "../../api/http";
import { CAUSE_TEXT, MISSED } from "../../explain/causes";
import { Notice } from "../notice";
import { useOnScreen } from "../on-screen";
import { usePoll } from "../poll";
import type { PastRequest } from "../types";
import { RequestRow } from "./request-row";
import { arranged, type Column, type Filter, type Order } from "./table";

const EVERY_MS = 2000;
const LIMIT = 128;
const COLUMNS: { column: Column | null; title: string; figure: boolean }[] = [
  { column: "started", title: "Started", figure: false },
  { column: null, title: "Request", figure: false },
  { column: "prompt", title: "Prompt", figure: true },
  { column: "found", title: "Cached", figure: true },
  { column: null, title: "By cause", figure: false },
  { column: "first", title: "First token", figure: true },
  { column: "total", title: "Total", figure: true },
];

/** The last requests, and why their prompts had to be computed. */
export function RequestsPanel({ paused }: { paused: boolean }) {
  const panel = useRef<HTMLElement>(null);
  const quiet = !useOnScreen(panel) || paused;
  const ask = (signal: AbortSignal) => getJson<{ requests: PastRequest[] }>(`inspect/requests?limit=${LIMIT}`, signal);
  const polled = usePoll("requests", ask, { everyMs: EVERY_MS, paused: quiet });
  const [filter, setFilter] = useState<Filter>({ text: "", cause: "any" });
  const [order, setOrder] = useState<Order>({ column: "started", down: true });
  const [open, setOpen] = useState<string | null>(null);
  const requests = polled.answer?.requests;
  const rows = useMemo(() => arranged(requests ?? [], filter, order), [requests, filter, order]);
  return (
    <section class="panel requests" aria-labelledby="requests-title" ref={panel}>
      <header>
        <h2 id="requests-title">Why was this request not cached?</h2>
        <Filters filter={filter} onChange={setFilter} />
      </header>
      <p class="lead">The last requests. Open one to read which of its tokens had to be computed, and why.</p>
      <Notice polled={polled} what="requests that are over" />
      {requests?.length === 0 && <p class="empty">No request is over yet.</p>}
      {requests && requests.length > 0 && (
        <div class="scroll requests-scroll">
          <table class="rows">
            <thead>
              <tr>
                {COLUMNS.map(({ column, title, figure }) => (
                  <Heading key={title} title={title} figure={figure} column={column} order={order} onOrder={setOrder} />
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map((request) => (
                <RequestRow
                  key={request.request_id}
                  request={request}
                  columns={COLUMNS.length}
                  open={open === request.request_id}
                  onToggle={() => setOpen(open === request.request_id ? null : request.request_id)}
                />
              ))}
            </tbody>
          </table>
          {rows.length === 0 && <p class="empty">None of the last {requests.length} is like that.</p>}
        </div>
      )}
    </section>
  );
}

function Filters({ filter, onChange }: { filter: Filter; onChange: (filter: Filter) => void }) {
  return (
    <div class="filters">
      <select
        aria-label="Only those that missed because of"
        value={filter.cause}
        onChange={(event) => onChange({ ...filter, cause: event.currentTarget.value as Filter["cause"] })}
      >
        <option value="any">all requests</option>
        <option value="missed">with a miss</option>
        {MISSED.map((cause) => (
          <option key={cause} value={cause}>
            mostly {CAUSE_TEXT[cause].name}
          </option>
        ))}
      </select>
      <input
        type="search"
        aria-label="Only requests with this in their id, endpoint or end"
        placeholder="Filter …"
        value={filter.text}
        onInput={(event) => onChange({ ...filter, text: event.currentTarget.value })}
      />
    </div>
  );
}

interface HeadingProps {
  title: string;
  figure: boolean;
  column: Column | null;
  order: Order;
  onOrder: (order: Order) => void;
}

function Heading({ title, figure, column, order, onOrder }: HeadingProps) {
  const isOrder = column !== null && order.column === column;
  const sorted = !isOrder ? undefined : order.down ? "descending" : "ascending";
  return (
    <th scope="col" class={figure ? "figure" : undefined} aria-sort={sorted}>
      {column === null ? (
        title
      ) : (
        <button class="sort" onClick={() => onOrder({ column, down: isOrder ? !order.down : true })}>
          {title}
          <span aria-hidden="true">{!isOrder ? "" : order.down ? " ↓" : " ↑"}</span>
        </button>
      )}
    </th>
  );
}
