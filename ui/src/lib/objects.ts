/** Kubernetes objects, as far as the page reads them. */
import { signal } from "@preact/signals";
import type { Managed } from "./changes";

export interface Owner {
  kind: string;
  name: string;
  uid: string;
  controller?: boolean;
}

export interface Metadata {
  name: string;
  namespace?: string;
  uid: string;
  resourceVersion: string;
  creationTimestamp: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  ownerReferences?: Owner[];
  managedFields?: Managed[];
}

export interface KubeObject {
  apiVersion?: string;
  kind?: string;
  metadata: Metadata;
}

export interface Condition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
  lastTransitionTime?: string;
}

export interface Job extends KubeObject {
  spec: {
    parallelism?: number;
    completions?: number;
    completionMode?: string;
    suspend?: boolean;
    backoffLimit?: number;
    backoffLimitPerIndex?: number;
    activeDeadlineSeconds?: number;
    ttlSecondsAfterFinished?: number;
    managedBy?: string;
    template: { spec: { initContainers?: { name: string }[]; containers: { name: string }[] } };
  };
  status?: {
    active?: number;
    ready?: number;
    succeeded?: number;
    failed?: number;
    terminating?: number;
    startTime?: string;
    completionTime?: string;
    completedIndexes?: string;
    failedIndexes?: string;
    conditions?: Condition[];
  };
}

export interface CronJob extends KubeObject {
  spec: { schedule: string; timeZone?: string; suspend?: boolean; concurrencyPolicy?: string };
  status?: { active?: { name: string }[]; lastScheduleTime?: string; lastSuccessfulTime?: string };
}

export interface KubeEvent extends KubeObject {
  involvedObject: { kind: string; namespace?: string; name: string; uid?: string };
  type?: string;
  reason?: string;
  message?: string;
  count?: number;
  firstTimestamp?: string;
  lastTimestamp?: string;
  eventTime?: string;
  series?: { count?: number; lastObservedTime?: string };
}

/** When it was seen last. */
export const eventTime = (event: KubeEvent): string =>
  event.series?.lastObservedTime ?? event.lastTimestamp ?? event.eventTime ?? event.metadata.creationTimestamp;

/** The status of a container. */
export interface Container {
  name: string;
  restartCount?: number;
  state?: {
    waiting?: { reason?: string; message?: string };
    running?: { startedAt?: string };
    terminated?: {
      exitCode: number;
      reason?: string;
      message?: string;
      startedAt?: string;
      finishedAt?: string;
      durationMilliseconds?: number;
      cpuMilliseconds?: number;
      peakMemoryBytes?: number;
    };
  };
}

export interface Pod extends KubeObject {
  spec: { nodeName?: string; initContainers?: { name: string; image?: string }[]; containers: { name: string; image?: string }[] };
  status?: { phase?: string; podIP?: string; initContainerStatuses?: Container[]; containerStatuses?: Container[] };
}

export interface Node extends KubeObject {
  status?: {
    capacity?: Record<string, string>;
    allocatable?: Record<string, string>;
    conditions?: Condition[];
  };
}

export interface PodRow {
  name: string;
  uid: string;
  phase: string;
  index: number | null;
  createdAt: string | null;
  startedAt: string | null;
  endedAt: string | null;
  exitCode: number | null;
  reason: string;
  restarts: number;
  ending: boolean;
  /** Of its ended containers, if measured. */
  peakMemoryBytes: number | null;
  cpuMilliseconds: number | null;
}

/** A Pod that was deleted. Empty fields are left out. */
export interface PodRecord {
  name: string;
  uid: string;
  phase: string;
  index?: number;
  attempt?: number;
  node?: string;
  exitCode?: number;
  reason?: string;
  message?: string;
  startTime?: string;
  finishTime?: string;
  log?: string;
}

/** What containers report of their progress. Empty fields are left out. */
export interface Reported {
  done?: number;
  total?: number;
  text?: string;
  secondsLeft?: number;
  pods?: { pod: string; done: number; total: number; text?: string; index?: number }[];
}

export interface Failure {
  container: string;
  exitCode: number | null;
  reason: string;
  message: string;
  count: number;
  pods: string[];
  lastAt: string | null;
}

export interface Words {
  now: string;
  state: string;
  cause: string[];
  evidence: string[];
  next: string[];
  notes: { kind: string; text: string; until: string | null }[];
  shownFailure: [string, string] | null;
}

export interface JobSummary extends Words {
  pods: PodRow[];
  activePods: number;
  endedPodsLookedAt: number;
  allPodsLookedAt: boolean;
  failures: Failure[];
  podIndexes: { running: string; pending: string; failed: string };
  deletedPods: PodRecord[];
  progress: Reported | null;
}

export interface Fire {
  at: string;
  job: string;
  state: "Complete" | "Failed" | "Running" | "Suspended" | "Skipped" | "Missed" | "Unknown";
  why: string;
}

export interface CronJobSummary extends Words {
  /** "" for one that counts from its last time. */
  zone: string;
  past: Fire[];
  coming: string[];
  /** Whether there are times before and after those. */
  morePast: boolean;
  moreComing: boolean;
}

export type State = "Running" | "Queued" | "Waiting" | "Back-off" | "Suspended" | "Complete" | "Failed" | "Ending" | "Elsewhere" | "Stopped" | "Blocked" | "Lost";

/** States of a Job that neither runs nor has ended, though nobody suspended it. */
export const WAITS: State[] = ["Queued", "Waiting", "Back-off"];

export function finished(job: Job): Condition | undefined {
  return job.status?.conditions?.find(
    (c) => (c.type === "Complete" || c.type === "Failed") && c.status === "True",
  );
}

/** Set by the queue on Jobs that it keeps suspended until their turn. */
export const QUEUED = "onejob.dev/queued";

export const isQueued = (job: Job): boolean => job.spec.suspend === true && QUEUED in (job.metadata.annotations ?? {});

/** What became of what had not ended, when the run that is shown has: Stopped, Blocked or Lost. */
export const runEnd = signal("");

export function stateOf(job: Job): State {
  const end = finished(job);
  if (end) return end.type as State;
  if (runEnd.value) return runEnd.value as State;
  if (job.metadata.deletionTimestamp) return "Ending";
  if (job.spec.suspend) return isQueued(job) ? "Queued" : "Suspended";
  if (job.spec.managedBy && job.spec.managedBy !== "kubernetes.io/job-controller") {
    return job.status?.active ? "Running" : "Elsewhere";
  }
  const { ready = 0, active = 0, failed = 0 } = job.status ?? {};
  if (ready > 0 || (active > 0 && failed === 0)) return "Running";
  return active === 0 && failed > 0 ? "Back-off" : "Waiting";
}

/** The number of Pods that are to succeed; for a work queue, what is known of it. */
export function goalOf(job: Job): number {
  return job.spec.completions ?? Math.max(job.spec.parallelism ?? 1, job.status?.succeeded ?? 0);
}

export function endOf(job: Job): string | undefined {
  return job.status?.completionTime ?? finished(job)?.lastTransitionTime;
}

export function durationOf(job: Job, now: number): number | undefined {
  const start = job.status?.startTime;
  if (!start) return undefined;
  const end = endOf(job);
  return (end ? Date.parse(end) : now) - Date.parse(start);
}

export function ownerText(object: KubeObject): string {
  const owner = object.metadata.ownerReferences?.find((o) => o.controller);
  return owner ? `${owner.kind.toLowerCase()}/${owner.name}` : "";
}

export const keyOf = (object: KubeObject): string => `${object.metadata.namespace ?? ""}/${object.metadata.name}`;
