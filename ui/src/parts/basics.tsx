/** Small parts that all pages share. */
import type { ComponentChildren } from "preact";
import { goalOf, type Job, type KubeObject, ownerText, type State, stateOf } from "../lib/objects";
import { href } from "../lib/router";
import { count, visible } from "../lib/text";

/** What somebody else wrote, as text and nothing but text. */
export function Foreign({ text, cut }: { text: string; cut?: boolean }) {
  const shown = visible(text);
  return <span class={cut ? "foreign cut" : "foreign"} {...(cut ? { title: shown } : {})}>{shown}</span>;
}

const WORDS: Record<string, string> = { Elsewhere: "Managed elsewhere" };

export function StateMark({ state }: { state: State | string }) {
  return <span class={`state ${state.replace(/[^A-Za-z]/g, "")}`}>{WORDS[state] ?? visible(state)}</span>;
}

/** Owners with pages of their own. */
const OWNER_PAGES: Record<string, string> = { CronJob: "cronjobs", Workflow: "workflows" };

export function OwnerLink({ object }: { object: KubeObject }) {
  const owner = object.metadata.ownerReferences?.find((o) => o.controller);
  const text = <Foreign text={ownerText(object)} cut />;
  const page = OWNER_PAGES[owner?.kind ?? ""];
  return owner && page ? <a href={href([page, object.metadata.namespace ?? "", owner.name])}>{text}</a> : text;
}

export function Progress({ job }: { job: Job }) {
  const goal = Math.max(goalOf(job), 1);
  const { succeeded = 0, failed = 0 } = job.status ?? {};
  const failedPart = stateOf(job) === "Failed" ? Math.max(goal - succeeded, 0) : 0;
  const share = (n: number) => ({ width: `${(Math.min(n, goal) / goal) * 100}%` });
  const label = `${count(succeeded)} of ${count(goal)} succeeded` + (failed ? `, ${count(failed)} Pods failed` : "");
  return (
    <div class="progress" role="img" aria-label={label} title={label}>
      <div class="track">
        <i class="s" style={share(succeeded)} />
        <i class="f" style={share(failedPart)} />
      </div>
      <span class="num">{count(succeeded)}/{count(goal)}</span>
    </div>
  );
}

export function Empty({ title, children, actions }: { title: string; children?: ComponentChildren; actions?: ComponentChildren }) {
  return (
    <div class="empty">
      <strong>{title}</strong>
      {children}
      {actions && <div class="bar">{actions}</div>}
    </div>
  );
}

export function Problem({ text, again }: { text: string; again?: () => void }) {
  return (
    <div class="banner bad" role="alert">
      <span class="grow">{visible(text)}</span>
      {again && <button class="small" onClick={again}>Try again</button>}
    </div>
  );
}

export function Section({ title, note, children }: { title: string; note?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section class="section" aria-label={title}>
      <div class="titled"><h2>{title}</h2>{note && <span class="muted">{note}</span>}</div>
      {children}
    </section>
  );
}
