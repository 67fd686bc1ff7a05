/** Workflows: their list, and the graph of one with the state of each task. */
import { lazy, Suspense } from "preact/compat";
import { useMemo } from "preact/hooks";
import { remove, setSuspend } from "../lib/actions";
import { now, useAnswer, useLive } from "../lib/hooks";
import { useKeys } from "../lib/keys";
import { keyOf, type Words } from "../lib/objects";
import { namespaceShown, pathOf } from "../lib/paths";
import { go, href, place, setQuery } from "../lib/router";
import { isReadOnly } from "../lib/session";
import { age, count, fullTime, several, visible, wholeDuration } from "../lib/text";
import { finishedAs, rerunWorkflow, type Task, taskDuration, tasksOf, WORKFLOW, type Workflow, workflowState } from "../lib/workflows";
import { Empty, Foreign, OwnerLink, Problem, Section, StateMark } from "../parts/basics";
import { confirmThen } from "../parts/dialogs";
import { Forbidden, NamespaceChoice } from "../parts/namespaces";
import { type Column, Table } from "../parts/table";
import { critical, TaskGraph } from "../parts/task-graph";
import { Why } from "../parts/why";

const YamlView = lazy(() => import("../parts/yaml-view").then((m) => ({ default: m.YamlView })));

const placeOf = (w: Workflow) => ["workflows", w.metadata.namespace ?? "", w.metadata.name];
const totalOf = (w: Workflow) => w.spec.tasks.length + (w.spec.finally?.length ?? 0);

function lasted(workflow: Workflow, at: number): number | undefined {
  const { startTime, completionTime } = workflow.status ?? {};
  if (!startTime) return undefined;
  const end = completionTime ?? finishedAs(workflow)?.lastTransitionTime;
  return (end ? Date.parse(end) : at) - Date.parse(startTime);
}

function askSuspend(workflow: Workflow): void {
  if (finishedAs(workflow) || isReadOnly()) return;
  const suspend = !workflow.spec.suspend;
  confirmThen(
    `${suspend ? "Suspend" : "Resume"} workflow/${workflow.metadata.name}?`,
    suspend ? "No further task starts. The Jobs of running tasks are suspended, which deletes their active Pods." : "Its tasks go on, and the Jobs that were suspended with it.",
    suspend ? "Suspend" : "Resume",
    () => setSuspend(WORKFLOW, workflow, suspend),
  );
}

function askRerun(workflow: Workflow, choice: { from?: string; failedOnly?: boolean } = {}): void {
  if (isReadOnly()) return;
  const title = `workflow/${workflow.metadata.name}`;
  const text = choice.from
    ? `A new Workflow runs task ${choice.from}, all tasks that depend on it, and all that did not complete. The others keep their results.`
    : choice.failedOnly ? "A new Workflow runs the tasks that did not complete, and all that depend on them. The others keep their results."
    : "A new Workflow runs all tasks. This one stays as it is.";
  confirmThen(choice.from ? `Rerun ${title} from ${choice.from}?` : `Run ${title} again?`, visible(text), "Rerun", async () => {
    const name = await rerunWorkflow(workflow, choice);
    go(["workflows", workflow.metadata.namespace ?? "", name]);
    return `Workflow ${name} created`;
  });
}

function askDelete(workflow: Workflow): void {
  if (isReadOnly()) return;
  const { running = 0 } = workflow.status ?? {};
  confirmThen(
    `Delete workflow/${workflow.metadata.name}?`,
    <>
      <p>The Workflow goes, and with it the Jobs of its tasks, their Pods and logs{running ? `; ${several(running, "running task")} will be stopped` : ""}.</p>
      <p class="muted">This cannot be undone.</p>
    </>,
    "Delete", async () => { const done = await remove(WORKFLOW, workflow); go(["workflows"]); return done; }, true);
}

function TaskProgress({ workflow }: { workflow: Workflow }) {
  const total = Math.max(totalOf(workflow), 1);
  const { complete = 0, failed = 0, running = 0, skipped = 0 } = workflow.status ?? {};
  const share = (n: number) => ({ width: `${(n / total) * 100}%` });
  const label = `${count(complete)} of ${several(total, "task")} complete` + (failed ? `, ${count(failed)} failed` : "")
    + (running ? `, ${count(running)} running` : "") + (skipped ? `, ${count(skipped)} skipped` : "");
  return (
    <div class="progress" role="img" aria-label={label} title={label}>
      <div class="track"><i class="s" style={share(complete)} /><i class="f" style={share(failed)} /><i class="a" style={share(running)} /></div>
      <span class="num">{count(complete + skipped + failed)}/{count(total)}</span>
    </div>
  );
}

export function Workflows() {
  const namespace = namespaceShown();
  const list = useLive<Workflow>(pathOf(WORKFLOW, namespace));
  const text = place.value.query.get("text") ?? "";
  const items = list.items.value;
  const rows = useMemo(
    () => [...items.values()].filter((w) => !text || keyOf(w).toLowerCase().includes(text.toLowerCase()))
      .sort((a, b) => b.metadata.creationTimestamp.localeCompare(a.metadata.creationTimestamp) || keyOf(a).localeCompare(keyOf(b))),
    [items, text],
  );
  const at = now.value;
  const columns: Column<Workflow>[] = [
    { name: "Name", cell: (w) => <a href={href(placeOf(w))}><Foreign text={w.metadata.name} cut /></a>, sort: (a, b) => a.metadata.name.localeCompare(b.metadata.name) },
    ...(namespace ? [] : [{ name: "Namespace", wide: true, cell: (w: Workflow) => <Foreign text={w.metadata.namespace ?? ""} /> }]),
    { name: "State", cell: (w) => <StateMark state={workflowState(w)} />, sort: (a, b) => workflowState(a).localeCompare(workflowState(b)) },
    { name: "Tasks", width: "24%", cell: (w) => <TaskProgress workflow={w} /> },
    { name: "Failed", num: true, wide: true, cell: (w) => w.status?.failed || "" },
    { name: "Duration", num: true, wide: true, cell: (w) => { const ms = lasted(w, at); return ms === undefined ? "" : wholeDuration(ms); } },
    { name: "Age", num: true, wide: true, cell: (w) => <span title={fullTime(w.metadata.creationTimestamp)}>{age(w.metadata.creationTimestamp, at)}</span> },
    { name: "Owner", wide: true, cell: (w) => <OwnerLink object={w} /> },
  ];
  return (
    <>
      <div class="head"><div class="grow"><h1>Workflows</h1></div></div>
      {list.problem.value && (list.problemCode === 403 ? <Forbidden text={list.problem.value} /> : <Problem text={list.problem.value} />)}
      <div class="filters" role="search">
        <NamespaceChoice />
        <input type="search" data-hotkey="/" placeholder="Name ( / )" aria-label="Filter by name" value={text} onInput={(e) => setQuery({ text: e.currentTarget.value })} />
      </div>
      <Table label="Workflows" columns={columns} rows={rows} keyOf={(w) => w.metadata.uid} open={(w) => go(placeOf(w))}
        keys={{ s: askSuspend, r: (w) => askRerun(w), x: askDelete }}
        empty={!list.loaded.value ? <Empty title={list.problem.value ? "No Workflows to show" : "Loading…"} /> : text
          ? <Empty title="No Workflow matches" actions={<button onClick={() => setQuery({ text: "" })}>Clear the filter</button>} />
          : <Empty title="No Workflows yet">A Workflow runs Jobs that depend on each other: <code>kubectl apply -f flow.yaml</code>.</Empty>} />
    </>
  );
}

export function WorkflowPage({ namespace, name }: { namespace: string; name: string }) {
  const list = useLive<Workflow>(pathOf(WORKFLOW, namespace), { fieldSelector: `metadata.name=${name}` });
  const workflow = [...list.items.value.values()][0];
  useKeys(workflow ? { s: () => askSuspend(workflow), r: () => askRerun(workflow), x: () => askDelete(workflow) } : {});
  if (!workflow) {
    return (
      <>
        <div class="head"><div class="grow"><p class="crumb"><a href={href(["workflows"])}>Workflows</a></p><h1><Foreign text={name} /></h1></div></div>
        {list.problem.value && <Problem text={list.problem.value} />}
        {list.loaded.value
          ? <div class="card"><Empty title="Workflow not found" actions={<a class="button" href={href(["workflows"])}>All Workflows</a>}>It may have been deleted or have expired.</Empty></div>
          : <p class="muted">Loading…</p>}
      </>
    );
  }
  const at = now.value;
  const yaml = place.value.query.get("tab") === "yaml";
  const end = finishedAs(workflow);
  const duration = lasted(workflow, at);
  const fate = end ?? workflow.status?.conditions?.find((c) => c.type === "FailureTarget" && c.status === "True");
  const safe = visible(name);
  return (
    <>
      <div class="head">
        <div class="grow">
          <p class="crumb"><a href={href(["workflows"])}>Workflows</a> / <Foreign text={namespace} /></p>
          <h1><Foreign text={name} /></h1>
          <div class="facts">
            <StateMark state={workflowState(workflow)} />
            {duration !== undefined && <span>{end ? "ran" : "running for"} <b>{wholeDuration(duration)}</b></span>}
            <span title={fullTime(workflow.metadata.creationTimestamp)}>created <b>{age(workflow.metadata.creationTimestamp, at)}</b> ago</span>
            {workflow.spec.parallelism !== undefined && <span>tasks at once <b>{workflow.spec.parallelism}</b></span>}
            {workflow.metadata.annotations?.["onejob.dev/rerun-of"] && <span>rerun of <b><Foreign text={workflow.metadata.annotations["onejob.dev/rerun-of"]} /></b></span>}
          </div>
        </div>
        <div class="bar">
          {!end && !isReadOnly() && <button aria-label={`${workflow.spec.suspend ? "Resume" : "Suspend"} ${safe}`} onClick={() => askSuspend(workflow)}>{workflow.spec.suspend ? "Resume" : "Suspend"}</button>}
          {end?.type === "Failed" && !isReadOnly() && <button aria-label={`Rerun failed: ${safe}`} onClick={() => askRerun(workflow, { failedOnly: true })}>Rerun failed</button>}
          {end && !isReadOnly() && <button aria-label={`Rerun ${safe}`} onClick={() => askRerun(workflow)}>Rerun</button>}
          {!isReadOnly() && <button class="danger" aria-label={`Delete ${safe}`} onClick={() => askDelete(workflow)}>Delete</button>}
        </div>
      </div>
      <TaskProgress workflow={workflow} />
      {list.problem.value && <Problem text={list.problem.value} />}
      <nav class="tabs" aria-label="Parts of this Workflow">
        <a href={href(placeOf(workflow))} aria-current={yaml ? undefined : "page"}>Graph</a>
        <a href={href(placeOf(workflow), { tab: "yaml" })} aria-current={yaml ? "page" : undefined}>YAML</a>
      </nav>
      {yaml ? <Suspense fallback={<p class="muted">Loading…</p>}><YamlView kind={WORKFLOW} namespace={namespace} name={name} /></Suspense> : (
        <>
          {fate && fate.type !== "Complete" && <div class="banner bad"><span class="grow"><Foreign text={[fate.reason, fate.message].filter(Boolean).join(": ")} /></span></div>}
          <Tasks workflow={workflow} />
        </>
      )}
    </>
  );
}

/** The task to look at first: what failed, then what runs, then the first one. */
const firstOf = (tasks: Task[]): Task | undefined =>
  tasks.find((task) => task.status.state === "Failed") ?? tasks.find((task) => task.status.state === "Running") ?? tasks[0];

function Tasks({ workflow }: { workflow: Workflow }) {
  const tasks = useMemo(() => tasksOf(workflow), [workflow]);
  const wanted = place.value.query.get("task") ?? "";
  const chosen = tasks.find((task) => task.name === wanted) ?? firstOf(tasks);
  const choose = (task: string) => setQuery({ task });
  const at = now.value;
  const path = critical(tasks, at);
  const namespace = workflow.metadata.namespace ?? "";
  const columns: Column<Task>[] = [
    { name: "Task", cell: (task) => <button class="link cut" onClick={() => choose(task.name)}><Foreign text={task.name} /></button> },
    { name: "State", cell: (task) => <StateMark state={task.status.state} /> },
    { name: "Why", cell: (task) => <Foreign text={reasonOf(task)} cut /> },
    { name: "Took", num: true, wide: true, cell: (task) => { const ms = taskDuration(task.status, at); return ms === undefined ? "" : wholeDuration(ms); } },
    { name: "Job", wide: true, cell: (task) => task.status.jobName && <a href={href(["jobs", namespace, task.status.jobName])}><Foreign text={task.status.jobName} cut /></a> },
  ];
  const longest = [...path].reduce((sum, task) => sum + (taskDuration((tasks[task] as Task).status, at) ?? 0), 0);
  return (
    <>
      <section aria-label="Graph">
        <TaskGraph tasks={tasks} label={`Tasks of ${visible(workflow.metadata.name)}`} chosen={chosen?.name ?? ""} choose={choose} />
        <div class="legend graph-legend">
          <span><i class="critical" />critical path{longest ? `, ${wholeDuration(longest)}${finishedAs(workflow) ? "" : " so far"}` : ""}</span>
          <span><i class="other-edge" />waits for a failure or any end</span>
        </div>
      </section>
      <div class="grid cols-graph">
        {chosen && <TaskDetails key={chosen.name} workflow={workflow} task={chosen} tasks={tasks} choose={choose} />}
        <Section title="Tasks" note={several(tasks.length, "task")}>
          <Table label="Tasks" columns={columns} rows={tasks} keyOf={(task) => task.name} open={(task) => choose(task.name)} empty={<Empty title="No tasks" />} />
        </Section>
      </div>
    </>
  );
}

const reasonOf = ({ status }: Task): string =>
  status.message ? status.message : status.state === "Waiting" ? status.reason ?? "waits for its turn" : status.reason ?? "";

function TaskDetails({ workflow, task, tasks, choose }: { workflow: Workflow; task: Task; tasks: Task[]; choose: (name: string) => void }) {
  const namespace = workflow.metadata.namespace ?? "";
  const { status } = task;
  const job = status.jobName ?? "";
  const ended = ["Complete", "Failed", "Skipped"].includes(status.state);
  const path = job ? `/ui/api/jobs/${encodeURIComponent(namespace)}/${encodeURIComponent(job)}` : "";
  const answer = useAnswer<Words>(path, status.state, 1500, ended ? 0 : 3000);
  const at = now.value;
  const took = taskDuration(status, at);
  const results = Object.entries(status.results ?? {});
  return (
    <section class="card pad task-details" aria-label={`Task ${visible(task.name)}`}>
      <div class="titled"><h2><Foreign text={task.name} /></h2><StateMark state={status.state} />{took !== undefined && <span class="muted">{wholeDuration(took)}</span>}</div>
      {(status.reason || status.message) && <p><Foreign text={[status.reason, status.message].filter(Boolean).join(": ")} /></p>}
      {(task.dependsOn.length > 0 || task.last) && (
        <p>{task.last ? <>Runs when all other tasks have ended (<code>finally</code>).</> : (
          <>After {task.dependsOn.map((edge, i) => {
            const other = tasks.find((one) => one.name === edge.task);
            return (
              <span key={edge.task}>{i > 0 && ", "}<button class="link" onClick={() => choose(edge.task)}><Foreign text={edge.task} /></button>
                {edge.condition !== "Complete" && ` (${edge.condition})`} <span class="muted">{other?.status.state.toLowerCase()}</span></span>
            );
          })}</>
        )}</p>
      )}
      {task.when && <p>When <code><Foreign text={task.when} /></code></p>}
      {results.length > 0 && (
        <dl class="results">{results.map(([key, value]) => <div key={key}><dt><Foreign text={key} /></dt><dd><Foreign text={value} /></dd></div>)}</dl>
      )}
      <div class="bar">
        {job && <a class="button" href={href(["jobs", namespace, job])}>Open the Job</a>}
        {job && <a class="button" href={href(["jobs", namespace, job], { tab: "logs" })}>Logs</a>}
        {finishedAs(workflow) && !task.last && (
          <button aria-label={`Rerun from here: ${visible(task.name)}`} onClick={() => askRerun(workflow, { from: task.name })}>Rerun from here</button>
        )}
      </div>
      {answer.value ? <Why words={answer.value} /> : answer.problem ? <p class="muted">Its Job cannot be explained: <Foreign text={answer.problem} /></p> : null}
    </section>
  );
}
