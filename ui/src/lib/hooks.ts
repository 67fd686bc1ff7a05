import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Live, live } from "./live";
import type { KubeObject } from "./objects";
import { askJson, explainError } from "./session";

/** The time, once a second while the tab is visible. */
export const now = signal(Date.now());
setInterval(() => {
  if (document.visibilityState === "visible") now.value = Date.now();
}, 1000);

export function useLive<T extends KubeObject>(path: string, query: Record<string, string> = {}): Live<T> {
  const key = JSON.stringify([path, query]);
  const list = useMemo(() => live<T>(path, query), [key]);
  useEffect(() => list.use(), [list]);
  return list;
}

export interface Answered<T> {
  value: T | undefined;
  problem: string;
  again: () => void;
}

/** Asks for a document when `path` or `when` changes, at most once in `everyMs`, and while visible
 *  also `pollMs` after the last answer. */
export function useAnswer<T>(path: string, when: string, everyMs = 1000, pollMs = 0): Answered<T> {
  const [state, setState] = useState<{ path: string; value?: T; problem: string }>({ path, problem: "" });
  const [turn, setTurn] = useState(0);
  const last = useRef({ path: "", at: 0 });
  useEffect(() => {
    if (!path) return;
    const stop = new AbortController();
    const wait = last.current.path === path ? Math.max(0, last.current.at + everyMs - Date.now()) : 0;
    let poll: number | undefined;
    const start = window.setTimeout(async () => {
      if (document.visibilityState === "hidden") {
        poll = window.setTimeout(() => setTurn((t) => t + 1), 2000);
        return;
      }
      last.current = { path, at: Date.now() };
      try {
        const value = await askJson<T>(path, { signal: stop.signal });
        setState({ path, value, problem: "" });
      } catch (error) {
        if (stop.signal.aborted) return;
        setState((before) => ({ ...before, path, problem: explainError(error) }));
      }
      if (pollMs && !stop.signal.aborted) poll = window.setTimeout(() => setTurn((t) => t + 1), pollMs);
    }, wait);
    return () => {
      // An answer that is under way is still wanted if only `when` has changed.
      clearTimeout(start);
      clearTimeout(poll);
      if (last.current.path !== path) stop.abort();
    };
  }, [path, when, turn, everyMs, pollMs]);
  return {
    value: state.path === path ? state.value : undefined,
    problem: state.path === path ? state.problem : "",
    again: () => setTurn((t) => t + 1),
  };
}
