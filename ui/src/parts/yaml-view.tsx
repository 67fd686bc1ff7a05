/** An object as YAML: look, edit, check and apply, with the server's errors at their lines; and what
 *  changed since it was last applied. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { changesSince, LAST_APPLIED, type Managed } from "../lib/changes";
import { useLive } from "../lib/hooks";
import type { KubeObject } from "../lib/objects";
import { type Kind, pathOf } from "../lib/paths";
import { href } from "../lib/router";
import { askJson, explainError, isReadOnly } from "../lib/session";
import { visible } from "../lib/text";
import { marksOf, parseYaml, toYaml, withoutNoise } from "../lib/yaml";
import { Empty, Foreign, Problem } from "./basics";
import { say } from "./dialogs";
import { Editor, type Mark } from "./editor";

/** Whether somebody has changed more than the status. */
function sameWish(a: KubeObject, b: KubeObject): boolean {
  const wish = (object: KubeObject) => {
    const { status: _, metadata: { resourceVersion: __, ...metadata }, ...rest } = object as KubeObject & { status?: unknown };
    return JSON.stringify([rest, metadata]);
  };
  return wish(a) === wish(b);
}

export function YamlView({ kind, namespace, name }: { kind: Kind; namespace: string; name: string }) {
  const list = useLive<KubeObject>(pathOf(kind, namespace), { fieldSelector: `metadata.name=${name}` });
  list.watched = kind.verbs.length === 0 || kind.verbs.includes("watch");
  const found = [...list.items.value.values()][0];
  const stored = useMemo(
    () => found && withoutNoise({ apiVersion: kind.group ? `${kind.group}/${kind.version}` : kind.version, kind: kind.kind, ...found }),
    [found],
  );
  /** What the text began as. */
  const [base, setBase] = useState<KubeObject | null>(null);
  const [text, setText] = useState("");
  const [marks, setMarks] = useState<Mark[]>([]);
  const [problem, setProblem] = useState("");
  const [showDiff, setShowDiff] = useState(false);
  const original = useMemo(() => (base ? toYaml(base) : ""), [base]);
  const edited = base !== null && text !== original;
  const take = (object: KubeObject) => {
    setBase(object);
    setText(toYaml(object));
    setMarks([]);
    setProblem("");
  };
  // Without changes of one's own, the text follows the object.
  useEffect(() => { if (stored && !edited) take(stored); }, [stored]);
  const applied = base?.metadata.annotations?.[LAST_APPLIED];

  const send = async (dryRun: boolean) => {
    const parsed = parseYaml(text);
    const wanted = parsed.documents[0];
    if (parsed.marks.length || parsed.documents.length !== 1 || !wanted) {
      setMarks(parsed.marks);
      setProblem(parsed.marks[0]?.message ?? "the text must be one object");
      return;
    }
    // A status that goes on changing does not stand in the way.
    if (base && stored && sameWish(base, stored) && wanted.metadata?.resourceVersion === base.metadata.resourceVersion) {
      wanted.metadata.resourceVersion = stored.metadata.resourceVersion;
    }
    try {
      const query = `fieldManager=onejob-ui&fieldValidation=Strict${dryRun ? "&dryRun=All" : ""}`;
      const path = `${pathOf(kind, namespace, name)}?${query}`;
      const written = await askJson<KubeObject>(path, { method: "PUT", body: JSON.stringify(wanted) });
      setMarks([]);
      setProblem("");
      if (dryRun) say("The server would accept this");
      else {
        say(`${kind.kind} ${name} changed`);
        take(withoutNoise(written));
      }
    } catch (error) {
      setProblem(explainError(error));
      setMarks(marksOf(error, parsed.parts[0]));
    }
  };
  if (!base) {
    if (list.problem.value) return <Problem text={list.problem.value} again={() => list.again()} />;
    return list.loaded.value
      ? <div class="card"><Empty title={`${visible(kind.kind)} not found`} actions={<a class="button" href={href(["resources"])}>All kinds</a>}>It may have been deleted.</Empty></div>
      : <p class="muted">Loading…</p>;
  }
  const gone = list.loaded.value && !stored;
  const overtaken = edited && stored !== undefined && !sameWish(base, stored);
  return (
    <>
      {problem && <Problem text={problem} />}
      {gone && <Problem text={`${kind.kind} ${name} was deleted; this is how it was last.`} />}
      {overtaken && (
        <div class="banner" role="status">
          <span class="grow">Another user has changed it since you started.</span>
          <button class="small" onClick={() => take(stored)}>Discard my changes and reload</button>
        </div>
      )}
      <div class="bar" style={{ marginBottom: "8px" }}>
        {!isReadOnly() && (
          <>
            <button class="main" disabled={!edited || gone} onClick={() => void send(false)}>Apply</button>
            <button disabled={!edited || gone} onClick={() => void send(true)}>Check only</button>
            <button disabled={!edited} onClick={() => take(stored ?? base)}>Discard changes</button>
          </>
        )}
        {applied && <button aria-pressed={showDiff} onClick={() => setShowDiff(!showDiff)}>Compare with last applied</button>}
        <span class="muted">{edited ? "changed, not applied" : "as stored"}</span>
      </div>
      {showDiff && applied && <Difference before={applied} object={base} managed={found?.metadata.managedFields ?? []} />}
      <Editor text={text} onChange={setText} readOnly={isReadOnly()} label={`YAML of ${kind.kind} ${visible(name)}`} marks={marks} />
    </>
  );
}

/** What has changed since somebody applied this, and who changed it. */
function Difference({ before, object, managed }: { before: string; object: KubeObject; managed: Managed[] }) {
  const changes = useMemo(() => {
    try {
      return changesSince(before, object, managed);
    } catch {
      return null;
    }
  }, [before, object, managed]);
  return (
    <div class="table-box" style={{ marginBottom: "8px" }} tabIndex={0} role="region" aria-label="Changes since the last apply: table">
      <table aria-label="Changes since the last apply">
        <thead><tr><th scope="col">Field</th><th scope="col">Last applied</th><th scope="col">Now</th><th scope="col">Set by</th></tr></thead>
        <tbody>
          {changes?.map(({ path, was, is, by }) => (
            <tr key={path}><td><Foreign text={path} cut /></td><td><Foreign text={was} cut /></td><td><Foreign text={is} cut /></td><td><Foreign text={by} cut /></td></tr>
          ))}
          {!changes?.length && <tr><td colSpan={4} class="muted">{changes ? "No changes since." : "The annotation is invalid."}</td></tr>}
        </tbody>
      </table>
    </div>
  );
}
