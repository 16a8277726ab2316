import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { paint } from "../../shell/theme";
import { useStore } from "../../store";
import { cleared, useSize } from "../canvas";
import { count, duration, plural, tokens, type Fact } from "../../format";
import { Tooltip, type Spot } from "../tooltip";
import type { Activity } from "../types";
import { arrange, runAt, wantedHeight } from "./arrange";
import { AXIS, drawLanes, drawLoads, TimeScale } from "./draw";
import type { LaneHistory, Run, Track } from "./history";
import { OpenRequests } from "./open-requests";

const LEAST = 90;
const MOST = 340;
const LOADS = 96 + AXIS;
const SLACK_S = 0.06; // a short run can be pointed at too

/** Queue and running batch: a lane for each request, and below them what the steps computed. */
export function LanesPanel({ history, answer }: { history: LaneHistory; answer: Activity }) {
  const box = useRef<HTMLDivElement>(null);
  const lanes = useRef<HTMLCanvasElement>(null);
  const loads = useRef<HTMLCanvasElement>(null);
  const { width } = useSize(box);
  const [spot, setSpot] = useState<Spot | null>(null);
  const painted = useStore(paint);
  const tracks = history.all();
  const numLanes = (tracks[tracks.length - 1]?.lane ?? -1) + 1;
  const height = wantedHeight(numLanes, LEAST, MOST);
  const arrangement = arrange(numLanes, height);
  const scale = new TimeScale(history.now, width);
  const pointed = spot && runAt(tracks, Math.floor(spot.y / arrangement.laneHeight), scale.at(spot.x), SLACK_S);
  const shown = pointed && pointed.track.lane < arrangement.shown ? pointed : null;

  useLayoutEffect(() => {
    if (width === 0) return;
    drawLanes(cleared(lanes.current!, { width, height }), tracks, scale, arrangement, height, shown?.track ?? null);
  }, [answer, width, height, painted, shown?.track]);
  useLayoutEffect(() => {
    if (width === 0) return;
    drawLoads(cleared(loads.current!, { width, height: LOADS }), history.load(), scale, LOADS);
  }, [answer, width, painted]);

  const { num_running, num_waiting } = answer.stats;
  return (
    <section class="panel lanes" aria-labelledby="lanes-title">
      <header>
        <h2 id="lanes-title">Requests over time</h2>
        <span class="muted small number">
          {count(num_running)} running, {count(num_waiting)} waiting
        </span>
      </header>
      <p class="lead">
        A bar for each request of the last half minute; the figures in it are tokens. Below, what each step computed.
      </p>
      <div class="lanes-drawing" ref={box}>
        <canvas
          ref={lanes}
          style={{ height: `${height}px` }}
          role="img"
          aria-label={`Lanes of ${plural(tracks.length, "request")} over the last half minute; the open ones are a table below.`}
          onPointerMove={(event) => setSpot({ x: event.offsetX, y: event.offsetY })}
          onPointerLeave={() => setSpot(null)}
        />
        {tracks.length === 0 && <p class="empty over">No request in the last half minute.</p>}
        <canvas
          ref={loads}
          style={{ height: `${LOADS}px` }}
          role="img"
          aria-label="Prompt tokens and decodes of each step over the last half minute."
        />
        {shown && spot && (
          <Tooltip
            at={spot}
            size={{ width, height: height + LOADS }}
            title={title(shown.track)}
            facts={runFacts(shown)}
          />
        )}
      </div>
      <p class="marks small muted">
        <span>
          <i class="swatch wait-mark" aria-hidden="true" /> waits
        </span>
        <span>
          <i class="swatch" style={{ background: "var(--lane-prefill)" }} aria-hidden="true" /> prefill, a chunk each
        </span>
        <span>
          <i class="swatch" style={{ background: "var(--lane-decode)" }} aria-hidden="true" /> decodes
        </span>
        <span>
          <b class="retracted-mark" aria-hidden="true">
            ×
          </b>{" "}
          retracted
        </span>
      </p>
      <OpenRequests requests={answer.requests} now_s={answer.now_s} />
    </section>
  );
}

function title(track: Track): string {
  return track.requestId ?? `uid ${track.uid}`;
}

function runFacts({ track, run }: { track: Track; run: Run }): Fact[] {
  const list: Fact[] = [[NAMES[run.kind], whatItDid(run)]];
  if (track.prompt !== null)
    list.push(["prompt", `${tokens(track.prompt)}${track.cached === null ? "" : `, ${count(track.cached)} cached`}`]);
  if (track.retractions.length > 0) list.push(["retracted", plural(track.retractions.length, "time")]);
  if (track.over) list.push(["over", `after ${duration(track.end - track.begin)}`]);
  return list;
}

const NAMES = { wait: "waits", prefill: "prefill", decode: "decodes" };

function whatItDid(run: Run): string {
  const took = duration(run.end - run.begin);
  if (run.kind === "wait") return `for ${took}`;
  if (run.kind === "decode") return `${tokens(run.tokens)} in ${took}`;
  return `tokens ${count(run.position)} to ${count(run.position + run.tokens)} (${count(run.tokens)}) in ${took}`;
}
