/** An editor for YAML: CodeMirror in a shadow root, where it may set its styles without the page
 *  having to allow inline ones. */
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, lintGutter, setDiagnostics } from "@codemirror/lint";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

export interface Mark {
  /** Offsets in the text. */
  from: number;
  to: number;
  message: string;
}

const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--accent)" },
  { tag: [tags.string, tags.content], color: "var(--text)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--ok)" },
  { tag: tags.comment, color: "var(--muted)", fontStyle: "italic" },
  { tag: [tags.punctuation, tags.separator, tags.squareBracket, tags.brace], color: "var(--muted)" },
]);

const NO_MARKS: Mark[] = [];

const look = EditorView.theme({
  "&": { height: "100%", fontSize: "12px", backgroundColor: "var(--surface)", color: "var(--text)" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-content": { fontFamily: "var(--mono)", caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--sunken)", color: "var(--muted)", borderRight: "1px solid var(--line)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--accent) 8%, transparent)" },
  ".cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": { backgroundColor: "color-mix(in srgb, var(--accent) 25%, transparent)" },
  // The marks that CodeMirror brings are images in the style sheet, which our policy forbids.
  ".cm-lint-marker-error": { content: '"\u25cf"', color: "var(--bad)", textAlign: "center", lineHeight: "1em" },
  ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--bad-fill)" },
  ".cm-panels, .cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--text)", borderColor: "var(--line)" },
});

export function Editor({ text, onChange, label, marks = NO_MARKS, readOnly = false, height = "60vh" }: {
  text: string; onChange?: (text: string) => void; label: string; marks?: Mark[]; readOnly?: boolean; height?: string;
}) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const changed = useRef(onChange);
  changed.current = onChange;

  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const root = element.shadowRoot ?? element.attachShadow({ mode: "open" });
    const made = new EditorView({
      parent: root,
      root,
      state: EditorState.create({
        doc: text,
        extensions: [
          lineNumbers(), history(), drawSelection(), highlightActiveLine(), indentOnInput(), yaml(), lintGutter(),
          syntaxHighlighting(colours), highlightSelectionMatches(), look, EditorView.lineWrapping,
          EditorState.readOnly.of(readOnly), EditorState.tabSize.of(2),
          EditorView.contentAttributes.of({ "aria-label": label, "aria-multiline": "true" }),
          // Tab leaves the editor after Escape, as CodeMirror has it, so keys are not trapped.
          keymap.of([...(readOnly ? [] : [indentWithTab]), ...defaultKeymap, ...historyKeymap, ...searchKeymap]),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) changed.current?.(update.state.doc.toString());
          }),
        ],
      }),
    });
    // What can be scrolled can be reached with keys.
    made.scrollDOM.tabIndex = 0;
    view.current = made;
    return () => { made.destroy(); view.current = null; };
  }, [readOnly, label]);

  // Before anything else can be typed: later, the text would be older than what stands there.
  useLayoutEffect(() => {
    const editor = view.current;
    const old = editor?.state.doc.toString();
    if (editor && old !== undefined && old !== text) {
      // Only what differs, so that the place that somebody looks at stays where it is.
      let from = 0;
      while (from < old.length && from < text.length && old[from] === text[from]) from += 1;
      let to = old.length;
      let end = text.length;
      while (to > from && end > from && old[to - 1] === text[end - 1]) { to -= 1; end -= 1; }
      editor.dispatch({ changes: { from, to, insert: text.slice(from, end) } });
    }
  }, [text]);

  useEffect(() => {
    const editor = view.current;
    if (!editor) return;
    const length = editor.state.doc.length;
    const found: Diagnostic[] = marks.map((m) => ({
      from: Math.min(m.from, length), to: Math.min(m.to, length), severity: "error", message: m.message,
    }));
    editor.dispatch(setDiagnostics(editor.state, found));
    const first = found[0];
    if (first) editor.dispatch({ effects: EditorView.scrollIntoView(first.from, { y: "center" }) });
  }, [marks]);

  return <div ref={host} class="editor" style={{ height }} />;
}
