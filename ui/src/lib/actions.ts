/** What can be done to objects, each through the API that everybody uses. */
import { type CronJob, type Job, type KubeObject, QUEUED } from "./objects";
import { CRONJOB, JOB, type Kind, pathOf } from "./paths";
import { ask, askJson } from "./session";

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

/** Returns the name of the new Job. The server says what it consists of. */
export async function rerun(job: Job, failedOnly: boolean): Promise<string> {
  const query = failedOnly ? "?failedOnly=true" : "";
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

/** Starts the Job of a CronJob now; returns its name. */
export async function runNow(cronjob: CronJob): Promise<string> {
  const path = `/ui/api/cronjobs/${encodeURIComponent(ns(cronjob))}/${encodeURIComponent(cronjob.metadata.name)}/manual-job`;
  const { document } = await askJson<{ document: KubeObject }>(path);
  const made = await askJson<KubeObject>(pathOf(JOB, ns(cronjob)), { method: "POST", body: JSON.stringify(document) });
  return made.metadata.name;
}

export { CRONJOB, JOB };
