/** A chart over time, drawn by uPlot. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { colour, onColours } from "../lib/colours";

export interface Series {
  label: string;
  /** The name of a custom property. */
  color: string;
  values: number[];
}

const tickText = (seconds: number, step: number): string =>
  step >= 86_400
    ? new Date(seconds * 1000).toLocaleDateString(undefined, { day: "2-digit", month: "short" })
    : new Date(seconds * 1000).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });

/** Bars side by side, one group per time, `step` seconds apart. */
export function Bars({ times, step, series, label }: { times: number[]; step: number; series: Series[]; label: string }) {
  const box = useRef<HTMLDivElement>(null);
  const data = [times, ...series.map((s) => s.values)] as uPlot.AlignedData;
  const chart = useRef<uPlot | null>(null);

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const bars = uPlot.paths.bars;
    const make = () => {
      chart.current?.destroy();
      const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
      chart.current = new uPlot(
        {
          width: element.clientWidth, height: 170, legend: { show: false }, cursor: { show: false },
          padding: [8, 8, 0, 0],
          axes: [
            { ...axis, size: 28, space: 60, grid: { show: false }, values: (_, ticks) => ticks.map((t) => tickText(t, step)) },
            { ...axis, size: 36, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000] },
          ],
          scales: { x: { range: (_, min, max) => [min - step / 2, max + step / 2] }, y: { range: (_, __, max) => [0, Math.max(1, max * 1.1)] } },
          series: [
            {},
            ...series.map((s, at) => ({
              label: s.label, fill: colour(s.color), width: 0, points: { show: false },
              paths: (bars as NonNullable<typeof bars>)({ size: [0.38, 14], align: at === 0 ? -1 : 1 }),
            })),
          ],
        },
        data,
        element,
      );
    };
    make();
    const sizes = new ResizeObserver(() => chart.current?.setSize({ width: element.clientWidth, height: 170 }));
    sizes.observe(element);
    const ignore = onColours(make);
    return () => {
      sizes.disconnect();
      ignore();
      chart.current?.destroy();
      chart.current = null;
    };
  }, [step]);
  const text = JSON.stringify(data);
  useEffect(() => { chart.current?.setData(data); }, [text]);
  return <div ref={box} class="chart" role="img" aria-label={label} />;
}

/** Distances of ticks for bytes. */
const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);

export interface Curve {
  label: string;
  /** The name of a custom property. */
  color: string;
  /** In seconds. */
  times: number[];
  values: number[];
}

/** Curves over time that need not have the same times. */
export function Curves({ curves, text, label, binary }: { curves: Curve[]; text: (value: number) => string; label: string; binary?: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const names = curves.map((curve) => `${curve.label} ${curve.color}`).join("\n");
  const data = uPlot.join(curves.map((curve) => [curve.times, curve.values] as uPlot.AlignedData));

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const make = () => {
      chart.current?.destroy();
      const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
      const clock = (seconds: number) => new Date(seconds * 1000).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
      chart.current = new uPlot(
        {
          width: element.clientWidth, height: 170, legend: { show: false }, cursor: { show: false },
          padding: [8, 8, 0, 0],
          axes: [
            { ...axis, size: 28, space: 90, grid: { show: false }, values: (_, ticks) => ticks.map(clock) },
            { ...axis, size: 66, values: (_, ticks) => ticks.map(text), ...(binary ? { incrs: POWERS } : {}) },
          ],
          scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
          series: [{}, ...curves.map((curve) => ({ label: curve.label, stroke: colour(curve.color), width: 1.5, spanGaps: true, points: { show: curve.times.length < 2 } }))],
        },
        data,
        element,
      );
    };
    make();
    const sizes = new ResizeObserver(() => chart.current?.setSize({ width: element.clientWidth, height: 170 }));
    sizes.observe(element);
    const ignore = onColours(make);
    return () => {
      sizes.disconnect();
      ignore();
      chart.current?.destroy();
      chart.current = null;
    };
  }, [names]);
  const newest = data[0]?.[data[0].length - 1];
  useEffect(() => { chart.current?.setData(data); }, [newest, data[0]?.length]);
  return <div ref={box} class="chart" role="img" aria-label={label} />;
}
