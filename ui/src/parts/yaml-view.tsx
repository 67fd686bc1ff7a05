/** An object as YAML: look, edit, check and apply, with the server's errors at their lines; and what
 *  changed since it was last applied. */
import { useEffect, useMemo, useState } from "preact/hooks";
import type { KubeObject } from "../lib/objects";
import { type Kind, pathOf } from "../lib/paths";
import { ask, askJson, explainError } from "../lib/session";
import { visible } from "../lib/text";
import { marksOf, parseYaml, toYaml, withoutNoise } from "../lib/yaml";
import { Problem } from "./basics";
import { say } from "./dialogs";
import { Editor, type Mark } from "./editor";

const LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration";

export function YamlView({ kind, namespace, name }: { kind: Kind; namespace: string; name: string }) {
  const [object, setObject] = useState<KubeObject | null>(null);
  const [text, setText] = useState("");
  const [marks, setMarks] = useState<Mark[]>([]);
  const [problem, setProblem] = useState("");
  const [showDiff, setShowDiff] = useState(false);
  const path = pathOf(kind, namespace, name);

  const load = async () => {
    try {
      const found = withoutNoise(await askJson<KubeObject>(path));
      setObject(found);
      setText(toYaml(found));
      setMarks([]);
      setProblem("");
    } catch (error) {
      setProblem(explainError(error));
    }
  };
  useEffect(() => { void load(); }, [path]);
  const original = useMemo(() => (object ? toYaml(object) : ""), [object]);
  const applied = object?.metadata.annotations?.[LAST_APPLIED];

  const send = async (dryRun: boolean) => {
    const parsed = parseYaml(text);
    if (parsed.marks.length || parsed.documents.length !== 1) {
      setMarks(parsed.marks);
      setProblem(parsed.marks[0]?.message ?? "the text must be one object");
      return;
    }
    try {
      const query = `fieldManager=onejob-ui&fieldValidation=Strict${dryRun ? "&dryRun=All" : ""}`;
      await ask(`${path}?${query}`, { method: "PUT", body: JSON.stringify(parsed.documents[0]) });
      setMarks([]);
      setProblem("");
      if (dryRun) say("The server would accept this");
      else {
        say(`${kind.kind} ${name} changed`);
        await load();
      }
    } catch (error) {
      setProblem(explainError(error));
      setMarks(marksOf(error, parsed.parts[0]));
    }
  };
  if (!object) return problem ? <Problem text={problem} again={() => void load()} /> : <p class="muted">Loading…</p>;
  return (
    <>
      {problem && <Problem text={problem} />}
      <div class="bar" style={{ marginBottom: "8px" }}>
        <button class="main" disabled={text === original} onClick={() => void send(false)}>Apply</button>
        <button disabled={text === original} onClick={() => void send(true)}>Check only</button>
        <button disabled={text === original} onClick={() => { setText(original); setMarks([]); setProblem(""); }}>Discard changes</button>
        <button onClick={() => void load()}>Reload</button>
        {applied && <button aria-pressed={showDiff} onClick={() => setShowDiff(!showDiff)}>Compare with last applied</button>}
        <span class="muted">{text === original ? "as stored" : "changed, not applied"}</span>
      </div>
      {showDiff && applied && <Difference before={applied} object={object} />}
      <Editor text={text} onChange={setText} label={`YAML of ${kind.kind} ${visible(name)}`} marks={marks} />
    </>
  );
}

/** Fields whose values are not those that were last applied with kubectl. */
function Difference({ before, object }: { before: string; object: KubeObject }) {
  const rows: [string, string, string][] = [];
  let readable = true;
  const walk = (was: unknown, is: unknown, path: string) => {
    if (rows.length > 200) return;
    if (was !== null && typeof was === "object" && !Array.isArray(was)) {
      for (const [name, value] of Object.entries(was)) {
        walk(value, is !== null && typeof is === "object" ? (is as Record<string, unknown>)[name] : undefined, path ? `${path}.${name}` : name);
      }
    } else if (Array.isArray(was) && Array.isArray(is)) {
      was.forEach((value, i) => walk(value, is[i], `${path}[${i}]`));
    } else if (JSON.stringify(was) !== JSON.stringify(is)) {
      rows.push([path, JSON.stringify(was) ?? "", is === undefined ? "(not set)" : JSON.stringify(is)]);
    }
  };
  try {
    walk(JSON.parse(before), object, "");
  } catch {
    readable = false;
  }
  const shown = rows.filter(([path]) => !path.startsWith("metadata.annotations.kubectl"));
  return (
    <div class="table-box" style={{ marginBottom: "8px" }}>
      <table aria-label="Changes since the last apply">
        <thead><tr><th scope="col">Field</th><th scope="col">Last applied</th><th scope="col">Now</th></tr></thead>
        <tbody>
          {shown.map(([path, was, is]) => <tr key={path}><td>{visible(path)}</td><td>{visible(was)}</td><td>{visible(is)}</td></tr>)}
          {shown.length === 0 && <tr><td colSpan={3} class="muted">{readable ? "Nothing that was applied has changed since." : "The annotation cannot be read."}</td></tr>}
        </tbody>
      </table>
    </div>
  );
}
