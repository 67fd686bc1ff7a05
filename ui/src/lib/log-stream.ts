/** The logs of several Pods in one stream, and the lines that are kept of them. */
import { ask } from "./session";

export const MOST_LINES = 200_000;
/** Longer lines are shown cut; a download has all of them. */
export const LONGEST = 2000;

export interface Source {
  pod: string;
  container: string;
}

export interface Line {
  source: number;
  /** With nanoseconds, as the server wrote it. */
  at: string;
  text: string;
  /** Characters that are not kept. */
  more: number;
}

/** Frames of `SOURCE LENGTH\n` and so many bytes each. Calls `onLines` with new lines, in order of
 *  their times as far as these came together. */
export async function readLogs(
  namespace: string, sources: Source[], options: { follow: boolean; previous: boolean; tail: number },
  stop: AbortSignal, onLines: (lines: Line[]) => void,
): Promise<void> {
  const query = new URLSearchParams();
  for (const source of sources) query.append("log", `${source.pod}/${source.container}`);
  query.set("tailLines", String(options.tail));
  if (options.follow) query.set("follow", "true");
  if (options.previous) query.set("previous", "true");
  const answer = await ask(`/ui/api/logs/${encodeURIComponent(namespace)}?${query}`, { signal: stop, accept: "*/*" });
  if (!answer.body) return;
  const reader = answer.body.getReader();
  const decoders = sources.map(() => new TextDecoder());
  const rests = sources.map(() => ({ text: "", more: 0 }));
  let buffer = new Uint8Array(0);
  let header: { source: number; left: number } | null = null;
  const found: Line[] = [];
  const take = (source: number, text: string) => {
    const rest = rests[source];
    if (!rest) return;
    let start = 0;
    for (;;) {
      const end = text.indexOf("\n", start);
      const piece = end < 0 ? text.slice(start) : text.slice(start, end);
      const room = LONGEST + 40 - rest.text.length;
      rest.text += room > 0 ? piece.slice(0, room) : "";
      rest.more += Math.max(0, piece.length - Math.max(room, 0));
      if (end < 0) return;
      const space = rest.text.indexOf(" ");
      found.push({ source, at: rest.text.slice(0, space), text: rest.text.slice(space + 1), more: rest.more });
      rest.text = "";
      rest.more = 0;
      start = end + 1;
    }
  };
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    if (buffer.length) {
      const joined = new Uint8Array(buffer.length + value.length);
      joined.set(buffer);
      joined.set(value, buffer.length);
      buffer = joined;
    } else buffer = value;
    let at = 0;
    while (at < buffer.length) {
      if (!header) {
        const end = buffer.indexOf(10, at);
        if (end < 0) break;
        const [source, left] = new TextDecoder().decode(buffer.subarray(at, end)).split(" ").map(Number);
        header = { source: source ?? 0, left: left ?? 0 };
        at = end + 1;
      }
      const size = Math.min(header.left, buffer.length - at);
      take(header.source, decoders[header.source]?.decode(buffer.subarray(at, at + size), { stream: true }) ?? "");
      at += size;
      header.left -= size;
      if (header.left === 0) header = null;
    }
    buffer = buffer.slice(at);
    if (found.length) onLines(found.splice(0));
  }
  sources.forEach((_, source) => { if (rests[source]?.text) take(source, "\n"); });
  if (found.length) onLines(found.splice(0));
}

/** Adds lines in the order of their times; the oldest go when there are too many. Changes `kept`. */
export function merge(kept: Line[], fresh: Line[]): void {
  const order = (a: Line, b: Line) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0);
  const sorted = [...fresh].sort(order);
  const first = sorted[0];
  if (!first) return;
  let low = 0;
  let high = kept.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((kept[middle] as Line).at <= first.at) low = middle + 1;
    else high = middle;
  }
  if (low === kept.length) for (const line of sorted) kept.push(line);
  else {
    const tail = kept.splice(low);
    for (const line of [...tail, ...sorted].sort(order)) kept.push(line);
  }
  if (kept.length > MOST_LINES) kept.splice(0, kept.length - MOST_LINES);
}
