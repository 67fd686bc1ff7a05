/** Paths of the API, and which kinds it serves. */
import { signal } from "@preact/signals";
import { place, setQuery } from "./router";
import { askJson } from "./session";

export interface Kind {
  group: string;
  version: string;
  plural: string;
  kind: string;
  namespaced: boolean;
  verbs: string[];
}

export const JOB: Kind = { group: "batch", version: "v1", plural: "jobs", kind: "Job", namespaced: true, verbs: [] };
export const CRONJOB: Kind = { ...JOB, plural: "cronjobs", kind: "CronJob" };
export const POD: Kind = { ...JOB, group: "", plural: "pods", kind: "Pod" };
export const EVENT: Kind = { ...POD, plural: "events", kind: "Event" };

export function pathOf(kind: Kind, namespace = "", name = "", subresource = ""): string {
  const parts = kind.group ? ["apis", kind.group, kind.version] : ["api", kind.version];
  if (kind.namespaced && namespace) parts.push("namespaces", namespace);
  parts.push(kind.plural);
  if (name) parts.push(name);
  if (subresource) parts.push(subresource);
  return `/${parts.map(encodeURIComponent).join("/")}`;
}

/** The namespace that pages show; "" for all. Kept in the address. */
export const homeNamespace = signal(localStorage.getItem("onejob-namespace") ?? "");

export function namespaceShown(): string {
  const given = place.value.query.get("namespace");
  return given === null ? homeNamespace.value : given === "*" ? "" : given;
}

export function showNamespace(namespace: string): void {
  homeNamespace.value = namespace;
  localStorage.setItem("onejob-namespace", namespace);
  setQuery({ namespace: undefined });
}

interface DiscoveryList {
  items: {
    metadata: { name?: string };
    versions: {
      version: string;
      resources: { resource: string; responseKind: { kind: string }; scope: string; verbs: string[] }[];
    }[];
  }[];
}

/** Everything that is served and can be listed, each kind in its preferred version. */
export async function servedKinds(): Promise<Kind[]> {
  const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
  const [core, groups] = await Promise.all([
    askJson<DiscoveryList>("/api", { accept }),
    askJson<DiscoveryList>("/apis", { accept }),
  ]);
  const kinds: Kind[] = [];
  for (const group of [...core.items, ...groups.items]) {
    const seen = new Set<string>();
    for (const version of group.versions) {
      for (const item of version.resources) {
        if (seen.has(item.resource)) continue;
        seen.add(item.resource);
        kinds.push({
          group: group.metadata.name ?? "",
          version: version.version,
          plural: item.resource,
          kind: item.responseKind.kind,
          namespaced: item.scope === "Namespaced",
          verbs: item.verbs,
        });
      }
    }
  }
  return kinds;
}
