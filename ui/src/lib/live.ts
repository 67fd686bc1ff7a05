/** Lists that stay current through the watch API. */
import { type Signal, signal } from "@preact/signals";
import { keyOf, type KubeObject } from "./objects";
import { ApiFailure, ask, askJson, explainError } from "./session";

const PAGE = 500;
/** How often kinds are read that cannot be watched. */
const POLL_MS = 5000;
/** Changes are shown together, so that a busy server does not make the page draw all the time. */
const SHOW_MS = 150;

interface Page {
  metadata: { resourceVersion: string; continue?: string; remainingItemCount?: number };
}

interface WatchEvent {
  type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR";
  object: { metadata: { resourceVersion: string }; code?: number; message?: string };
}

/** Measurements have no UID. */
export const idOf = (object: KubeObject): string => object.metadata.uid || keyOf(object);

/** The objects below one path; current while somebody uses it and the tab is visible. */
export class Live<T extends KubeObject> {
  readonly items: Signal<ReadonlyMap<string, T>> = signal(new Map());
  /** Whether the first list is complete. */
  readonly loaded = signal(false);
  readonly problem = signal("");
  /** How many objects there are beyond those that were read. */
  readonly left = signal(0);
  /** Whether the server can be asked for changes; else it is asked for everything, again and again. */
  watched = true;
  /** The code of the answer behind `problem`. */
  problemCode = 0;
  protected readonly accept: string = "application/json";
  /** So many are read; of what comes into being beyond that nothing is shown. */
  protected readonly most: number = Infinity;
  private readonly objects = new Map<string, T>();
  private stop: AbortController | undefined;
  private showTimer: number | undefined;
  private users = 0;

  constructor(
    readonly path: string,
    readonly query: Record<string, string> = {},
  ) {}

  /** The objects of a page of a list, or of an event. */
  protected itemsOf(page: Page): T[] {
    return (page as Page & { items: T[] }).items;
  }

  protected eventItems(event: WatchEvent): T[] {
    return [event.object as unknown as T];
  }

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

  /** Reads everything once more. */
  again(): void {
    this.end();
    if (this.users > 0) this.followVisibility();
  }

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
        while (!stop.signal.aborted && this.watched) version = await this.watch(version, stop.signal);
        await new Promise((done) => setTimeout(done, POLL_MS));
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
      const page = await askJson<Page>(`${this.path}?${query}`, { signal: stop, accept: this.accept });
      for (const item of this.itemsOf(page)) {
        this.objects.set(idOf(item), item);
        seen.add(idOf(item));
      }
      token = page.metadata.continue ?? "";
      if (!token || seen.size >= this.most) {
        this.left.value = token ? (page.metadata.remainingItemCount ?? 1) : 0;
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
    const answer = await ask(`${this.path}?${query}`, { signal: stop, accept: this.accept });
    for await (const line of lines(answer)) {
      const event = JSON.parse(line) as WatchEvent;
      if (event.type === "ERROR") {
        throw new ApiFailure(event.object.code ?? 500, event.object.message ?? "the watch failed", "", []);
      }
      version = event.object.metadata.resourceVersion;
      if (event.type === "BOOKMARK") continue;
      for (const item of this.eventItems(event)) {
        if (event.type === "DELETED") this.objects.delete(idOf(item));
        else if (!this.left.value || this.objects.has(idOf(item))) this.objects.set(idOf(item), item);
        else this.left.value += event.type === "ADDED" ? 1 : 0;
      }
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

export interface TableRow extends KubeObject {
  cells: unknown[];
}

export interface ColumnDefinition {
  name: string;
  type: string;
  priority: number;
  description?: string;
}

interface TableDocument extends Page {
  columnDefinitions?: ColumnDefinition[] | null;
  rows: { cells: unknown[]; object: KubeObject }[] | null;
}

/** The same as rows of a table, with the columns that the server prints. */
export class LiveTable extends Live<TableRow> {
  readonly columns = signal<ColumnDefinition[]>([]);
  protected override readonly accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
  protected override readonly most = 5000;

  protected override itemsOf(page: Page): TableRow[] {
    const table = page as TableDocument;
    if (table.columnDefinitions?.length) this.columns.value = table.columnDefinitions;
    return (table.rows ?? []).map((row) => ({ metadata: row.object.metadata, cells: row.cells }));
  }

  protected override eventItems(event: WatchEvent): TableRow[] {
    return this.itemsOf(event.object);
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
  return remembered(`${path}?${new URLSearchParams(query)}`, () => new Live<KubeObject>(path, query)) as unknown as Live<T>;
}

export function liveTable(path: string, query: Record<string, string> = {}): LiveTable {
  const name = `table ${path}?${new URLSearchParams(query)}`;
  return remembered(name, () => new LiveTable(path, { ...query, includeObject: "Metadata" })) as LiveTable;
}

function remembered(name: string, make: () => Live<KubeObject>): Live<KubeObject> {
  let found = shared.get(name);
  if (!found) {
    found = make();
    shared.set(name, found);
    // What nobody has used for long is forgotten with the oldest.
    if (shared.size > 30) shared.delete(shared.keys().next().value as string);
  }
  return found;
}
