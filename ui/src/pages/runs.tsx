/** The runs that are kept on this machine, each with pages of its own. */
import { now, useAnswer } from "../lib/hooks";
import { place, setQuery } from "../lib/router";
import { age, fullTime, several, visible, wholeDuration } from "../lib/text";
import { Empty, Foreign, Problem, StateMark } from "../parts/basics";
import { type Column, Table } from "../parts/table";

export interface Run {
  id: string;
  startedAt: string;
  finishedAt: string | null;
  state: string;
  exitCode: number | null;
  jobs: { namespace: string; name: string; workflow?: string }[];
  arguments: string[];
  /** Its objects are on a cluster. */
  remote: boolean;
}

export const RUNS = "/ui/api/runs";

/** The page of its only Job or workflow, or its Jobs. */
function addressOf(run: Run): string {
  const workflows = new Set(run.jobs.map((job) => job.workflow ?? ""));
  const [first] = run.jobs;
  const path = run.jobs.length === 1 && first && !first.workflow ? ["jobs", first.namespace, first.name]
    : workflows.size === 1 && first?.workflow ? ["workflows", first.namespace, first.workflow] : ["jobs"];
  return `#/${["runs", run.id, ...path].map(encodeURIComponent).join("/")}`;
}

const namesOf = (run: Run): string => [...new Set(run.jobs.map((job) => (job.workflow ? `workflow/${job.workflow}` : job.name)))].join(", ");

export function Runs() {
  const answer = useAnswer<{ runs: Run[] }>(RUNS, "", 1000, 5000);
  const text = place.value.query.get("text") ?? "";
  const at = now.value;
  const runs = answer.value?.runs;
  const rows = (runs ?? []).filter((run) => !text || `${namesOf(run)} ${run.id} ${run.state} ${run.arguments.join(" ")}`.toLowerCase().includes(text.toLowerCase()));
  const columns: Column<Run>[] = [
    { name: "Jobs", sort: (a, b) => namesOf(a).localeCompare(namesOf(b)), cell: (run) => (run.remote ? <Foreign text={namesOf(run) || run.id} cut /> : <a href={addressOf(run)}><Foreign text={namesOf(run) || run.id} cut /></a>) },
    { name: "State", width: "122px", sort: (a, b) => a.state.localeCompare(b.state), cell: (run) => <StateMark state={run.state} /> },
    { name: "Exit code", num: true, wide: true, width: "90px", cell: (run) => run.exitCode ?? "" },
    { name: "Started", num: true, width: "92px", sort: (a, b) => a.startedAt.localeCompare(b.startedAt), cell: (run) => <span title={fullTime(run.startedAt)}>{age(run.startedAt, at)} ago</span> },
    { name: "Duration", num: true, wide: true, width: "92px", cell: (run) => (run.finishedAt ? wholeDuration(Date.parse(run.finishedAt) - Date.parse(run.startedAt)) : "") },
    { name: "Command", wide: true, width: "34%", cell: (run) => <code><Foreign text={run.arguments.join(" ")} cut /></code> },
    { name: "ID", wide: true, width: "17%", cell: (run) => <Foreign text={run.id} cut /> },
  ];
  return (
    <>
      <div class="head"><div class="grow"><h1>Runs</h1><p class="sub">Kept on this machine for seven days, read-only.</p></div></div>
      {answer.problem && <Problem text={answer.problem} again={answer.again} />}
      <div class="filters" role="search">
        <input type="search" data-hotkey="/" placeholder="Name, state or command ( / )" aria-label="Filter runs" value={text} onInput={(e) => setQuery({ text: e.currentTarget.value })} />
        <span class="muted" aria-live="polite">{several(rows.length, "run")}</span>
      </div>
      <Table page label="Runs" columns={columns} rows={rows} keyOf={(run) => run.id} open={(run) => { if (!run.remote) location.hash = addressOf(run); }}
        empty={<Empty title={runs ? (text ? "No run matches" : "No kept runs") : "Loading…"}>{runs && !text && <>Start one with <code>onejob run</code>.</>}</Empty>} />
    </>
  );
}

/** Which run is shown, and what became of it. */
export function RunBanner({ run }: { run: Run }) {
  return (
    <p class="banner run-banner">
      <span class="grow">Run <b>{visible(run.id)}</b>, started {age(run.startedAt, now.value)} ago: {run.state === "Running" ? "still running; this is its state when it was opened" : visible(run.state)}. Read-only.</span>
      <a class="button small" href="#/">All runs</a>
    </p>
  );
}
