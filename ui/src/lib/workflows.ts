/** Workflows as far as the page reads them, and what is derived from them. */
import type { GraphTask } from "./graph-layout";
import type { Condition, KubeObject } from "./objects";
import { JOB, type Kind, pathOf } from "./paths";
import { askJson } from "./session";

export const WORKFLOW: Kind = { ...JOB, group: "onejob.dev", version: "v1alpha1", plural: "workflows", kind: "Workflow" };

export interface TaskSpec {
  name: string;
  dependsOn?: { task: string; condition?: string }[];
  when?: string;
}

export type TaskState = "Waiting" | "Running" | "Complete" | "Failed" | "Skipped";

export interface TaskStatus {
  name: string;
  state: TaskState;
  jobName?: string;
  startTime?: string;
  completionTime?: string;
  reason?: string;
  message?: string;
  completedIndexes?: string;
  failedIndexes?: string;
  results?: Record<string, string>;
}

export interface Workflow extends KubeObject {
  spec: { tasks: TaskSpec[]; finally?: TaskSpec[]; suspend?: boolean; parallelism?: number; managedBy?: string };
  status?: {
    conditions?: Condition[];
    startTime?: string;
    completionTime?: string;
    waiting?: number;
    running?: number;
    complete?: number;
    failed?: number;
    skipped?: number;
    tasks?: TaskStatus[];
  };
}

export const finishedAs = (workflow: Workflow): Condition | undefined =>
  workflow.status?.conditions?.find((c) => (c.type === "Complete" || c.type === "Failed") && c.status === "True");

export function workflowState(workflow: Workflow): string {
  const end = finishedAs(workflow);
  if (end) return end.type;
  if (workflow.metadata.deletionTimestamp) return "Ending";
  if (workflow.spec.suspend) return "Suspended";
  return workflow.status?.startTime ? "Running" : "Waiting";
}

/** A task with its status. */
export interface Task extends GraphTask {
  when: string;
  status: TaskStatus;
}

export function tasksOf(workflow: Workflow): Task[] {
  const known = new Map((workflow.status?.tasks ?? []).map((task) => [task.name, task]));
  const task = (spec: TaskSpec, last: boolean): Task => ({
    name: spec.name,
    dependsOn: (spec.dependsOn ?? []).map((edge) => ({ task: edge.task, condition: edge.condition ?? "Complete" })),
    last,
    when: spec.when ?? "",
    status: known.get(spec.name) ?? { name: spec.name, state: "Waiting" },
  });
  return [...workflow.spec.tasks.map((one) => task(one, false)), ...(workflow.spec.finally ?? []).map((one) => task(one, true))];
}

/** Milliseconds that a task has taken; undefined if it did not start. */
export function taskDuration({ startTime, completionTime, state }: TaskStatus, at: number): number | undefined {
  if (!startTime) return undefined;
  if (!completionTime && state !== "Running") return undefined;
  return Math.max((completionTime ? Date.parse(completionTime) : at) - Date.parse(startTime), 0);
}

/** Creates a workflow that runs everything again, or from a task on, or what did not complete; returns its name. */
export async function rerunWorkflow(workflow: Workflow, choice: { from?: string; failedOnly?: boolean }): Promise<string> {
  const { namespace = "", name } = workflow.metadata;
  const query = new URLSearchParams();
  if (choice.from) query.set("from", choice.from);
  if (choice.failedOnly) query.set("failedOnly", "true");
  const { document } = await askJson<{ document: KubeObject }>(
    `/ui/api/workflows/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}/rerun?${query}`);
  const made = await askJson<KubeObject>(pathOf(WORKFLOW, namespace), { method: "POST", body: JSON.stringify(document) });
  return made.metadata.name;
}
