import { lazy, Suspense } from "preact/compat";
import { useMemo } from "preact/hooks";
import { now, useAnswer, useLive } from "../lib/hooks";
import { durationOf, eventTime, finished, type Job, type JobSummary, type KubeEvent, ownerText, type PodRecord, type PodRow, stateOf } from "../lib/objects";
import { useKeys } from "../lib/keys";
import { EVENT, JOB, pathOf } from "../lib/paths";
import { go, href, place, setQuery } from "../lib/router";
import { useTail } from "../lib/tail";
import { age, bytesText, clockText, count, cpuText, fullTime, several, visible, wholeDuration } from "../lib/text";
import { Empty, Foreign, OwnerLink, Problem, Progress, Section, StateMark } from "../parts/basics";
import { Gantt } from "../parts/gantt";
import { IndexGrid } from "../parts/index-grid";
import { askDelete, askRerun, askSuspend, JobActions } from "../parts/job-actions";
import { Logs } from "../parts/logs";
import { ReportedProgress } from "../parts/reported";
import { type Column, Table } from "../parts/table";
import { Usage } from "../parts/usage";
import { Why } from "../parts/why";

const YamlView = lazy(() => import("../parts/yaml-view").then((m) => ({ default: m.YamlView })));

const Results = lazy(() => import("./results").then((m) => ({ default: m.Results })));

/** Labels that the server adds, besides those with a prefix. */
const SERVER_LABELS = new Set(["controller-uid", "job-name"]);

/** Whether a Job has a row of results per index. */
const hasResults = (job: Job): boolean => job.spec.completionMode === "Indexed" || "onejob.dev/params" in (job.metadata.annotations ?? {});

const TABS: [string, string][] = [["", "Summary"], ["pods", "Pods"], ["results", "Results"], ["logs", "Logs"], ["yaml", "YAML"]];

export function JobPage({ namespace, name }: { namespace: string; name: string }) {
  const list = useLive<Job>(pathOf(JOB, namespace), { fieldSelector: `metadata.name=${name}` });
  const job = [...list.items.value.values()][0];
  const tab = place.value.query.get("tab") ?? "";
  // Asked for together with the Job: a busy server takes its time for each answer.
  const path = list.loaded.value && !job ? "" : `/ui/api/jobs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  const over = job ? finished(job) !== undefined && !job.status?.terminating : false;
  const summary = useAnswer<JobSummary>(path, job?.metadata.resourceVersion ?? "", 1500, over ? 0 : 3000);
  useKeys(job ? {
    s: () => askSuspend(job),
    r: () => askRerun(job),
    l: () => go(["jobs", namespace, name], { tab: "logs" }),
    x: () => askDelete(job, () => go(["jobs"])),
  } : {});
  if (!job) {
    return (
      <>
        <div class="head"><div class="grow"><p class="crumb"><a href={href(["jobs"])}>Jobs</a></p><h1><Foreign text={name} /></h1></div></div>
        {list.problem.value && <Problem text={list.problem.value} />}
        {list.loaded.value || list.problemCode === 400
          ? <div class="card"><Empty title="Job not found" actions={<a class="button" href={href(["jobs"])}>All Jobs</a>}>It may have been deleted or have expired.</Empty></div>
          : <p class="muted">Loading…</p>}
      </>
    );
  }
  const at = now.value;
  const duration = durationOf(job, at);
  const { containers, initContainers = [] } = job.spec.template.spec;
  const containerNames = [...containers, ...initContainers].map((c) => c.name);
  const { query } = place.value;
  const pods = summary.value?.pods ?? [];
  const peak = pods.reduce((most, pod) => Math.max(most, pod.peakMemoryBytes ?? 0), 0);
  return (
    <>
      <div class="head">
        <div class="grow">
          <p class="crumb"><a href={href(["jobs"])}>Jobs</a> / <Foreign text={namespace} /></p>
          <h1><Foreign text={name} /></h1>
          <div class="facts">
            <StateMark state={stateOf(job)} />
            {duration !== undefined && (finished(job)
              ? <span>ran <b>{wholeDuration(duration)}</b></span> : <span>started <b>{age(job.status?.startTime, at)}</b> ago</span>)}
            <span title={fullTime(job.metadata.creationTimestamp)}>created <b>{age(job.metadata.creationTimestamp, at)}</b> ago</span>
            <span>parallelism <b>{job.spec.parallelism ?? 1}</b></span>
            {job.spec.completionMode === "Indexed" && <span>indexed</span>}
            {peak > 0 && <span title="of one Pod, while it ran">peak memory <b>{memoryText(peak)}</b></span>}
            {ownerText(job) && <span>owner <b><OwnerLink object={job} /></b></span>}
            {Object.entries(job.metadata.labels ?? {}).filter(([label]) => !label.includes("kubernetes.io/") && !SERVER_LABELS.has(label)).slice(0, 6).map(([label, value]) => (
              <a key={label} class="tag" href={href(["jobs"], { labels: `${label}=${value}` })}><Foreign text={`${label}=${value}`} /></a>
            ))}
          </div>
        </div>
        <div class="bar"><JobActions job={job} /></div>
      </div>
      <Progress job={job} />
      {list.problem.value && <Problem text={list.problem.value} />}
      <nav class="tabs" aria-label="Parts of this Job">
        {TABS.filter(([key]) => key !== "results" || hasResults(job)).map(([key, title]) => (
          <a key={key} href={href(["jobs", namespace, name], { tab: key })} aria-current={tab === key ? "page" : undefined}>{title}</a>
        ))}
      </nav>
      {summary.problem && <Problem text={summary.problem} again={summary.again} />}
      {tab === "" && <Summary job={job} summary={summary.value} refused={summary.problem !== ""} />}
      {tab === "pods" && <Pods namespace={namespace} name={name} pods={pods} summary={summary.value} />}
      {tab === "results" && <Suspense fallback={<p class="muted">Loading…</p>}><Results job={job} /></Suspense>}
      {tab === "logs" && (summary.value
        ? <Logs key={`${query.get("pod")}/${query.get("container")}`} namespace={namespace} title={name} pods={pods} containers={containerNames}
            only={query.get("pod") ?? ""} container={query.get("container") ?? ""} />
        : <p class="muted">Loading…</p>)}
      {tab === "yaml" && <Suspense fallback={<p class="muted">Loading…</p>}><YamlView kind={JOB} namespace={namespace} name={name} /></Suspense>}
    </>
  );
}

function Summary({ job, summary, refused }: { job: Job; summary: JobSummary | undefined; refused: boolean }) {
  const namespace = job.metadata.namespace ?? "";
  const logsOf = (pod: string, container = "") => href(["jobs", namespace, job.metadata.name], { tab: "logs", pod, container });
  const openIndex = (index: number) => setQuery({ tab: "pods", index: String(index) });
  return (
    <>
      {summary && <ReportedProgress job={job} summary={summary} />}
      <div class="grid cols-wide-left">
        <div class="card pad">{summary ? <Why words={summary} />
          : refused ? <p class="muted">No explanation is available; see above.</p>
          : <p class="muted" aria-busy="true">Asking the planner…</p>}</div>
        <Timeline job={job} />
      </div>
      {summary && summary.failures.length > 0 && (
        <Section title="Failures by cause" note={summary.allPodsLookedAt ? "" : `of the ${count(summary.endedPodsLookedAt)} ended Pods that were looked at`}>
          <div class="card">
            {summary.failures.slice(0, 8).map((failure, i) => (
              <div class="failure" key={i}>
                <div class="bar">
                  <span>
                    <b>{several(failure.count, "Pod")}</b>{" "}
                    <Foreign text={failure.exitCode === null ? failure.reason : `exit code ${failure.exitCode} (${failure.reason})`} />
                    {failure.container && <span class="muted"> in <Foreign text={failure.container} /></span>}
                  </span>
                  {failure.pods[0] && <a href={logsOf(failure.pods[0], failure.container)}>Logs of the latest</a>}
                </div>
                {failure.message && <p class="muted"><Foreign text={failure.message} /></p>}
                {i < 3 && failure.pods[0] && <Tail namespace={namespace} pod={failure.pods[0]} container={failure.container} />}
              </div>
            ))}
          </div>
        </Section>
      )}
      {job.spec.completionMode === "Indexed" && (job.spec.completions ?? 0) > 0 && (
        <Section title="Indexes" note={several(job.spec.completions ?? 0, "index").replace("indexs", "indexes")}>
          <IndexGrid job={job} summary={summary} open={openIndex} />
        </Section>
      )}
      <Usage path={`/ui/api/jobs/${encodeURIComponent(namespace)}/${encodeURIComponent(job.metadata.name)}`} title={job.metadata.name} running={(job.status?.ready ?? 0) > 0} />
      {summary && (
        <Section title="Pods over time" note={podsNote(summary)}>
          {summary.pods.length ? <Gantt pods={summary.pods} open={(pod) => logsOf(pod.name)} />
            : <div class="card"><Empty title="No Pods">They appear here when the Job starts some.</Empty></div>}
        </Section>
      )}
    </>
  );
}

/** What ended containers used; "" if that was not measured. */
const memoryText = (bytes: number | null): string => (bytes ? bytesText(bytes) : "");

const podsNote = (summary: JobSummary): string =>
  summary.allPodsLookedAt && summary.pods.length >= summary.activePods + summary.endedPodsLookedAt
    ? several(summary.pods.length, "Pod")
    : `${count(summary.pods.length)} shown: active Pods, and the latest failed and succeeded ones`;

/** The last lines that a Pod wrote. */
function Tail({ namespace, pod, container }: { namespace: string; pod: string; container: string }) {
  const text = useTail(namespace, pod, container, 8);
  if (!text) return null;
  return <pre class="tail" tabIndex={0} aria-label={`Last lines of ${visible(pod)}`}>{text.split("\n").map(visible).join("\n")}</pre>;
}

interface Moment { at: string; kind: string; reason: string; message: string; times: number }

function Timeline({ job }: { job: Job }) {
  const { namespace = "", name, uid } = job.metadata;
  const events = useLive<KubeEvent>(pathOf(EVENT, namespace), { fieldSelector: `involvedObject.uid=${uid}` });
  const at = now.value;
  const moments = useMemo(() => {
    // In the order in which they happen, which times of whole seconds do not tell.
    const found: Moment[] = [{ at: job.metadata.creationTimestamp, kind: "condition", reason: "Created", message: "", times: 1 }];
    if (job.status?.startTime) found.push({ at: job.status.startTime, kind: "condition", reason: "Started", message: "", times: 1 });
    for (const e of events.items.value.values()) {
      found.push({ at: eventTime(e), kind: e.type ?? "Normal", reason: e.reason ?? "", message: e.message ?? "", times: e.series?.count ?? e.count ?? 1 });
    }
    for (const c of job.status?.conditions ?? []) {
      if (c.lastTransitionTime) {
        found.push({ at: c.lastTransitionTime, kind: c.type === "Failed" && c.status === "True" ? "Warning" : "condition", reason: c.status === "True" ? c.type : `${c.type}: ${c.status}`, message: [c.reason, c.message].filter(Boolean).join(": "), times: 1 });
      }
    }
    return found.map((m, i) => [m, i] as const).sort(([a, i], [b, k]) => Date.parse(b.at) - Date.parse(a.at) || k - i).map(([m]) => m);
  }, [job, events.items.value]);
  return (
    <section class="card pad" aria-label={`Timeline of ${visible(name)}`}>
      <div class="titled"><h2>Timeline</h2><span class="muted">newest first</span></div>
      <ol class="timeline" style={{ maxHeight: "260px", overflow: "auto" }} tabIndex={0}>
        {moments.slice(0, 100).map((m, i) => (
          <li key={i} class={m.kind}>
            <span class="at" title={fullTime(m.at)}>{clockText(m.at, at)}</span>
            <span class="reason"><Foreign text={m.reason} /></span>
            <Foreign text={m.message} />{m.times > 1 && <span class="muted"> ×{count(m.times)}</span>}
          </li>
        ))}
      </ol>
    </section>
  );
}

/** Pods of one index: those that were looked at for the summary may not be among them. */
function usePodsOfIndex(namespace: string, name: string, index: string | null, when: string): PodRow[] | undefined {
  const path = index === null ? "" : `/ui/api/jobs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}/indexes/${encodeURIComponent(index)}`;
  return useAnswer<{ pods: PodRow[] }>(path, when, 2000).value?.pods;
}

function Pods({ namespace, name, pods, summary }: { namespace: string; name: string; pods: PodRow[]; summary: JobSummary | undefined }) {
  const index = place.value.query.get("index");
  const at = now.value;
  const ofIndex = usePodsOfIndex(namespace, name, index, summary?.now ?? "");
  const rows = index === null ? pods : (ofIndex ?? pods.filter((pod) => String(pod.index) === index));
  const columns: Column<PodRow>[] = [
    { name: "Name", cell: (pod) => <a href={href(["resources", "v1", "pods", namespace, pod.name])}><Foreign text={pod.name} cut /></a> },
    { name: "Index", num: true, cell: (pod) => pod.index ?? "", sort: (a, b) => (a.index ?? 0) - (b.index ?? 0) },
    { name: "State", cell: (pod) => <StateMark state={pod.ending ? "Ending" : pod.phase} />, sort: (a, b) => a.phase.localeCompare(b.phase) },
    { name: "Exit code", num: true, wide: true, cell: (pod) => pod.exitCode ?? "" },
    { name: "Reason", wide: true, cell: (pod) => <Foreign text={pod.reason} cut /> },
    { name: "Restarts", num: true, wide: true, cell: (pod) => pod.restarts || "" },
    { name: "Ran", num: true, wide: true, cell: (pod) => (pod.startedAt ? wholeDuration((pod.endedAt ? Date.parse(pod.endedAt) : at) - Date.parse(pod.startedAt)) : "") },
    { name: "CPU time", num: true, wide: true, cell: (pod) => cpuText(pod.cpuMilliseconds), sort: (a, b) => (a.cpuMilliseconds ?? -1) - (b.cpuMilliseconds ?? -1) },
    { name: "Peak memory", num: true, wide: true, cell: (pod) => memoryText(pod.peakMemoryBytes), sort: (a, b) => (a.peakMemoryBytes ?? -1) - (b.peakMemoryBytes ?? -1) },
    { name: "Age", num: true, wide: true, cell: (pod) => age(pod.createdAt, at) },
    { name: "Logs", width: "1%", cell: (pod) => <a class="button small" aria-label={`Logs of ${visible(pod.name)}`} href={href(["jobs", namespace, name], { tab: "logs", pod: pod.name })}>Logs</a> },
  ];
  return (
    <>
      <div class="filters">
        {index !== null && <span>Index <b>{visible(index)}</b> <button class="small" onClick={() => setQuery({ index: undefined })}>Show all</button></span>}
        <span class="muted">{index !== null ? several(rows.length, "Pod") : summary ? podsNote(summary) : ""}</span>
      </div>
      <Table label="Pods" columns={columns} rows={rows} keyOf={(pod) => pod.uid}
        open={(pod) => { location.hash = href(["jobs", namespace, name], { tab: "logs", pod: pod.name }); }}
        empty={<Empty title={index === null ? "No Pods yet" : ofIndex ? "This index has no Pod" : "Loading…"}
          actions={index === null ? undefined : <button onClick={() => setQuery({ index: undefined })}>Show all Pods</button>}>
          {index === null ? "They appear here when the Job starts some." : "It has not started, or its Pods were removed."}
        </Empty>} />
      {summary && <DeletedPods records={summary.deletedPods.filter((one) => index === null || String(one.index) === index)} />}
    </>
  );
}

/** Pods that are gone; what is known of them is kept for a while. */
function DeletedPods({ records }: { records: PodRecord[] }) {
  const at = now.value;
  if (records.length === 0) return null;
  const columns: Column<PodRecord>[] = [
    { name: "Name", cell: (pod) => <Foreign text={pod.name} cut /> },
    { name: "Index", num: true, cell: (pod) => pod.index ?? "", sort: (a, b) => (a.index ?? 0) - (b.index ?? 0) },
    { name: "State", cell: (pod) => <StateMark state={pod.phase} />, sort: (a, b) => a.phase.localeCompare(b.phase) },
    { name: "Exit code", num: true, cell: (pod) => pod.exitCode ?? "" },
    { name: "Reason", wide: true, cell: (pod) => <Foreign text={[pod.reason, pod.message].filter(Boolean).join(": ")} cut /> },
    { name: "Ran", num: true, wide: true, cell: (pod) => (pod.startTime && pod.finishTime ? wholeDuration(Date.parse(pod.finishTime) - Date.parse(pod.startTime)) : "") },
    { name: "Ended", num: true, wide: true, cell: (pod) => (pod.finishTime ? `${age(pod.finishTime, at)} ago` : "") },
    { name: "Log", wide: true, cell: (pod) => pod.log && <code><Foreign text={pod.log} cut /></code> },
  ];
  return (
    <Section title="Deleted Pods" note={several(records.length, "Pod")}>
      <Table label="Deleted Pods" columns={columns} rows={records} keyOf={(pod) => pod.uid} empty={<Empty title="None" />} />
    </Section>
  );
}
