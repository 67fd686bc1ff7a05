import { useMemo, useRef, useState } from "preact/hooks";
import { stateWith, useCauses } from "../lib/causes";
import { now, useLive } from "../lib/hooks";
import { durationOf, type Job, keyOf, ownerText, stateOf, WAITS } from "../lib/objects";
import { hasLabels } from "../lib/labels";
import { JOB, namespaceShown, pathOf } from "../lib/paths";
import { go, href, place, setQuery } from "../lib/router";
import { isReadOnly } from "../lib/session";
import { age, count, fullTime, several, visible, wholeDuration } from "../lib/text";
import { Empty, Foreign, OwnerLink, Problem, Progress, StateMark } from "../parts/basics";
import { askDelete, askRerun, askSuspend, BulkActions, JobMenu } from "../parts/job-actions";
import { NamespaceChoice, Forbidden } from "../parts/namespaces";
import { type Column, Table } from "../parts/table";

/** Filter for all states of waiting. */
const ANY_WAIT = "All waiting";
const STATES = ["Running", ANY_WAIT, ...WAITS, "Suspended", "Failed", "Complete"];

export function Jobs() {
  const namespace = namespaceShown();
  const list = useLive<Job>(pathOf(JOB, namespace));
  const { query } = place.value;
  const state = query.get("state") ?? "";
  const text = query.get("text") ?? "";
  const labels = query.get("labels") ?? "";
  const search = useRef<HTMLInputElement>(null);
  const items = list.items.value;

  const rows = useMemo(() => {
    const wanted = text.toLowerCase();
    return [...items.values()]
      .filter((job) => (!state || stateOf(job) === state || (state === ANY_WAIT && WAITS.includes(stateOf(job)))) && (!labels || hasLabels(job.metadata.labels ?? {}, labels)))
      .filter((job) => !wanted || `${keyOf(job)} ${ownerText(job)}`.toLowerCase().includes(wanted))
      .sort((a, b) => b.metadata.creationTimestamp.localeCompare(a.metadata.creationTimestamp) || keyOf(a).localeCompare(keyOf(b)));
  }, [items, state, text, labels]);

  const causes = useCauses();
  const causeOf = causes.found.value;
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const chosen = rows.filter((job) => selected.has(job.metadata.uid));
  const readOnly = isReadOnly();

  const at = now.value;
  const columns: Column<Job>[] = [
    {
      name: "Name",
      sort: (a, b) => a.metadata.name.localeCompare(b.metadata.name),
      cell: (job) => (
        <a href={href(["jobs", job.metadata.namespace ?? "", job.metadata.name])} title={visible(keyOf(job))}>
          {!namespace && <span class="muted wide-only"><Foreign text={job.metadata.namespace ?? ""} />/</span>}<Foreign text={job.metadata.name} />
        </a>
      ),
    },
    {
      name: "State", width: "122px", sort: (a, b) => stateOf(a).localeCompare(stateOf(b)),
      cell: (job) => <StateMark state={stateWith(job, causeOf.get(job.metadata.uid))} />,
    },
    { name: "Cause", wide: true, width: "26%", cell: (job) => <Foreign text={causeOf.get(job.metadata.uid)?.text ?? ""} cut /> },
    { name: "Progress", width: "13%", cell: (job) => <Progress job={job} /> },
    {
      name: "Duration", num: true, wide: true, width: "82px",
      sort: (a, b) => (durationOf(a, at) ?? -1) - (durationOf(b, at) ?? -1),
      cell: (job) => { const ms = durationOf(job, at); return ms === undefined ? "" : wholeDuration(ms); },
    },
    {
      name: "Age", num: true, wide: true, width: "60px",
      sort: (a, b) => b.metadata.creationTimestamp.localeCompare(a.metadata.creationTimestamp),
      cell: (job) => <span title={fullTime(job.metadata.creationTimestamp)}>{age(job.metadata.creationTimestamp, at)}</span>,
    },
    { name: "Owner", wide: true, width: "10%", cell: (job) => <OwnerLink object={job} /> },
    { name: "Actions", unnamed: true, width: "48px", cell: (job) => <JobMenu job={job} /> },
  ];
  const filtered = Boolean(state || text || labels);
  const open = (job: Job) => go(["jobs", job.metadata.namespace ?? "", job.metadata.name]);
  return (
    <>
      <div class="head">
        <div class="grow"><h1>Jobs</h1></div>
        {!readOnly && <a class="button main" href={href(["create"])}>Create a Job</a>}
      </div>
      {list.problem.value && (list.problemCode === 403 ? <Forbidden text={list.problem.value} /> : <Problem text={list.problem.value} />)}
      <div class="filters" role="search">
        <NamespaceChoice />
        <input ref={search} type="search" data-hotkey="/" placeholder="Name or owner ( / )" aria-label="Filter by name or owner"
          value={text} onInput={(e) => setQuery({ text: e.currentTarget.value })} />
        <input type="text" placeholder="Labels: app=web" aria-label="Filter by labels" size={16}
          value={labels} onInput={(e) => setQuery({ labels: e.currentTarget.value })} />
        <select aria-label="Filter by state" value={state} onChange={(e) => setQuery({ state: e.currentTarget.value })}>
          <option value="">All states</option>
          {STATES.map((name) => <option key={name} value={name}>{name}</option>)}
        </select>
        {filtered && <button class="small" onClick={() => setQuery({ state: "", text: "", labels: "" })}>Clear</button>}
        <span class="muted" aria-live="polite">{rows.length === items.size ? several(items.size, "Job") : `${count(rows.length)} of ${several(items.size, "Job")}`}</span>
      </div>
      <Table page label="Jobs" onShown={causes.show}
        {...(readOnly ? {} : { selection: { keys: selected, set: setSelected, nameOf: (job: Job) => visible(job.metadata.name) } })} columns={columns} rows={rows} keyOf={(job) => job.metadata.uid} open={open}
        keys={{
          s: askSuspend, r: askRerun, x: (job: Job) => askDelete(job),
          l: (job) => go(["jobs", job.metadata.namespace ?? "", job.metadata.name], { tab: "logs" }),
        }}
        empty={!list.loaded.value ? <Empty title={list.problem.value ? "No Jobs to show" : "Loading…"} /> : filtered
          ? <Empty title="No Job matches the filters" actions={<button onClick={() => setQuery({ state: "", text: "", labels: "" })}>Clear the filters</button>} />
          : <Empty title={`No Jobs ${namespace ? `in ${visible(namespace)}` : "yet"}`}
              actions={readOnly ? undefined : <a class="button main" href={href(["create"])}>Create the first Job</a>}>
              {!readOnly && <>Create one here, or with <code>kubectl apply -f job.yaml</code>.</>}
            </Empty>} />
      {chosen.length > 0 && !readOnly && <BulkActions jobs={chosen} done={() => setSelected(new Set())} />}
    </>
  );
}
