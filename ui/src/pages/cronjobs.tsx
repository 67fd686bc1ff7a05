import { lazy, Suspense } from "preact/compat";
import { useMemo } from "preact/hooks";
import { CRONJOB, JOB, remove, runNow, setSuspend } from "../lib/actions";
import { now, useAnswer, useLive } from "../lib/hooks";
import { type CronJob, type CronJobSummary, finished, type Job, keyOf, stateOf as jobState } from "../lib/objects";
import { namespaceShown, pathOf } from "../lib/paths";
import { go, href, place, setQuery } from "../lib/router";
import { askJson, who } from "../lib/session";
import { age, count, fullTime, inZone, several, shortDuration, visible } from "../lib/text";
import { Empty, Foreign, Problem, Section, StateMark } from "../parts/basics";
import { confirmThen, perform } from "../parts/dialogs";
import { FireCalendar, missedText } from "../parts/calendar";
import { Forbidden, NamespaceChoice } from "../parts/namespaces";
import { type Column, Table } from "../parts/table";
import { Why } from "../parts/why";

const YamlView = lazy(() => import("../parts/yaml-view").then((m) => ({ default: m.YamlView })));

/** So many of the next times are listed; the calendar has more. */
const LISTED = 30;

const placeOf = (c: CronJob) => ["cronjobs", c.metadata.namespace ?? "", c.metadata.name];
const stateOf = (c: CronJob) => (c.spec.suspend ? "Suspended" : c.status?.active?.length ? "Running" : "Scheduled");

function askSuspend(cronjob: CronJob): void {
  const suspend = !cronjob.spec.suspend;
  confirmThen(
    `${suspend ? "Suspend" : "Resume"} cronjob/${cronjob.metadata.name}?`,
    suspend ? "No further Jobs are started. Those that run go on." : "Jobs are started again. Of the times that passed meanwhile, at most the latest is made up for.",
    suspend ? "Suspend" : "Resume",
    () => setSuspend(CRONJOB, cronjob, suspend),
  );
}

function start(cronjob: CronJob): Promise<void> {
  return perform(async () => {
    const name = await runNow(cronjob);
    go(["jobs", cronjob.metadata.namespace ?? "", name]);
    return `Job ${name} created`;
  });
}

async function askDelete(cronjob: CronJob): Promise<undefined> {
  const { items } = await askJson<{ items: Job[] }>(pathOf(JOB, cronjob.metadata.namespace ?? ""));
  const own = items.filter((job) => job.metadata.ownerReferences?.some((owner) => owner.uid === cronjob.metadata.uid));
  const running = own.filter((job) => !finished(job)).length;
  confirmThen(
    `Delete cronjob/${cronjob.metadata.name}?`,
    <>
      <p>The CronJob goes, and with it {several(own.length, "Job")}{running ? `, of which ${count(running)} still run and are stopped` : ""}, with their Pods and logs.</p>
      <p class="muted">This cannot be undone.</p>
    </>,
    "Delete",
    async () => { const done = await remove(CRONJOB, cronjob); go(["cronjobs"]); return done; }, true);
}

function Actions({ cronjob, small }: { cronjob: CronJob; small?: boolean }) {
  const name = visible(cronjob.metadata.name);
  const style = small ? "small" : "";
  return (
    <>
      <button class={style} aria-label={`Run now: ${name}`} onClick={() => void start(cronjob)}>Run now</button>
      <button class={style} aria-label={`${cronjob.spec.suspend ? "Resume" : "Suspend"} ${name}`} onClick={() => askSuspend(cronjob)}>
        {cronjob.spec.suspend ? "Resume" : "Suspend"}
      </button>
      {!small && (
        <button class="danger" aria-label={`Delete ${name}`} onClick={() => void perform(() => askDelete(cronjob))}>Delete</button>
      )}
    </>
  );
}

/** Runs shown as dots in the list. */
const DOTS = 8;

/** The next runs are asked for again when a CronJob has changed. */
const versions = (rows: CronJob[]): string => rows.reduce((newest, row) => (row.metadata.resourceVersion > newest ? row.metadata.resourceVersion : newest), `${rows.length}`);

/** The latest Jobs of each CronJob by its UID, the oldest first. */
function useRuns(namespace: string): Map<string, Job[]> {
  const items = useLive<Job>(pathOf(JOB, namespace)).items.value;
  return useMemo(() => {
    const found = new Map<string, Job[]>();
    for (const job of items.values()) {
      const owner = job.metadata.ownerReferences?.find((one) => one.controller && one.kind === "CronJob");
      if (owner) found.set(owner.uid, [...(found.get(owner.uid) ?? []), job]);
    }
    for (const [uid, jobs] of found) {
      found.set(uid, jobs.sort((a, b) => a.metadata.creationTimestamp.localeCompare(b.metadata.creationTimestamp)).slice(-DOTS));
    }
    return found;
  }, [items]);
}

function RunDots({ jobs }: { jobs: Job[] }) {
  if (jobs.length === 0) return <span class="muted">none</span>;
  return (
    <span class="nowrap">
      {jobs.map((job) => {
        const state = jobState(job);
        const words = `${visible(job.metadata.name)}: ${state}`;
        return (
          <a key={job.metadata.uid} class="run" href={href(["jobs", job.metadata.namespace ?? "", job.metadata.name])} aria-label={words} title={words}>
            <i class={`dot ${state}`} />
          </a>
        );
      })}
    </span>
  );
}

function NextRun({ time, at }: { time: string | undefined; at: number }) {
  if (!time) return <span class="muted">none</span>;
  const left = Date.parse(time) - at;
  return <span title={fullTime(time)}>{left > 1000 ? `in ${age(new Date(at).toISOString(), at + left)}` : "now"}</span>;
}

export function CronJobs() {
  const namespace = namespaceShown();
  const list = useLive<CronJob>(pathOf(CRONJOB, namespace));
  const text = place.value.query.get("text") ?? "";
  const items = list.items.value;
  const rows = useMemo(
    () => [...items.values()].filter((c) => !text || keyOf(c).toLowerCase().includes(text.toLowerCase())).sort((a, b) => keyOf(a).localeCompare(keyOf(b))),
    [items, text],
  );
  const at = now.value;
  const following = useAnswer<{ next: Record<string, string> }>(
    `/ui/api/cronjobs${namespace ? `?namespace=${encodeURIComponent(namespace)}` : ""}`, versions(rows), 2000, 30_000).value?.next;
  const ended = useRuns(namespace);
  const columns: Column<CronJob>[] = [
    { name: "Name", cell: (c) => <a href={href(placeOf(c))}><Foreign text={c.metadata.name} cut /></a>, sort: (a, b) => a.metadata.name.localeCompare(b.metadata.name) },
    ...(namespace ? [] : [{ name: "Namespace", wide: true, cell: (c: CronJob) => <Foreign text={c.metadata.namespace ?? ""} /> }]),
    { name: "Schedule", cell: (c) => <code><Foreign text={c.spec.schedule} /></code> },
    { name: "Zone", wide: true, cell: (c) => <Foreign text={c.spec.timeZone ?? who.value?.localZone ?? ""} /> },
    { name: "State", wide: true, cell: (c) => <StateMark state={stateOf(c)} /> },
    { name: "Next run", num: true, cell: (c) => c.spec.suspend ? <span class="muted">suspended</span> : <NextRun time={following?.[keyOf(c)]} at={at} /> },
    { name: "History", wide: true, cell: (c) => <RunDots jobs={ended.get(c.metadata.uid) ?? []} /> },
    { name: "Last fired", num: true, wide: true, cell: (c) => (c.status?.lastScheduleTime ? `${age(c.status.lastScheduleTime, at)} ago` : "never") },
    { name: "Last success", num: true, wide: true, cell: (c) => (c.status?.lastSuccessfulTime ? `${age(c.status.lastSuccessfulTime, at)} ago` : "") },
    { name: "Actions", wide: true, held: true, width: "1%", cell: (c) => <span class="actions"><Actions cronjob={c} small /></span> },
  ];
  return (
    <>
      <div class="head"><div class="grow"><h1>CronJobs</h1></div><a class="button main" href={href(["create"], { schedule: "0 * * * *" })}>Create a CronJob</a></div>
      {list.problem.value && (list.problemCode === 403 ? <Forbidden text={list.problem.value} /> : <Problem text={list.problem.value} />)}
      <div class="filters" role="search">
        <NamespaceChoice />
        <input type="search" data-hotkey="/" placeholder="Name ( / )" aria-label="Filter by name" value={text} onInput={(e) => setQuery({ text: e.currentTarget.value })} />
      </div>
      <Table label="CronJobs" columns={columns} rows={rows} keyOf={(c) => c.metadata.uid} open={(c) => go(placeOf(c))} keys={{ s: askSuspend }}
        empty={!list.loaded.value ? <Empty title="Loading…" /> : text
          ? <Empty title="No CronJob matches" actions={<button onClick={() => setQuery({ text: "" })}>Clear the filter</button>} />
          : <Empty title="No CronJobs yet" actions={<a class="button main" href={href(["create"], { schedule: "0 * * * *" })}>Create the first one</a>}>They start Jobs on a schedule.</Empty>} />
    </>
  );
}

export function CronJobPage({ namespace, name }: { namespace: string; name: string }) {
  const list = useLive<CronJob>(pathOf(CRONJOB, namespace), { fieldSelector: `metadata.name=${name}` });
  const cronjob = [...list.items.value.values()][0];
  const path = cronjob ? `/ui/api/cronjobs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}` : "";
  const summary = useAnswer<CronJobSummary>(path, cronjob?.metadata.resourceVersion ?? "", 2000, 15_000);
  const yaml = place.value.query.get("tab") === "yaml";
  const at = now.value;
  const words = summary.value;
  const zone = words?.zone ?? "";
  const zoneNote = zone ? `times in ${visible(zone)} and yours` : "times in your zone";
  const timesOf = (time: string) => (zone
    ? <><span class="nowrap" title={fullTime(time)}>{inZone(time, zone)}</span><span class="muted nowrap">{inZone(time, "")}</span></>
    : <span class="nowrap both" title={fullTime(time)}>{fullTime(time)}</span>);
  if (!cronjob) {
    return list.loaded.value
      ? <div class="card"><Empty title="CronJob not found" actions={<a class="button" href={href(["cronjobs"])}>All CronJobs</a>} /></div>
      : <p class="muted">{list.problem.value ? visible(list.problem.value) : "Loading…"}</p>;
  }
  return (
    <>
      <div class="head">
        <div class="grow">
          <p class="crumb"><a href={href(["cronjobs"])}>CronJobs</a> / <Foreign text={namespace} /></p>
          <h1><Foreign text={name} /></h1>
          <div class="facts">
            <StateMark state={stateOf(cronjob)} />
            <span>schedule <b><code><Foreign text={cronjob.spec.schedule} /></code></b></span>
            {zone && <span>read in <b><Foreign text={zone} /></b></span>}
            <span>concurrency <b>{visible(cronjob.spec.concurrencyPolicy ?? "Allow")}</b></span>
          </div>
        </div>
        <div class="bar"><Actions cronjob={cronjob} /></div>
      </div>
      <nav class="tabs" aria-label="Parts of this CronJob">
        <a href={href(placeOf(cronjob))} aria-current={yaml ? undefined : "page"}>Summary</a>
        <a href={href(placeOf(cronjob), { tab: "yaml" })} aria-current={yaml ? "page" : undefined}>YAML</a>
      </nav>
      {summary.problem && <Problem text={summary.problem} again={summary.again} />}
      {yaml ? <Suspense fallback={<p class="muted">Loading…</p>}><YamlView kind={CRONJOB} namespace={namespace} name={name} /></Suspense> : words && (
        <>
          <div class="card pad"><Why words={words} /></div>
          <Section title="Calendar" note={missedText(words.past)}><FireCalendar times={words} /></Section>
          <div class="grid cols-2">
            <Section title="Past" note={zoneNote}>
              <div class="card" style={{ maxHeight: "420px", overflow: "auto" }} tabIndex={0} role="region" aria-label="Past times">
                {words.past.length === 0 ? <Empty title="It has not fired yet" actions={<button onClick={() => void start(cronjob)}>Run it now</button>} /> : (
                  <ul class="fires">
                    {words.past.map((fire) => (
                      <li key={fire.at}>
                        {timesOf(fire.at)}
                        <StateMark state={fire.state} />
                        {fire.job && <a class="cut" href={href(["jobs", namespace, fire.job])} title={visible(fire.job)}><Foreign text={fire.job} /></a>}
                        {fire.why && <span class="reason">{visible(fire.why)}</span>}
                      </li>
                    ))}
                  </ul>
                )}
              </div>
            </Section>
            <Section title="Next" note={zoneNote}>
              <div class="card" style={{ maxHeight: "420px", overflow: "auto" }} tabIndex={0} role="region" aria-label="Next times">
                {words.coming.length === 0 ? <Empty title="No further time">{cronjob.spec.suspend ? "It is suspended: resume it to have Jobs started again." : "Its schedule has none, or cannot be read."}</Empty> : (
                  <ul class="fires">
                    {words.coming.slice(0, LISTED).map((time) => (
                      <li key={time}>
                        {timesOf(time)}
                        <span class="muted nowrap">in {shortDuration(Date.parse(time) - at)}</span>
                        <span />
                      </li>
                    ))}
                  </ul>
                )}
              </div>
            </Section>
          </div>
        </>
      )}
    </>
  );
}
