/** Layered layout of a graph of tasks, and its critical path. Pure functions. */

export interface GraphTask {
  name: string;
  dependsOn: { task: string; condition: string }[];
  /** Whether it runs after all others, as the tasks of `finally` do. */
  last: boolean;
}

export interface Point { x: number; y: number }

export interface DrawnEdge {
  from: number;
  to: number;
  condition: string;
  /** From one box to the other, through the layers between them. */
  points: Point[];
}

export interface Layout {
  /** Upper left corners of the boxes, by task. */
  boxes: Point[];
  edges: DrawnEdge[];
  /** Tasks of each layer, in drawn order. */
  layers: number[][];
  width: number;
  height: number;
}

export interface Size {
  boxWidth: number;
  boxHeight: number;
  /** Space between layers, and between boxes of a layer. */
  layerGap: number;
  boxGap: number;
  /** Layers from top to bottom; otherwise from left to right. */
  down: boolean;
}

/** Edges through more layers than this in total are drawn straight. */
const MAX_BENDS = 3000;
const SWEEPS = 4;

interface Edge { from: number; to: number; condition: string }

function edgesOf(tasks: GraphTask[]): Edge[] {
  const positions = new Map(tasks.map((task, i) => [task.name, i]));
  return tasks.flatMap((task, to) =>
    task.dependsOn.flatMap(({ task: name, condition }) => {
      const from = positions.get(name);
      return from === undefined || from === to ? [] : [{ from, to, condition }];
    }));
}

/** Tasks with dependencies first; those of a cycle, which the server rejects, are left out. */
function inOrder(size: number, edges: Edge[]): number[] {
  const open = new Array<number>(size).fill(0);
  const next: number[][] = Array.from({ length: size }, () => []);
  for (const { from, to } of edges) {
    open[to] = (open[to] ?? 0) + 1;
    next[from]?.push(to);
  }
  const order = open.flatMap((n, i) => (n === 0 ? [i] : []));
  for (const task of order) {
    for (const to of next[task] ?? []) {
      open[to] = (open[to] ?? 0) - 1;
      if (open[to] === 0) order.push(to);
    }
  }
  return order;
}

/** The layer of each task: one after the last of its dependencies; `last` tasks after all others. */
export function layersOf(tasks: GraphTask[]): number[] {
  const edges = edgesOf(tasks);
  const into: number[][] = tasks.map(() => []);
  for (const { from, to } of edges) into[to]?.push(from);
  const layer = tasks.map(() => 0);
  for (const task of inOrder(tasks.length, edges)) {
    layer[task] = (into[task] ?? []).reduce((deepest, from) => Math.max(deepest, (layer[from] ?? 0) + 1), 0);
  }
  const ordinary = layer.filter((_, i) => !tasks[i]?.last);
  const after = ordinary.reduce((deepest, n) => Math.max(deepest, n + 1), 0);
  return layer.map((n, i) => (tasks[i]?.last ? after : n));
}

export function layOut(tasks: GraphTask[], size: Size): Layout {
  const layerOf = layersOf(tasks);
  const edges = edgesOf(tasks);
  const depth = layerOf.reduce((most, n) => Math.max(most, n + 1), 0);
  // Beyond the tasks, a place for each layer that an edge passes, so that it bends around boxes.
  const rows: number[][] = Array.from({ length: depth }, () => []);
  layerOf.forEach((layer, task) => rows[layer]?.push(task));
  const bends = edges.reduce((sum, { from, to }) => sum + Math.max((layerOf[to] ?? 0) - (layerOf[from] ?? 0) - 1, 0), 0);
  let places = tasks.length;
  const paths = edges.map(({ from, to }) => {
    const path = [from];
    if (bends <= MAX_BENDS) {
      for (let layer = (layerOf[from] ?? 0) + 1; layer < (layerOf[to] ?? 0); layer += 1) {
        rows[layer]?.push(places);
        path.push(places);
        places += 1;
      }
    }
    return [...path, to];
  });
  sortRows(rows, paths, places);

  const along = size.down ? size.boxHeight : size.boxWidth;
  const across = size.down ? size.boxWidth : size.boxHeight;
  const isBox = (place: number) => place < tasks.length;
  const spaceOf = (place: number) => (isBox(place) ? across + size.boxGap : size.boxGap);
  const extents = rows.map((row) => row.reduce((sum, place) => sum + spaceOf(place), 0));
  const widest = extents.reduce((most, n) => Math.max(most, n), 0);
  const middle = new Array<number>(places).fill(0);
  rows.forEach((row, layer) => {
    let at = (widest - (extents[layer] ?? 0)) / 2;
    for (const place of row) {
      middle[place] = at + spaceOf(place) / 2;
      at += spaceOf(place);
    }
  });
  const layerIn = new Array<number>(places).fill(0);
  rows.forEach((row, layer) => row.forEach((place) => { layerIn[place] = layer; }));
  const startOf = (place: number) => (layerIn[place] ?? 0) * (along + size.layerGap);
  const point = (main: number, side: number): Point => (size.down ? { x: side, y: main } : { x: main, y: side });
  const total = Math.max(depth * (along + size.layerGap) - size.layerGap, 0);
  return {
    boxes: tasks.map((_, task) => point(startOf(task), (middle[task] ?? 0) - across / 2)),
    edges: edges.map((edge, i) => ({
      ...edge,
      points: (paths[i] ?? []).flatMap((place) => {
        const [start, side] = [startOf(place), middle[place] ?? 0];
        if (place === edge.from) return [point(start + along, side)];
        return place === edge.to ? [point(start, side)] : [point(start, side), point(start + along, side)];
      }),
    })),
    layers: rows.map((row) => row.filter(isBox)),
    width: size.down ? widest : total,
    height: size.down ? total : widest,
  };
}

/** Sorts each row by the mean place of its neighbours, which untangles most crossings. */
function sortRows(rows: number[][], paths: number[][], places: number): void {
  const before: number[][] = Array.from({ length: places }, () => []);
  const after: number[][] = Array.from({ length: places }, () => []);
  for (const path of paths) {
    path.slice(1).forEach((to, i) => {
      before[to]?.push(path[i] as number);
      after[path[i] as number]?.push(to);
    });
  }
  const rank = new Array<number>(places).fill(0);
  const number = (row: number[]) => row.forEach((place, i) => { rank[place] = row.length > 1 ? i / (row.length - 1) : 0.5; });
  rows.forEach(number);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const neighbours = sweep % 2 ? after : before;
    for (const row of sweep % 2 ? [...rows].reverse() : rows) {
      const mean = new Map(row.map((place) => {
        const near = neighbours[place] ?? [];
        return [place, near.length ? near.reduce((sum, n) => sum + (rank[n] ?? 0), 0) / near.length : (rank[place] ?? 0)];
      }));
      row.sort((a, b) => (mean.get(a) ?? 0) - (mean.get(b) ?? 0) || (rank[a] ?? 0) - (rank[b] ?? 0));
      number(row);
    }
  }
}

/** The chain of dependent tasks that took longest, by the duration of each; among equals the one of most tasks.
 *  Those without a duration, such as skipped ones, are left out. The longest of the `last` tasks follows. */
export function criticalPath(tasks: GraphTask[], durations: (number | null)[]): number[] {
  const edges = edgesOf(tasks);
  const into: number[][] = tasks.map(() => []);
  for (const { from, to } of edges) into[to]?.push(from);
  const best: { duration: number; count: number; from: number }[] = tasks.map(() => ({ duration: 0, count: 0, from: -1 }));
  const isLonger = (a: number, b: number) => {
    const [one, other] = [best[a], best[b]];
    if (!other) return true;
    return one !== undefined && (one.duration > other.duration || (one.duration === other.duration && one.count > other.count));
  };
  let end = -1;
  let last = -1;
  for (const task of inOrder(tasks.length, edges)) {
    const from = (into[task] ?? []).reduce((found, one) => (isLonger(one, found) ? one : found), -1);
    best[task] = {
      duration: (best[from]?.duration ?? 0) + (durations[task] ?? 0), count: (best[from]?.count ?? 0) + (durations[task] === null ? 0 : 1), from,
    };
    if (tasks[task]?.last) {
      if (isLonger(task, last)) last = task;
    } else if (isLonger(task, end)) end = task;
  }
  const path = last >= 0 ? [last] : [];
  for (let task = end; task >= 0; task = best[task]?.from ?? -1) path.unshift(task);
  return path.filter((task) => durations[task] !== null);
}

/** The text of an SVG path through the points of an edge, smooth between layers. */
export function pathText(points: Point[], down: boolean): string {
  const [first, ...rest] = points;
  if (!first) return "";
  let at = first;
  return rest.reduce((text, to) => {
    const half = down ? (at.y + to.y) / 2 : (at.x + to.x) / 2;
    const controls = down ? `${at.x} ${half} ${to.x} ${half}` : `${half} ${at.y} ${half} ${to.y}`;
    at = to;
    return `${text} C ${controls} ${to.x} ${to.y}`;
  }, `M ${first.x} ${first.y}`);
}
