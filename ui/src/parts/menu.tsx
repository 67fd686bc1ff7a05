/** A button that opens a list of actions. */
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";

export interface Action {
  title: string;
  act: () => void;
  danger?: boolean;
}

/** A popover of the browser's own: it is above everything, and Escape or a click elsewhere closes it. */
export function Menu({ label, actions, children, small }: { label: string; actions: Action[]; children: ComponentChildren; small?: boolean }) {
  const id = useId();
  const button = useRef<HTMLButtonElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const [open, setOpen] = useState(false);

  const items = () => [...(list.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
  const focus = (at: number) => { const all = items(); all[(at + all.length) % all.length]?.focus(); };
  const hide = () => { list.current?.hidePopover(); button.current?.focus(); };
  useLayoutEffect(() => {
    const menu = list.current;
    const area = button.current?.getBoundingClientRect();
    if (!open || !menu || !area) return;
    const below = area.bottom + menu.offsetHeight + 8 < innerHeight;
    menu.style.top = `${below ? area.bottom + 4 : Math.max(4, area.top - menu.offsetHeight - 4)}px`;
    menu.style.left = `${Math.max(4, Math.min(area.right, innerWidth - 4) - menu.offsetWidth)}px`;
    focus(0);
  }, [open]);
  const onKeyDown = (event: KeyboardEvent) => {
    const at = items().indexOf(document.activeElement as HTMLElement);
    // Keys of an open menu are not for the page.
    event.stopPropagation();
    if (event.key === "ArrowDown") focus(at + 1);
    else if (event.key === "ArrowUp") focus(at - 1);
    else if (event.key === "Home") focus(0);
    else if (event.key === "End") focus(-1);
    else if (event.key === "Escape" || event.key === "Tab") hide();
    else return;
    event.preventDefault();
  };
  return (
    <>
      <button ref={button} class={small ? "small" : ""} aria-label={label} aria-haspopup="menu" aria-expanded={open} aria-controls={open ? id : undefined}
        popoverTarget={id} onClick={(e) => e.stopPropagation()}>{children}</button>
      <div ref={list} id={id} class="menu" role="menu" aria-label={label} popover="auto" onKeyDown={onKeyDown}
        onToggle={(e) => setOpen((e as ToggleEvent).newState === "open")}>
        {open && actions.map(({ title, act, danger }) => (
          <button key={title} role="menuitem" tabIndex={-1} class={danger ? "plain danger" : "plain"}
            onClick={(e) => { e.stopPropagation(); hide(); act(); }}>{title}</button>
        ))}
      </div>
    </>
  );
}
