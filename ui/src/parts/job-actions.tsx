/** Buttons and keys that act on a Job, with a question before each. */
import { JOB, leaveQueue, remove, rerun, setSuspend } from "../lib/actions";
import { finished, isQueued, type Job } from "../lib/objects";
import { go } from "../lib/router";
import { several, visible } from "../lib/text";
import { confirmThen } from "./dialogs";

const title = (job: Job) => `job/${job.metadata.name}`;

export function askSuspend(job: Job): void {
  if (finished(job)) return;
  if (isQueued(job)) {
    confirmThen(
      `Suspend ${title(job)}?`, "It leaves the queue, and does not start by itself. Once resumed, it queues up again as the last one.",
      "Suspend", () => leaveQueue(job),
    );
    return;
  }
  const suspend = !job.spec.suspend;
  const active = job.status?.active ?? 0;
  confirmThen(
    `${suspend ? "Suspend" : "Resume"} ${title(job)}?`,
    suspend
      ? `${active ? `${several(active, "active Pod")} will be deleted. ` : ""}Completed work is kept; resuming continues from there.`
      : "Its Pods are started again.",
    suspend ? "Suspend" : "Resume",
    () => setSuspend(JOB, job, suspend),
  );
}

export function askRerun(job: Job): void {
  const end = finished(job);
  const failedOnly = end?.type === "Failed" && (job.status?.succeeded ?? 0) > 0;
  const left = (job.spec.completions ?? 1) - (job.status?.succeeded ?? 0);
  confirmThen(
    `Run ${title(job)} again?`,
    failedOnly
      ? `A new Job is created for the ${several(left, "completion")} that did not succeed. This one stays as it is.`
      : "A new Job with the same specification is created. This one stays as it is.",
    "Rerun",
    async () => {
      const name = await rerun(job, failedOnly);
      go(["jobs", job.metadata.namespace ?? "", name]);
      return `Job ${name} created`;
    },
  );
}

export function askDelete(job: Job, after?: () => void): void {
  const { succeeded = 0, failed = 0, active = 0 } = job.status ?? {};
  confirmThen(
    `Delete ${title(job)}?`,
    <>
      <p>{succeeded + failed + active === 0 ? "The Job goes; it has no Pods" : `The Job goes, and with it its ${several(succeeded + failed + active, "Pod")} with all logs`}
        {active ? `; ${several(active, "Pod")} still running will be stopped` : ""}.</p>
      <p class="muted">This cannot be undone.</p>
    </>,
    "Delete",
    async () => {
      const done = await remove(JOB, job);
      after?.();
      return done;
    },
    true,
  );
}

export function JobActions({ job, small }: { job: Job; small?: boolean }) {
  const name = visible(job.metadata.name);
  const style = small ? "small" : "";
  const over = finished(job) !== undefined;
  const resumes = job.spec.suspend && !isQueued(job);
  return (
    <>
      {!over && (
        <button class={style} aria-label={`${resumes ? "Resume" : "Suspend"} ${name}`} onClick={() => askSuspend(job)}>
          {resumes ? "Resume" : "Suspend"}
        </button>
      )}
      <button class={style} aria-label={`Rerun ${name}`} onClick={() => askRerun(job)}>Rerun</button>
      <button class={`${style} danger`} aria-label={`Delete ${name}`}
        onClick={() => askDelete(job, small ? undefined : () => go(["jobs"]))}>
        Delete
      </button>
    </>
  );
}
