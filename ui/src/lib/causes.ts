/** Why Jobs have failed or make no progress, asked for as they come into view. */
import { type Signal, signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { finished, type Job, keyOf, stateOf, WAITS } from "./objects";
import { askJson } from "./session";

export interface Cause {
  text: string;
  /** Nothing of it runs until the cause is removed. */
  blocked: boolean;
}

/** As many as one request may name. */
const MOST = 100;
/** How often the causes of Jobs are read that have not ended. */
const POLL_MS = 10_000;

/** Whether there is something to say about a Job. */
const hasCause = (job: Job): boolean => {
  const state = stateOf(job);
  return state !== "Complete" && (state !== "Running" || (job.status?.failed ?? 0) > 0 || (job.status?.ready ?? 0) === 0);
};

/** The state of a Job, "Blocked" if its cause says so. */
export const stateWith = (job: Job, cause: Cause | undefined): string =>
  cause?.blocked && ["Running", ...WAITS].includes(stateOf(job)) ? "Blocked" : stateOf(job);

/** Causes by the UID of each Job. */
export interface Causes {
  found: Signal<ReadonlyMap<string, Cause>>;
  /** The Jobs to know the causes of, those in view. */
  show: (jobs: Job[]) => void;
}

export function useCauses(): Causes {
  const kept = useRef<Causes & { stop: () => void }>();
  kept.current ??= makeCauses();
  useEffect(() => kept.current?.stop, []);
  return kept.current;
}

function makeCauses(): Causes & { stop: () => void } {
  const found = signal<ReadonlyMap<string, Cause>>(new Map());
  /** The state of a Job for which its cause was read. */
  const known = new Map<string, string>();
  let shown: Job[] = [];
  let timer: number | undefined;
  let stopped = false;
  const version = (job: Job) => (finished(job) ? "finished" : `${stateOf(job)} ${job.status?.failed ?? 0} ${Math.floor(Date.now() / POLL_MS)}`);

  const read = async (): Promise<void> => {
    clearTimeout(timer);
    const wanted = shown.filter((job) => hasCause(job) && known.get(job.metadata.uid) !== version(job)).slice(0, MOST);
    if (wanted.length && document.visibilityState === "visible") {
      for (const job of wanted) known.set(job.metadata.uid, version(job));
      const query = new URLSearchParams(wanted.map((job) => ["job", keyOf(job)]));
      try {
        const { causes } = await askJson<{ causes: Record<string, Cause> }>(`/ui/api/causes?${query}`);
        const next = new Map(found.value);
        for (const job of wanted) {
          const cause = causes[keyOf(job)];
          if (cause) next.set(job.metadata.uid, cause);
        }
        found.value = next;
      } catch {
        // The list itself shows what is wrong; the causes are asked for again.
        for (const job of wanted) known.delete(job.metadata.uid);
      }
    }
    if (!stopped) timer = window.setTimeout(() => void read(), POLL_MS);
  };
  return {
    found,
    show: (jobs) => { shown = jobs; void read(); },
    stop: () => { stopped = true; clearTimeout(timer); },
  };
}
