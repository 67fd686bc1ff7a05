/** Any kind that is served: its table as the server prints it, and each object as YAML. */
import { lazy } from "preact/compat";
import { useEffect, useMemo, useState } from "preact/hooks";
import { remove } from "../lib/actions";
import { now } from "../lib/hooks";
import { type ColumnDefinition, idOf, liveTable, type TableRow } from "../lib/live";
import type { KubeObject } from "../lib/objects";
import { type Kind, namespaceShown, pathOf, servedKinds } from "../lib/paths";
import { go, href, place, setQuery } from "../lib/router";
import { askJson, explainError, isReadOnly } from "../lib/session";
import { age, count, fullTime, several, visible } from "../lib/text";
import { Empty, Foreign, Problem } from "../parts/basics";
import { confirmThen } from "../parts/dialogs";
import { Forbidden, NamespaceChoice } from "../parts/namespaces";
import { type Column, Table } from "../parts/table";
import { YamlView } from "../parts/yaml-view";

const PodPage = lazy(() => import("./pod").then((m) => ({ default: m.PodPage })));

/** Tables of so many rows are read again while they are shown. */
const FEW = 500;

export function Resources({ path }: { path: string[] }) {
  const [kinds, setKinds] = useState<Kind[] | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => { servedKinds().then(setKinds, (error: unknown) => setProblem(explainError(error))); }, []);
  // An empty group is left out of the address.
  const [group, version, plural, ...rest] = path[0] === "v1" ? ["", ...path] : path;
  const kind = kinds?.find((k) => k.group === group && k.plural === plural && (!version || k.version === version));
  if (problem) return <Problem text={problem} />;
  if (!kinds) return <p class="muted">Loading…</p>;
  if (!plural) return <Kinds kinds={kinds} />;
  if (!kind) return <div class="card"><Empty title="This kind is not served" actions={<a class="button" href={href(["resources"])}>All kinds</a>} /></div>;
  const [first = "", second = ""] = rest;
  if (kind.kind === "Pod" && !kind.group && second) return <PodPage key={`${first}/${second}`} namespace={first} name={second} />;
  if (kind.namespaced && second) return <One kind={kind} namespace={first} name={second} />;
  if (!kind.namespaced && first) return <One kind={kind} namespace="" name={first} />;
  return <Objects key={pathOf(kind)} kind={kind} />;
}

const kindPath = (kind: Kind, ...rest: string[]): string[] =>
  ["resources", ...(kind.group ? [kind.group] : []), kind.version, kind.plural, ...rest];

function Kinds({ kinds }: { kinds: Kind[] }) {
  const text = place.value.query.get("text") ?? "";
  const rows = kinds.filter((k) => k.verbs.includes("list") && `${k.kind} ${k.plural} ${k.group}`.toLowerCase().includes(text.toLowerCase()));
  const columns: Column<Kind>[] = [
    { name: "Kind", cell: (k) => <a href={href(kindPath(k))}><Foreign text={k.kind} /></a>, sort: (a, b) => a.kind.localeCompare(b.kind) },
    { name: "Resource", cell: (k) => <Foreign text={k.plural} /> },
    { name: "Group", wide: true, cell: (k) => <Foreign text={k.group || "core"} />, sort: (a, b) => a.group.localeCompare(b.group) },
    { name: "Version", wide: true, cell: (k) => <Foreign text={k.version} /> },
    { name: "Scope", wide: true, cell: (k) => (k.namespaced ? "Namespaced" : "Cluster") },
  ];
  return (
    <>
      <div class="head"><div class="grow"><h1>All objects</h1><p class="sub">Built-in kinds and custom resources.</p></div></div>
      <div class="filters" role="search">
        <input type="search" data-hotkey="/" placeholder="Kind or group ( / )" aria-label="Filter kinds" value={text} onInput={(e) => setQuery({ text: e.currentTarget.value })} />
        <span class="muted">{rows.length} kinds</span>
      </div>
      <Table label="Kinds" columns={columns} rows={rows} keyOf={(k) => pathOf(k)} open={(k) => go(kindPath(k))}
        empty={<Empty title="No kind matches" actions={<button onClick={() => setQuery({ text: "" })}>Clear the filter</button>} />} />
    </>
  );
}

function Objects({ kind }: { kind: Kind }) {
  const namespace = kind.namespaced ? namespaceShown() : "";
  const { query } = place.value;
  const text = query.get("text") ?? "";
  const labels = query.get("labels") ?? "";
  const allColumns = query.get("columns") === "all";
  const path = pathOf(kind, namespace);
  const list = useMemo(() => {
    const made = liveTable(path, labels ? { labelSelector: labels } : {});
    made.watched = kind.verbs.includes("watch");
    return made;
  }, [path, labels]);
  useEffect(() => list.use(), [list]);
  const items = list.items.value;
  const rows = useMemo(
    () => [...items.values()].filter((r) => !text || `${r.metadata.namespace ?? ""} ${r.cells.join(" ")}`.toLowerCase().includes(text.toLowerCase())),
    [items, text],
  );
  const definitions = list.columns.value;
  // The server prints how long ago something was; that changes without the object.
  const ageing = definitions.some((d) => d.type === "date" || /\b(last|duration|until)\b/i.test(d.name)) && items.size <= FEW;
  useEffect(() => {
    if (!ageing) return;
    const timer = setInterval(() => list.again(), 30_000);
    return () => clearInterval(timer);
  }, [list, ageing]);
  const columns: Column<TableRow>[] = [
    ...(kind.namespaced && !namespace ? [{ name: "Namespace", wide: true, cell: (r: TableRow) => <Foreign text={r.metadata.namespace ?? ""} />, sort: (a: TableRow, b: TableRow) => (a.metadata.namespace ?? "").localeCompare(b.metadata.namespace ?? "") }] : []),
    ...definitions.flatMap((definition, i): Column<TableRow>[] => definition.priority > 0 && !allColumns ? [] : [columnOf(kind, definition, i)]),
  ];
  const filtered = Boolean(text || labels);
  const clear = () => setQuery({ text: "", labels: "" });
  const problem = list.problem.value;
  return (
    <>
      <div class="head">
        <div class="grow"><p class="crumb"><a href={href(["resources"])}>All objects</a> / <Foreign text={kind.group || "core"} /></p><h1><Foreign text={kind.kind} /></h1></div>
        {kind.verbs.includes("create") && !isReadOnly() && <a class="button" href={href(["create"])}>Create from YAML</a>}
      </div>
      {problem && (list.problemCode === 403 ? <Forbidden text={problem} /> : <Problem text={problem} again={() => list.again()} />)}
      <div class="filters" role="search">
        {kind.namespaced && <NamespaceChoice />}
        <input type="search" data-hotkey="/" placeholder="Text ( / )" aria-label="Filter by text" value={text} onInput={(e) => setQuery({ text: e.currentTarget.value })} />
        <input type="text" placeholder="Labels: app=web" aria-label="Filter by labels" size={16} value={labels} onChange={(e) => setQuery({ labels: e.currentTarget.value.trim() })} />
        {definitions.some((d) => d.priority > 0) && (
          <button class="wide-only" aria-pressed={allColumns} onClick={() => setQuery({ columns: allColumns ? "" : "all" })}>All columns</button>
        )}
        {filtered && <button class="small" onClick={clear}>Clear</button>}
        <span class="muted">{rows.length === items.size ? several(items.size, "object") : `${count(rows.length)} of ${several(items.size, "object")}`}
          {list.left.value > 0 && `; about ${count(list.left.value)} more are not shown: choose a namespace or labels`}</span>
      </div>
      <Table label={kind.kind} columns={columns} rows={rows} keyOf={idOf} open={(r) => go(rowPath(kind, r))}
        empty={<Empty title={!list.loaded.value ? (problem ? "Nothing to show" : "Loading…") : filtered ? "Nothing matches" : `No ${visible(kind.kind)} found`}
          actions={filtered ? <button onClick={clear}>Clear the filters</button> : list.loaded.value && <>
            {kind.verbs.includes("create") && !isReadOnly() && <a class="button main" href={href(["create"])}>Create one from YAML</a>}
            <a class="button" href={href(["resources"])}>Other kinds</a>
          </>} />} />
    </>
  );
}

function columnOf(kind: Kind, definition: ColumnDefinition, i: number): Column<TableRow> {
  const text = (r: TableRow) => (r.cells[i] === null || r.cells[i] === undefined ? "" : String(r.cells[i]));
  if (definition.name === "Age") {
    return {
      name: "Age", num: true, wide: i > 2,
      cell: (r) => <span title={fullTime(r.metadata.creationTimestamp)}>{age(r.metadata.creationTimestamp, now.value)}</span>,
      sort: (a, b) => b.metadata.creationTimestamp.localeCompare(a.metadata.creationTimestamp),
    };
  }
  return {
    name: definition.name, num: definition.type === "integer" || definition.type === "number", wide: i > 2,
    cell: (r) => (i === 0 ? <a href={href(rowPath(kind, r))}><Foreign text={text(r)} cut /></a> : <Foreign text={text(r)} cut />),
    sort: (a, b) => text(a).localeCompare(text(b), undefined, { numeric: true }),
  };
}

const rowPath = (kind: Kind, row: TableRow): string[] =>
  kind.namespaced ? kindPath(kind, row.metadata.namespace ?? "", row.metadata.name) : kindPath(kind, row.metadata.name);

const WHAT_GOES: Record<string, string> = {
  Namespace: "Everything in it goes with it: Jobs, their Pods and logs, and all other objects.",
  CustomResourceDefinition: "All objects of its kind go with it.",
};

function One({ kind, namespace, name }: { kind: Kind; namespace: string; name: string }) {
  const askRemove = () => confirmThen(
    `Delete ${kind.plural}/${name}?`, `${WHAT_GOES[kind.kind] ?? "What it owns goes with it."} This cannot be undone.`, "Delete",
    async () => {
      const object = await askJson<KubeObject>(pathOf(kind, namespace, name));
      const done = await remove(kind, object);
      go(kindPath(kind));
      return done;
    }, true);
  return (
    <>
      <div class="head">
        <div class="grow">
          <p class="crumb"><a href={href(["resources"])}>All objects</a> / <a href={href(kindPath(kind))}><Foreign text={kind.kind} /></a>{namespace && <> / <Foreign text={namespace} /></>}</p>
          <h1><Foreign text={name} /></h1>
        </div>
        {kind.verbs.includes("delete") && !isReadOnly() && <div class="bar"><button class="danger" onClick={askRemove}>Delete</button></div>}
      </div>
      <YamlView kind={kind} namespace={namespace} name={name} />
    </>
  );
}
