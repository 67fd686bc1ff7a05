/** The indexes of a Job as small squares: 10^5 of them are one canvas, of which only the visible part
 *  is drawn. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { colour, onColours } from "../lib/colours";
import { finished, type Job, type JobSummary } from "../lib/objects";
import { count, parseIndexes } from "../lib/text";

const FILLS = ["--idle-fill", "--ok-fill", "--bad-fill", "--run-fill", "--wait-fill", "--idle-fill"];
const FAILED = 2;
/** Between the edge and the first square, as for the words above. */
const LEFT = 14;
/** Pods of it have failed, and it is tried again. */
const RETRIED = 5;
const NAMES = ["Not started", "Succeeded", "Failed", "Running", "Pending", "Tried again later"];
const LOOKS: Record<number, string> = { [FAILED]: "crossed", [RETRIED]: "half" };

function statesOf(job: Job, summary: JobSummary | undefined): Uint8Array {
  const states = new Uint8Array(job.spec.completions ?? 0);
  const paint = (text: string | undefined, value: number) => {
    for (const [first, last] of parseIndexes(text)) states.fill(value, first, Math.min(last + 1, states.length));
  };
  paint(summary?.podIndexes.failed, finished(job) ? FAILED : RETRIED);
  paint(summary?.podIndexes.pending, 4);
  paint(summary?.podIndexes.running, 3);
  paint(job.status?.failedIndexes, FAILED);
  paint(job.status?.completedIndexes, 1);
  return states;
}

export function IndexGrid({ job, summary, open }: { job: Job; summary: JobSummary | undefined; open: (index: number) => void }) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(600);
  const [picked, setPicked] = useState(-1);
  const states = useMemo(() => statesOf(job, summary), [job, summary]);
  const cell = states.length > 2000 ? 10 : states.length > 300 ? 13 : 18;
  const perRow = Math.max(1, Math.floor((width - 2 * LEFT + 2) / cell));
  const rows = Math.ceil(states.length / perRow);
  const counts = useMemo(() => {
    const found = NAMES.map(() => 0);
    for (const state of states) found[state] = (found[state] ?? 0) + 1;
    return found;
  }, [states]);

  const palette = useRef<string[] | null>(null);
  const draw = useRef(() => {});
  draw.current = () => {
    const surface = canvas.current;
    const element = box.current;
    if (!surface || !element) return;
    const height = Math.min(rows * cell + 12, 300);
    const scale = devicePixelRatio || 1;
    if (surface.width !== Math.round(width * scale) || surface.height !== Math.round(height * scale)) {
      surface.width = Math.round(width * scale);
      surface.height = Math.round(height * scale);
      surface.style.width = `${width}px`;
      surface.style.height = `${height}px`;
    }
    const paint = surface.getContext("2d");
    if (!paint) return;
    paint.setTransform(scale, 0, 0, scale, 0, 0);
    paint.clearRect(0, 0, width, height);
    const colours = (palette.current ??= [...FILLS, "--text", "--on-bad"].map(colour));
    const top = element.scrollTop - 6;
    const first = Math.max(0, Math.floor(top / cell));
    const last = Math.min(rows, Math.ceil((top + height) / cell) + 1);
    for (let row = first; row < last; row += 1) {
      for (let column = 0; column < perRow; column += 1) {
        const index = row * perRow + column;
        if (index >= states.length) break;
        paint.fillStyle = colours[states[index] ?? 0] ?? "#888";
        const [x, y, size] = [LEFT + column * cell, row * cell - top, cell - 2];
        paint.fillRect(x, y, size, size);
        if (states[index] === RETRIED) {
          paint.fillStyle = colours[FAILED] ?? "#888";
          paint.beginPath();
          paint.moveTo(x + size, y);
          paint.lineTo(x + size, y + size);
          paint.lineTo(x, y + size);
          paint.fill();
        }
        if (states[index] === FAILED) {
          // Not by its colour alone.
          paint.strokeStyle = colours[FILLS.length + 1] ?? "#fff";
          paint.lineWidth = size > 9 ? 1.5 : 1;
          paint.beginPath();
          paint.moveTo(x + size * 0.25, y + size * 0.25);
          paint.lineTo(x + size * 0.75, y + size * 0.75);
          paint.moveTo(x + size * 0.75, y + size * 0.25);
          paint.lineTo(x + size * 0.25, y + size * 0.75);
          paint.stroke();
        }
        if (index === picked) {
          paint.strokeStyle = colours[FILLS.length] ?? "#000";
          paint.lineWidth = 2;
          paint.strokeRect(x - 1, y - 1, cell, cell);
        }
      }
    }
  };

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => setWidth(element.clientWidth);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    let asked = 0;
    const onScroll = () => { asked ||= requestAnimationFrame(() => { asked = 0; draw.current(); }); };
    element.addEventListener("scroll", onScroll, { passive: true });
    const ignore = onColours(() => { palette.current = null; draw.current(); });
    return () => { ignore(); observer.disconnect(); cancelAnimationFrame(asked); element.removeEventListener("scroll", onScroll); };
  }, []);
  useEffect(() => draw.current(), [states, width, cell, picked]);

  const at = (event: MouseEvent): number => {
    const element = box.current as HTMLDivElement;
    const area = element.getBoundingClientRect();
    const column = Math.floor((event.clientX - area.left - LEFT) / cell);
    const row = Math.floor((event.clientY - area.top + element.scrollTop - 6) / cell);
    const index = row * perRow + column;
    return column >= 0 && column < perRow && index >= 0 && index < states.length ? index : -1;
  };
  const move = (to: number) => {
    const index = Math.min(Math.max(to, 0), states.length - 1);
    setPicked(index);
    const top = Math.floor(index / perRow) * cell;
    const element = box.current as HTMLDivElement;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + cell + 12 > element.scrollTop + element.clientHeight) element.scrollTop = top + cell + 12 - element.clientHeight;
  };
  const steps: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: perRow, ArrowUp: -perRow, PageDown: perRow * 10, PageUp: -perRow * 10 };
  return (
    <div class="card">
      <div class="pad legend">
        {NAMES.map((name, i) => (i === RETRIED && !counts[i]) ? null : (
          <span key={name}><i class={LOOKS[i] ?? ""} style={{ backgroundColor: `var(${FILLS[i]})` }} />{name} {count(counts[i] ?? 0)}</span>
        ))}
      </div>
      {/* A two-dimensional widget that cannot have 10^5 elements: arrows move, Enter opens. */}
      <div class="cells" ref={box} tabIndex={0} role="application"
        aria-label={`Indexes: arrow keys choose one, Enter shows its Pods. ${counts[1] ?? 0} of ${states.length} succeeded, ${counts[2] ?? 0} failed.`}
        onClick={(e) => { const index = at(e); if (index >= 0) { setPicked(index); open(index); } }}
        onMouseMove={(e) => { const index = at(e); e.currentTarget.title = index < 0 ? "" : `Index ${index}: ${NAMES[states[index] ?? 0]}`; }}
        onKeyDown={(e) => {
          const step = steps[e.key];
          if (step !== undefined) { e.preventDefault(); e.stopPropagation(); move(picked < 0 ? 0 : picked + step); }
          else if (e.key === "Enter" && picked >= 0) { e.stopPropagation(); open(picked); }
        }}>
        <canvas ref={canvas} aria-hidden="true" />
        <div style={{ height: `${Math.max(0, rows * cell + 12 - Math.min(rows * cell + 12, 300))}px` }} />
      </div>
      <p class="hidden-text" aria-live="polite">{picked >= 0 ? `Index ${picked}: ${NAMES[states[picked] ?? 0]}` : ""}</p>
    </div>
  );
}
