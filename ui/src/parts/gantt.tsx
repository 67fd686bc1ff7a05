/** When each Pod waited, ran and ended. */
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { now } from "../lib/hooks";
import type { PodRow } from "../lib/objects";
import { clockText, shortDuration, visible, wholeDuration } from "../lib/text";

const LINE = 22;

export function Gantt({ pods, open }: { pods: PodRow[]; open: (pod: PodRow) => string }) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 420 });
  const at = now.value;
  const rows = [...pods].sort((a, b) => (a.createdAt ?? "").localeCompare(b.createdAt ?? "") || (a.index ?? 0) - (b.index ?? 0));
  const times = rows.flatMap((p) => [p.createdAt, p.startedAt, p.endedAt]).filter((t): t is string => t !== null).map(Date.parse);
  const anyActive = rows.some((p) => !p.endedAt);
  const start = Math.min(...times);
  const end = Math.max(...times, anyActive ? at : 0, start + 1000);
  const share = (time: number) => ((time - start) / (end - start)) * 100;

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => setView({ top: element.scrollTop, height: element.clientHeight });
    measure();
    element.addEventListener("scroll", measure, { passive: true });
    return () => element.removeEventListener("scroll", measure);
  }, []);

  const first = Math.max(0, Math.floor(view.top / LINE) - 5);
  const last = Math.min(rows.length, first + Math.ceil(view.height / LINE) + 10);
  return (
    <div class="card gantt" ref={box} tabIndex={0} role="region" aria-label="Pods over time: chart">
      <div class="axis" aria-hidden="true">
        <span>{clockText(start, at)}</span><span>{shortDuration((end - start) / 2)}</span><span>{shortDuration(end - start)}</span>
      </div>
      <ul class="rows" style={{ height: `${rows.length * LINE + 8}px` }}>
        {rows.slice(first, last).map((pod, i) => {
          const created = Date.parse(pod.createdAt ?? "") || start;
          const started = pod.startedAt ? Date.parse(pod.startedAt) : null;
          const ended = pod.endedAt ? Date.parse(pod.endedAt) : pod.phase === "Succeeded" || pod.phase === "Failed" ? created : at;
          const ran = started === null ? 0 : ended - started;
          const what = `${pod.phase}${pod.exitCode ? `, exit code ${pod.exitCode}` : ""}${pod.reason ? `, ${pod.reason}` : ""}`;
          return (
            <li key={pod.uid} class="line" style={{ top: `${(first + i) * LINE + 4}px` }}>
              <a class="cut" href={open(pod)} title={visible(pod.name)}>
                {pod.index !== null ? `${pod.index} · ` : ""}{visible(pod.name)}
              </a>
              <div class="lane" role="img" aria-label={`${visible(what)}, ran ${wholeDuration(ran)}`} title={`${visible(what)}, ran ${wholeDuration(ran)}`}>
                <i class="wait" style={{ left: `${share(created)}%`, width: `${share(started ?? ended) - share(created)}%` }} />
                {started !== null && <i class={pod.phase} style={{ left: `${share(started)}%`, width: `${share(ended) - share(started)}%` }} />}
              </div>
            </li>
          );
        })}
      </ul>
    </div>
  );
}
