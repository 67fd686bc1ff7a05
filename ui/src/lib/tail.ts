/** The last lines that a container wrote. */
import { useEffect, useState } from "preact/hooks";
import { pathOf, POD } from "./paths";
import { ask } from "./session";

/** "" while they are read, and if there are none. */
export function useTail(namespace: string, pod: string, container: string, lines: number): string {
  const [text, setText] = useState("");
  useEffect(() => {
    setText("");
    if (!pod) return;
    const stop = new AbortController();
    const query = new URLSearchParams({ tailLines: String(lines), limitBytes: "8000", ...(container ? { container } : {}) });
    ask(`${pathOf(POD, namespace, pod, "log")}?${query}`, { accept: "*/*", signal: stop.signal })
      .then((answer) => answer.text()).then((found) => { if (!stop.signal.aborted) setText(found.trimEnd()); }, () => undefined);
    return () => stop.abort();
  }, [namespace, pod, container, lines]);
  return text;
}
