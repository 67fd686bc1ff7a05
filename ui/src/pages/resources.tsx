/** Any kind that is served: its table as the server prints it, and each object as YAML. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { remove } from "../lib/actions";
import { useAnswer } from "../lib/hooks";
import type { KubeObject, Words } from "../lib/objects";
import { type Kind, namespaceShown, pathOf, servedKinds } from "../lib/paths";
import { go, href, place, setQuery } from "../lib/router";
import { askJson, explainError } from "../lib/session";
import { count, visible } from "../lib/text";
import { Empty, Foreign, Problem } from "../parts/basics";
import { confirmThen } from "../parts/dialogs";
import { NamespaceChoice } from "../parts/namespaces";
import { type Column, Table } from "../parts/table";
import { Why } from "../parts/why";
import { YamlView } from "../parts/yaml-view";

const PAGE = 500;

interface TableDocument {
  columnDefinitions: { name: string; priority: number; type: string }[];
  rows: { cells: unknown[]; object: KubeObject }[];
  metadata: { continue?: string; remainingItemCount?: number };
}

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
      <div class="head"><div class="grow"><h1>Everything that is served</h1><p class="sub">Built-in kinds and custom resources.</p></div></div>
      <div class="filters" role="search">
        <input type="search" data-hotkey="/" placeholder="Kind or group ( / )" aria-label="Filter kinds" value={text} onInput={(e) => setQuery({ text: e.currentTarget.value })} />
        <span class="muted">{rows.length} kinds</span>
      </div>
      <Table label="Kinds" columns={columns} rows={rows} keyOf={(k) => pathOf(k)} open={(k) => go(kindPath(k))}
        empty={<Empty title="No kind matches" actions={<button onClick={() => setQuery({ text: "" })}>Clear the filter</button>} />} />
    </>
  );
}

type Row = TableDocument["rows"][number];

function Objects({ kind }: { kind: Kind }) {
  const namespace = kind.namespaced ? namespaceShown() : "";
  const [pages, setPages] = useState<TableDocument[]>([]);
  const [problem, setProblem] = useState("");
  const text = place.value.query.get("text") ?? "";
  const load = async (token: string) => {
    const query = new URLSearchParams({ limit: String(PAGE), includeObject: "Metadata", ...(token ? { continue: token } : {}) });
    try {
      const page = await askJson<TableDocument>(`${pathOf(kind, namespace)}?${query}`, { accept: "application/json;as=Table;v=v1;g=meta.k8s.io" });
      setPages((before) => (token ? [...before, page] : [page]));
      setProblem("");
    } catch (error) {
      setProblem(explainError(error));
    }
  };
  useEffect(() => {
    void load("");
    // The table as the server prints it has no watch here: it is read again while it is one page.
    const timer = setInterval(() => { if (document.visibilityState === "visible" && pages.length <= 1) void load(""); }, 5000);
    return () => clearInterval(timer);
  }, [namespace, pages.length > 1]);
  const last = pages[pages.length - 1];
  const rows = useMemo(() => pages.flatMap((p) => p.rows).filter((r) => !text || r.cells.join(" ").toLowerCase().includes(text.toLowerCase())), [pages, text]);
  const names = last?.columnDefinitions ?? [];
  const columns: Column<Row>[] = [
    ...(kind.namespaced && !namespace ? [{ name: "Namespace", wide: true, cell: (r: Row) => <Foreign text={r.object.metadata.namespace ?? ""} /> }] : []),
    ...names.flatMap((definition, i): Column<Row>[] => definition.priority > 0 ? [] : [{
      name: definition.name, num: definition.type === "integer", wide: i > 2,
      cell: (r) => {
        const cell = <Foreign text={r.cells[i] === null || r.cells[i] === undefined ? "" : String(r.cells[i])} cut />;
        return i === 0 ? <a href={href(rowPath(kind, r))}>{cell}</a> : cell;
      },
      sort: (a, b) => String(a.cells[i]).localeCompare(String(b.cells[i]), undefined, { numeric: true }),
    }]),
  ];
  return (
    <>
      <div class="head">
        <div class="grow"><p class="crumb"><a href={href(["resources"])}>Everything</a> / <Foreign text={kind.group || "core"} /></p><h1><Foreign text={kind.kind} /></h1></div>
        {kind.verbs.includes("create") && <a class="button" href={href(["create"])}>Create from YAML</a>}
      </div>
      {problem && <Problem text={problem} again={() => void load("")} />}
      <div class="filters" role="search">
        {kind.namespaced && <NamespaceChoice />}
        <input type="search" data-hotkey="/" placeholder="Text ( / )" aria-label="Filter by text" value={text} onInput={(e) => setQuery({ text: e.currentTarget.value })} />
        <span class="muted">{count(rows.length)} shown</span>
        {last?.metadata.continue && <button class="small" onClick={() => void load(last.metadata.continue ?? "")}>Load more</button>}
      </div>
      <Table label={kind.kind} columns={columns} rows={rows} keyOf={(r) => r.object.metadata.uid ?? r.object.metadata.name} open={(r) => go(rowPath(kind, r))}
        empty={<Empty title={last ? (text ? "Nothing matches" : `There is no ${visible(kind.kind)} here`) : "Loading…"}
          actions={text ? <button onClick={() => setQuery({ text: "" })}>Clear the filter</button> : <a class="button" href={href(["resources"])}>Other kinds</a>} />} />
    </>
  );
}

const rowPath = (kind: Kind, row: Row): string[] =>
  kind.namespaced ? kindPath(kind, row.object.metadata.namespace ?? "", row.object.metadata.name) : kindPath(kind, row.object.metadata.name);

function One({ kind, namespace, name }: { kind: Kind; namespace: string; name: string }) {
  const pod = kind.kind === "Pod" && !kind.group;
  const words = useAnswer<Words>(pod ? `/ui/api/pods/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}` : "", "", 2000, 5000);
  const askRemove = () => confirmThen(
    `Delete ${kind.plural}/${name}?`, "What it owns goes with it. This cannot be undone.", "Delete",
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
          <p class="crumb"><a href={href(["resources"])}>Everything</a> / <a href={href(kindPath(kind))}><Foreign text={kind.kind} /></a>{namespace && <> / <Foreign text={namespace} /></>}</p>
          <h1><Foreign text={name} /></h1>
        </div>
        {kind.verbs.includes("delete") && <div class="bar"><button class="danger" onClick={askRemove}>Delete</button></div>}
      </div>
      {words.value && <div class="card pad" style={{ marginBottom: "12px" }}><Why words={words.value} /></div>}
      <YamlView kind={kind} namespace={namespace} name={name} />
    </>
  );
}
