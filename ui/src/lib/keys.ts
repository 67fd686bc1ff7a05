/** Keys that act on what a page shows. */
import { useLayoutEffect, useRef } from "preact/hooks";

/** Whether a key is meant for a field, a dialog or the browser. */
export function isForOthers(event: KeyboardEvent): boolean {
  const element = event.target as HTMLElement;
  return event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") !== null
    || isField(element);
}

/** The editor is in a tree of its own; its keys seem to come from its host. */
const isField = (element: HTMLElement): boolean =>
  (/^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName) && (element as HTMLInputElement).type !== "checkbox") || element.isContentEditable || element.classList.contains("editor");

/** Calls what belongs to a key, wherever on the page it is pressed. */
export function useKeys(keys: Record<string, () => void>): void {
  const latest = useRef(keys);
  latest.current = keys;
  // Before what is shown can be seen: a key that answers it must not be missed.
  useLayoutEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const act = latest.current[event.key];
      if (!act || isForOthers(event) || event.defaultPrevented) return;
      event.preventDefault();
      act();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}
