/** A table that draws only the rows in view, with keys to move, select and act. */
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { isForOthers } from "../lib/keys";

const ROW = 34;
/** Below this all rows are drawn, which is simpler for whoever reads with other means. */
const DRAW_ALL = 120;

export interface Column<T> {
  name: string;
  /** The name of the column is for screen readers only. */
  unnamed?: boolean;
  cell: (row: T) => ComponentChildren;
  /** Left out on narrow screens. */
  wide?: boolean;
  num?: boolean;
  /** Stays at the right edge when the table is scrolled sideways. */
  held?: boolean;
  width?: string;
  sort?: (a: T, b: T) => number;
}

export interface Props<T> {
  label: string;
  columns: Column<T>[];
  rows: T[];
  keyOf: (row: T) => string;
  open?: (row: T) => void;
  /** Keys that act on the chosen row. */
  keys?: Record<string, (row: T) => void>;
  empty: ComponentChildren;
  /** Scrolled with the page, in columns of fixed widths, instead of in a box of its own. */
  page?: boolean;
  /** Rows that can be selected: those that are, by key, and what each is called. */
  selection?: { keys: ReadonlySet<string>; set: (keys: ReadonlySet<string>) => void; nameOf: (row: T) => string };
  /** Told of the rows in view when they change. */
  onShown?: (rows: T[]) => void;
}

const classOf = <T,>(c: Column<T>): string =>
  [c.wide && "wide-only", c.num && "num", c.held && "held"].filter(Boolean).join(" ");

export function Table<T>({ label, columns, rows, keyOf, open, keys, empty, page, selection, onShown }: Props<T>) {
  const box = useRef<HTMLDivElement>(null);
  const [picked, setPickedState] = useState("");
  // Keys may come faster than the table is drawn.
  const latest = useRef("");
  const setPicked = (key: string) => { latest.current = key; setPickedState(key); };
  const [view, setView] = useState({ top: 0, height: 800 });
  const [sorting, setSorting] = useState<{ column: string; down: boolean } | null>(null);
  const column = columns.find((c) => c.name === sorting?.column);
  const shown = column?.sort
    ? [...rows].sort((a, b) => (sorting?.down ? -1 : 1) * (column.sort as (a: T, b: T) => number)(a, b))
    : rows;
  const all = shown.length <= DRAW_ALL;
  const first = all ? 0 : Math.max(0, Math.floor(view.top / ROW) - 10);
  const last = all ? shown.length : Math.min(shown.length, first + Math.ceil(view.height / ROW) + 20);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    // Of a box that is higher than the window, as on narrow screens, only a part is in view.
    const measure = () => setView({
      top: element.scrollTop + Math.max(0, -element.getBoundingClientRect().top),
      height: Math.min(element.clientHeight, innerHeight),
    });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    observer.observe(document.documentElement);
    // Scrolling of the box does not bubble, but is captured here.
    document.addEventListener("scroll", measure, { passive: true, capture: true });
    return () => { observer.disconnect(); document.removeEventListener("scroll", measure, { capture: true }); };
  }, [rows.length === 0]);

  const inView = shown.slice(first, last);
  const shownKeys = onShown ? inView.map(keyOf).join(" ") : "";
  useEffect(() => {
    // Not for rows that are only passed while scrolling.
    const timer = setTimeout(() => onShown?.(inView), 150);
    return () => clearTimeout(timer);
  }, [shownKeys]);

  const pick = (index: number) => {
    const row = shown[Math.min(Math.max(index, 0), shown.length - 1)];
    if (row === undefined || !box.current) return;
    setPicked(keyOf(row));
    const top = index * ROW;
    if (page) {
      const at = box.current.getBoundingClientRect().top + top;
      if (at < 3 * ROW) scrollBy(0, at - 3 * ROW);
      else if (at > innerHeight - 3 * ROW) scrollBy(0, at - innerHeight + 3 * ROW);
      return;
    }
    if (top < box.current.scrollTop + ROW) box.current.scrollTop = Math.max(0, top - ROW);
    else if (top > box.current.scrollTop + box.current.clientHeight - 2 * ROW) {
      box.current.scrollTop = top - box.current.clientHeight + 2 * ROW;
    }
  };

  const toggle = (row: T) => {
    if (!selection) return;
    const next = new Set(selection.keys);
    if (!next.delete(keyOf(row))) next.add(keyOf(row));
    selection.set(next);
  };
  const selected = selection ? shown.reduce((sum, row) => sum + (selection.keys.has(keyOf(row)) ? 1 : 0), 0) : 0;
  const span = columns.length + (selection ? 1 : 0);

  useLayoutEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (isForOthers(event)) return;
      const element = event.target as HTMLElement;
      const at = shown.findIndex((row) => keyOf(row) === latest.current);
      if (event.key === "ArrowDown" || event.key === "j") pick(at + 1);
      else if (event.key === "ArrowUp" || event.key === "k") pick(at < 0 ? 0 : at - 1);
      else if (at >= 0 && event.key === " " && selection && !/^(A|BUTTON|INPUT)$/.test(element.tagName)) toggle(shown[at] as T);
      else if (at >= 0 && event.key === "Enter" && open && !/^(A|BUTTON)$/.test(element.tagName)) open(shown[at] as T);
      else if (at >= 0 && keys?.[event.key]) (keys[event.key] as (row: T) => void)(shown[at] as T);
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  });

  if (rows.length === 0) return <div class="card">{empty}</div>;
  return (
    <div class={page ? "table-box page" : "table-box tall"} ref={box} {...(page ? {} : { tabIndex: 0, role: "region", "aria-label": `${label}: table` })}>
      <table aria-label={label} aria-rowcount={shown.length + 1}>
        <thead>
          <tr>
            {selection && (
              <th scope="col" class="tick">
                <input type="checkbox" aria-label={`Select all ${shown.length}`} checked={selected > 0 && selected === shown.length}
                  ref={(input) => { if (input) input.indeterminate = selected > 0 && selected < shown.length; }}
                  onChange={(e) => selection.set(new Set(e.currentTarget.checked ? shown.map(keyOf) : []))} />
              </th>
            )}
            {columns.map((c) => (
              <th key={c.name} scope="col" class={classOf(c)}
                style={c.width ? { width: c.width } : {}}
                aria-sort={sorting?.column === c.name ? (sorting.down ? "descending" : "ascending") : undefined}>
                {c.sort ? (
                  <button onClick={() => setSorting((s) => (s?.column === c.name ? { column: c.name, down: !s.down } : { column: c.name, down: false }))}>
                    {c.name}{sorting?.column === c.name ? (sorting.down ? " ↓" : " ↑") : ""}
                  </button>
                ) : !c.unnamed ? c.name : <span class="hidden-text">{c.name}</span>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <tr class="gap" aria-hidden="true"><td colSpan={span} style={{ height: `${first * ROW}px` }} /></tr>}
          {inView.map((row, at) => {
            const key = keyOf(row);
            return (
              <tr key={key} class={key === picked ? "picked" : ""} aria-rowindex={first + at + 2}
                aria-selected={key === picked ? true : undefined} onClick={() => setPicked(key)}>
                {selection && (
                  <td class="tick">
                    <input type="checkbox" aria-label={`Select ${selection.nameOf(row)}`} checked={selection.keys.has(key)} onChange={() => toggle(row)} />
                  </td>
                )}
                {columns.map((c) => (
                  <td key={c.name} class={classOf(c)}>{c.cell(row)}</td>
                ))}
              </tr>
            );
          })}
          {last < shown.length && (
            <tr class="gap" aria-hidden="true"><td colSpan={span} style={{ height: `${(shown.length - last) * ROW}px` }} /></tr>
          )}
        </tbody>
      </table>
    </div>
  );
}
