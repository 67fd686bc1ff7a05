/** Buttons and keys that act on a Job, with a question before each. */
import { type Signal, signal } from "@preact/signals";
import { forEach, JOB, leaveQueue, remove, rerun, setSuspend } from "../lib/actions";
import { finished, isQueued, type Job } from "../lib/objects";
import { go } from "../lib/router";
import { isReadOnly } from "../lib/session";
import { count, several, visible } from "../lib/text";
import { confirmThen } from "./dialogs";
import { type Action, Menu } from "./menu";

const title = (job: Job) => `job/${job.metadata.name}`;

export function askSuspend(job: Job): void {
  if (finished(job) || isReadOnly()) return;
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
  if (isReadOnly()) return;
  const { succeeded = 0 } = job.status ?? {};
  const goal = job.spec.completions ?? 1;
  const left = Math.max(goal - succeeded, 0);
  const indexed = job.spec.completionMode === "Indexed" && goal > 1;
  const partly = succeeded > 0 && left > 0;
  const what = signal<"all" | "failed" | "from">(partly && finished(job)?.type === "Failed" ? "failed" : "all");
  const first = signal(0);
  confirmThen(
    `Run ${title(job)} again?`,
    <RerunChoices what={what} first={first} left={left} goal={goal} partly={partly} indexed={indexed} />,
    "Rerun",
    async () => {
      const name = await rerun(job, what.value === "from" ? { from: first.value } : what.value);
      go(["jobs", job.metadata.namespace ?? "", name]);
      return `Job ${name} created`;
    },
  );
}

function RerunChoices({ what, first, left, goal, partly, indexed }: {
  what: Signal<"all" | "failed" | "from">; first: Signal<number>; left: number; goal: number; partly: boolean; indexed: boolean;
}) {
  const noun = indexed ? "index" : "completion";
  const choice = (value: "all" | "failed" | "from", text: string) => (
    <label class="check"><input type="radio" name="rerun" checked={what.value === value} onChange={() => { what.value = value; }} />{text}</label>
  );
  return (
    <>
      <p>A new Job is created. This one stays as it is.</p>
      {(partly || indexed) && (
        <fieldset class="choices">
          <legend class="hidden-text">What to run</legend>
          {choice("all", goal > 1 ? `All ${count(goal)} ${plural(noun)}` : "All of it")}
          {partly && choice("failed", `What did not succeed: ${count(left)} ${left === 1 ? noun : plural(noun)}`)}
          {indexed && (
            <div class="bar">
              {choice("from", "From index")}
              <input type="number" aria-label="First index" min={0} max={goal - 1} value={first.value}
                onInput={(e) => { first.value = Math.max(0, Number(e.currentTarget.value) || 0); what.value = "from"; }} />
            </div>
          )}
        </fieldset>
      )}
    </>
  );
}

const plural = (noun: string): string => (noun === "index" ? "indexes" : `${noun}s`);

export function askDelete(job: Job, after?: () => void): void {
  if (isReadOnly()) return;
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

const placeOf = (job: Job) => ["jobs", job.metadata.namespace ?? "", job.metadata.name];
const resumes = (job: Job): boolean => job.spec.suspend === true && !isQueued(job);

export function JobActions({ job }: { job: Job }) {
  const name = visible(job.metadata.name);
  if (isReadOnly()) return null;
  return (
    <>
      {!finished(job) && (
        <button aria-label={`${resumes(job) ? "Resume" : "Suspend"} ${name}`} onClick={() => askSuspend(job)}>
          {resumes(job) ? "Resume" : "Suspend"}
        </button>
      )}
      <button aria-label={`Rerun ${name}`} onClick={() => askRerun(job)}>Rerun</button>
      <button class="danger" aria-label={`Delete ${name}`} onClick={() => askDelete(job, () => go(["jobs"]))}>Delete</button>
    </>
  );
}

/** The same for a row of a list. */
export function JobMenu({ job }: { job: Job }) {
  const actions: Action[] = [{ title: "Logs", act: () => go(placeOf(job), { tab: "logs" }) }];
  if (!isReadOnly()) {
    if (!finished(job)) actions.push({ title: resumes(job) ? "Resume" : "Suspend", act: () => askSuspend(job) });
    actions.push({ title: "Rerun", act: () => askRerun(job) }, { title: "Delete", act: () => askDelete(job), danger: true });
  }
  return <Menu small label={`Actions for ${visible(job.metadata.name)}`} actions={actions}>⋯</Menu>;
}

/** What can be done to the selected Jobs, each with one question. `done` is called after it. */
export function BulkActions({ jobs, done }: { jobs: Job[]; done: () => void }) {
  const open = jobs.filter((job) => !finished(job));
  const running = open.filter((job) => !job.spec.suspend);
  const suspended = open.filter((job) => resumes(job));
  const ask = (word: string, past: string, targets: Job[], text: string, act: (job: Job) => Promise<unknown>, danger = false) => confirmThen(
    `${word} ${several(targets.length, "Job")}?`, text, word,
    async () => {
      try {
        return await forEach(targets, act, (number) => `${several(number, "Job")} ${past}`);
      } finally {
        done();
      }
    }, danger,
  );
  return (
    <div class="bar selected" role="toolbar" aria-label="Actions for the selected Jobs">
      <b aria-live="polite">{several(jobs.length, "Job")} selected</b>
      <button class="small" disabled={running.length === 0} onClick={() => ask("Suspend", "suspended", running,
        "Their active Pods are deleted. Completed work is kept.", (job) => setSuspend(JOB, job, true))}>Suspend</button>
      <button class="small" disabled={suspended.length === 0} onClick={() => ask("Resume", "resumed", suspended,
        "Their Pods are started again.", (job) => setSuspend(JOB, job, false))}>Resume</button>
      <button class="small" onClick={() => ask("Rerun", "created", jobs,
        "A new Job is created for each. These stay as they are.", (job) => rerun(job, "all"))}>Rerun</button>
      <button class="small danger" onClick={() => ask("Delete", "deleted", jobs,
        "They go, and with them their Pods with all logs. Pods still running are stopped. This cannot be undone.", (job) => remove(JOB, job), true)}>Delete</button>
      <button class="small" onClick={done}>Clear</button>
    </div>
  );
}
