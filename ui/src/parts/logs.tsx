/** The logs of a Job's Pods: merged, coloured, followed, searched; only lines in view are drawn. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Line, LONGEST, merge, MOST_LINES, readLogs, type Source } from "../lib/log-stream";
import type { PodRow } from "../lib/objects";
import { pathOf, POD } from "../lib/paths";
import { ask, explainError } from "../lib/session";
import { count, visible } from "../lib/text";
import { Empty, Problem } from "./basics";
import { perform } from "./dialogs";

const LINE = 18;
const TAIL = 20_000;
/** So many Pods are chosen at first; the rest can be added. */
const CHOSEN = 20;

export function Logs({ namespace, title, pods, containers, only }: {
  namespace: string; title: string; pods: PodRow[]; containers: string[]; only: string;
}) {
  const [container, setContainer] = useState(containers[0] ?? "");
  const [chosen, setChosen] = useState<Set<string> | null>(only ? new Set([only]) : null);
  const [choosing, setChoosing] = useState(false);
  const [follow, setFollow] = useState(true);
  const [previous, setPrevious] = useState(false);
  const [times, setTimes] = useState(false);
  const [search, setSearch] = useState("");
  const [hit, setHit] = useState(0);
  const [problem, setProblem] = useState("");
  const [ended, setEnded] = useState(false);
  const kept = useRef<Line[]>([]);
  const [version, setVersion] = useState(0);
  const box = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  const [view, setView] = useState({ top: 0, height: 500 });

  const names = chosen ?? new Set(pods.slice(0, CHOSEN).map((pod) => pod.name));
  // New Pods of the Job join, unless somebody has chosen.
  const wanted = pods.filter((pod) => names.has(pod.name)).map((pod) => pod.name).sort().join(" ");
  const sources: Source[] = useMemo(() => (wanted ? wanted.split(" ").map((pod) => ({ pod, container })) : []), [wanted, container]);

  useEffect(() => {
    const stop = new AbortController();
    kept.current = [];
    setVersion((v) => v + 1);
    setProblem("");
    setEnded(false);
    if (sources.length === 0) return;
    let timer: number | undefined;
    const show = () => { timer ??= window.setTimeout(() => { timer = undefined; setVersion((v) => v + 1); }, 80); };
    readLogs(namespace, sources, { follow, previous, tail: TAIL }, stop.signal, (lines) => { merge(kept.current, lines); show(); })
      .then(() => { if (!stop.signal.aborted) setEnded(true); show(); })
      .catch((error: unknown) => { if (!stop.signal.aborted) setProblem(explainError(error)); });
    return () => { stop.abort(); clearTimeout(timer); };
  }, [namespace, sources, follow, previous]);

  const lines = kept.current;
  const hits = useMemo(() => {
    if (!search) return [];
    const text = search.toLowerCase();
    const found: number[] = [];
    lines.forEach((line, i) => { if (found.length < 10_000 && line.text.toLowerCase().includes(text)) found.push(i); });
    return found;
  }, [search, version]);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    if (follow && atEnd.current) element.scrollTop = element.scrollHeight;
    const measure = () => {
      atEnd.current = element.scrollTop + element.clientHeight > element.scrollHeight - 40;
      setView({ top: element.scrollTop, height: element.clientHeight });
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener("scroll", measure, { passive: true });
    return () => { observer.disconnect(); element.removeEventListener("scroll", measure); };
  }, [lines.length === 0]);
  useLayoutEffect(() => {
    if (follow && atEnd.current && box.current && !search) box.current.scrollTop = box.current.scrollHeight;
    // An empty log has its end in view: what comes first is shown from there.
    if (lines.length === 0) atEnd.current = true;
  }, [version]);

  const jump = (to: number) => {
    if (!hits.length) return;
    const next = (to + hits.length) % hits.length;
    setHit(next);
    if (box.current) box.current.scrollTop = (hits[next] ?? 0) * LINE - box.current.clientHeight / 2;
  };
  useEffect(() => { if (search) jump(0); }, [search]);

  const first = Math.max(0, Math.floor(view.top / LINE) - 20);
  const shown = lines.slice(first, first + Math.ceil(view.height / LINE) + 40);
  const found = new Set(hits);
  const widest = Math.max(...sources.map((source) => shortName(source.pod, title).length), 0);
  const restarted = pods.some((pod) => pod.restarts > 0);
  const failed = pods.filter((pod) => pod.phase === "Failed").map((pod) => pod.name);
  return (
    <section aria-label="Logs">
      <div class="filters">
        <input type="search" data-hotkey="/" placeholder="Search ( / )" aria-label="Search in the logs" value={search}
          onInput={(e) => setSearch(e.currentTarget.value)}
          onKeyDown={(e) => { if (e.key === "Enter") jump(hit + (e.shiftKey ? -1 : 1)); }} />
        {search && (
          <span class="bar" aria-live="polite">
            {hits.length ? `${hit + 1} of ${hits.length}` : "not found"}
            <button class="small" aria-label="Previous match" onClick={() => jump(hit - 1)}>↑</button>
            <button class="small" aria-label="Next match" onClick={() => jump(hit + 1)}>↓</button>
          </span>
        )}
        <button aria-pressed={follow} onClick={() => setFollow(!follow)}>{follow ? "Following" : "Follow"}</button>
        <button aria-pressed={times} onClick={() => setTimes(!times)}>Times</button>
        {restarted && <button aria-pressed={previous} onClick={() => setPrevious(!previous)}>Previous attempt</button>}
        <button aria-expanded={choosing} onClick={() => setChoosing(!choosing)}>{names.size === 1 ? "1 Pod" : `${Math.min(names.size, pods.length)} of ${pods.length} Pods`}</button>
        {containers.length > 1 && (
          <select aria-label="Container" value={container} onChange={(e) => setContainer(e.currentTarget.value)}>
            {containers.map((name) => <option key={name} value={name}>{visible(name)}</option>)}
          </select>
        )}
        <button onClick={() => void perform(() => download(namespace, title, sources))}>Download</button>
        <span class="muted">{count(lines.length)} lines{lines.length >= MOST_LINES ? " (older ones are in the download)" : ""}{ended && follow ? ", ended" : ""}</span>
      </div>
      {choosing && (
        <div class="card" style={{ marginBottom: "10px" }}>
          <div class="bar pad">
            <button class="small" onClick={() => setChosen(new Set(pods.map((p) => p.name).slice(0, 100)))}>All</button>
            <button class="small" onClick={() => setChosen(new Set())}>None</button>
            {failed.length > 0 && <button class="small" onClick={() => setChosen(new Set(failed.slice(0, 100)))}>Failed ones</button>}
          </div>
          <fieldset class="pods" style={{ border: 0, margin: 0 }}>
            <legend class="hidden-text">Pods to show</legend>
            {pods.slice(0, 300).map((pod) => (
              <label key={pod.uid}>
                <input type="checkbox" checked={names.has(pod.name)} onChange={(e) => {
                  const next = new Set(names);
                  if (e.currentTarget.checked) next.add(pod.name); else next.delete(pod.name);
                  setChosen(next);
                }} />
                <span class="cut">{visible(pod.name)}</span> <span class="muted">{pod.phase}</span>
              </label>
            ))}
          </fieldset>
        </div>
      )}
      {problem && <Problem text={problem} again={() => setVersion((v) => v + 1)} />}
      {lines.length === 0 ? (
        <div class="card">
          <Empty title={sources.length ? (ended ? "Nothing was written" : "Waiting for the first line…") : pods.length ? "No Pod is chosen" : "No Pod has started yet"}>
            {sources.length === 0 && pods.length === 0 ? "Logs appear here as soon as one does." : ""}
          </Empty>
        </div>
      ) : (
        <div class="log" ref={box} tabIndex={0} role="log" aria-label={`Logs of ${visible(title)}`} aria-live="off">
          <div class="inner" style={{ height: `${lines.length * LINE + 8}px`, "--who": `${Math.min(widest, 28) + 3}ch` }}>
            {shown.map((line, i) => {
              const index = first + i;
              const source = sources[line.source];
              const state = found.has(index) ? (hits[hit] === index ? " found now" : " found") : "";
              return (
                <div key={index} class={`l${state}`} style={{ top: `${index * LINE + 4}px` }}>
                  {sources.length > 1 && <span class={`who c${line.source % 8}`} title={visible(source?.pod ?? "")}>{visible(shortName(source?.pod ?? "", title))}</span>}
                  {sources.length === 1 && <span style={{ width: "10px", flex: "none" }} />}
                  {times && <span class="ts">{line.at.slice(11, 23)}</span>}
                  <span class="foreign"><Marked text={line.text} search={state ? search : ""} more={line.more} /></span>
                </div>
              );
            })}
          </div>
        </div>
      )}
    </section>
  );
}

function Marked({ text, search, more }: { text: string; search: string; more: number }) {
  const cut = text.length > LONGEST;
  const shown = visible(cut ? text.slice(0, LONGEST) : text);
  const left = more + (cut ? text.length - LONGEST : 0);
  const end = left > 0 ? <span class="muted"> … {count(left)} more characters: download to see them</span> : null;
  const at = search ? shown.toLowerCase().indexOf(search.toLowerCase()) : -1;
  if (at < 0) return <>{shown}{end}</>;
  return <>{shown.slice(0, at)}<mark>{shown.slice(at, at + search.length)}</mark>{shown.slice(at + search.length)}{end}</>;
}

const shortName = (pod: string, title: string): string => (pod.startsWith(`${title}-`) ? pod.slice(title.length + 1) : pod);

async function download(namespace: string, title: string, sources: Source[]): Promise<string> {
  const parts: BlobPart[] = [];
  for (const { pod, container } of sources) {
    const answer = await ask(`${pathOf(POD, namespace, pod, "log")}?container=${encodeURIComponent(container)}`, { accept: "*/*" });
    if (sources.length > 1) parts.push(`==> ${pod}/${container} <==\n`);
    parts.push(await answer.blob());
  }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type: "text/plain" }));
  link.download = `${title}.log`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  return `${title}.log saved`;
}
