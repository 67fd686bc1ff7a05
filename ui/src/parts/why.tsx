/** Why an object is in its state, in the words of the server. */
import { now } from "../lib/hooks";
import type { Words } from "../lib/objects";
import { clockText, shortDuration, visible } from "../lib/text";
import { Foreign } from "./basics";

const LABELS: Record<string, string> = { backoff: "Next Pod", "index-backoff": "Next try of these indexes", deadline: "Deadline" };

export function Why({ words }: { words: Words }) {
  const parts: [string, string[]][] = [["Why", words.cause], ["Evidence", words.evidence], ["Next", words.next]];
  return (
    <div class="why">
      <p class="lead"><Foreign text={words.state} /></p>
      {words.notes.filter((note) => note.until).map((note) => (
        <Countdown key={note.kind} text={LABELS[note.kind] ?? visible(note.kind)} until={note.until as string} />
      ))}
      <dl>
        {parts.filter(([, texts]) => texts.length).map(([title, texts]) => (
          <>
            <dt>{title}</dt>
            <dd><ul>{texts.map((text, i) => <li key={i}><Foreign text={text} /></li>)}</ul></dd>
          </>
        ))}
      </dl>
    </div>
  );
}

function Countdown({ text, until }: { text: string; until: string }) {
  const left = Date.parse(until) - now.value;
  return (
    <div>
      <span class="countdown" role="timer">
        {text} <b>{left > 0 ? `in ${shortDuration(left)}` : "due now"}</b> <span>at {clockText(until, now.value)}</span>
      </span>
    </div>
  );
}
