/** Progress that the containers of a Job report, with the estimated end. */
import { now } from "../lib/hooks";
import { finished, type Job, type JobSummary, type Reported } from "../lib/objects";
import { clockText, count, shortDuration, visible } from "../lib/text";
import { Foreign } from "./basics";

/** So many Pods are listed, the least advanced ones. */
const LISTED = 8;

export function ReportedProgress({ job, summary }: { job: Job; summary: JobSummary }) {
  const { progress } = summary;
  if (!progress?.total || finished(job)) return null;
  const { done = 0, total, text = "", secondsLeft, pods = [] } = progress;
  const end = Date.parse(summary.now) + (secondsLeft ?? 0) * 1000;
  const left = secondsLeft === undefined || done >= total ? "" : `about ${shortDuration(Math.max(end - now.value, 1000))} left`;
  return (
    <section class="card pad reported" aria-label="Reported progress">
      <Bar label="Progress" reported={progress} />
      <p><b>{count(done)} of {count(total)}</b> ({Math.floor((100 * done) / total)}%){left && <span title={`until ${clockText(end, now.value)}`}>, {left}</span>} <Foreign text={text} /></p>
      {pods.length > 1 && (
        <ul>
          {pods.slice(0, LISTED).map((pod) => (
            <li key={pod.pod}>
              <span class="cut">{pod.index !== undefined ? `${pod.index} · ` : ""}{visible(pod.pod)}</span>
              <Bar label={visible(pod.pod)} reported={pod} /><span class="muted num">{count(pod.done)}/{count(pod.total)}</span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function Bar({ label, reported: { done = 0, total = 1 } }: { label: string; reported: Reported }) {
  const share = Math.min(done / total, 1) * 100;
  return (
    <div class="meter"><div class="track" role="progressbar" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.floor(share)}>
      <i style={{ width: `${share}%` }} />
    </div></div>
  );
}
