/** The logs of Pods that may become more while they are read. */
import { type Line, merge, readLogs, type Source } from "./log-stream";
import { explainError } from "./session";

export interface LogOptions {
  follow: boolean;
  previous: boolean;
  tail: number;
}

/** Browsers open six connections to a server, and others on the page need some. */
const MOST_STREAMS = 3;
/** The server reads so many logs for one answer. */
const MOST_AT_ONCE = 100;

export class LogReader {
  /** Those that were asked for, in order. */
  readonly sources: Source[] = [];
  readonly lines: Line[] = [];
  /** Pods that were considered, for whoever adds some. */
  readonly seen = new Set<string>();
  problem = "";
  private open = 0;
  private readonly stop = new AbortController();

  constructor(
    private readonly namespace: string,
    private readonly options: LogOptions,
    private readonly onChange: () => void,
  ) {}

  /** Whether all that was asked for has been read. */
  get ended(): boolean {
    return this.open === 0 && this.sources.length > 0 && !this.problem;
  }

  /** Reads further logs; what is there stays. False if too many streams are open for that. */
  add(more: Source[]): boolean {
    if (this.open >= MOST_STREAMS) return false;
    const taken = more.slice(0, MOST_AT_ONCE);
    const first = this.sources.length;
    this.sources.push(...taken);
    this.open += 1;
    const take = (lines: Line[]) => {
      for (const line of lines) line.source += first;
      merge(this.lines, lines);
      this.onChange();
    };
    readLogs(this.namespace, taken, this.options, this.stop.signal, take)
      .catch((error: unknown) => { this.problem = explainError(error); })
      .finally(() => {
        this.open -= 1;
        if (!this.stop.signal.aborted) this.onChange();
      });
    return true;
  }

  close(): void {
    this.stop.abort();
  }
}
