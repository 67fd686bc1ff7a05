/** CPU and memory of Pods over time, as the server has sampled them since the dashboard is in use. */
import { lazy, Suspense } from "preact/compat";
import { useAnswer } from "../lib/hooks";
import { isReadOnly } from "../lib/session";
import { bytesText, visible } from "../lib/text";
import { Problem, Section } from "./basics";

const Curves = lazy(() => import("./chart").then((m) => ({ default: m.Curves })));

interface PodUsage {
  name: string;
  times: string[];
  cpu: number[];
  memoryBytes: number[];
}

const COLOURS = 8;
const coresText = (cores: number): string =>
  (cores >= 10 ? cores.toFixed(0) : cores >= 1 ? cores.toFixed(1) : cores >= 0.1 || cores === 0 ? cores.toFixed(2) : `${(cores * 1000).toFixed(cores >= 0.01 ? 0 : 1)}m`);
const last = (values: number[]): number => values[values.length - 1] ?? 0;

/** `path` is that of a Job or Pod below /ui/api. */
export function Usage({ path, title, running }: { path: string; title: string; running: boolean }) {
  const answer = useAnswer<{ pods: PodUsage[] }>(`${path}/usage`, String(running), 2000, running ? 5000 : 0);
  const pods = (answer.value?.pods ?? []).filter((pod) => pod.times.length > 1);
  if (answer.problem) return <Problem text={answer.problem} again={answer.again} />;
  if (pods.length === 0 && (!running || isReadOnly())) return null;
  const colourOf = (at: number) => `--series-${at % COLOURS}`;
  const short = (name: string) => visible(pods.length > 1 && name.startsWith(`${title}-`) ? name.slice(title.length + 1) : name);
  const curves = (of: (pod: PodUsage) => number[]) =>
    pods.map((pod, i) => ({ label: short(pod.name), color: colourOf(i), times: pod.times.map((time) => Date.parse(time) / 1000), values: of(pod) }));
  const words = (of: (pod: PodUsage) => number[], text: (value: number) => string) =>
    pods.map((pod) => `${short(pod.name)}: ${text(last(of(pod)))}, at most ${text(Math.max(...of(pod)))}`).join("; ");
  return (
    <Section title="Usage over time" note={pods.length ? "sampled while a dashboard is open" : ""}>
      {pods.length === 0 ? <div class="card pad muted">Measuring…</div> : (
        <>
          <div class="grid cols-2">
            {([["CPU in cores", (pod: PodUsage) => pod.cpu, coresText], ["Memory", (pod: PodUsage) => pod.memoryBytes, bytesText]] as const).map(([name, of, text]) => (
              <div key={name} class="card pad">
                <b>{name}</b>
                <Suspense fallback={<div class="chart" />}><Curves curves={curves(of)} text={text} binary={text === bytesText} label={`${name}. ${words(of, text)}`} /></Suspense>
              </div>
            ))}
          </div>
          <div class="series">
            {pods.map((pod, i) => <span key={pod.name} style={{ color: `var(${colourOf(i)})` }}><i /><b>{short(pod.name)} {coresText(last(pod.cpu))} · {bytesText(last(pod.memoryBytes))}</b></span>)}
          </div>
        </>
      )}
    </Section>
  );
}
