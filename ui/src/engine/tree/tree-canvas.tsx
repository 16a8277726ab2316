import { useMemo, useRef, useState } from "preact/hooks";
import { visible } from "../../format";
import { useSize, type Size } from "../canvas";
import type { ColorBy } from "./colors";
import { cellAt, layOut, neighbour, type Cell, type Layout } from "./layout";
import type { Focus, Forest } from "./forest";
import { Tooltip, type Spot } from "../tooltip";
import { useDrawing } from "./use-drawing";
import { cellName, facts, spoken } from "./words";

interface Props {
  forest: Forest;
  focus: Focus;
  by: ColorBy;
  selected: number | null;
  found: ReadonlySet<number> | null;
  onSelect: (cell: Cell) => void;
  onZoom: (cell: Cell) => void;
  onBack: () => void;
}

const ARROWS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"] as const;

/** The drawn tree: the mouse and the keyboard do the same things in it. */
export function TreeCanvas({ forest, focus, by, selected, found, onSelect, onZoom, onBack }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const size = useSize(box);
  const layout = useMemo(() => layOut(forest, focus, size.width, size.height), [forest, focus, size]);
  const [hovered, setHovered] = useState<{ key: string; at: Spot } | null>(null);
  const [cursor, setCursor] = useState<string | null>(null);
  const [focused, setFocused] = useState(false);
  const current = layout.byKey.get(cursor ?? "") ?? layout.cells[0];
  const cursorCell = focused ? current : undefined;
  const hoveredCell = hovered ? layout.byKey.get(hovered.key) : undefined;
  useDrawing(canvas, layout, {
    forest,
    by,
    hovered: hoveredCell?.key ?? null,
    cursor: cursorCell?.key ?? null,
    selected,
    found,
  });

  const onKeyDown = (event: KeyboardEvent): void => {
    if (!current || event.ctrlKey || event.metaKey || event.altKey) return;
    const arrow = ARROWS.find((key) => key === event.key);
    if (arrow) setCursor(neighbour(layout, current, arrow).key);
    else if (event.key === "Home") setCursor(layout.cells[0]!.key);
    else if (event.key === "Enter") onZoom(current);
    else if (event.key === " ") onSelect(current);
    else if (event.key === "Backspace") onBack();
    else return;
    setHovered(null);
    setFocused(true); // after a click too, which does not show the cursor
    event.preventDefault();
  };
  const under = (event: MouseEvent): Cell | undefined => cellAt(layout, event.offsetX, event.offsetY);
  const onMove = (event: PointerEvent): void => {
    const cell = under(event);
    setHovered(cell ? { key: cell.key, at: { x: event.offsetX, y: event.offsetY } } : null);
  };
  const onClick = (event: MouseEvent): void => {
    const cell = under(event);
    if (!cell) return;
    setCursor(cell.key);
    if (cell.kind === "more") onZoom(cell);
    else onSelect(cell);
  };

  const told = hoveredCell ?? cursorCell;
  const at = hoveredCell && hovered ? hovered.at : told && besideCell(told, size);
  return (
    <div class="tree-drawing" ref={box}>
      <canvas
        ref={canvas}
        tabIndex={0}
        role="application"
        aria-label={summary(forest, layout)}
        aria-describedby="tree-spoken"
        onPointerMove={onMove}
        onPointerLeave={() => setHovered(null)}
        onClick={onClick}
        onDblClick={(event) => {
          const cell = under(event);
          if (cell && cell.kind === "node") onZoom(cell);
        }}
        onKeyDown={onKeyDown}
        onFocus={(event) => setFocused((event.target as HTMLElement).matches(":focus-visible"))}
        onBlur={() => setFocused(false)}
      />
      <p id="tree-spoken" class="hidden-label" aria-live="polite">
        {cursorCell && spoken(cursorCell, forest)}
      </p>
      {told && at && (
        <Tooltip
          at={at}
          size={size}
          title={cellName(told, forest)}
          facts={facts(told, forest)}
          text={told.kind === "node" && told.node?.text ? visible(told.node.text) : ""}
          hint={hintFor(told, focus, hoveredCell === undefined)}
        />
      )}
    </div>
  );
}

function hintFor(cell: Cell, focus: Focus, byKeys: boolean): string {
  if (cell.kind === "node")
    return byKeys ? "space: who uses it · Enter: zoom" : "click: who uses it · double click: zoom";
  return cell.largest === 0 && cell.id === focus.id
    ? "the server tells of the larger ones only"
    : `${byKeys ? "Enter" : "click"} to see them alone`;
}

function besideCell(cell: Cell, size: Size): Spot {
  return { x: Math.min(cell.x0 + 40, size.width), y: Math.min((cell.y0 + cell.y1) / 2, size.height) };
}

function summary({ answer }: Forest, layout: Layout): string {
  const drawn = layout.cells.filter((cell) => cell.kind === "node").length;
  return (
    `Radix tree of ${answer.num_nodes} nodes and ${answer.num_tokens} tokens, ${drawn} of them drawn. ` +
    "Arrow keys move, Enter zooms in, Backspace out, Space shows who uses a node."
  );
}
