import { lazy, Suspense } from "preact/compat";
import { useMemo } from "preact/hooks";
import { now, useAnswer, useLive } from "../lib/hooks";
import { endOf, finished, type Job, keyOf, type Node, stateOf, type Words } from "../lib/objects";
import { JOB, namespaceShown, pathOf } from "../lib/paths";
import { href } from "../lib/router";
import { age, bytesText, count, quantity, several, visible } from "../lib/text";
import { Empty, Foreign, Problem, Progress, Section, StateMark } from "../parts/basics";
import { Forbidden, NamespaceChoice } from "../parts/namespaces";

const Bars = lazy(() => import("../parts/chart").then((m) => ({ default: m.Bars })));

const DAY = 86_400_000;
const BUCKETS = 24;
const SHOWN_PROBLEMS = 6;

const latest = (a: Job, b: Job) => (endOf(b) ?? b.metadata.creationTimestamp).localeCompare(endOf(a) ?? a.metadata.creationTimestamp);

export function Overview() {
  const namespace = namespaceShown();
  const list = useLive<Job>(pathOf(JOB, namespace));
  const jobs = useMemo(() => [...list.items.value.values()], [list.items.value]);
  const at = now.value;
  const minute = Math.floor(at / 60_000);
  const counts = useMemo(() => {
    const found = { Running: 0, Waiting: 0, Suspended: 0, failed: 0, complete: 0, pods: 0 };
    for (const job of jobs) {
      const state = stateOf(job);
      found.pods += job.status?.active ?? 0;
      if (state === "Running" || state === "Waiting" || state === "Suspended") found[state] += 1;
      const end = endOf(job);
      if (end && at - Date.parse(end) < DAY) {
        if (state === "Failed") found.failed += 1;
        if (state === "Complete") found.complete += 1;
      }
    }
    return found;
  }, [jobs, minute]);
  const history = useMemo(() => throughput(jobs, at), [jobs, minute]);
  const troubled = useMemo(
    () => jobs.filter((job) => isTroubled(job, at)).sort(latest).slice(0, SHOWN_PROBLEMS),
    [jobs, minute],
  );
  const running = useMemo(
    () => jobs.filter((job) => stateOf(job) === "Running").sort((a, b) => b.metadata.creationTimestamp.localeCompare(a.metadata.creationTimestamp)).slice(0, 8),
    [jobs],
  );
  return (
    <>
      <div class="head">
        <div class="grow"><h1>Overview</h1></div>
        <div class="bar"><NamespaceChoice /><a class="button main" href={href(["create"])}>Create a Job</a></div>
      </div>
      {list.problem.value && (list.problemCode === 403 ? <Forbidden text={list.problem.value} /> : <Problem text={list.problem.value} />)}
      <div class="grid cols-5">
        <Figure label="Running Jobs" value={counts.Running} note={several(counts.pods, "active Pod")} to={{ state: "Running" }} />
        <Figure label="Waiting Jobs" value={counts.Waiting} note="no Pod is ready" to={{ state: "Waiting" }} />
        <Figure label="Suspended" value={counts.Suspended} note="until somebody resumes" to={{ state: "Suspended" }} />
        <Figure label="Failed in a day" value={counts.failed} note={counts.failed ? "see below why" : "none"} to={{ state: "Failed" }} bad={counts.failed > 0} />
        <Figure label="Complete in a day" value={counts.complete} note={`${several(jobs.length, "Job")} in all`} to={{ state: "Complete" }} />
      </div>
      <Section title="What is wrong right now">
        <div class="card">
          {troubled.length === 0
            ? <Empty title={list.loaded.value ? "Nothing is wrong" : "Loading…"}>{list.loaded.value ? "No Job failed in the last day, and none is stuck." : ""}</Empty>
            : <ul class="list">{troubled.map((job) => <Trouble key={job.metadata.uid} job={job} at={at} />)}</ul>}
        </div>
      </Section>
      <div class="grid cols-wide-left">
        <Section title="Jobs that ended, by hour" note="last 24 hours">
          <div class="card pad">
            <Suspense fallback={<div class="chart" />}>
              <Bars times={history.times}
                label={`Jobs per hour: ${history.complete.reduce((a, b) => a + b, 0)} complete and ${history.failed.reduce((a, b) => a + b, 0)} failed in the last 24 hours`}
                series={[
                  { label: "Complete", color: "--ok-fill", values: history.complete },
                  { label: "Failed", color: "--bad-fill", values: history.failed },
                ]} />
            </Suspense>
            <div class="legend"><span><i style={{ background: "var(--ok-fill)" }} />Complete</span><span><i style={{ background: "var(--bad-fill)" }} />Failed</span></div>
          </div>
        </Section>
        <Nodes />
      </div>
      <Section title="Running now">
        <div class="card">
          {running.length === 0
            ? <Empty title="Nothing is running" actions={<a class="button" href={href(["create"])}>Create a Job</a>} />
            : (
              <ul class="list">
                {running.map((job) => (
                  <li key={job.metadata.uid}>
                    <span class="muted nowrap">{age(job.metadata.creationTimestamp, at)}</span>
                    <a href={href(["jobs", job.metadata.namespace ?? "", job.metadata.name])}><Foreign text={namespace ? job.metadata.name : keyOf(job)} /></a>
                    <div style={{ width: "220px", maxWidth: "40vw" }}><Progress job={job} /></div>
                  </li>
                ))}
              </ul>
            )}
        </div>
      </Section>
    </>
  );
}

function Figure({ label, value, note, to, bad }: { label: string; value: number; note: string; to: Record<string, string>; bad?: boolean }) {
  return (
    <a class={`card figure ${bad ? "bad" : ""}`} href={href(["jobs"], to)}>
      <span class="label">{label}</span>
      <span class="value">{count(value)}</span>
      <span class="note">{note}</span>
    </a>
  );
}

function isTroubled(job: Job, at: number): boolean {
  const end = finished(job);
  if (end) return end.type === "Failed" && at - Date.parse(endOf(job) ?? "") < DAY;
  if (job.spec.suspend || job.metadata.deletionTimestamp) return Boolean(job.metadata.deletionTimestamp);
  const old = at - Date.parse(job.metadata.creationTimestamp) > 15_000;
  return (job.status?.failed ?? 0) > 0 || (old && (job.status?.ready ?? 0) === 0 && (job.status?.succeeded ?? 0) === 0);
}

/** A Job that failed or is stuck, in the words of the server. */
function Trouble({ job, at }: { job: Job; at: number }) {
  const { namespace = "", name } = job.metadata;
  const path = `/ui/api/jobs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  const words = useAnswer<Words>(path, finished(job) ? "" : job.metadata.resourceVersion, 5000, finished(job) ? 0 : 10_000).value;
  const detail = words?.cause[0] ?? words?.evidence[1] ?? "";
  return (
    <li>
      <StateMark state={stateOf(job)} />
      <span>
        <a href={href(["jobs", namespace, name])}><Foreign text={keyOf(job)} /></a>{" "}
        <Foreign text={detail || finished(job)?.message || ""} />
      </span>
      <span class="muted nowrap">{age(endOf(job) ?? job.metadata.creationTimestamp, at)} ago</span>
    </li>
  );
}

function throughput(jobs: Job[], at: number): { times: number[]; complete: number[]; failed: number[] } {
  const hour = 3_600_000;
  const start = Math.floor(at / hour) * hour - (BUCKETS - 1) * hour;
  const complete = new Array<number>(BUCKETS).fill(0);
  const failed = new Array<number>(BUCKETS).fill(0);
  for (const job of jobs) {
    const end = endOf(job);
    if (!end) continue;
    const bucket = Math.floor((Date.parse(end) - start) / hour);
    if (bucket < 0 || bucket >= BUCKETS) continue;
    const into = finished(job)?.type === "Failed" ? failed : complete;
    into[bucket] = (into[bucket] ?? 0) + 1;
  }
  return { times: complete.map((_, i) => (start + i * hour) / 1000), complete, failed };
}

interface Usage {
  items: { metadata: { name: string }; usage: Record<string, string> }[];
}

function Nodes() {
  const nodes = useLive<Node>("/api/v1/nodes");
  const usage = useAnswer<Usage>("/apis/metrics.k8s.io/v1beta1/nodes", "", 5000, 5000).value;
  if (nodes.problemCode === 403 && nodes.problem.value) return null;
  return (
    <Section title="Node">
      <div class="card pad">
        {[...nodes.items.value.values()].map((node) => {
          const used = usage?.items.find((item) => item.metadata.name === node.metadata.name)?.usage ?? {};
          const has = node.status?.capacity ?? {};
          const ready = node.status?.conditions?.find((c) => c.type === "Ready");
          const odd = node.status?.conditions?.filter((c) => c.type !== "Ready" && c.status === "True") ?? [];
          return (
            <div key={node.metadata.uid}>
              <div class="bar" style={{ justifyContent: "space-between" }}>
                <b><Foreign text={node.metadata.name} /></b>
                <StateMark state={ready?.status === "True" ? "Ready" : "Not ready"} />
              </div>
              {odd.map((c) => <p key={c.type} class="muted"><Foreign text={`${c.type}: ${c.message ?? ""}`} /></p>)}
              <Meter label="Processors" used={quantity(used["cpu"])} has={quantity(has["cpu"])} text={(n) => n.toFixed(n < 10 ? 2 : 0)} known={"cpu" in used} />
              <Meter label="Memory" used={quantity(used["memory"])} has={quantity(has["memory"])} text={bytesText} known={"memory" in used} />
              <p class="muted" style={{ marginTop: "10px" }}>Room for {count(quantity(has["pods"]))} Pods at once</p>
            </div>
          );
        })}
        {nodes.loaded.value && nodes.items.value.size === 0 && <p class="muted">There is no node: Pods are run by others.</p>}
      </div>
    </Section>
  );
}

function Meter({ label, used, has, text, known }: { label: string; used: number; has: number; text: (n: number) => string; known: boolean }) {
  const share = has ? Math.min(used / has, 1) : 0;
  const words = known ? `${text(used)} of ${text(has)} used` : `${text(has)}, use not measured`;
  return (
    <div class="meter">
      <div class="top"><span>{label}</span><span class="muted">{visible(words)}</span></div>
      <div class="track" role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(share * 100)} aria-valuetext={words}>
        <i class={share > 0.9 ? "high" : ""} style={{ width: `${share * 100}%` }} />
      </div>
    </div>
  );
}
