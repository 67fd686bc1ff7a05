/** Who runs, who waits for which limit, and when each may start. */
import { now, useAnswer } from "../lib/hooks";
import { namespaceShown } from "../lib/paths";
import { go, href } from "../lib/router";
import { age, clockText, count, several, shortDuration, visible } from "../lib/text";
import { Empty, Foreign, Problem, Section, StateMark } from "../parts/basics";
import { NamespaceChoice } from "../parts/namespaces";
import { type Column, Table } from "../parts/table";

interface Limit { scope: string; title: string; running: number; allowed: number; waiting: number }

interface Entry {
  namespace: string;
  name: string;
  state: "running" | "waiting";
  place: number;
  priority: number;
  priorityClass: string;
  queue: string;
  createdAt: string | null;
  waitsFor: string;
  mayStartAt: string | null;
  why: string;
}

interface QueueDocument { limits: Limit[]; jobs: Entry[]; problem: string }

const placeOf = (entry: Entry) => ["jobs", entry.namespace, entry.name];

export function Queue() {
  const namespace = namespaceShown();
  const answer = useAnswer<QueueDocument>(`/ui/api/queue${namespace ? `?namespace=${encodeURIComponent(namespace)}` : ""}`, "", 1000, 3000);
  const queue = answer.value;
  const at = now.value;
  const start = (entry: Entry) => {
    if (entry.state === "running") return "started";
    if (!entry.mayStartAt) return "unknown";
    const left = Date.parse(entry.mayStartAt) - at;
    // A limit is still reached: the estimate was wrong.
    if (left < 1000) return entry.waitsFor ? "unknown" : "now";
    return `in about ${shortDuration(left)}`;
  };
  const columns: Column<Entry>[] = [
    { name: "Place", num: true, width: "1%", cell: (e) => (e.place ? e.place : "") },
    { name: "Job", cell: (e) => <a href={href(placeOf(e))}><Foreign text={namespace ? e.name : `${e.namespace}/${e.name}`} cut /></a> },
    { name: "State", wide: true, cell: (e) => <StateMark state={e.state === "running" ? "Running" : "Queued"} /> },
    { name: "Queue", wide: true, cell: (e) => <Foreign text={e.queue} /> },
    { name: "Priority", num: true, wide: true, cell: (e) => <span title={visible(e.priorityClass)}>{count(e.priority)}</span> },
    { name: "Age", num: true, wide: true, cell: (e) => age(e.createdAt, at) },
    { name: "May start", cell: (e) => <span title={e.mayStartAt ? clockText(e.mayStartAt, at) : ""}>{start(e)}</span> },
    { name: "Why", wide: true, cell: (e) => <Foreign text={e.why} cut /> },
  ];
  const none = queue && queue.limits.length === 0 && queue.jobs.length === 0;
  return (
    <>
      <div class="head">
        <div class="grow"><h1>Queue</h1><p class="sub">Jobs with a concurrency limit: running Jobs, then queued Jobs in order.</p></div>
        <div class="bar"><NamespaceChoice /></div>
      </div>
      {answer.problem && <Problem text={answer.problem} again={answer.again} />}
      {queue?.problem && <Problem text={`Cannot read the limits; the previous ones remain in force. ${queue.problem}`} />}
      {!queue && !answer.problem && <p class="muted">Loading…</p>}
      {none && (
        <div class="card">
          <Empty title={namespace ? "No Job of this namespace is subject to a limit" : "No limits: every Job starts immediately"}
            actions={<a class="button" href={href(["create"], { template: "limits" })}>Create the ConfigMap with limits</a>}>
            <p>Set some with <code>onejob serve --queue '*=8'</code>, or while the server runs:</p>
            <pre tabIndex={0}>kubectl create configmap onejob-queues -n kube-system --from-literal=limits='*=8,gpu=2'</pre>
          </Empty>
        </div>
      )}
      {queue && queue.limits.length > 0 && (
        <div class="grid cols-limits">
          {queue.limits.map((limit) => {
            const words = `${limit.running} of ${limit.allowed} run, ${several(limit.waiting, "Job")} queued`;
            return (
              <div key={limit.scope} class="card pad">
                <b><Foreign text={limit.title} /></b>
                <div class="meter">
                  <div class="top"><span>{limit.running} of {limit.allowed} run</span><span class="muted">{limit.waiting} queued</span></div>
                  <div class="track" role="meter" aria-label={visible(limit.title)} aria-valuemin={0} aria-valuemax={100}
                    aria-valuenow={limit.allowed ? Math.min(100, Math.round((limit.running / limit.allowed) * 100)) : 100} aria-valuetext={words}>
                    <i style={{ width: `${limit.allowed ? Math.min(limit.running / limit.allowed, 1) * 100 : 100}%` }} />
                  </div>
                </div>
              </div>
            );
          })}
        </div>
      )}
      {queue && !none && (
        <Section title="In order" note="start times are estimates, by how long Jobs under the same limits have lasted">
          <Table label="Queue" columns={columns} rows={queue.jobs} keyOf={(e) => `${e.namespace}/${e.name}`} open={(e) => go(placeOf(e))}
            empty={<Empty title="No Job runs or waits under these limits" actions={<a class="button" href={href(["create"])}>Create a Job</a>} />} />
        </Section>
      )}
    </>
  );
}
