import { useState } from "preact/hooks";
import { count, duration } from "../../format";
import type { OpenRequest } from "../types";

const MOST = 50;

/** The requests that wait or run, as a table. */
export function OpenRequests({ requests, now_s }: { requests: OpenRequest[]; now_s: number }) {
  const [open, setOpen] = useState(false);
  return (
    <details class="open-requests" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Open requests as a table</summary>
      {open &&
        (requests.length === 0 ? <p class="empty">None is open.</p> : <Table requests={requests} now_s={now_s} />)}
    </details>
  );
}

const HEADINGS = ["Prompt", "Cached", "Done", "Generated", "For"];

function Table({ requests, now_s }: { requests: OpenRequest[]; now_s: number }) {
  return (
    <div class="scroll">
      <table class="rows">
        <thead>
          <tr>
            <th scope="col">Request</th>
            <th scope="col">State</th>
            {HEADINGS.map((heading) => (
              <th key={heading} scope="col" class="figure">
                {heading}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {requests.slice(0, MOST).map((request) => (
            <tr key={request.uid}>
              <th scope="row" class="name mono">
                {request.request_id ?? `uid ${request.uid}`}
              </th>
              <td>
                {request.state}
                {request.waits_for !== null && <span class="muted"> for uid {request.waits_for}</span>}
              </td>
              <td class="figure">{count(request.prompt_tokens)}</td>
              <td class="figure">{count(request.cached_tokens)}</td>
              <td class="figure">{count(request.done_tokens)}</td>
              <td class="figure">{count(request.generated_tokens)}</td>
              <td class="figure">{duration(Math.max(0, now_s - request.arrived_s))}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {requests.length > MOST && <p class="muted small">and {requests.length - MOST} more</p>}
    </div>
  );
}
