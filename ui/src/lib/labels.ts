/** Label selectors, as the API has them. */

/** At commas, but not at those of `in (a, b)`. */
const PARTS = /,(?![^(]*\))/;
const SET = /^(\S+)\s+(in|notin)\s*\(([^)]*)\)$/;

/** Whether all parts of a selector hold: `a=b`, `a!=b`, `a in (b, c)`, `a notin (b)`, `a`, `!a`. */
export function hasLabels(labels: Record<string, string>, selector: string): boolean {
  return selector.split(PARTS).every((part) => holds(labels, part.trim()));
}

function holds(labels: Record<string, string>, part: string): boolean {
  if (!part) return true;
  const set = SET.exec(part);
  if (set) {
    const [, name = "", operator, values = ""] = set;
    const value = labels[name];
    const found = value !== undefined && values.split(",").some((one) => one.trim() === value);
    return found === (operator === "in");
  }
  const [, name = "", operator, value = ""] = /^([^=!\s]+)\s*(!=|==?)\s*(.*)$/.exec(part) ?? [];
  if (operator) return (labels[name] === value) === (operator !== "!=");
  return part.startsWith("!") ? !Object.hasOwn(labels, part.slice(1).trim()) : Object.hasOwn(labels, part);
}
