/** One Pod: why it is in its state, its containers, usage, events and logs, and a terminal in it. */
import { lazy, Suspense } from "preact/compat";
import { remove } from "../lib/actions";
import { now, useAnswer, useLive } from "../lib/hooks";
import { type Container, eventTime, type KubeEvent, type Pod, type PodRow, type Words } from "../lib/objects";
import { EVENT, pathOf, POD } from "../lib/paths";
import { go, href, place } from "../lib/router";
import { isReadOnly } from "../lib/session";
import { age, bytesText, clockText, count, cpuText, fullTime, secondsText, visible, wholeDuration } from "../lib/text";
import { Empty, Foreign, Problem, Section, StateMark } from "../parts/basics";
import { confirmThen } from "../parts/dialogs";
import { Logs } from "../parts/logs";
import { type Column, Table } from "../parts/table";
import { Usage } from "../parts/usage";
import { Why } from "../parts/why";

const YamlView = lazy(() => import("../parts/yaml-view").then((m) => ({ default: m.YamlView })));
const Terminal = lazy(() => import("../parts/terminal").then((m) => ({ default: m.Terminal })));

const TABS: [string, string][] = [["", "Summary"], ["logs", "Logs"], ["terminal", "Terminal"], ["yaml", "YAML"]];
const MOST_EVENTS = 100;

const statusesOf = (pod: Pod): Container[] => [...(pod.status?.initContainerStatuses ?? []), ...(pod.status?.containerStatuses ?? [])];
const ended = (pod: Pod): boolean => pod.status?.phase === "Succeeded" || pod.status?.phase === "Failed";

function stateText({ state }: Container): string {
  return state?.running ? "Running" : state?.terminated ? (state.terminated.exitCode === 0 ? "Succeeded" : "Failed") : "Waiting";
}

function reasonText({ state }: Container): string {
  const found = state?.terminated ?? state?.waiting;
  return [found?.reason, found?.message].filter(Boolean).join(": ");
}

export function PodPage({ namespace, name }: { namespace: string; name: string }) {
  const list = useLive<Pod>(pathOf(POD, namespace), { fieldSelector: `metadata.name=${name}` });
  const pod = [...list.items.value.values()][0];
  const path = `/ui/api/pods/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  const words = useAnswer<Words>(pod ? path : "", pod?.metadata.resourceVersion ?? "", 2000, pod && ended(pod) ? 0 : 5000);
  const { query } = place.value;
  const tab = query.get("tab") ?? "";
  const here = ["resources", "v1", "pods", namespace, name];
  const owner = pod?.metadata.ownerReferences?.find((one) => one.controller && one.kind === "Job")?.name;
  const crumb = (
    <p class="crumb"><a href={href(["resources"])}>All objects</a> / <a href={href(["resources", "v1", "pods"])}>Pod</a> / <Foreign text={namespace} /></p>
  );
  if (!pod) {
    return (
      <>
        <div class="head"><div class="grow">{crumb}<h1><Foreign text={name} /></h1></div></div>
        {list.problem.value && <Problem text={list.problem.value} />}
        {list.loaded.value
          ? <div class="card"><Empty title="Pod not found" actions={<a class="button" href={href(["resources", "v1", "pods"])}>All Pods</a>}>It may have been deleted. The page of its Job lists deleted Pods for a while.</Empty></div>
          : <p class="muted">Loading…</p>}
      </>
    );
  }
  const at = now.value;
  const statuses = statusesOf(pod);
  const running = statuses.filter((one) => one.state?.running).map((one) => one.name);
  const names = [...pod.spec.containers, ...(pod.spec.initContainers ?? [])].map((one) => one.name);
  const askRemove = () => confirmThen(
    `Delete pod/${name}?`, "It is stopped, and its logs go with it; a Job that needs it starts another one. This cannot be undone.", "Delete",
    async () => { const done = await remove(POD, pod); if (owner) go(["jobs", namespace, owner], { tab: "pods" }); else go(["resources", "v1", "pods"]); return done; }, true);
  return (
    <>
      <div class="head">
        <div class="grow">
          {crumb}
          <h1><Foreign text={name} /></h1>
          <div class="facts">
            <StateMark state={pod.metadata.deletionTimestamp && !ended(pod) ? "Ending" : (pod.status?.phase ?? "Pending")} />
            <span title={fullTime(pod.metadata.creationTimestamp)}>created <b>{age(pod.metadata.creationTimestamp, at)}</b> ago</span>
            {owner && <span>Job <b><a href={href(["jobs", namespace, owner])}><Foreign text={owner} /></a></b></span>}
            {pod.spec.nodeName && <span>node <b><Foreign text={pod.spec.nodeName} /></b></span>}
            {pod.status?.podIP && <span>IP <b><Foreign text={pod.status.podIP} /></b></span>}
          </div>
        </div>
        {!isReadOnly() && <div class="bar"><button class="danger" onClick={askRemove}>Delete</button></div>}
      </div>
      {list.problem.value && <Problem text={list.problem.value} />}
      <nav class="tabs" aria-label="Parts of this Pod">
        {TABS.filter(([key]) => key !== "terminal" || !isReadOnly()).map(([key, title]) => (
          <a key={key} href={href(here, { tab: key })} aria-current={tab === key ? "page" : undefined}>{title}</a>
        ))}
      </nav>
      {tab === "" && (
        <>
          {words.problem && <Problem text={words.problem} again={words.again} />}
          <div class="grid cols-wide-left">
            <div class="card pad">{words.value ? <Why words={words.value} /> : <p class="muted">Loading…</p>}</div>
            <Events namespace={namespace} pod={pod} />
          </div>
          <Section title="Containers"><Containers pod={pod} at={at} logsOf={(container) => href(here, { tab: "logs", container })} /></Section>
          <Usage path={path} title={name} running={running.length > 0} />
        </>
      )}
      {tab === "logs" && <Logs namespace={namespace} title={name} pods={[rowOf(pod)]} containers={names} only={name} container={query.get("container") ?? ""} />}
      {tab === "terminal" && (running.length
        ? <Suspense fallback={<p class="muted">Loading…</p>}><Terminal key={running.join(" ")} namespace={namespace} pod={name} containers={running} /></Suspense>
        : <div class="card"><Empty title="No container is running">A terminal needs one that runs.</Empty></div>)}
      {tab === "yaml" && <Suspense fallback={<p class="muted">Loading…</p>}><YamlView kind={POD} namespace={namespace} name={name} /></Suspense>}
    </>
  );
}

/** As far as the logs need it. */
const rowOf = (pod: Pod): PodRow => ({
  name: pod.metadata.name, uid: pod.metadata.uid, phase: pod.status?.phase ?? "Pending", index: null, createdAt: pod.metadata.creationTimestamp,
  startedAt: null, endedAt: null, exitCode: null, reason: "", restarts: statusesOf(pod).reduce((sum, one) => sum + (one.restartCount ?? 0), 0),
  ending: false, peakMemoryBytes: null, cpuMilliseconds: null,
});

function Containers({ pod, at, logsOf }: { pod: Pod; at: number; logsOf: (container: string) => string }) {
  const init = new Set(pod.spec.initContainers?.map((one) => one.name));
  const images = new Map([...pod.spec.containers, ...(pod.spec.initContainers ?? [])].map((one) => [one.name, one.image ?? ""]));
  const ran = ({ state }: Container): string => {
    if (state?.terminated?.durationMilliseconds !== undefined) return secondsText(state.terminated.durationMilliseconds / 1000);
    const start = state?.running?.startedAt ?? state?.terminated?.startedAt;
    const end = state?.terminated?.finishedAt;
    return start ? wholeDuration((end ? Date.parse(end) : at) - Date.parse(start)) : "";
  };
  const columns: Column<Container>[] = [
    { name: "Name", cell: (one) => <><Foreign text={one.name} />{init.has(one.name) && <span class="muted"> (init)</span>}</> },
    { name: "State", cell: (one) => <StateMark state={stateText(one)} /> },
    { name: "Exit code", num: true, wide: true, cell: (one) => one.state?.terminated?.exitCode ?? "" },
    { name: "Reason", wide: true, cell: (one) => <Foreign text={reasonText(one)} cut /> },
    { name: "Restarts", num: true, wide: true, cell: (one) => one.restartCount || "" },
    { name: "Ran", num: true, cell: ran },
    { name: "CPU time", num: true, wide: true, cell: (one) => cpuText(one.state?.terminated?.cpuMilliseconds ?? null) },
    { name: "Peak memory", num: true, wide: true, cell: (one) => (one.state?.terminated?.peakMemoryBytes ? bytesText(one.state.terminated.peakMemoryBytes) : "") },
    { name: "Image", wide: true, cell: (one) => <Foreign text={images.get(one.name) ?? ""} cut /> },
    { name: "Logs", width: "1%", cell: (one) => <a class="button small" aria-label={`Logs of ${visible(one.name)}`} href={logsOf(one.name)}>Logs</a> },
  ];
  return <Table label="Containers" columns={columns} rows={statusesOf(pod)} keyOf={(one) => one.name} empty={<Empty title="No container has been started" />} />;
}

function Events({ namespace, pod }: { namespace: string; pod: Pod }) {
  const events = useLive<KubeEvent>(pathOf(EVENT, namespace), { fieldSelector: `involvedObject.uid=${pod.metadata.uid}` });
  const at = now.value;
  const found = [...events.items.value.values()].sort((a, b) => eventTime(b).localeCompare(eventTime(a))).slice(0, MOST_EVENTS);
  return (
    <section class="card pad" aria-label="Events">
      <div class="titled"><h2>Events</h2><span class="muted">newest first</span></div>
      {found.length === 0 && <p class="muted">{events.problem.value ? visible(events.problem.value) : events.loaded.value ? "None" : "Loading…"}</p>}
      <ol class="timeline" style={{ maxHeight: "260px", overflow: "auto" }} tabIndex={0}>
        {found.map((event) => {
          const times = event.series?.count ?? event.count ?? 1;
          return (
            <li key={event.metadata.uid} class={event.type ?? "Normal"}>
              <span class="at" title={fullTime(eventTime(event))}>{clockText(eventTime(event), at)}</span>
              <span class="reason"><Foreign text={event.reason ?? ""} /></span>
              <Foreign text={event.message ?? ""} />{times > 1 && <span class="muted"> ×{count(times)}</span>}
            </li>
          );
        })}
      </ol>
    </section>
  );
}
