import { useMemo, useState } from "preact/hooks";
import { homeNamespace, type Kind, pathOf, servedKinds } from "../lib/paths";
import { go, place } from "../lib/router";
import { askJson, explainError } from "../lib/session";
import type { KubeObject } from "../lib/objects";
import { marksOf, parseYaml, toYaml } from "../lib/yaml";
import { Problem } from "../parts/basics";
import { say } from "../parts/dialogs";
import { Editor, type Mark } from "../parts/editor";

/** The label that names the queue of a Job. */
const QUEUE = "onejob.dev/queue";

interface Form {
  name: string;
  namespace: string;
  command: string;
  image: string;
  completions: number;
  parallelism: number;
  indexed: boolean;
  retries: number;
  deadline: number;
  folder: string;
  /** Lines of NAME=VALUE. */
  env: string;
  queue: string;
  schedule: string;
  zone: string;
}

/** Texts that other pages lead to. */
const TEMPLATES: Record<string, string> = {
  limits: `apiVersion: v1
kind: ConfigMap
metadata:
  name: onejob-queues
  namespace: kube-system
data:
  # How many Jobs may run at once: of all, and of those with the label onejob.dev/queue: gpu.
  limits: "*=8,gpu=2"
`,
};

/** Variables of lines as NAME=VALUE; lines without a name are left out. */
export function variables(lines: string): { name: string; value?: string }[] {
  return lines.split("\n").map((line) => line.trim()).filter((line) => /^[^=]+/.test(line)).map((line) => {
    const at = line.indexOf("=");
    return at < 0 ? { name: line } : { name: line.slice(0, at), value: line.slice(at + 1) };
  });
}

/** Splits a command as a shell would, without running anything of it. */
export function words(command: string): string[] {
  const found: string[] = [];
  let word = "";
  let inside = false;
  let quote = "";
  for (let i = 0; i < command.length; i += 1) {
    const c = command.charAt(i);
    if (quote) {
      if (c === quote) quote = "";
      else if (c === "\\" && quote === '"' && i + 1 < command.length) word += command.charAt((i += 1));
      else word += c;
    } else if (c === "'" || c === '"') { quote = c; inside = true; }
    else if (c === "\\" && i + 1 < command.length) { word += command.charAt((i += 1)); inside = true; }
    else if (/\s/.test(c)) { if (inside) found.push(word); word = ""; inside = false; }
    else { word += c; inside = true; }
  }
  if (inside) found.push(word);
  return found;
}

function manifest(form: Form): unknown {
  const shell = /[|&;<>$`*?(){}]/.test(form.command);
  const command = shell ? ["sh", "-c", form.command] : words(form.command);
  const env = variables(form.env);
  const container = {
    name: "main", image: form.image, command,
    ...(form.folder ? { workingDir: form.folder } : {}), ...(env.length ? { env } : {}),
  };
  const labels = form.queue ? { labels: { [QUEUE]: form.queue } } : {};
  const spec = {
    ...(form.completions !== 1 || form.indexed ? { completions: form.completions } : {}),
    ...(form.parallelism !== 1 ? { parallelism: form.parallelism } : {}),
    ...(form.indexed ? { completionMode: "Indexed" } : {}),
    ...(form.retries !== 6 ? { backoffLimit: form.retries } : {}),
    ...(form.deadline > 0 ? { activeDeadlineSeconds: form.deadline } : {}),
    template: { spec: { restartPolicy: "Never", containers: [container] } },
  };
  const metadata = { name: form.name, namespace: form.namespace };
  if (!form.schedule) return { apiVersion: "batch/v1", kind: "Job", metadata: { ...metadata, ...labels }, spec };
  return {
    apiVersion: "batch/v1", kind: "CronJob", metadata,
    spec: { schedule: form.schedule, ...(form.zone ? { timeZone: form.zone } : {}), jobTemplate: { ...(form.queue ? { metadata: labels } : {}), spec } },
  };
}

export function Create() {
  const [form, setForm] = useState<Form>({
    name: "hello", namespace: homeNamespace.value || "default", command: "echo hello", image: "busybox",
    completions: 1, parallelism: 1, indexed: false, retries: 6, deadline: 0,
    folder: "", env: "", queue: "",
    schedule: place.value.query.get("schedule") ?? "", zone: "",
  });
  const [own, setOwn] = useState<string | null>(TEMPLATES[place.value.query.get("template") ?? ""] ?? null);
  const [marks, setMarks] = useState<Mark[]>([]);
  const [problem, setProblem] = useState("");
  const made = useMemo(() => toYaml(manifest(form)), [form]);
  const text = own ?? made;
  const set = <K extends keyof Form>(name: K, value: Form[K]) => {
    setOwn(null);
    setMarks([]);
    setProblem("");
    setForm({ ...form, [name]: value });
  };

  const send = async (dryRun: boolean) => {
    const parsed = parseYaml(text);
    if (parsed.marks.length || parsed.documents.length === 0) {
      setMarks(parsed.marks);
      setProblem(parsed.marks[0]?.message ?? "nothing to create");
      return;
    }
    let kinds: Kind[];
    try {
      kinds = await servedKinds();
    } catch (error) {
      setProblem(explainError(error));
      return;
    }
    const created: [Kind, KubeObject][] = [];
    for (const [i, document] of parsed.documents.entries()) {
      const [group, version] = document.apiVersion?.includes("/") ? document.apiVersion.split("/", 2) : ["", document.apiVersion ?? ""];
      const kind = kinds.find((k) => k.kind === document.kind && k.group === group && k.verbs.includes("create"));
      if (!kind || typeof document !== "object" || !document.metadata) {
        setProblem(`${document?.apiVersion ?? "?"} ${document?.kind ?? "?"} is not served here, or has no metadata`);
        return;
      }
      const namespace = kind.namespaced ? (document.metadata.namespace ?? (homeNamespace.value || "default")) : "";
      try {
        const query = `fieldManager=onejob-ui&fieldValidation=Strict${dryRun ? "&dryRun=All" : ""}`;
        const path = pathOf({ ...kind, version: version || kind.version }, namespace);
        created.push([kind, await askJson<KubeObject>(`${path}?${query}`, { method: "POST", body: JSON.stringify(document) })]);
      } catch (error) {
        const before = created.length && !dryRun ? `${created.length} of ${parsed.documents.length} objects were created; the next was refused: ` : "";
        setProblem(before + explainError(error));
        setMarks(marksOf(error, parsed.parts[i]));
        return;
      }
    }
    setProblem("");
    setMarks([]);
    if (dryRun) {
      say("The server would accept this");
      return;
    }
    const [kind, last] = created[created.length - 1] as [Kind, KubeObject];
    say(created.length === 1 ? `${kind.kind} ${last.metadata.name} created` : `${created.length} objects created`);
    if (kind.kind === "Job" || kind.kind === "CronJob") go([kind.plural, last.metadata.namespace ?? "", last.metadata.name]);
    else go(["resources", kind.group, kind.version, kind.plural]);
  };

  const number = (name: "completions" | "parallelism" | "retries" | "deadline", label: string, min: number) => (
    <label class="field"><span>{label}</span>
      <input type="number" min={min} value={form[name]} onInput={(e) => set(name, Math.max(min, Number(e.currentTarget.value) || 0))} />
    </label>
  );
  const field = (name: "name" | "namespace" | "image" | "schedule" | "zone" | "folder" | "queue", label: string, hint = "") => (
    <label class="field"><span>{label}</span>
      <input type="text" value={form[name]} placeholder={hint} onInput={(e) => set(name, e.currentTarget.value)} />
    </label>
  );
  return (
    <>
      <div class="head">
        <div class="grow"><h1>Create</h1><p class="sub">Fill in the form, or write or paste YAML of any objects.</p></div>
        <div class="bar"><button onClick={() => void send(true)}>Check only</button><button class="main" onClick={() => void send(false)}>Create</button></div>
      </div>
      {problem && <Problem text={problem} />}
      <div class="grid cols-2">
        <form class="card pad form" aria-label="A Job or CronJob" style={{ alignContent: "start" }} onSubmit={(e) => { e.preventDefault(); void send(false); }}>
          {field("name", "Name")}
          {field("namespace", "Namespace")}
          <label class="field wide"><span>Command</span>
            <textarea rows={2} value={form.command} onInput={(e) => set("command", e.currentTarget.value)} />
          </label>
          {field("image", "Image")}
          {field("folder", "Working folder", "the container's own")}
          <label class="field wide"><span>Environment, one NAME=VALUE per line</span>
            <textarea rows={2} value={form.env} placeholder="LOG_LEVEL=debug" onInput={(e) => set("env", e.currentTarget.value)} />
          </label>
          {number("completions", "Completions", 0)}
          {number("parallelism", "Pods at once", 0)}
          <label class="wide check"><input type="checkbox" checked={form.indexed} onChange={(e) => set("indexed", e.currentTarget.checked)} />
            Give each completion an index (JOB_COMPLETION_INDEX)</label>
          {number("retries", "Retries before it fails", 0)}
          {number("deadline", "Deadline in seconds, 0 for none", 0)}
          {field("queue", "Queue, to wait for its limit", "none")}
          {field("schedule", "Schedule, for a CronJob", "0 3 * * *")}
          {form.schedule ? field("zone", "Time zone of the schedule", "the server's") : <span />}
        </form>
        <div>
          <Editor text={text} onChange={(value) => setOwn(value === made ? null : value)} label="YAML to create" marks={marks} />
          {own !== null && <p class="bar" style={{ marginTop: "8px" }}><span class="muted">Edited manually: changes of the form are ignored.</span>
            <button class="small" onClick={() => setOwn(null)}>Back to the form's</button></p>}
        </div>
      </div>
    </>
  );
}
