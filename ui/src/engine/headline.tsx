import type { ComponentChildren } from "preact";
import { foundTokens, totalTokens } from "../explain/causes";
import { CauseSummary } from "../explain/cause-summary";
import { count, duration, percent } from "../format";
import { poolOf, type Point } from "./series";
import type { Activity } from "./types";

/** The figures that are looked at first. */
export function Headline({ answer, last }: { answer: Activity; last: Point | undefined }) {
  const { stats, latency, causes } = answer;
  const pool = poolOf(stats);
  const total = Math.max(1, stats.num_pages * stats.page_size);
  return (
    <section class="panel headline" aria-label="Now">
      <dl class="tiles">
        <Tile
          name="hit rate"
          value={percent(foundTokens(causes) / Math.max(1, totalTokens(causes)))}
          small="of tokens"
        />
        <Tile name="running" value={count(stats.num_running)} small={`${count(stats.num_waiting)} waiting`} />
        <Tile name="pool in use" value={percent(pool.used / total)} small={`${percent(pool.cached / total)} cached`} />
        <Tile
          name="tokens a second"
          value={last ? count(last.generated) : "–"}
          small={last ? `${count(last.computed)} prompt` : ""}
        />
        <Tile
          name="first token"
          value={time(latency.first_token_s?.p50)}
          small={`p99 ${time(latency.first_token_s?.p99)}`}
        />
        <Tile
          name="between tokens"
          value={time(latency.token_gap_s?.p50)}
          small={`p99 ${time(latency.token_gap_s?.p99)}`}
        />
      </dl>
      <div class="headline-causes">
        <h3 class="small muted">All prompt tokens so far: found in the cache, or why not</h3>
        <CauseSummary causes={causes} />
      </div>
    </section>
  );
}

function Tile({ name, value, small }: { name: string; value: ComponentChildren; small: string }) {
  return (
    <div class="tile">
      <dt class="small muted">{name}</dt>
      <dd class="number">
        <b>{value}</b>
        <span class="small muted">{small}</span>
      </dd>
    </div>
  );
}

function time(seconds: number | undefined): string {
  return seconds === undefined ? "–" : duration(seconds);
}
