/** The place in the page: `#/jobs/default/pi?tab=logs` becomes segments and a query. */
import { signal } from "@preact/signals";

export interface Place {
  path: string[];
  /** The kept run that is shown; "" on a server. */
  run: string;
  query: URLSearchParams;
}

function read(): Place {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const segments = path.split("/").filter(Boolean).map(decode);
  const [section, run] = segments;
  const kept = section === "runs" && run;
  return { path: kept ? segments.slice(2) : segments, run: kept ? run : "", query: new URLSearchParams(query) };
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

export const place = signal<Place>(read());

addEventListener("hashchange", () => {
  const next = read();
  // Everything that was read is of the other run.
  if (next.run !== place.value.run) location.reload();
  else place.value = next;
});

export function href(path: string[], query: Record<string, string | undefined> = {}): string {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) given.set(name, value);
  const text = given.toString();
  const { run } = place.peek();
  return `#/${(run ? ["runs", run, ...path] : path).map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export function go(path: string[], query: Record<string, string | undefined> = {}): void {
  location.hash = href(path, query);
}

/** Changes the query without a new entry in the history. */
export function setQuery(changes: Record<string, string | undefined>): void {
  const { path, query } = place.value;
  const next: Record<string, string | undefined> = Object.fromEntries(query);
  history.replaceState(null, "", href(path, { ...next, ...changes }));
  place.value = read();
}
