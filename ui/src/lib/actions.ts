/** What can be done to objects, each through the API that everybody uses. */
import { type CronJob, type Job, type KubeObject, QUEUED } from "./objects";
import { CRONJOB, JOB, type Kind, pathOf } from "./paths";
import { ask, askJson, explainError } from "./session";

/** Browsers open six connections to a server, and some are taken by watches. */
const AT_ONCE = 3;

const MERGE = "application/merge-patch+json";

const ns = (object: KubeObject): string => object.metadata.namespace ?? "";

export async function setSuspend(kind: Kind, object: KubeObject, suspend: boolean): Promise<string> {
  await ask(pathOf(kind, ns(object), object.metadata.name), {
    method: "PATCH", type: MERGE, body: JSON.stringify({ spec: { suspend } }),
  });
  return `${kind.kind} ${object.metadata.name} ${suspend ? "suspended" : "resumed"}`;
}

/** A Job that waits for its turn waits no more, and stays suspended. */
export async function leaveQueue(job: Job): Promise<string> {
  await ask(pathOf(JOB, ns(job), job.metadata.name), {
    method: "PATCH", type: MERGE, body: JSON.stringify({ metadata: { annotations: { [QUEUED]: null } }, spec: { suspend: true } }),
  });
  return `Job ${job.metadata.name} suspended`;
}

export async function remove(kind: Kind, object: KubeObject): Promise<string> {
  await ask(pathOf(kind, ns(object), object.metadata.name), {
    method: "DELETE",
    body: JSON.stringify({
      apiVersion: "v1", kind: "DeleteOptions", propagationPolicy: "Background",
      preconditions: { uid: object.metadata.uid },
    }),
  });
  return `${kind.kind} ${object.metadata.name} deleted`;
}

/** What of a Job is run once more: everything, what did not succeed, or the indexes from one on. */
export type RerunChoice = "all" | "failed" | { from: number };

/** Returns the name of the new Job. The server says what it consists of. */
export async function rerun(job: Job, choice: RerunChoice): Promise<string> {
  const query = choice === "all" ? "" : choice === "failed" ? "?failedOnly=true" : `?fromIndex=${choice.from}`;
  const path = `/ui/api/jobs/${encodeURIComponent(ns(job))}/${encodeURIComponent(job.metadata.name)}/rerun${query}`;
  const { documents } = await askJson<{ documents: KubeObject[] }>(path);
  if (documents.length === 0) throw new Error("nothing is left to do");
  let name = "";
  for (const document of documents) {
    const kind: Kind = document.kind === "Job" ? JOB : { ...JOB, group: "", plural: "configmaps", kind: "ConfigMap" };
    const made = await askJson<KubeObject>(pathOf(kind, ns(job)), { method: "POST", body: JSON.stringify(document) });
    if (document.kind === "Job") name = made.metadata.name;
  }
  return name;
}

/** Does the same to several objects, a few at a time; returns what to say of it. */
export async function forEach<T>(items: T[], act: (item: T) => Promise<unknown>, done: (count: number) => string): Promise<string> {
  const rest = [...items];
  const problems: string[] = [];
  const work = async () => {
    for (let item = rest.shift(); item !== undefined; item = rest.shift()) {
      try {
        await act(item);
      } catch (error) {
        problems.push(explainError(error));
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  const text = done(items.length - problems.length);
  if (problems.length) throw new Error(`${text}; ${problems.length} not: ${problems[0]}`);
  return text;
}

/** Starts the Job of a CronJob now; returns its name. */
export async function runNow(cronjob: CronJob): Promise<string> {
  const path = `/ui/api/cronjobs/${encodeURIComponent(ns(cronjob))}/${encodeURIComponent(cronjob.metadata.name)}/manual-job`;
  const { document } = await askJson<{ document: KubeObject }>(path);
  const made = await askJson<KubeObject>(pathOf(JOB, ns(cronjob)), { method: "POST", body: JSON.stringify(document) });
  return made.metadata.name;
}

export { CRONJOB, JOB };
