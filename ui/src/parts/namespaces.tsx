import { useState } from "preact/hooks";
import { useLive } from "../lib/hooks";
import type { KubeObject } from "../lib/objects";
import { namespaceShown, showNamespace } from "../lib/paths";
import { visible } from "../lib/text";
import { Problem } from "./basics";

export function NamespaceChoice() {
  const list = useLive<KubeObject>("/api/v1/namespaces");
  const shown = namespaceShown();
  const names = [...list.items.value.values()].map((n) => n.metadata.name).sort();
  if (list.problem.value && list.problemCode === 403) return <NamespaceField />;
  if (shown && !names.includes(shown)) names.unshift(shown);
  return (
    <select aria-label="Namespace" value={shown} onChange={(e) => showNamespace(e.currentTarget.value)}>
      <option value="">All namespaces</option>
      {names.map((name) => <option key={name} value={name}>{visible(name)}</option>)}
    </select>
  );
}

/** For those who may not list namespaces. */
function NamespaceField() {
  const [text, setText] = useState(namespaceShown());
  return (
    <form onSubmit={(e) => { e.preventDefault(); showNamespace(text.trim()); }}>
      <input aria-label="Namespace" placeholder="Namespace" value={text} size={14}
        onInput={(e) => setText(e.currentTarget.value)} onBlur={() => showNamespace(text.trim())} />
    </form>
  );
}

export function Forbidden({ text }: { text: string }) {
  return <Problem text={`${text}. Choose a namespace that you may look at.`} />;
}
