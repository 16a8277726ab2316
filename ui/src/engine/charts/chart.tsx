import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { paint } from "../../shell/theme";
import { useStore } from "../../store";
import { useSize } from "../canvas";
import { color } from "../colors";

/** values: one for each x; null: nothing is known there. */
export interface Line {
  name: string;
  variable: string;
  values: (number | null)[];
}

interface Props {
  title: string;
  /** what it shows, in a sentence */
  lead: string;
  /** the x of all lines */
  xs: number[];
  lines: Line[];
  /** the lines lie on each other and are filled: their sum is the upper edge */
  stacked?: boolean;
  /** of the y axis and the legend */
  format: (value: number) => string;
  formatX: (value: number) => string;
  /** the y axis has whole numbers only */
  whole?: boolean;
  /** upper end of the y axis, if it does not follow the values */
  top?: number;
  /** ends of the x axis; else those of the values */
  xRange?: (first: number) => [number, number];
  /** x goes up by factors, and each x has its mark */
  logarithmic?: boolean;
  /** the place whose values the legend has while nothing is pointed at; else the last */
  rest?: number;
}

const WHOLE = Array.from({ length: 10 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();
const HEIGHT = 132;

/** A small chart in a card. The legend has the last values, or those under the pointer. */
export function Chart({
  title,
  lead,
  xs,
  lines,
  stacked = false,
  format,
  formatX,
  whole = false,
  top,
  xRange,
  logarithmic = false,
  rest,
}: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const { width } = useSize(box);
  const [pointed, setPointed] = useState<number | null>(null);
  const painted = useStore(paint);
  const data = useMemo(() => plotData(xs, lines, stacked), [xs, lines, stacked]);
  const names = lines.map((line) => line.name).join();
  const isEmpty = xs.length < 2 || lines.every((line) => line.values.every((value) => value === null));

  useEffect(() => {
    if (width === 0 || isEmpty) return;
    const options = plotOptions({
      lines,
      stacked,
      format,
      formatX,
      whole,
      top,
      xRange,
      logarithmic,
      width,
      onPoint: setPointed,
    });
    const made = new uPlot(options, data, box.current!);
    plot.current = made;
    return () => {
      made.destroy();
      plot.current = null;
    };
  }, [names, width, painted, isEmpty, stacked, top, logarithmic]);
  useEffect(() => plot.current?.setData(data), [data]);

  const place = pointed !== null && pointed < xs.length ? pointed : (rest ?? xs.length - 1);
  return (
    <section class="panel chart" aria-label={title}>
      <h2>
        {title}
        {(pointed !== null || rest !== undefined) && xs[place] !== undefined && (
          <span class="muted small number">{formatX(xs[place])}</span>
        )}
      </h2>
      <p class="lead">{lead}</p>
      <ul class="chart-legend small">
        {lines.map((line) => (
          <li key={line.name}>
            <i class="swatch" style={{ background: `var(${line.variable})` }} aria-hidden="true" /> {line.name}{" "}
            <span class="number">{valueText(line.values[place], format)}</span>
          </li>
        ))}
      </ul>
      <div class="chart-drawing" ref={box} style={{ height: `${HEIGHT}px` }}>
        {isEmpty && <p class="empty over">No values yet.</p>}
      </div>
    </section>
  );
}

function valueText(value: number | null | undefined, format: (value: number) => string): string {
  return value == null ? "–" : format(value);
}

/** Stacked lines are drawn from the whole sum down to the first one, each over the one before. */
function plotData(xs: number[], lines: Line[], stacked: boolean): uPlot.AlignedData {
  if (!stacked) return [xs, ...lines.map((line) => line.values)];
  const sums: number[] = xs.map(() => 0);
  const levels = lines.map((line) =>
    line.values.map((value, place) => (sums[place] = (sums[place] ?? 0) + (value ?? 0))),
  );
  return [xs, ...levels.reverse()];
}

interface PlotWish {
  lines: Line[];
  stacked: boolean;
  format: (value: number) => string;
  formatX: (value: number) => string;
  whole: boolean;
  top: number | undefined;
  xRange: ((first: number) => [number, number]) | undefined;
  logarithmic: boolean;
  width: number;
  onPoint: (place: number | null) => void;
}

function plotOptions({
  lines,
  stacked,
  format,
  formatX,
  whole,
  top,
  xRange,
  logarithmic,
  width,
  onPoint,
}: PlotWish): uPlot.Options {
  const axis = {
    stroke: color("--muted"),
    font: `10px system-ui, "Segoe UI", Roboto, sans-serif`,
    grid: { stroke: color("--line"), width: 1 },
    ticks: { show: false },
  };
  const drawn = stacked ? [...lines].reverse() : lines;
  return {
    width,
    height: HEIGHT,
    padding: [6, 10, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
    scales: {
      x: {
        time: false,
        ...(logarithmic ? { distr: 3 as const, log: 2 as const } : {}),
        ...(xRange ? { range: (_plot: uPlot, first: number) => xRange(first) } : {}),
      },
      y: { range: (_plot, _low, high) => [0, top ?? (high > 0 ? high * 1.08 : 1)] },
    },
    axes: [
      {
        ...axis,
        size: 26,
        gap: 7,
        space: 64,
        values: (_plot, values) => values.map(formatX),
        ...(logarithmic
          ? { splits: (plot: uPlot) => [...plot.data[0]], filter: (_plot: uPlot, splits: number[]) => splits }
          : {}),
      },
      {
        ...axis,
        size: 46,
        gap: 4,
        space: 28,
        values: (_plot, values) => values.map(format),
        ...(whole ? { incrs: WHOLE } : {}),
      },
    ],
    series: [{}, ...drawn.map((line) => seriesOf(line, stacked))],
    hooks: { setCursor: [(plot) => onPoint(plot.cursor.idx ?? null)] },
  };
}

function seriesOf({ name, variable }: Line, stacked: boolean): uPlot.Series {
  const ink = color(variable);
  return {
    label: name,
    stroke: ink,
    width: stacked ? 1 : 1.75,
    points: { show: false },
    spanGaps: false,
    ...(stacked ? { fill: ink } : {}),
  };
}
