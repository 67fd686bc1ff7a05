/** The screen of a terminal: what a program writes, with the control sequences of an xterm, becomes lines of cells.
 *  Without any element of a page. */

/** Looks of a cell. Colours: -1 for the default, 0 to 255 of the palette, or 0x1000000 and an RGB value. */
export interface Look {
  fg: number;
  bg: number;
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
  inverse: boolean;
}

export interface Cell {
  text: string;
  look: Look;
}

/** A line, replaced whenever it changes. */
export type Line = readonly Cell[];

/** Adjacent cells of the same looks. */
export interface Run {
  text: string;
  look: Look;
}

export const PLAIN: Look = { fg: -1, bg: -1, bold: false, dim: false, italic: false, underline: false, inverse: false };
const RGB = 0x1000000;
/** Lines that have left the screen at its top. */
const MOST_LINES = 2000;
/** Line drawing, as after `ESC ( 0`: the characters from "`" on. */
const DRAWN = "◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·";

/** Characters that change the direction of the text around them, or cannot be seen. */
const UNSEEN = /[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]/g;

export function runsOf(line: Line): Run[] {
  const runs: Run[] = [];
  for (const { text, look } of line) {
    const last = runs[runs.length - 1];
    if (last && last.look === look) last.text += text;
    else runs.push({ text, look });
  }
  const last = runs[runs.length - 1];
  if (last && last.look === PLAIN) {
    last.text = last.text.trimEnd();
    if (!last.text) runs.pop();
  }
  return runs;
}

export class Screen {
  /** Lines above the screen, the oldest first. */
  readonly above: Line[] = [];
  lines: Line[] = [];
  row = 0;
  column = 0;
  cursorShown = true;
  /** Whether arrow keys are sent as for applications. */
  applicationKeys = false;
  /** Whether what is pasted is bracketed. */
  bracketedPaste = false;
  private look = PLAIN;
  /** The next character begins a new line first. */
  private wraps = false;
  private top = 0;
  private bottom: number;
  private saved = { row: 0, column: 0, look: PLAIN };
  /** The main screen, while another one is shown. */
  private main: Line[] | null = null;
  private drawing = false;
  /** A control sequence that is not complete yet. */
  private rest = "";

  /** `reply` sends an answer to the program. */
  constructor(
    public columns: number,
    public rows: number,
    private readonly reply: (text: string) => void = () => undefined,
  ) {
    this.bottom = rows - 1;
    this.lines = Array.from({ length: rows }, () => []);
  }

  resize(columns: number, rows: number): void {
    // What no longer fits leaves at the top, unless there is room below the cursor.
    while (this.lines.length > rows) {
      if (this.row < this.lines.length - 1) this.lines.pop();
      else {
        this.keepAbove(this.lines.shift() as Line);
        this.row -= 1;
      }
    }
    while (this.lines.length < rows) this.lines.push([]);
    this.lines = this.lines.map((line) => line.slice(0, columns));
    if (this.main) {
      this.main = this.main.slice(0, rows).map((line) => line.slice(0, columns));
      while (this.main.length < rows) this.main.push([]);
    }
    this.columns = columns;
    this.rows = rows;
    this.top = 0;
    this.bottom = rows - 1;
    this.row = Math.min(this.row, rows - 1);
    this.column = Math.min(this.column, columns - 1);
    this.wraps = false;
  }

  write(text: string): void {
    let data = this.rest + text.replace(UNSEEN, "\ufffd");
    this.rest = "";
    while (data) {
      const plain = /^[^\x00-\x1f\x7f\x9b]+/.exec(data)?.[0];
      if (plain) {
        for (const character of plain) this.put(character);
        data = data.slice(plain.length);
        continue;
      }
      const length = this.control(data);
      if (length === 0) {
        // A sequence without an end is no reason to keep all that follows.
        this.rest = data.length < 4096 ? data : "";
        return;
      }
      data = data.slice(length);
    }
  }

  /** Acts on what begins with a control character; returns its length, 0 if more of it must come. */
  private control(data: string): number {
    switch (data[0]) {
      case "\n": case "\v": case "\f": this.feed(); return 1;
      case "\r": this.moveTo(this.row, 0); return 1;
      case "\b": this.moveTo(this.row, this.column - 1); return 1;
      case "\t": this.moveTo(this.row, (Math.floor(this.column / 8) + 1) * 8); return 1;
      case "\x0e": this.drawing = true; return 1;
      case "\x0f": this.drawing = false; return 1;
      case "\x1b": return this.escape(data);
      case "\x9b": return this.sequence(data, 1);
      default: return 1;
    }
  }

  private escape(data: string): number {
    const kind = data[1];
    if (kind === undefined) return 0;
    if (kind === "[") return this.sequence(data, 2);
    if ("]P^_X".includes(kind)) {
      // Titles and the like: up to BEL or ESC \, and ignored.
      const end = /\x07|\x1b\\/.exec(data.slice(2));
      return end ? 2 + end.index + end[0].length : 0;
    }
    if ("()*+#%".includes(kind)) {
      if (data[2] === undefined) return 0;
      if (kind === "(") this.drawing = data[2] === "0";
      return 3;
    }
    switch (kind) {
      case "7": this.save(); break;
      case "8": this.restore(); break;
      case "D": this.feed(); break;
      case "E": this.feed(); this.moveTo(this.row, 0); break;
      case "M": this.back(); break;
      case "c": this.reset(); break;
    }
    return 2;
  }

  private sequence(data: string, start: number): number {
    const found = /^([?>=!]?)([0-9;:]*)([ -/]*)([@-~])/.exec(data.slice(start));
    if (!found) return /^[?>=!]?[0-9;:]*[ -/]*$/.test(data.slice(start)) ? 0 : start;
    const [whole = "", mark = "", digits = "", between = "", last = ""] = found;
    const numbers = digits.split(/[;:]/).map((part) => (part === "" ? -1 : Math.min(Number(part), 100_000)));
    if (!between) this.command(mark, last, numbers);
    return start + whole.length;
  }

  private command(mark: string, last: string, numbers: number[]): void {
    const first = numbers[0] ?? -1;
    const n = Math.max(first, 1);
    if (mark === "?") {
      if (last === "h" || last === "l") for (const mode of numbers) this.setMode(mode, last === "h");
      return;
    }
    if (mark) return;
    switch (last) {
      case "A": this.moveTo(Math.max(this.row - n, this.row >= this.top ? this.top : 0), this.column); break;
      case "B": case "e": this.moveTo(Math.min(this.row + n, this.row <= this.bottom ? this.bottom : this.rows - 1), this.column); break;
      case "C": case "a": this.moveTo(this.row, this.column + n); break;
      case "D": this.moveTo(this.row, this.column - n); break;
      case "E": this.moveTo(this.row + n, 0); break;
      case "F": this.moveTo(this.row - n, 0); break;
      case "G": case "`": this.moveTo(this.row, n - 1); break;
      case "H": case "f": this.moveTo(n - 1, Math.max(numbers[1] ?? 1, 1) - 1); break;
      case "d": this.moveTo(n - 1, this.column); break;
      case "J": this.eraseScreen(Math.max(first, 0)); break;
      case "K": this.eraseLine(Math.max(first, 0)); break;
      case "L": this.insertLines(n); break;
      case "M": this.deleteLines(n); break;
      case "P": this.change(this.row, (line) => { line.splice(this.column, n); }); break;
      case "@": this.change(this.row, (line) => { line.splice(this.column, 0, ...this.blanks(n)); line.length = Math.min(line.length, this.columns); }); break;
      case "X": this.fill(this.row, this.column, this.column + n); break;
      case "S": for (let i = 0; i < Math.min(n, this.rows); i += 1) this.scrollUp(); break;
      case "T": for (let i = 0; i < Math.min(n, this.rows); i += 1) this.scrollDown(); break;
      case "m": this.setLook(numbers); break;
      case "r": this.setRegion(n - 1, ((numbers[1] ?? -1) < 1 ? this.rows : (numbers[1] as number)) - 1); break;
      case "s": this.save(); break;
      case "u": this.restore(); break;
      case "c": this.reply("\x1b[?1;0c"); break;
      case "n":
        if (first === 6) this.reply(`\x1b[${this.row + 1};${this.column + 1}R`);
        if (first === 5) this.reply("\x1b[0n");
        break;
    }
  }

  private setMode(mode: number, on: boolean): void {
    if (mode === 1) this.applicationKeys = on;
    else if (mode === 25) this.cursorShown = on;
    else if (mode === 2004) this.bracketedPaste = on;
    else if (mode === 1049 || mode === 1047 || mode === 47) {
      if (on && !this.main) {
        this.save();
        this.main = this.lines;
        this.lines = Array.from({ length: this.rows }, () => []);
      } else if (!on && this.main) {
        this.lines = this.main;
        this.main = null;
        this.restore();
      }
      this.top = 0;
      this.bottom = this.rows - 1;
    }
  }

  private setLook(numbers: number[]): void {
    let look = { ...this.look };
    for (let i = 0; i < numbers.length; i += 1) {
      const n = Math.max(numbers[i] ?? 0, 0);
      if (n === 0) look = { ...PLAIN };
      else if (n === 1) look.bold = true;
      else if (n === 2) look.dim = true;
      else if (n === 3) look.italic = true;
      else if (n === 4) look.underline = true;
      else if (n === 7) look.inverse = true;
      else if (n === 22) look.bold = look.dim = false;
      else if (n === 23) look.italic = false;
      else if (n === 24) look.underline = false;
      else if (n === 27) look.inverse = false;
      else if (n >= 30 && n <= 37) look.fg = n - 30;
      else if (n >= 40 && n <= 47) look.bg = n - 40;
      else if (n >= 90 && n <= 97) look.fg = n - 82;
      else if (n >= 100 && n <= 107) look.bg = n - 92;
      else if (n === 39) look.fg = -1;
      else if (n === 49) look.bg = -1;
      else if (n === 38 || n === 48) {
        const [kind, a = 0, b = 0, c = 0] = numbers.slice(i + 1).map((one) => Math.min(Math.max(one, 0), 255));
        const found = kind === 5 ? a : RGB + a * 65536 + b * 256 + c;
        if (n === 38) look.fg = found;
        else look.bg = found;
        i += kind === 5 ? 2 : 4;
      }
    }
    const plain = (Object.keys(PLAIN) as (keyof Look)[]).every((key) => look[key] === PLAIN[key]);
    this.look = plain ? PLAIN : look;
  }

  private put(character: string): void {
    if (this.wraps) {
      this.feed();
      this.column = 0;
      this.wraps = false;
    }
    const code = character.charCodeAt(0) - 0x60;
    const text = this.drawing && code >= 0 && code < DRAWN.length ? DRAWN.charAt(code) : character;
    this.change(this.row, (line) => { line[this.column] = { text, look: this.look }; });
    if (this.column + 1 < this.columns) this.column += 1;
    else this.wraps = true;
  }

  private feed(): void {
    this.wraps = false;
    if (this.row === this.bottom) this.scrollUp();
    else this.row = Math.min(this.row + 1, this.rows - 1);
  }

  private back(): void {
    this.wraps = false;
    if (this.row === this.top) this.scrollDown();
    else this.row = Math.max(this.row - 1, 0);
  }

  private scrollUp(): void {
    const [gone] = this.lines.splice(this.top, 1);
    if (this.top === 0 && !this.main) this.keepAbove(gone as Line);
    this.lines.splice(this.bottom, 0, []);
  }

  private scrollDown(): void {
    this.lines.splice(this.bottom, 1);
    this.lines.splice(this.top, 0, []);
  }

  private keepAbove(line: Line): void {
    this.above.push(line);
    if (this.above.length > MOST_LINES) this.above.shift();
  }

  private insertLines(n: number): void {
    if (this.row < this.top || this.row > this.bottom) return;
    for (let i = 0; i < Math.min(n, this.rows); i += 1) {
      this.lines.splice(this.bottom, 1);
      this.lines.splice(this.row, 0, []);
    }
  }

  private deleteLines(n: number): void {
    if (this.row < this.top || this.row > this.bottom) return;
    for (let i = 0; i < Math.min(n, this.rows); i += 1) {
      this.lines.splice(this.row, 1);
      this.lines.splice(this.bottom, 0, []);
    }
  }

  private setRegion(top: number, bottom: number): void {
    if (top < 0 || bottom >= this.rows || top >= bottom) return;
    this.top = top;
    this.bottom = bottom;
    this.moveTo(0, 0);
  }

  private eraseLine(kind: number): void {
    if (kind === 0) this.fill(this.row, this.column, this.columns);
    else if (kind === 1) this.fill(this.row, 0, this.column + 1);
    else this.fill(this.row, 0, this.columns);
  }

  private eraseScreen(kind: number): void {
    if (kind === 3) {
      this.above.length = 0;
      return;
    }
    if (kind !== 2) this.eraseLine(kind);
    const [first, last] = kind === 0 ? [this.row + 1, this.rows] : kind === 1 ? [0, this.row] : [0, this.rows];
    for (let row = first; row < last; row += 1) this.fill(row, 0, this.columns);
  }

  private fill(row: number, first: number, last: number): void {
    if (this.look.bg === -1 && last >= this.columns) this.change(row, (line) => { line.length = Math.min(line.length, first); });
    else this.change(row, (line) => { for (let i = first; i < Math.min(last, this.columns); i += 1) line[i] = this.blank(); });
  }

  /** Erased cells keep the colour behind them. */
  private blank(): Cell {
    return { text: " ", look: this.look.bg === -1 ? PLAIN : { ...PLAIN, bg: this.look.bg } };
  }

  private blanks(n: number): Cell[] {
    return Array.from({ length: Math.min(n, this.columns) }, () => this.blank());
  }

  private change(row: number, act: (line: Cell[]) => void): void {
    const line = [...(this.lines[row] ?? [])];
    act(line);
    for (let i = 0; i < line.length; i += 1) line[i] ??= { text: " ", look: PLAIN };
    this.lines[row] = line;
  }

  private moveTo(row: number, column: number): void {
    this.wraps = false;
    this.row = Math.min(Math.max(row, 0), this.rows - 1);
    this.column = Math.min(Math.max(column, 0), this.columns - 1);
  }

  private save(): void {
    this.saved = { row: this.row, column: this.column, look: this.look };
  }

  private restore(): void {
    this.moveTo(this.saved.row, this.saved.column);
    this.look = this.saved.look;
  }

  private reset(): void {
    this.look = PLAIN;
    this.main = null;
    this.drawing = this.applicationKeys = this.bracketedPaste = false;
    this.cursorShown = true;
    this.top = 0;
    this.bottom = this.rows - 1;
    this.lines = Array.from({ length: this.rows }, () => []);
    this.moveTo(0, 0);
  }
}

const FINALS: Record<string, string> = { ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D", Home: "H", End: "F" };
const TILDES: Record<string, number> = { Insert: 2, Delete: 3, PageUp: 5, PageDown: 6, F5: 15, F6: 17, F7: 18, F8: 19, F9: 20, F10: 21, F11: 23, F12: 24 };
const PLAIN_KEYS: Record<string, string> = { Enter: "\r", Backspace: "\x7f", Tab: "\t", Escape: "\x1b", F1: "\x1bOP", F2: "\x1bOQ", F3: "\x1bOR", F4: "\x1bOS" };

/** What a terminal sends for a key; "" for keys that are not for it. */
export function keyText(
  event: { key: string; ctrlKey: boolean; altKey: boolean; metaKey: boolean; shiftKey: boolean }, applicationKeys: boolean,
): string {
  const { key, ctrlKey, altKey, metaKey, shiftKey } = event;
  if (metaKey) return "";
  const modifier = 1 + (shiftKey ? 1 : 0) + (altKey ? 2 : 0) + (ctrlKey ? 4 : 0);
  const final = FINALS[key];
  if (final) return modifier > 1 ? `\x1b[1;${modifier}${final}` : `\x1b${applicationKeys ? "O" : "["}${final}`;
  const tilde = TILDES[key];
  if (tilde) return modifier > 1 ? `\x1b[${tilde};${modifier}~` : `\x1b[${tilde}~`;
  const plain = PLAIN_KEYS[key];
  if (plain) return altKey ? `\x1b${plain}` : plain;
  if (key.length !== 1) return "";
  if (ctrlKey) {
    const code = key.toUpperCase().charCodeAt(0);
    if (code >= 0x40 && code <= 0x5f) return String.fromCharCode(code - 0x40);
    return key === " " ? "\0" : "";
  }
  return altKey ? `\x1b${key}` : key;
}
