import { lazy, Suspense } from "preact/compat";
import { useEffect, useMemo } from "preact/hooks";
import { type Cause, stateWith, useCauses } from "../lib/causes";
import { now, useAnswer, useLive } from "../lib/hooks";
import { endOf, eventTime, finished, type Job, keyOf, type KubeEvent, type Node, stateOf, WAITS } from "../lib/objects";
import { EVENT, JOB, namespaceShown, pathOf } from "../lib/paths";
import { href, place, setQuery } from "../lib/router";
import { isReadOnly } from "../lib/session";
import { age, bytesText, count, quantity, several, visible } from "../lib/text";
import { finishedAs, WORKFLOW, type Workflow } from "../lib/workflows";
import { Empty, Foreign, Problem, Progress, Section, StateMark } from "../parts/basics";
import { Forbidden, NamespaceChoice } from "../parts/namespaces";

const Bars = lazy(() => import("../parts/chart").then((m) => ({ default: m.Bars })));

const DAY = 86_400_000;

/** How far the chart goes back, and how fine it is. */
interface Range { name: string; buckets: number; step: number; per: string }
const RANGES: Record<string, Range> = {
  hour: { name: "Last hour", buckets: 60, step: 60_000, per: "minute" },
  day: { name: "Last 24 hours", buckets: 24, step: 3_600_000, per: "hour" },
  week: { name: "Last 7 days", buckets: 7, step: DAY, per: "day" },
};
const SHOWN_PROBLEMS = 6;
/** Set by `create job --from`. */
const INSTANTIATED = "cronjob.kubernetes.io/instantiate";

const latest = (a: Job, b: Job) => (endOf(b) ?? b.metadata.creationTimestamp).localeCompare(endOf(a) ?? a.metadata.creationTimestamp);

export function Overview() {
  const namespace = namespaceShown();
  const list = useLive<Job>(pathOf(JOB, namespace));
  const jobs = useMemo(() => [...list.items.value.values()], [list.items.value]);
  const at = now.value;
  const minute = Math.floor(at / 60_000);
  const counts = useMemo(() => {
    const found = { Running: 0, Queued: 0, Waiting: 0, "Back-off": 0, Suspended: 0, failed: 0, complete: 0, pods: 0 };
    for (const job of jobs) {
      const state = stateOf(job);
      found.pods += job.status?.active ?? 0;
      if (state === "Running" || state === "Queued" || state === "Waiting" || state === "Back-off" || state === "Suspended") found[state] += 1;
      const end = endOf(job);
      if (end && at - Date.parse(end) < DAY) {
        if (state === "Failed") found.failed += 1;
        if (state === "Complete") found.complete += 1;
      }
    }
    return found;
  }, [jobs, minute]);
  const waits = [
    counts.Queued && `${count(counts.Queued)} queued`, counts["Back-off"] && `${count(counts["Back-off"])} in back-off`, counts.Waiting && `${count(counts.Waiting)} not ready`,
  ].filter(Boolean).join(", ");
  const range = RANGES[place.value.query.get("range") ?? ""] ?? (RANGES["day"] as Range);
  const history = useMemo(() => throughput(jobs, at, range), [jobs, minute, range]);
  const ended = (values: number[]) => values.reduce((a, b) => a + b, 0);
  const handled = useHandled(namespace, jobs);
  const troubled = useMemo(() => jobs.filter((job) => isTroubled(job, at) && !handled(job)).sort(latest), [jobs, minute, handled]);
  const failedMore = troubled.slice(SHOWN_PROBLEMS).filter((job) => stateOf(job) === "Failed").length;
  const causes = useCauses();
  const shown = troubled.slice(0, SHOWN_PROBLEMS);
  const shownKeys = shown.map((job) => `${job.metadata.uid} ${job.metadata.resourceVersion}`).join(" ");
  useEffect(() => causes.show(shown), [shownKeys]);
  const unread = list.problem.value ? "Not known: the Jobs could not be read" : "Loading…";
  const { warnings, known } = useCronJobWarnings(namespace, at, jobs);
  const stuckMore = Math.max(troubled.length - SHOWN_PROBLEMS - failedMore, 0);
  const running = useMemo(
    () => jobs.filter((job) => stateOf(job) === "Running").sort((a, b) => b.metadata.creationTimestamp.localeCompare(a.metadata.creationTimestamp)).slice(0, 8),
    [jobs],
  );
  return (
    <>
      <div class="head">
        <div class="grow"><h1>Overview</h1></div>
        <div class="bar"><NamespaceChoice />{!isReadOnly() && <a class="button main" href={href(["create"])}>Create a Job</a>}</div>
      </div>
      {list.problem.value && (list.problemCode === 403 ? <Forbidden text={list.problem.value} /> : <Problem text={list.problem.value} />)}
      <div class="grid cols-5">
        <Figure label="Running Jobs" value={counts.Running} note={several(counts.pods, "active Pod")} to={{ state: "Running" }} />
        <Figure label="Waiting Jobs" value={WAITS.reduce((sum, state) => sum + counts[state as "Waiting"], 0)} note={waits || "none"} to={{ state: "All waiting" }} />
        <Figure label="Suspended" value={counts.Suspended} note={counts.Suspended ? "until resumed" : "none"} to={{ state: "Suspended" }} />
        <Figure label="Failed in a day" value={counts.failed} note={counts.failed ? "see below why" : "none"} to={{ state: "Failed" }} bad={counts.failed > 0} />
        <Figure label="Complete in a day" value={counts.complete} note={`${several(jobs.length, "Job")} in all`} to={{ state: "Complete" }} />
      </div>
      <Section title="What is wrong right now">
        <div class="card">
          {troubled.length + warnings.length === 0
            ? <Empty title={list.loaded.value ? "No problems" : unread}>{list.loaded.value ? known ? "No Job failed in the last day, none is stuck, and there are no warnings about CronJobs." : "No Job failed in the last day, and none is stuck." : ""}</Empty>
            : (
              <ul class="list">
                {shown.map((job) => <Trouble key={job.metadata.uid} job={job} cause={causes.found.value.get(job.metadata.uid)} at={at} />)}
                {warnings.map((event) => <Warned key={event.metadata.uid} event={event} at={at} />)}
              </ul>
            )}
          {failedMore + stuckMore > 0 && (
            <p class="more">and {failedMore > 0 && <a href={href(["jobs"], { state: "Failed" })}>{count(failedMore)} more that failed</a>}
              {failedMore > 0 && stuckMore > 0 && " and "}{stuckMore > 0 && <a href={href(["jobs"])}>{count(stuckMore)} more in trouble</a>}</p>
          )}
        </div>
      </Section>
      <div class="grid cols-wide-left">
        <Section title={`Jobs that ended, by ${range.per}`} note={
          <select aria-label="Time shown" value={Object.keys(RANGES).find((key) => RANGES[key] === range)} onChange={(e) => setQuery({ range: e.currentTarget.value })}>
            {Object.entries(RANGES).map(([key, { name }]) => <option key={key} value={key}>{name}</option>)}
          </select>}>
          <div class="card pad">
            <Suspense fallback={<div class="chart" />}>
              <Bars times={history.times} step={range.step / 1000}
                label={`Jobs per ${range.per}: ${ended(history.complete)} complete and ${ended(history.failed)} failed in the ${range.name.toLowerCase()}`}
                series={[
                  { label: "Complete", color: "--ok-fill", values: history.complete },
                  { label: "Failed", color: "--bad-fill", values: history.failed },
                ]} />
            </Suspense>
            <div class="legend"><span><i style={{ background: "var(--ok-fill)" }} />Complete {count(ended(history.complete))}</span><span><i style={{ background: "var(--bad-fill)" }} />Failed {count(ended(history.failed))}</span></div>
          </div>
        </Section>
        <Nodes namespace={namespace} />
      </div>
      <Section title="Running now">
        <div class="card">
          {running.length === 0
            ? <Empty title={list.loaded.value ? "Nothing is running" : unread} actions={isReadOnly() ? undefined : <a class="button" href={href(["create"])}>Create a Job</a>} />
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

/** Tells Jobs of tasks whose failure their Workflow handles: it has not failed, or another task follows a failure. */
function useHandled(namespace: string, jobs: Job[]): (job: Job) => boolean {
  const owned = jobs.some((job) => workflowOf(job) !== undefined);
  const path = pathOf(WORKFLOW, namespace);
  // Not watched: most servers have no Workflows.
  const found = useAnswer<{ items: Workflow[] }>(owned ? path : "", "", 5000, 10_000).value?.items;
  return useMemo(() => {
    const unhandled = new Set<string>();
    for (const workflow of found ?? []) {
      if (finishedAs(workflow)?.type !== "Failed") continue;
      const followed = new Set(workflow.spec.tasks.flatMap((task) => task.dependsOn ?? []).filter((edge) => (edge.condition ?? "Complete") !== "Complete").map((edge) => edge.task));
      for (const task of workflow.status?.tasks ?? []) if (task.jobName && !followed.has(task.name)) unhandled.add(`${workflow.metadata.uid}/${task.jobName}`);
    }
    return (job: Job) => {
      const owner = workflowOf(job);
      return owner !== undefined && finished(job)?.type === "Failed" && !unhandled.has(`${owner}/${job.metadata.name}`);
    };
  }, [found]);
}

const workflowOf = (job: Job): string | undefined => job.metadata.ownerReferences?.find((one) => one.controller && one.kind === "Workflow")?.uid;

/** A Job that failed or is stuck, with the cause in the words of the server. */
function Trouble({ job, cause, at }: { job: Job; cause: Cause | undefined; at: number }) {
  const { namespace = "", name } = job.metadata;
  return (
    <li>
      <StateMark state={stateWith(job, cause)} />
      <span>
        <a href={href(["jobs", namespace, name])}><Foreign text={keyOf(job)} /></a>{" "}
        <Foreign text={cause?.text ?? finished(job)?.message ?? ""} />
      </span>
      <span class="muted nowrap">{age(endOf(job) ?? job.metadata.creationTimestamp, at)} ago</span>
    </li>
  );
}

/** What was said about each CronJob last, if that was a warning. The server forgets it in time. */
function useCronJobWarnings(namespace: string, at: number, jobs: Job[]): { warnings: KubeEvent[]; known: boolean } {
  const query = new URLSearchParams({ fieldSelector: "involvedObject.kind=CronJob,type=Warning", limit: "100" });
  const found = useAnswer<{ items: KubeEvent[] }>(`${pathOf(EVENT, namespace)}?${query}`, "", 5000, 15_000).value?.items;
  const warnings = useMemo(() => {
    // Jobs that somebody started from a CronJob by hand: the controller warns of them, as in Kubernetes.
    const manual = new Set(jobs.filter((job) => job.metadata.annotations?.[INSTANTIATED] === "manual").map(keyOf));
    const isManual = (event: KubeEvent) =>
      event.reason === "UnexpectedJob" && manual.has(`${event.involvedObject.namespace ?? ""}/${(event.message ?? "").split(": ").pop() ?? ""}`);
    const latestOf = new Map<string, KubeEvent>();
    for (const event of [...(found ?? [])].sort((a, b) => eventTime(b).localeCompare(eventTime(a)))) {
      const key = `${event.involvedObject.namespace ?? ""}/${event.involvedObject.name}`;
      if (!latestOf.has(key) && !isManual(event) && at - Date.parse(eventTime(event)) < DAY) latestOf.set(key, event);
    }
    return [...latestOf.values()].slice(0, SHOWN_PROBLEMS);
  }, [found, jobs]);
  return { warnings, known: found !== undefined };
}

function Warned({ event, at }: { event: KubeEvent; at: number }) {
  const { namespace = "", name } = event.involvedObject;
  return (
    <li>
      <StateMark state="Warning" />
      <span>
        <a href={href(["cronjobs", namespace, name])}><Foreign text={`${namespace}/${name}`} /></a>{" "}
        <Foreign text={`${event.reason ?? ""}: ${event.message ?? ""}`} />
      </span>
      <span class="muted nowrap">{age(eventTime(event), at)} ago</span>
    </li>
  );
}

function throughput(jobs: Job[], at: number, { buckets, step }: Range): { times: number[]; complete: number[]; failed: number[] } {
  // Days begin at midnight here, not in Greenwich.
  const shift = step === DAY ? new Date(at).getTimezoneOffset() * 60_000 : 0;
  const start = Math.floor((at - shift) / step) * step + shift - (buckets - 1) * step;
  const complete = new Array<number>(buckets).fill(0);
  const failed = new Array<number>(buckets).fill(0);
  for (const job of jobs) {
    const end = endOf(job);
    if (!end) continue;
    const bucket = Math.floor((Date.parse(end) - start) / step);
    if (bucket < 0 || bucket >= buckets) continue;
    const into = finished(job)?.type === "Failed" ? failed : complete;
    into[bucket] = (into[bucket] ?? 0) + 1;
  }
  return { times: complete.map((_, i) => (start + i * step) / 1000), complete, failed };
}

interface Usage {
  items: { metadata: { name: string }; usage: Record<string, string> }[];
}

interface PodUsage {
  items: { metadata: { name: string; namespace: string }; containers: { usage: Record<string, string> }[] }[];
}

/** The Pods that use most of the processors. */
function Users({ namespace }: { namespace: string }) {
  const path = `/apis/metrics.k8s.io/v1beta1${namespace ? `/namespaces/${encodeURIComponent(namespace)}` : ""}/pods`;
  const found = useAnswer<PodUsage>(path, "", 5000, 10_000).value?.items ?? [];
  const sum = (pod: PodUsage["items"][number], name: string) => pod.containers.reduce((all, c) => all + quantity(c.usage[name]), 0);
  const most = found.map((pod) => ({ pod, cpu: sum(pod, "cpu"), memory: sum(pod, "memory") })).sort((a, b) => b.cpu - a.cpu || b.memory - a.memory).slice(0, 4);
  if (most.length === 0) return null;
  return (
    <table class="users" aria-label="Pods that use most">
      <thead><tr><th scope="col">{several(found.length, "running Pod")}, the busiest</th><th scope="col" class="num">CPU</th><th scope="col" class="num">Memory</th></tr></thead>
      <tbody>
        {most.map(({ pod, cpu, memory }) => (
          <tr key={`${pod.metadata.namespace}/${pod.metadata.name}`}>
            <td><a href={href(["resources", "v1", "pods", pod.metadata.namespace, pod.metadata.name])}><Foreign text={pod.metadata.name} cut /></a></td>
            <td class="num">{cpu.toFixed(2)}</td>
            <td class="num">{bytesText(memory)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Nodes({ namespace }: { namespace: string }) {
  const nodes = useLive<Node>("/api/v1/nodes");
  const usage = useAnswer<Usage>("/apis/metrics.k8s.io/v1beta1/nodes", "", 5000, 5000).value;
  if (nodes.problem.value && nodes.problemCode === 403) return null;
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
              <Users namespace={namespace} />
            </div>
          );
        })}
        {nodes.loaded.value && nodes.items.value.size === 0 && <p class="muted">This server has no node; other components run the Pods.</p>}
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
