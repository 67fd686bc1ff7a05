/** The clusters that Jobs of this server run on, and how that goes. */
import { useAnswer } from "../lib/hooks";
import { namespaceShown } from "../lib/paths";
import { go, href } from "../lib/router";
import { count } from "../lib/text";
import { Empty, Foreign, Problem, StateMark } from "../parts/basics";
import { NamespaceChoice } from "../parts/namespaces";
import { type Column, Table } from "../parts/table";

interface Target {
  name: string;
  namespace: string;
  server: string;
  jobs: number;
  unfinished: number;
  state: string;
  message: string;
}

const placeOf = (target: Target) => ["resources", "v1", "secrets", target.namespace, target.name];
const stateOf = (target: Target) => (target.state === "Ready" || target.state === "Unused" ? target.state : "Not ready");

export function Mirrors() {
  const namespace = namespaceShown();
  const answer = useAnswer<{ targets: Target[] }>(`/ui/api/mirrors${namespace ? `?namespace=${encodeURIComponent(namespace)}` : ""}`, "", 1000, 3000);
  const targets = answer.value?.targets;
  const columns: Column<Target>[] = [
    { name: "Target", cell: (t) => <a href={href(placeOf(t))}><Foreign text={t.name} cut /></a> },
    ...(namespace ? [] : [{ name: "Namespace", wide: true, cell: (t: Target) => <Foreign text={t.namespace} /> }]),
    { name: "State", cell: (t) => <StateMark state={stateOf(t)} /> },
    { name: "Jobs", num: true, cell: (t) => (t.unfinished ? `${count(t.unfinished)} of ${count(t.jobs)} open` : count(t.jobs)) },
    { name: "Server", wide: true, cell: (t) => <Foreign text={t.server} cut /> },
  ];
  return (
    <>
      <div class="head">
        <div class="grow"><h1>Mirrors</h1><p class="sub">Clusters that Jobs with <code>managedBy: onejob.dev/mirror</code> run on.</p></div>
        <div class="bar"><NamespaceChoice /></div>
      </div>
      {answer.problem && <Problem text={answer.problem} again={answer.again} />}
      {!targets && !answer.problem && <p class="muted">Loading…</p>}
      {targets?.filter((t) => t.message).map((t) => (
        <Problem key={`${t.namespace}/${t.name}`} text={`${t.namespace}/${t.name}: ${t.state}: ${t.message}`} />
      ))}
      {targets && (
        <Table label="Targets" columns={columns} rows={targets} keyOf={(t) => `${t.namespace}/${t.name}`} open={(t) => go(placeOf(t))}
          empty={<Empty title="No other cluster is named here" actions={<a class="button" href={href(["jobs"])}>All Jobs</a>}>
            <p>Add one: Jobs that select it run there, and this server shows them:</p>
            <pre tabIndex={0}>onejob mirror add prod --kubeconfig prod.yaml</pre>
          </Empty>} />
      )}
    </>
  );
}
