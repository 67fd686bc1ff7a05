/** Texts for people: durations, amounts, and texts of others made harmless to look at. */

export function shortDuration(ms: number): string {
  const seconds = Math.max(ms, 0) / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)}s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole}s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes}m${String(whole % 60).padStart(2, "0")}s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours}h${String(minutes % 60).padStart(2, "0")}m`;
  return `${Math.floor(hours / 24)}d${hours % 24}h`;
}

/** Of times in whole seconds. */
export const wholeDuration = (ms: number): string => (ms < 1000 ? "under 1s" : shortDuration(ms).replace(".0s", "s"));

export function age(time: string | undefined | null, now: number): string {
  if (!time) return "";
  const seconds = Math.max(0, (now - Date.parse(time)) / 1000);
  if (seconds < 120) return `${Math.floor(seconds)}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}

const clockForm = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false,
});
const dayForm = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false,
});

/** The time of day if that says enough, else with the date. */
export function clockText(time: string | number, now: number): string {
  const moment = new Date(time);
  return Math.abs(now - moment.getTime()) < 12 * 3_600_000 ? clockForm.format(moment) : dayForm.format(moment);
}

/** The time of day with milliseconds, in the zone of whoever looks, as everywhere else. */
export const millisText = (time: string): string => {
  const moment = new Date(time);
  return Number.isNaN(moment.getTime()) ? "" : `${clockForm.format(moment)}.${String(moment.getMilliseconds()).padStart(3, "0")}`;
};

export const fullTime = (time: string | number): string => dayForm.format(new Date(time));

export function inZone(time: string, zone: string): string {
  try {
    return new Intl.DateTimeFormat(undefined, {
      weekday: "short", day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", hour12: false,
      ...(zone ? { timeZone: zone } : {}),
    }).format(new Date(time));
  } catch {
    return time;
  }
}

export const count = (n: number): string => n.toLocaleString("en-US").replaceAll(",", "\u2009");

/** `1 Pod`, `2 Pods` */
export const several = (n: number, noun: string): string => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

/** Reads a quantity such as `250m`, `1Gi` or `12345n`. */
export function quantity(text: string | undefined): number {
  const match = /^([0-9.]+(?:e[0-9]+)?)([a-zA-Z]*)$/.exec(text ?? "");
  if (!match) return 0;
  const factor: Record<string, number> = {
    n: 1e-9, u: 1e-6, m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12,
    Ki: 1024, Mi: 1024 ** 2, Gi: 1024 ** 3, Ti: 1024 ** 4,
  };
  return Number(match[1]) * (factor[match[2] ?? ""] ?? 0);
}

export function bytesText(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return `${bytes >= 100 || unit === 0 ? Math.round(bytes) : bytes.toFixed(1)} ${units[unit]}`;
}

/** CPU time; "" if it was not measured. */
export const cpuText = (milliseconds: number | null): string =>
  (milliseconds === null ? "" : milliseconds < 1000 ? `${Math.round(milliseconds)}ms` : shortDuration(milliseconds));

/** A duration with fractions of a second; "" if there is none. */
export const secondsText = (seconds: number | null): string =>
  (seconds === null ? "" : seconds < 0.001 ? "<1ms" : seconds < 1 ? `${seconds.toFixed(3)}s` : seconds < 10 ? `${seconds.toFixed(2)}s` : shortDuration(seconds * 1000));

/** Has the browser save something as a file. */
export function saveAs(name: string, content: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// Control characters except tab; and characters that change the direction of the text around them
// or cannot be seen at all.
// eslint-disable-next-line no-control-regex
const HIDDEN = /[\u0000-\u0008\u000a-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]/g;

/** What others wrote, with everything visible that would act on its surroundings instead. */
export function visible(text: string): string {
  return text.replace(HIDDEN, (found) => {
    const code = found.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    if (code === 0x7f) return "\u2421";
    return `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
  });
}

/** Indexes in a Job's status: `0,2-4` */
export function parseIndexes(text: string | undefined): [number, number][] {
  if (!text) return [];
  return text.split(",").map((part) => {
    const [first, last] = part.split("-").map(Number);
    return [first ?? 0, last ?? first ?? 0];
  });
}
