/** The logs of a Job's Pods: merged, coloured, followed, searched; only lines in view are drawn. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { LogReader } from "../lib/log-reader";
import { LONGEST, MOST_LINES, type Source } from "../lib/log-stream";
import type { PodRow } from "../lib/objects";
import { pathOf, POD } from "../lib/paths";
import { ask } from "../lib/session";
import { count, millisText, saveAs, several, visible } from "../lib/text";
import { Empty, Problem } from "./basics";
import { perform } from "./dialogs";

const LINE = 18;
/** So many lines of each Pod are read at first. */
const TAIL = 20_000;
/** How often new lines are shown, and how often they are searched. */
const SHOW_MS = 80;
const SEARCH_MS = 500;
/** So many Pods are chosen at first, and so many that run at once; the rest can be added. */
const CHOSEN = 20;
/** Of so many Pods that have joined, only the latest are kept. */
const MOST_SOURCES = 500;
/** Searching stops at so many lines. */
const MOST_HITS = 10_000;

const ended = (pod: PodRow): boolean => pod.phase === "Succeeded" || pod.phase === "Failed";

/** Without a choice of somebody's own: Pods that have come into being since the first ones were
 *  chosen. Changes `seen`. */
function joining(pods: PodRow[], shown: number, seen: Set<string>): string[] {
  if (seen.size === 0) {
    for (const pod of pods) seen.add(pod.name);
    return pods.slice(0, CHOSEN).map((pod) => pod.name);
  }
  const running = pods.filter((pod) => seen.has(pod.name) && !ended(pod)).length;
  let room = Math.max(0, CHOSEN - Math.min(running, shown));
  const found: string[] = [];
  for (const pod of pods) {
    if (seen.has(pod.name) || found.length === CHOSEN || (!ended(pod) && room === 0)) continue;
    if (!ended(pod)) room -= 1;
    seen.add(pod.name);
    found.push(pod.name);
  }
  return found;
}

export function Logs({ namespace, title, pods, containers, only, container: named }: {
  namespace: string; title: string; pods: PodRow[]; containers: string[]; only: string; container: string;
}) {
  const [container, setContainer] = useState(containers.includes(named) ? named : (containers[0] ?? ""));
  const [chosen, setChosen] = useState<Set<string> | null>(only ? new Set([only]) : null);
  const [choosing, setChoosing] = useState(false);
  const [follow, setFollow] = useState(true);
  const [previous, setPrevious] = useState(false);
  const [times, setTimes] = useState(false);
  const [search, setSearch] = useState("");
  const [hit, setHit] = useState(0);
  const [tail, setTail] = useState(TAIL);
  /** Counts what begins anew. */
  const [turn, setTurn] = useState(0);
  const pace = useRef(SHOW_MS);
  const [version, setVersion] = useState(0);
  const box = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  const [view, setView] = useState({ top: 0, height: 500 });
  const choice = chosen && [...chosen].sort().join(" ");

  const reader = useMemo(() => {
    let timer: number | undefined;
    const show = () => { timer ??= window.setTimeout(() => { timer = undefined; setVersion((v) => v + 1); }, pace.current); };
    return new LogReader(namespace, { follow, previous, tail }, show);
  }, [namespace, container, follow, previous, tail, choice, turn]);
  useEffect(() => () => reader.close(), [reader]);
  useEffect(() => {
    const fresh = choice === null ? joining(pods, reader.sources.length, reader.seen) : reader.sources.length ? [] : choice.split(" ").filter(Boolean);
    if (fresh.length === 0) return;
    // With too many streams open, all begins anew, as one.
    if (reader.sources.length < MOST_SOURCES && reader.add(fresh.map((pod) => ({ pod, container })))) setVersion((v) => v + 1);
    else setTurn((t) => t + 1);
  }, [reader, pods]);
  pace.current = search ? SEARCH_MS : SHOW_MS;

  const sources: readonly Source[] = reader.sources;
  const names = chosen ?? new Set(sources.map((source) => source.pod));
  const { lines, problem } = reader;
  const hits = useMemo(() => {
    if (!search) return [];
    const text = search.toLowerCase();
    const found: number[] = [];
    lines.forEach((line, i) => { if (found.length < MOST_HITS && line.text.toLowerCase().includes(text)) found.push(i); });
    return found;
  }, [search, version, reader]);

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
            {hits.length ? `${hit + 1} of ${count(hits.length)}${hits.length === MOST_HITS ? " or more" : ""}` : "not found"}
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
        <button disabled={sources.length === 0} onClick={() => void perform(() => download(namespace, title, sources, previous))}>Download</button>
        <span class="muted">{several(lines.length, "line")}{lines.length >= MOST_LINES ? " (older ones are in the download)" : ""}{reader.ended && follow ? ", ended" : ""}</span>
        {lines.length >= tail && tail < MOST_LINES && <button class="small" onClick={() => setTail(MOST_LINES)}>Earlier lines</button>}
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
      {problem && <Problem text={`The logs cannot be read: ${problem}`} again={() => setTurn((t) => t + 1)} />}
      {lines.length === 0 ? (
        <div class="card">
          <Empty title={problem ? "Nothing to show" : sources.length ? (reader.ended ? "Nothing was written" : "Waiting for the first line…") : pods.length ? "No Pod is chosen" : "No Pod has started yet"}
            actions={names.size === 0 && pods.length > 0 && <button onClick={() => setChosen(null)}>Show the latest Pods</button>}>
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
                  {times && <span class="ts">{millisText(line.at)}</span>}
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

async function download(namespace: string, title: string, sources: readonly Source[], previous: boolean): Promise<string> {
  const parts: BlobPart[] = [];
  for (const { pod, container } of sources) {
    const query = new URLSearchParams({ container, ...(previous ? { previous: "true" } : {}) });
    const answer = await ask(`${pathOf(POD, namespace, pod, "log")}?${query}`, { accept: "*/*" });
    if (sources.length > 1) parts.push(`==> ${pod}/${container} <==\n`);
    parts.push(await answer.blob());
  }
  saveAs(`${title}.log`, new Blob(parts, { type: "text/plain" }));
  return `${title}.log saved`;
}
