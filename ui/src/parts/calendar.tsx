/** Past and next fires of a schedule, day by day, in its own zone or in that of whoever looks. */
import { useState } from "preact/hooks";
import { now } from "../lib/hooks";
import type { CronJobSummary, Fire } from "../lib/objects";
import { several, visible } from "../lib/text";

const DAY = 86_400_000;
const WEEKS = 5;
const WEEKS_BEFORE = 2;
/** So many fires of a day are dots; more are a number. */
const DOTS = 4;

interface Day {
  date: string;
  past: Fire[];
  coming: number;
  /** Whether there may be further times on that day, which are not known here. */
  more: boolean;
}

/** `2030-01-31`, in a zone; "" is that of the browser. */
function dateIn(zone: string): (time: string | number) => string {
  const form = new Intl.DateTimeFormat("en-CA", { year: "numeric", month: "2-digit", day: "2-digit", ...(zone ? { timeZone: zone } : {}) });
  return (time) => form.format(new Date(time));
}

function weeksOf({ past, coming, morePast, moreComing }: CronJobSummary, zone: string, at: number): Day[][] {
  const dateOf = dateIn(zone);
  const today = Date.parse(`${dateOf(at)}T00:00:00Z`);
  const monday = today - ((new Date(today).getUTCDay() + 6) % 7) * DAY - WEEKS_BEFORE * 7 * DAY;
  const days = new Map<string, Day>();
  for (let i = 0; i < WEEKS * 7; i += 1) {
    const date = new Date(monday + i * DAY).toISOString().slice(0, 10);
    days.set(date, { date, past: [], coming: 0, more: false });
  }
  for (const fire of past) days.get(dateOf(fire.at))?.past.push(fire);
  for (const time of coming) {
    const day = days.get(dateOf(time));
    if (day) day.coming += 1;
  }
  const first = morePast && past.length ? dateOf((past[past.length - 1] as Fire).at) : "";
  const last = moreComing ? dateOf(coming[coming.length - 1] as string) : "9999";
  for (const day of days.values()) day.more = day.date <= first || day.date >= last;
  const all = [...days.values()];
  return Array.from({ length: WEEKS }, (_, week) => all.slice(week * 7, week * 7 + 7));
}

export function FireCalendar({ times }: { times: CronJobSummary }) {
  const { zone } = times;
  const [mine, setMine] = useState(!zone);
  const minute = Math.floor(now.value / 60_000) * 60_000;
  const shown = mine ? "" : zone;
  const weeks = weeksOf(times, shown, minute);
  const today = dateIn(shown)(minute);
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return (
    <div class="card pad">
      <div class="bar" style={{ justifyContent: "space-between", marginBottom: "6px" }}>
        <div class="legend">
          <span><i class="dot Complete" />Complete</span><span><i class="dot Failed" />Failed</span><span><i class="dot Running" />Running</span>
          <span><i class="dot Missed" />Missed or skipped</span><span><i class="dot next" />Next</span>
          {weeks.some((week) => week.some((day) => day.more)) && <span>… and further times</span>}
        </div>
        <select aria-label="Time zone of the calendar" value={mine ? "mine" : "its"} onChange={(e) => setMine(e.currentTarget.value === "mine")}>
          {zone && <option value="its">Its zone: {visible(zone)}</option>}
          <option value="mine">Mine: {visible(own)}</option>
        </select>
      </div>
      <table class="calendar" aria-label="Calendar of fires">
        <thead><tr>{["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"].map((name) => <th key={name} scope="col">{name}</th>)}</tr></thead>
        <tbody>
          {weeks.map((week) => (
            <tr key={week[0]?.date}>
              {week.map((day) => <DayCell key={day.date} day={day} today={day.date === today} />)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function DayCell({ day, today }: { day: Day; today: boolean }) {
  const date = new Date(`${day.date}T00:00:00Z`);
  const number = date.getUTCDate();
  const month = number === 1 ? `${date.toLocaleDateString(undefined, { month: "short", timeZone: "UTC" })} ` : "";
  const states = new Map<string, number>();
  for (const fire of day.past) states.set(fire.state, (states.get(fire.state) ?? 0) + 1);
  const words = [...[...states].map(([state, n]) => `${n} ${state}`), ...(day.coming ? [`${day.coming} to come`] : []), ...(day.more ? ["further times"] : [])].join(", ");
  return (
    <td class={today ? "today" : ""} aria-current={today ? "date" : undefined} title={`${day.date}: ${words || "nothing"}`}>
      <span class="day">{month}{number}</span>
      {words && <span class="hidden-text">{words}</span>}
      <span class="dots" aria-hidden="true">
        {day.past.length + day.coming <= DOTS
          ? [...day.past.map((fire, i) => <i key={i} class={`dot ${fire.state}`} />), ...Array.from({ length: day.coming }, (_, i) => <i key={`n${i}`} class="dot next" />)]
          : <>{[...states].map(([state, n]) => <span key={state} class="nowrap"><i class={`dot ${state}`} />{n}</span>)}{day.coming > 0 && <span class="nowrap"><i class="dot next" />{day.coming}</span>}</>}
        {day.more && "…"}
      </span>
    </td>
  );
}

export const missedText = (past: Fire[]): string => {
  const missed = past.filter((fire) => fire.state === "Missed" || fire.state === "Skipped").length;
  return missed ? `${several(missed, "time")} missed or skipped` : "";
};
