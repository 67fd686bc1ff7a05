/** The results of a Job, one row per index: parameters, outcome, usage and what its program reported. */
import { useMemo } from "preact/hooks";
import { useAnswer } from "../lib/hooks";
import { type Job, finished } from "../lib/objects";
import { go, href, place, setQuery } from "../lib/router";
import { ask } from "../lib/session";
import { bytesText, count, cpuText, saveAs, secondsText, several, visible } from "../lib/text";
import { Empty, Foreign, Problem, StateMark } from "../parts/basics";
import { perform } from "../parts/dialogs";
import { type Column, Table } from "../parts/table";

interface Row {
  index: number | null;
  pod: string;
  params: string[];
  state: string;
  exitCode: number | null;
  seconds: number | null;
  cpuSeconds: number | null;
  peakMemoryBytes: number | null;
  attempts: number;
  values: string[];
}

interface ResultsDocument {
  parameters: string[];
  columns: string[];
  rows: Row[];
  /** Whether all Pods of the Job were read. */
  complete: boolean;
  /** Whether a Job was deleted that this one repeats in part. */
  earlierDeleted: boolean;
}

const STATES: Record<string, string> = { NotRun: "Not run" };
const stateText = (row: Row): string => STATES[row.state] ?? row.state;

/** Numbers by their value, all else as text; what is missing comes first. */
function compare(a: string, b: string): number {
  const [x, y] = [Number(a), Number(b)];
  if (a !== "" && b !== "" && Number.isFinite(x) && Number.isFinite(y)) return x - y;
  return a.localeCompare(b, undefined, { numeric: true });
}

const byNumber = (of: (row: Row) => number | null) => (a: Row, b: Row): number => (of(a) ?? -1) - (of(b) ?? -1);

export function Results({ job }: { job: Job }) {
  const { namespace = "", name, resourceVersion } = job.metadata;
  const path = `/ui/api/jobs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}/results`;
  const over = finished(job) !== undefined && !job.status?.terminating;
  const answer = useAnswer<ResultsDocument>(path, resourceVersion, 3000, over ? 0 : 5000);
  const found = answer.value;
  const { query } = place.value;
  const state = query.get("state") ?? "";
  const text = query.get("text") ?? "";
  const states = useMemo(() => [...new Set(found?.rows.map((row) => row.state))].sort(), [found]);
  const rows = useMemo(() => {
    const wanted = text.toLowerCase();
    return (found?.rows ?? []).filter((row) => (!state || row.state === state)
      && (!wanted || `${row.index ?? row.pod} ${row.params.join(" ")} ${row.values.join(" ")}`.toLowerCase().includes(wanted)));
  }, [found, state, text]);
  const measured = found?.rows.some((row) => row.peakMemoryBytes !== null) ?? false;

  if (!found) return answer.problem ? <Problem text={answer.problem} again={answer.again} /> : <p class="muted">Loading…</p>;
  const podPlace = (row: Row) => ["resources", "v1", "pods", namespace, row.pod];
  const columns: Column<Row>[] = [
    {
      name: "Index", num: true, width: "1%", sort: byNumber((row) => row.index),
      cell: (row) => {
        const title = row.index === null ? visible(row.pod) : String(row.index);
        return row.pod ? <a href={href(podPlace(row))} aria-label={`Pod of index ${title}`}>{title}</a> : title;
      },
    },
    ...found.parameters.map((parameter, i): Column<Row> => ({
      name: visible(parameter), wide: i > 1, sort: (a, b) => compare(a.params[i] ?? "", b.params[i] ?? ""),
      cell: (row) => <Foreign text={row.params[i] ?? ""} cut />,
    })),
    { name: "State", sort: (a, b) => a.state.localeCompare(b.state), cell: (row) => <StateMark state={stateText(row)} /> },
    { name: "Exit code", num: true, wide: true, sort: byNumber((row) => row.exitCode), cell: (row) => row.exitCode ?? "" },
    { name: "Duration", num: true, wide: true, sort: byNumber((row) => row.seconds), cell: (row) => secondsText(row.seconds) },
    ...(measured ? [
      { name: "CPU time", num: true, wide: true, sort: byNumber((row) => row.cpuSeconds), cell: (row: Row) => cpuText(row.cpuSeconds === null ? null : row.cpuSeconds * 1000) },
      { name: "Peak memory", num: true, wide: true, sort: byNumber((row) => row.peakMemoryBytes), cell: (row: Row) => (row.peakMemoryBytes ? bytesText(row.peakMemoryBytes) : "") },
    ] : []),
    { name: "Attempts", num: true, wide: true, sort: byNumber((row) => row.attempts), cell: (row) => row.attempts || "" },
    ...found.columns.map((column, i): Column<Row> => ({
      name: column === "result" ? "Result" : visible(column), wide: i > 0, sort: (a, b) => compare(a.values[i] ?? "", b.values[i] ?? ""),
      cell: (row) => <Foreign text={row.values[i] ?? ""} cut />,
    })),
  ];
  const filtered = Boolean(state || text);
  const clear = () => setQuery({ state: "", text: "" });
  const peak = found.rows.reduce((most, row) => Math.max(most, row.peakMemoryBytes ?? 0), 0);
  const cpu = found.rows.reduce((sum, row) => sum + (row.cpuSeconds ?? 0), 0);
  return (
    <>
      {answer.problem && <Problem text={answer.problem} again={answer.again} />}
      <div class="filters" role="search">
        <input type="search" data-hotkey="/" placeholder="Parameter or result ( / )" aria-label="Filter by parameter or result"
          value={text} onInput={(e) => setQuery({ text: e.currentTarget.value })} />
        <select aria-label="Filter by state" value={state} onChange={(e) => setQuery({ state: e.currentTarget.value })}>
          <option value="">All states</option>
          {states.map((one) => <option key={one} value={one}>{STATES[one] ?? one}</option>)}
        </select>
        {filtered && <button class="small" onClick={clear}>Clear</button>}
        <button disabled={found.rows.length === 0} onClick={() => void perform(async () => {
          saveAs(`${name}.csv`, await (await ask(`${path}?format=csv`, { accept: "text/csv" })).blob());
          return `${name}.csv saved`;
        })}>Download CSV</button>
        <span class="muted" aria-live="polite">
          {filtered ? `${count(rows.length)} of ${several(found.rows.length, "row")}` : several(found.rows.length, "row")}
          {states.map((one) => `, ${count(found.rows.filter((row) => row.state === one).length)} ${(STATES[one] ?? one).toLowerCase()}`)}
          {peak > 0 && `; peak memory ${bytesText(peak)}, CPU time ${cpuText(cpu * 1000)}`}
        </span>
      </div>
      {!found.complete && <p class="banner">This Job has too many Pods to show all results: see <code>onejob results</code>.</p>}
      {found.earlierDeleted && <p class="banner">An earlier Job was deleted: its results are not shown.</p>}
      <Table label="Results" columns={columns} rows={rows} keyOf={(row) => (row.index === null ? row.pod : String(row.index))}
        open={(row) => { if (row.pod) go(podPlace(row)); }}
        empty={<Empty title={filtered ? "No row matches the filters" : "No results yet"} actions={filtered ? <button onClick={clear}>Clear the filters</button> : undefined}>
          {filtered ? "" : <>A program reports its result in the file <code>$ONEJOB_RESULT</code>, or as its termination message.</>}
        </Empty>} />
    </>
  );
}
