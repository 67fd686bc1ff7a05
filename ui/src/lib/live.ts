/** Lists that stay current through the watch API. */
import { type Signal, signal } from "@preact/signals";
import type { KubeObject } from "./objects";
import { ApiFailure, ask, askJson, explainError } from "./session";

const PAGE = 500;
/** Changes are shown together, so that a busy server does not make the page draw all the time. */
const SHOW_MS = 150;

interface ListDocument<T> {
  items: T[];
  metadata: { resourceVersion: string; continue?: string };
}

interface WatchEvent<T> {
  type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR";
  object: T & { code?: number; message?: string };
}

/** The objects below one path; current while somebody uses it and the tab is visible. */
export class Live<T extends KubeObject> {
  readonly items: Signal<ReadonlyMap<string, T>> = signal(new Map());
  /** Whether the first list is complete. */
  readonly loaded = signal(false);
  readonly problem = signal("");
  /** The code of the answer behind `problem`. */
  problemCode = 0;
  private readonly objects = new Map<string, T>();
  private stop: AbortController | undefined;
  private showTimer: number | undefined;
  private users = 0;

  constructor(
    readonly path: string,
    readonly query: Record<string, string> = {},
  ) {}

  /** To be called when use begins; returns what ends it. */
  use(): () => void {
    this.users += 1;
    if (this.users === 1) {
      document.addEventListener("visibilitychange", this.followVisibility);
      this.followVisibility();
    }
    return () => {
      this.users -= 1;
      // Whoever comes next may want the same.
      setTimeout(() => {
        if (this.users === 0) {
          document.removeEventListener("visibilitychange", this.followVisibility);
          this.end();
        }
      }, 500);
    };
  }

  private readonly followVisibility = (): void => {
    // Browsers open six connections to a server: hidden tabs must not hold any.
    if (document.visibilityState === "hidden") this.end();
    else if (!this.stop) void this.run((this.stop = new AbortController()));
  };

  private end(): void {
    this.stop?.abort();
    this.stop = undefined;
  }

  private async run(stop: AbortController): Promise<void> {
    let wait = 500;
    while (!stop.signal.aborted) {
      try {
        let version = await this.list(stop.signal);
        this.problem.value = "";
        wait = 500;
        while (!stop.signal.aborted) version = await this.watch(version, stop.signal);
      } catch (error) {
        if (stop.signal.aborted) return;
        if (error instanceof ApiFailure && error.code === 410) continue;
        this.problemCode = error instanceof ApiFailure ? error.code : 0;
        this.problem.value = explainError(error);
        if (error instanceof ApiFailure && [400, 401, 403, 404].includes(error.code)) return;
        await new Promise((done) => setTimeout(done, wait));
        wait = Math.min(wait * 2, 10_000);
      }
    }
  }

  private async list(stop: AbortSignal): Promise<string> {
    const seen = new Set<string>();
    let token = "";
    for (;;) {
      const query = new URLSearchParams({ ...this.query, limit: String(PAGE) });
      if (token) query.set("continue", token);
      const page = await askJson<ListDocument<T>>(`${this.path}?${query}`, { signal: stop });
      for (const item of page.items) {
        this.objects.set(item.metadata.uid, item);
        seen.add(item.metadata.uid);
      }
      token = page.metadata.continue ?? "";
      if (!token) {
        for (const uid of [...this.objects.keys()]) if (!seen.has(uid)) this.objects.delete(uid);
        this.show();
        this.loaded.value = true;
        return page.metadata.resourceVersion;
      }
      this.showSoon();
    }
  }

  private async watch(version: string, stop: AbortSignal): Promise<string> {
    const query = new URLSearchParams({
      ...this.query, watch: "true", resourceVersion: version, allowWatchBookmarks: "true",
    });
    const answer = await ask(`${this.path}?${query}`, { signal: stop });
    for await (const line of lines(answer)) {
      const event = JSON.parse(line) as WatchEvent<T>;
      if (event.type === "ERROR") {
        throw new ApiFailure(event.object.code ?? 500, event.object.message ?? "the watch failed", "", []);
      }
      version = event.object.metadata.resourceVersion;
      if (event.type === "BOOKMARK") continue;
      if (event.type === "DELETED") this.objects.delete(event.object.metadata.uid);
      else this.objects.set(event.object.metadata.uid, event.object);
      this.showSoon();
    }
    return version;
  }

  private showSoon(): void {
    this.showTimer ??= window.setTimeout(() => this.show(), SHOW_MS);
  }

  private show(): void {
    clearTimeout(this.showTimer);
    this.showTimer = undefined;
    this.items.value = new Map(this.objects);
  }
}

/** The lines of an answer as they come. */
export async function* lines(answer: Response): AsyncGenerator<string> {
  if (!answer.body) return;
  const reader = answer.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const parts = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = parts.pop() ?? "";
      for (const part of parts) if (part) yield part;
    }
    if (rest) yield rest;
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}

const shared = new Map<string, Live<KubeObject>>();

/** One list for all who show the same. */
export function live<T extends KubeObject>(path: string, query: Record<string, string> = {}): Live<T> {
  const name = `${path}?${new URLSearchParams(query)}`;
  let found = shared.get(name);
  if (!found) {
    found = new Live<KubeObject>(path, query);
    shared.set(name, found);
    // What nobody has used for long is forgotten with the oldest.
    if (shared.size > 30) shared.delete(shared.keys().next().value as string);
  }
  return found as unknown as Live<T>;
}
