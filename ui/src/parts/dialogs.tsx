/** Questions before something is done, and short messages after it. */
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { explainError } from "../lib/session";
import { visible } from "../lib/text";

interface Question {
  title: string;
  text: ComponentChildren;
  confirm: string;
  danger: boolean;
  act: () => Promise<string | undefined>;
}

const question = signal<Question | null>(null);
const messages = signal<{ id: number; text: string; bad: boolean }[]>([]);
let nextId = 1;

export function say(text: string, bad = false): void {
  const id = nextId++;
  messages.value = [...messages.value.slice(-3), { id, text, bad }];
  setTimeout(() => {
    messages.value = messages.value.filter((m) => m.id !== id);
  }, bad ? 12_000 : 5000);
}

/** `act` returns what to say when it is done. */
export function confirmThen(
  title: string, text: ComponentChildren, confirm: string, act: () => Promise<string | undefined>, danger = false,
): void {
  question.value = { title, text, confirm, danger, act };
}

/** Does something at once and says what came of it. */
export async function perform(act: () => Promise<string | undefined>): Promise<void> {
  try {
    const done = await act();
    if (done) say(done);
  } catch (error) {
    say(explainError(error), true);
  }
}

/** A dialog of the browser's own: it keeps the focus inside, and Escape closes it. */
export function Modal({ open, onClose, label, children }: {
  open: boolean; onClose: () => void; label: string; children: ComponentChildren;
}) {
  const ref = useRef<HTMLDialogElement>(null);
  // Before the next key: while a dialog is open, keys do not reach the page.
  useLayoutEffect(() => {
    const dialog = ref.current;
    if (open && dialog && !dialog.open) dialog.showModal();
    if (!open && dialog?.open) dialog.close();
  }, [open]);
  return (
    <dialog ref={ref} aria-label={label} onClose={onClose}>
      {open && <div class="inside">{children}</div>}
    </dialog>
  );
}

export function Dialogs() {
  const asked = question.value;
  const close = () => { question.value = null; };
  return (
    <>
      <Modal open={asked !== null} onClose={close} label={asked?.title ?? ""}>
        {asked && (
          <>
            <h2>{visible(asked.title)}</h2>
            <div>{asked.text}</div>
            <div class="bar">
              <button onClick={close}>Cancel</button>
              <button
                class={asked.danger ? "main danger" : "main"}
                autofocus
                onClick={() => { close(); void perform(asked.act); }}
              >
                {asked.confirm}
              </button>
            </div>
          </>
        )}
      </Modal>
      <div class="toasts" role="status" aria-live="polite">
        {messages.value.map((m) => (
          <div key={m.id} class={m.bad ? "toast bad" : "toast"}>{visible(m.text)}</div>
        ))}
      </div>
    </>
  );
}
