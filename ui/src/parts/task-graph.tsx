/** The graph of a workflow's tasks: lines as SVG, boxes as options that the arrow keys move between. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { criticalPath, layOut, pathText } from "../lib/graph-layout";
import { now } from "../lib/hooks";
import { visible, wholeDuration } from "../lib/text";
import { type Task, taskDuration } from "../lib/workflows";

const SIZE = { boxWidth: 148, boxHeight: 46, layerGap: 44, boxGap: 14 };
/** Below this width, layers go down the page. */
const NARROW = matchMedia("(max-width: 860px)");

export interface Props {
  tasks: Task[];
  label: string;
  chosen: string;
  choose: (name: string) => void;
}

export function critical(tasks: Task[], at: number): Set<number> {
  return new Set(criticalPath(tasks, tasks.map((task) => (task.status.state === "Skipped" ? null : taskDuration(task.status, at) ?? 0))));
}

function useNarrow(): boolean {
  const [narrow, setNarrow] = useState(NARROW.matches);
  useEffect(() => {
    const follow = () => setNarrow(NARROW.matches);
    NARROW.addEventListener("change", follow);
    return () => NARROW.removeEventListener("change", follow);
  }, []);
  return narrow;
}

export function TaskGraph({ tasks, label, chosen, choose }: Props) {
  const down = useNarrow();
  const box = useRef<HTMLDivElement>(null);
  const at = now.value;
  const shape = tasks.map((task) => [task.name, ...task.dependsOn.map((edge) => edge.task + edge.condition)].join()).join(";");
  const layout = useMemo(() => layOut(tasks, { ...SIZE, down }), [shape, down]);
  const path = critical(tasks, at);
  const current = Math.max(tasks.findIndex((task) => task.name === chosen), 0);

  const move = (task: number | undefined) => {
    const name = task === undefined ? undefined : tasks[task]?.name;
    if (name === undefined) return;
    choose(name);
    box.current?.querySelector<HTMLElement>(`[data-task="${task}"]`)?.focus();
  };
  const onKey = (event: KeyboardEvent) => {
    const layer = layout.layers.findIndex((row) => row.includes(current));
    const row = layout.layers[layer] ?? [];
    const place = row.indexOf(current);
    const nearest = (other: number[] | undefined) => other?.[Math.min(place, other.length - 1)];
    const [forward, back, next, previous] = down
      ? ["ArrowDown", "ArrowUp", "ArrowRight", "ArrowLeft"] : ["ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp"];
    // Along an edge if there is one, so that a chain is followed.
    const dependant = layout.edges.find((edge) => edge.from === current)?.to ?? nearest(layout.layers[layer + 1]);
    const dependency = layout.edges.find((edge) => edge.to === current)?.from ?? nearest(layout.layers[layer - 1]);
    if (event.key === forward) move(dependant);
    else if (event.key === back) move(dependency);
    else if (event.key === next) move(row[place + 1]);
    else if (event.key === previous) move(row[place - 1]);
    else if (event.key === "Home") move(0);
    else if (event.key === "End") move(tasks.length - 1);
    else if (event.key === "Enter" || event.key === " ") move(current);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    <div class="card task-graph">
      <div class="sheet" style={{ width: `${layout.width}px`, height: `${layout.height}px` }}>
        <svg width={layout.width} height={layout.height} aria-hidden="true">
          <defs>
            <marker id="arrow" viewBox="0 0 6 6" refX="6" refY="3" markerUnits="userSpaceOnUse" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0 L6 3 L0 6 z" /></marker>
          </defs>
          {layout.edges.map((edge) => (
            <path key={`${edge.from}-${edge.to}`} d={pathText(edge.points, down)} marker-end="url(#arrow)"
              class={`${edge.condition}${path.has(edge.from) && path.has(edge.to) ? " critical" : ""}`} />
          ))}
        </svg>
        <div role="listbox" aria-label={label} aria-orientation={down ? "vertical" : "horizontal"} ref={box} onKeyDown={onKey}>
          {tasks.map((task, i) => {
            const took = taskDuration(task.status, at);
            const { state } = task.status;
            const spot = layout.boxes[i] ?? { x: 0, y: 0 };
            return (
              <div key={task.name} role="option" data-task={i} tabIndex={i === current ? 0 : -1} aria-selected={task.name === chosen}
                title={visible(task.status.message || task.name)}
                class={`task ${state}${path.has(i) ? " critical" : ""}${task.last ? " last" : ""}`}
                style={{ left: `${spot.x}px`, top: `${spot.y}px`, width: `${SIZE.boxWidth}px`, height: `${SIZE.boxHeight}px` }}
                onClick={() => move(i)}>
                <b class="cut">{visible(task.name)}</b>
                <span class="line"><span class={`state ${state}`}>{state}</span><span class="muted">{took === undefined ? (task.last ? "finally" : "") : took < 1000 ? "<1s" : wholeDuration(took)}</span></span>
                {path.has(i) && <span class="hidden-text">on the critical path</span>}
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}
