import { CauseBar } from "../../explain/cause-bar";
import { Explained } from "../../explain/explained";
import { count, duration, percent, tokens } from "../../format";
import type { PastRequest } from "../types";
import { foundShare } from "./table";

interface Props {
  request: PastRequest;
  columns: number;
  open: boolean;
  onToggle: () => void;
}

/** A request that is over; opened, it says in words why its tokens were computed. */
export function RequestRow({ request, columns, open, onToggle }: Props) {
  const share = foundShare(request);
  const about = `about-${request.request_id}`;
  return (
    <>
      <tr class="request-row" data-open={open} onClick={onToggle}>
        <td class="number">{clock(request.started_at)}</td>
        <th scope="row" class="name">
          <button
            class="quiet mono row-button"
            aria-expanded={open}
            aria-controls={about}
            onClick={(event) => {
              event.stopPropagation();
              onToggle();
            }}
          >
            {request.request_id}
          </button>
          {request.status >= 400 && <span class="error small"> {request.status}</span>}
        </th>
        <td class="figure">{request.prompt_tokens === null ? "–" : count(request.prompt_tokens)}</td>
        <td class="figure">{share === null ? "–" : percent(share)}</td>
        <td class="bar-cell">
          {request.explanation ? <CauseBar causes={request.explanation.causes} /> : <span class="muted">–</span>}
        </td>
        <td class="figure">{time(request.first_token_s)}</td>
        <td class="figure">{time(request.total_s)}</td>
      </tr>
      {open && (
        <tr class="request-about" id={about}>
          <td colSpan={columns}>
            <About request={request} />
          </td>
        </tr>
      )}
    </>
  );
}

function About({ request }: { request: PastRequest }) {
  const { explanation } = request;
  return (
    <div class="about">
      {explanation ? (
        <Explained explanation={explanation} />
      ) : (
        <p class="muted">Nothing is known of its prompt: it never got as far as the cache, or explanations are off.</p>
      )}
      <p class="small muted number">
        {request.endpoint}
        {request.generated_tokens !== null && `, ${tokens(request.generated_tokens)} generated`}
        {request.queue_s !== null && `, ${duration(request.queue_s)} in the queue`}
        {request.finish_reason && `, ended by ${request.finish_reason}`}
      </p>
    </div>
  );
}

function time(seconds: number | null): string {
  return seconds === null ? "–" : duration(seconds);
}

function clock(started_at: number): string {
  return new Date(started_at * 1000).toLocaleTimeString([], { hour12: false });
}
