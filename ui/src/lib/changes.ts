/** What has changed in an object since somebody applied it with kubectl. */

/** An entry of `metadata.managedFields`. */
export interface Managed {
  manager?: string;
  subresource?: string;
  fieldsV1?: unknown;
}

export interface Change {
  /** `spec.template.spec.containers[main].image` */
  path: string;
  was: string;
  is: string;
  /** Who owns the field now, if that is known. */
  by: string;
}

export const LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration";
const NOT_SET = "(not set)";
const MOST = 200;

type Fields = Record<string, unknown>;

const isMap = (value: unknown): value is Fields => value !== null && typeof value === "object" && !Array.isArray(value);
const inner = (path: string, name: string): string => (path ? `${path}.${name}` : name);

/** Items of lists such as containers are told apart by their names, all others by their places. */
function itemsOf(list: unknown[]): Map<string, unknown> {
  const named = list.every((item) => isMap(item) && typeof item["name"] === "string");
  return new Map(list.map((item, i) => [named ? String((item as Fields)["name"]) : String(i), item]));
}

/** Every leaf below a value, as its path and text. */
function leaves(value: unknown, path: string, found: Map<string, string>): void {
  if (isMap(value) && Object.keys(value).length) {
    for (const [name, part] of Object.entries(value)) leaves(part, inner(path, name), found);
  } else if (Array.isArray(value) && value.length) {
    for (const [name, item] of itemsOf(value)) leaves(item, `${path}[${name}]`, found);
  } else found.set(path, JSON.stringify(value) ?? "");
}

/** Every field that an entry of managedFields names, as paths; `k:{"name":"main"}` is `[main]`. */
function owned(fields: unknown, path: string, add: (path: string) => void): void {
  if (!isMap(fields)) return;
  const parts = Object.entries(fields).filter(([name]) => name !== ".");
  if (parts.length === 0) add(path);
  for (const [name, part] of parts) {
    if (name.startsWith("f:")) owned(part, inner(path, name.slice(2)), add);
    else if (name.startsWith("k:")) {
      const key = JSON.parse(name.slice(2)) as Fields;
      owned(part, `${path}[${String(key["name"] ?? Object.values(key)[0])}]`, add);
    } else add(path);
  }
}

/** `applied` is the text of the annotation. Throws if that is not JSON. */
export function changesSince(applied: string, object: unknown, managed: Managed[]): Change[] {
  const was = new Map<string, string>();
  const is = new Map<string, string>();
  leaves(JSON.parse(applied), "", was);
  leaves(object, "", is);
  const owners = new Map<string, string>();
  let applier = "";
  for (const { manager = "", subresource, fieldsV1 } of managed) {
    if (subresource) continue;
    owned(fieldsV1, "", (path) => {
      owners.set(path, manager);
      if (path === `metadata.annotations.${LAST_APPLIED}`) applier = manager;
    });
  }
  const ownerOf = (path: string): string => {
    const owner = owners.get(path);
    const above = path.replace(/(^|\.)[^.[\]]*$|\[[^\]]*\]$/, "");
    return owner ?? (above && above !== path ? ownerOf(above) : "");
  };
  const found: Change[] = [];
  for (const [path, value] of was) {
    if (is.get(path) !== value && !emptied(value, path, is)) found.push({ path, was: value, is: is.get(path) ?? NOT_SET, by: ownerOf(path) });
  }
  // The server fills in much that nobody has applied; only what another client has set is a change.
  for (const [path, value] of is) {
    const by = was.has(path) || path.startsWith("status") ? "" : ownerOf(path);
    if (by && applier && by !== applier) found.push({ path, was: NOT_SET, is: value, by });
  }
  return found.filter(({ path }) => !path.includes(LAST_APPLIED)).slice(0, MOST);
}

/** `{}` was applied, and something stands there now: that is told by what stands there. */
function emptied(value: string, path: string, is: Map<string, string>): boolean {
  return (value === "{}" || value === "[]") && [...is.keys()].some((key) => key.startsWith(`${path}.`) || key.startsWith(`${path}[`));
}
