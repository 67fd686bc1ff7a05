/** A terminal in a container, by the same session as `kubectl exec -it`. */
import { memo } from "preact/compat";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { pathOf, POD } from "../lib/paths";
import { sessionProtocol } from "../lib/session";
import { keyText, type Line, type Look, PLAIN, runsOf, Screen } from "../lib/terminal";
import { visible } from "../lib/text";
import { Problem } from "./basics";

/** bash if there is one, with the terminal that is understood here. */
const SHELL = "TERM=xterm-256color; export TERM; if command -v bash > /dev/null; then exec bash; else exec sh; fi";
const PROTOCOL = "v5.channel.k8s.io";
const [STDIN, STDOUT, STDERR, STATUS, RESIZE] = [0, 1, 2, 3, 4];
const SHOW_MS = 30;
/** New text is announced to screen readers when it has come to rest. */
const ANNOUNCE_MS = 400;

interface Status { status?: string; message?: string; details?: { causes?: { reason?: string; message?: string }[] } }

/** How a session ended, in words. */
function endText(status: Status): string {
  const code = status.details?.causes?.find((cause) => cause.reason === "ExitCode")?.message;
  if (status.status === "Success") return "The shell has ended.";
  return code !== undefined ? `The shell has ended with exit code ${code}.` : (status.message ?? "The session has ended.");
}

export function Terminal({ namespace, pod, containers }: { namespace: string; pod: string; containers: string[] }) {
  const [container, setContainer] = useState(containers[0] ?? "");
  /** Counts the sessions. */
  const [turn, setTurn] = useState(0);
  const [ended, setEnded] = useState("");
  const [said, setSaid] = useState("");
  const [, setVersion] = useState(0);
  const box = useRef<HTMLDivElement>(null);
  const input = useRef<HTMLTextAreaElement>(null);
  const measure = useRef<HTMLSpanElement>(null);
  const screen = useRef<Screen>(new Screen(80, 24));
  const socket = useRef<WebSocket>();

  const send = (channel: number, text: string) => {
    if (socket.current?.readyState !== WebSocket.OPEN) return;
    const bytes = new TextEncoder().encode(text);
    const message = new Uint8Array(bytes.length + 1);
    message[0] = channel;
    message.set(bytes, 1);
    socket.current.send(message);
  };
  const fit = () => {
    const [area, letter] = [box.current, measure.current];
    if (!area || !letter) return;
    const columns = Math.max(20, Math.floor((area.clientWidth - 20) / (letter.getBoundingClientRect().width / 10)));
    const rows = Math.max(5, Math.floor((area.clientHeight - 12) / 18));
    if (columns !== screen.current.columns || rows !== screen.current.rows) screen.current.resize(columns, rows);
    send(RESIZE as number, JSON.stringify({ Width: columns, Height: rows }));
    setVersion((v) => v + 1);
  };

  useEffect(() => {
    setEnded("");
    screen.current = new Screen(80, 24, (text) => send(STDIN as number, text));
    const query = new URLSearchParams({ container, stdin: "true", stdout: "true", tty: "true" });
    for (const word of ["sh", "-c", SHELL]) query.append("command", word);
    const address = `wss://${location.host}${pathOf(POD, namespace, pod, "exec")}?${query}`;
    const made = new WebSocket(address, [PROTOCOL, sessionProtocol()]);
    socket.current = made;
    made.binaryType = "arraybuffer";
    let timer: number | undefined;
    let announce: number | undefined;
    let news = "";
    const decoder = new TextDecoder();
    made.onopen = () => { fit(); input.current?.focus(); };
    made.onmessage = ({ data }) => {
      const message = new Uint8Array(data as ArrayBuffer);
      const channel = message[0];
      if (channel === STDOUT || channel === STDERR) {
        const text = decoder.decode(message.subarray(1), { stream: true });
        screen.current.write(text);
        news = (news + text).slice(-2000);
        timer ??= window.setTimeout(() => { timer = undefined; setVersion((v) => v + 1); }, SHOW_MS);
        clearTimeout(announce);
        // eslint-disable-next-line no-control-regex
        announce = window.setTimeout(() => { setSaid(news.replace(/\x1b(\[[0-9;?]*[@-~]|\][^\x07]*\x07|.)/g, "").replace(/[\x00-\x09\x0b-\x1f]/g, "")); news = ""; }, ANNOUNCE_MS);
      } else if (channel === STATUS) {
        setEnded(endText(JSON.parse(new TextDecoder().decode(message.subarray(1))) as Status));
      }
    };
    made.onclose = () => setEnded((before) => before || "The session could not be opened, or was cut off. Does the Pod still run, and may you use pods/exec?");
    return () => {
      clearTimeout(timer);
      clearTimeout(announce);
      made.onclose = made.onmessage = null;
      made.close();
    };
  }, [namespace, pod, container, turn]);
  useLayoutEffect(() => {
    const area = box.current;
    if (!area) return;
    const observer = new ResizeObserver(fit);
    observer.observe(area);
    return () => observer.disconnect();
  }, []);
  const { above, lines, row, column, cursorShown } = screen.current;
  useLayoutEffect(() => { if (box.current) box.current.scrollTop = box.current.scrollHeight; });

  const onKeyDown = (event: KeyboardEvent) => {
    // What is typed here is for the program, not for the page.
    event.stopPropagation();
    // The way out for those without a mouse.
    if (event.key === "Tab" && event.shiftKey) return;
    // Copying and pasting are left to the browser.
    if (event.ctrlKey && (event.shiftKey || event.key === "v" || (event.key === "c" && getSelection()?.toString()))) return;
    const text = event.isComposing ? "" : keyText(event, screen.current.applicationKeys);
    if (!text) return;
    event.preventDefault();
    send(STDIN as number, text);
  };
  const onPaste = (event: ClipboardEvent) => {
    event.preventDefault();
    const text = (event.clipboardData?.getData("text/plain") ?? "").replace(/\r?\n/g, "\r");
    send(STDIN as number, screen.current.bracketedPaste ? `\x1b[200~${text}\x1b[201~` : text);
  };
  return (
    <section aria-label="Terminal">
      <div class="filters">
        {containers.length > 1 && (
          <select aria-label="Container" value={container} onChange={(e) => setContainer(e.currentTarget.value)}>
            {containers.map((name) => <option key={name} value={name}>{visible(name)}</option>)}
          </select>
        )}
        <button onClick={() => setTurn((t) => t + 1)}>{ended ? "Start again" : "Restart"}</button>
        <span class="muted">Shift+Tab leaves the terminal.</span>
      </div>
      {ended && <Problem text={ended} />}
      <div ref={box} class="terminal" onClick={() => { if (!getSelection()?.toString()) input.current?.focus(); }}>
        <span ref={measure} class="measure" aria-hidden="true">0000000000</span>
        <textarea ref={input} aria-label={`Terminal in container ${visible(container)}`} autocapitalize="off" autocomplete="off" spellcheck={false}
          style={{ top: `${6 + (above.length + row) * 18}px` }} onKeyDown={onKeyDown} onPaste={onPaste}
          onInput={(e) => { if (!(e as unknown as InputEvent).isComposing && e.currentTarget.value) { send(STDIN as number, e.currentTarget.value); e.currentTarget.value = ""; } }}
          onCompositionEnd={(e) => { send(STDIN as number, e.currentTarget.value); e.currentTarget.value = ""; }} />
        <div aria-hidden="true">
          {above.map((line, i) => <Row key={i} line={line} cursor={-1} />)}
          {lines.map((line, i) => <Row key={`s${i}`} line={line} cursor={cursorShown && !ended && i === row ? column : -1} />)}
        </div>
      </div>
      <p class="hidden-text" role="log" aria-live="polite" aria-label="Output of the terminal">{said}</p>
    </section>
  );
}

/** Drawn again only if the line was replaced, or the cursor moved in it. */
const Row = memo(({ line, cursor }: { line: Line; cursor: number }) => {
  if (cursor < 0) return <div class="row">{runsOf(line).map((run, i) => <Piece key={i} text={run.text} look={run.look} />)}</div>;
  const under = line[cursor] ?? { text: " ", look: PLAIN };
  const before = [...line.slice(0, cursor)];
  while (before.length < cursor) before.push({ text: " ", look: PLAIN });
  return (
    <div class="row">
      {/* A space at the end of the line keeps its place before the cursor. */}
      {runsBefore(before).map((run, i) => <Piece key={i} text={run.text} look={run.look} />)}
      <span class="cursor">{under.text}</span>
      {runsOf(line.slice(cursor + 1)).map((run, i) => <Piece key={`a${i}`} text={run.text} look={run.look} />)}
    </div>
  );
});

/** As `runsOf`, with spaces at the end. */
const runsBefore = (line: Line) => runsOf([...line, { text: "", look: { ...PLAIN } }]);

/** A colour of the palette as a class, or others as themselves. */
function paletteColour(n: number): string {
  if (n >= 0x1000000) return `#${(n - 0x1000000).toString(16).padStart(6, "0")}`;
  if (n >= 232) return `rgb(${Array(3).fill(8 + (n - 232) * 10).join(" ")})`;
  const step = (part: number) => (part ? 55 + part * 40 : 0);
  const cube = n - 16;
  return `rgb(${step(Math.floor(cube / 36))} ${step(Math.floor(cube / 6) % 6)} ${step(cube % 6)})`;
}

const Piece = ({ text, look }: { text: string; look: Look }) => {
  if (look === PLAIN) return <>{text}</>;
  const { fg, bg } = look;
  const words = [look.bold && "bold", look.dim && "dim", look.italic && "italic", look.underline && "underline", look.inverse && "inverse",
    fg >= 0 && fg < 16 && `f${fg}`, bg >= 0 && bg < 16 && `b${bg}`].filter(Boolean).join(" ");
  return (
    <span class={words} style={{ ...(fg >= 16 ? { color: paletteColour(fg) } : {}), ...(bg >= 16 ? { backgroundColor: paletteColour(bg) } : {}) }}>{text}</span>
  );
};
