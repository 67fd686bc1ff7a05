/** Documents as YAML, and where in the text a field of an error stands. */
import { isMap, isNode, isSeq, type Document, parseAllDocuments, stringify } from "yaml";
import type { KubeObject } from "./objects";
import { ApiFailure, explainError } from "./session";
import type { Mark } from "../parts/editor";

export const toYaml = (value: unknown): string => stringify(value, { lineWidth: 0, aliasDuplicateObjects: false });

/** What people do not edit. */
export function withoutNoise<T extends KubeObject>(object: T): T {
  const { managedFields: _, ...metadata } = object.metadata;
  return { ...object, metadata } as T;
}

export interface Parsed {
  documents: KubeObject[];
  parts: Document.Parsed[];
  marks: Mark[];
}

export function parseYaml(text: string): Parsed {
  const parts = parseAllDocuments(text) as Document.Parsed[];
  const marks: Mark[] = [];
  const documents: KubeObject[] = [];
  for (const part of parts) {
    for (const error of part.errors) {
      marks.push({ from: error.pos[0], to: Math.max(error.pos[1], error.pos[0] + 1), message: error.message.split("\n")[0] ?? "" });
    }
    if (part.errors.length === 0 && part.contents !== null) documents.push(part.toJS({ maxAliasCount: 100 }) as KubeObject);
  }
  return { documents, parts: parts.filter((part) => part.contents !== null), marks };
}

/** `spec.template.spec.containers[0].image` as the steps to it. */
export function fieldSteps(field: string): (string | number)[] {
  const steps: (string | number)[] = [];
  for (const found of field.matchAll(/\[([^\]]*)\]|([^.[\]]+)/g)) {
    if (found[2] !== undefined) steps.push(found[2]);
    else steps.push(/^\d+$/.test(found[1] ?? "") ? Number(found[1]) : (found[1] ?? ""));
  }
  return steps;
}

function rangeOf(part: Document.Parsed, field: string): [number, number] | null {
  let node: unknown = part.contents;
  let range: [number, number] | null = null;
  for (const step of fieldSteps(field)) {
    if (isMap(node)) {
      const pair = node.items.find((item) => String(isNode(item.key) ? item.key.toJSON() : item.key) === String(step));
      if (!pair) break;
      const key = isNode(pair.key) ? pair.key.range : null;
      if (key) range = [key[0], key[1]];
      node = pair.value;
    } else if (isSeq(node) && typeof step === "number") {
      node = node.items[step];
      const at = isNode(node) ? node.range : null;
      if (at) range = [at[0], at[1]];
    } else break;
  }
  return range;
}

/** The server's complaints at the lines that they are about. */
export function marksOf(error: unknown, part: Document.Parsed | undefined): Mark[] {
  if (!(error instanceof ApiFailure) || !part) return [];
  const marks: Mark[] = [];
  for (const cause of error.causes) {
    const range = cause.field ? rangeOf(part, cause.field) : null;
    if (range) marks.push({ from: range[0], to: range[1], message: `${cause.field}: ${cause.message ?? ""}` });
  }
  // Unknown fields are named in the text only.
  for (const found of error.message.matchAll(/unknown field "([^"]+)"/g)) {
    const range = rangeOf(part, found[1] ?? "");
    if (range) marks.push({ from: range[0], to: range[1], message: `unknown field ${found[1]}` });
  }
  return marks;
}

export { explainError };
