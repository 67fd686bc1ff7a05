/** Signing in, and requests in the name of whoever is signed in. */
import { signal } from "@preact/signals";
import { place } from "./router";

const KEY = "onejob-session";
/** Who was signed in last; kept when they sign out. */
const USER = "onejob-user";
const HEADER = "X-Onejob-Session";

export interface Who {
  user: string;
  groups: string[];
  version: string;
  localZone: string;
  /** Whether nothing can be changed, as in kept runs. */
  readOnly?: boolean;
}

/** undefined: not asked yet; null: nobody is signed in. */
export const who = signal<Who | null | undefined>(undefined);
/** Whether nothing can be changed, as in kept runs. */
export const isReadOnly = (): boolean => who.value?.readOnly === true;
/** Why nobody is signed in, if the server said so. */
export const signedOutBecause = signal("");

export interface Cause {
  field?: string;
  message?: string;
  reason?: string;
}

/** What the server answered instead of what was asked for. */
export class ApiFailure extends Error {
  constructor(
    readonly code: number,
    message: string,
    readonly reason: string,
    readonly causes: Cause[],
  ) {
    super(message);
  }
}

export interface Ask {
  method?: string;
  accept?: string;
  body?: string;
  type?: string;
  signal?: AbortSignal;
}

/** Asks the server. Throws ApiFailure, or TypeError if nobody answers. */
export async function ask(path: string, options: Ask = {}): Promise<Response> {
  const headers: Record<string, string> = {
    Accept: options.accept ?? "application/json",
    [HEADER]: localStorage.getItem(KEY) ?? "none",
  };
  if (options.body !== undefined) headers["Content-Type"] = options.type ?? "application/json";
  const { run } = place.peek();
  const ofRun = run && !/^\/ui\/api\/(session|runs)\b/.test(path);
  const answer = await fetch(ofRun ? `/runs/${encodeURIComponent(run)}${path}` : path, {
    method: options.method ?? "GET",
    headers,
    cache: "no-store",
    ...(options.body === undefined ? {} : { body: options.body }),
    ...(options.signal === undefined ? {} : { signal: options.signal }),
  });
  if (answer.ok) return answer;
  const failure = await failureOf(answer);
  if (failure.code === 401 && who.peek()) {
    signedOutBecause.value = failure.message;
    who.value = null;
  }
  throw failure;
}

export async function askJson<T>(path: string, options: Ask = {}): Promise<T> {
  return (await (await ask(path, options)).json()) as T;
}

async function failureOf(answer: Response): Promise<ApiFailure> {
  const text = await answer.text();
  try {
    const status = JSON.parse(text) as {
      message?: string;
      reason?: string;
      details?: { causes?: Cause[] };
    };
    return new ApiFailure(
      answer.status,
      status.message || `the server answered ${answer.status}`,
      status.reason ?? "",
      status.details?.causes ?? [],
    );
  } catch {
    return new ApiFailure(answer.status, text.trim() || `the server answered ${answer.status}`, "", []);
  }
}

/** Names the session when a WebSocket is opened: browsers send no headers of a page's with one. */
export const sessionProtocol = (): string => `session.onejob.dev.${localStorage.getItem(KEY) ?? "none"}`;

export function lastUser(): string {
  return localStorage.getItem(USER) ?? "";
}

/**
 * Exchanges the code of a sign-in link; throws ApiFailure. Unless `asAnybody`, one of another user
 * than the last is refused with 409 and stays good: somebody may have sent a link of their own.
 */
export async function signIn(code: string, asAnybody = false): Promise<void> {
  const answer = await fetch("/ui/api/session", {
    method: "POST",
    headers: { "Content-Type": "application/json", [HEADER]: "sign-in" },
    body: JSON.stringify({ code, expected: asAnybody ? "" : lastUser() }),
  });
  if (!answer.ok) throw await failureOf(answer);
  localStorage.setItem(KEY, ((await answer.json()) as { key: string }).key);
  signedOutBecause.value = "";
  await resume();
}

/** Goes on with a session that another tab may have opened. */
export async function resume(): Promise<void> {
  if (!localStorage.getItem(KEY)) {
    who.value = null;
    return;
  }
  // The page need not wait until it knows the name: what it asks for meanwhile is answered, or it
  // is not signed in.
  who.value ??= { user: "", groups: [], version: "", localZone: "" };
  try {
    who.value = await askJson<Who>("/ui/api/session");
    localStorage.setItem(USER, who.value.user);
  } catch (error) {
    if (error instanceof ApiFailure && error.code !== 401) throw error;
    signedOutBecause.value = error instanceof ApiFailure ? error.message : "the server does not answer";
    who.value = null;
  }
}

export async function signOut(): Promise<void> {
  let left = "";
  try {
    await ask("/ui/api/session", { method: "DELETE" });
  } catch (error) {
    if (!(error instanceof ApiFailure && error.code === 401)) {
      left = `This browser is signed out, but the server could not be told: ${explainError(error)}. There the session ends after an hour.`;
    }
  }
  localStorage.removeItem(KEY);
  signedOutBecause.value = left;
  who.value = null;
}

export function explainError(error: unknown): string {
  if (error instanceof ApiFailure) return error.message;
  if (error instanceof TypeError) return "the server does not answer";
  return error instanceof Error ? error.message : String(error);
}
