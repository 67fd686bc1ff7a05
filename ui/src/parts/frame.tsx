/** Navigation around the pages, keys that work everywhere, and what is wrong with the connection. */
import { lazy, Suspense } from "preact/compat";
import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import icon from "../icon.svg";
import { useAnswer } from "../lib/hooks";
import { isForOthers } from "../lib/keys";
import { go, href, place } from "../lib/router";
import { runEnd } from "../lib/objects";
import { isReadOnly, signOut, who } from "../lib/session";
import { visible } from "../lib/text";
import type { Run } from "../pages/runs";
import { Overview } from "../pages/overview";
import { Jobs } from "../pages/jobs";
import { Dialogs, Modal } from "./dialogs";
import { Empty } from "./basics";

const JobPage = lazy(() => import("../pages/job").then((m) => ({ default: m.JobPage })));
const CronJobs = lazy(() => import("../pages/cronjobs").then((m) => ({ default: m.CronJobs })));
const CronJobPage = lazy(() => import("../pages/cronjobs").then((m) => ({ default: m.CronJobPage })));
const Create = lazy(() => import("../pages/create").then((m) => ({ default: m.Create })));
const Runs = lazy(() => import("../pages/runs").then((m) => ({ default: m.Runs })));
const RunBanner = lazy(() => import("../pages/runs").then((m) => ({ default: m.RunBanner })));
const Queue = lazy(() => import("../pages/queue").then((m) => ({ default: m.Queue })));
const Mirrors = lazy(() => import("../pages/mirrors").then((m) => ({ default: m.Mirrors })));
const Workflows = lazy(() => import("../pages/workflows").then((m) => ({ default: m.Workflows })));
const WorkflowPage = lazy(() => import("../pages/workflows").then((m) => ({ default: m.WorkflowPage })));
const Resources = lazy(() => import("../pages/resources").then((m) => ({ default: m.Resources })));

const PAGES: [string[], string, string][] = [
  [[], "Overview", "o"],
  [["jobs"], "Jobs", "j"],
  [["workflows"], "Workflows", "w"],
  [["cronjobs"], "CronJobs", "c"],
  [["queue"], "Queue", "q"],
  [["mirrors"], "Mirrors", "m"],
  [["resources"], "All objects", "e"],
  [["create"], "Create", "n"],
];

/** The pages of a kept run, by title. */
const OF_RUNS = new Set(["Overview", "Jobs", "Workflows", "All objects"]);

/** The page of mirrors is listed if there is a target; if Secrets may not be read, it is not. */
const TARGETS = `/api/v1/secrets?${new URLSearchParams({ labelSelector: "onejob.dev/mirror-target", limit: "1" })}`;

const helpOpen = signal(false);
/** When `g` was pressed last, by the clock of events, which begins with the page. */
let goPressed = -Infinity;

function onKey(event: KeyboardEvent): void {
  const element = event.target as HTMLElement;
  if (isForOthers(event)) {
    if (event.key === "Escape" && /^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName)) {
      // Without this, browsers also clear a field of searches.
      event.preventDefault();
      element.blur();
    }
    return;
  }
  if (event.key === "?") helpOpen.value = true;
  else if (event.key === "/") document.querySelector<HTMLElement>("[data-hotkey='/']")?.focus();
  else if (event.key === "g") goPressed = event.timeStamp;
  else if (event.timeStamp - goPressed < 1200) {
    const page = PAGES.find(([, , key]) => key === event.key);
    goPressed = -Infinity;
    if (!page) return;
    go(page[0]);
  } else return;
  event.preventDefault();
}

function Page() {
  const { path, run } = place.value;
  if (isReadOnly() && !run) return <Runs />;
  const [section, first, second] = path;
  if (section === undefined || section === "sign-in") return <Overview />;
  if (section === "jobs" && first && second) return <JobPage key={`${first}/${second}`} namespace={first} name={second} />;
  if (section === "jobs") return <Jobs />;
  if (section === "cronjobs" && first && second) return <CronJobPage key={`${first}/${second}`} namespace={first} name={second} />;
  if (section === "cronjobs") return <CronJobs />;
  if (section === "workflows" && first && second) return <WorkflowPage key={`${first}/${second}`} namespace={first} name={second} />;
  if (section === "workflows") return <Workflows />;
  if (section === "create") return <Create />;
  if (section === "queue") return <Queue />;
  if (section === "mirrors") return <Mirrors />;
  if (section === "resources") return <Resources path={path.slice(1)} />;
  return (
    <>
      <div class="head"><div class="grow"><h1>Not found</h1></div></div>
      <div class="card"><Empty title="Page not found" actions={<a class="button" href={href([])}>Go to the overview</a>}>The address may be incomplete or outdated.</Empty></div>
    </>
  );
}

const THEMES = ["", "light", "dark"];

function nextTheme(): void {
  const root = document.documentElement;
  const next = THEMES[(THEMES.indexOf(root.dataset["theme"] ?? "") + 1) % THEMES.length] ?? "";
  if (next) root.dataset["theme"] = next;
  else delete root.dataset["theme"];
  localStorage.setItem("onejob-theme", next);
}

export function Frame() {
  const main = useRef<HTMLElement>(null);
  const here = place.value.path[0] ?? "";
  const { run } = place.value;
  const kept = isReadOnly();
  const mirrors = (useAnswer<{ items: unknown[] }>(kept ? "" : TARGETS, "").value?.items.length ?? 0) > 0;
  const shown = useAnswer<{ runs: Run[] }>(run ? "/ui/api/runs" : "", run).value?.runs.find((one) => one.id === run);
  const end = shown && ["Stopped", "Blocked", "Lost"].includes(shown.state) ? shown.state : "";
  useLayoutEffect(() => { runEnd.value = end; }, [end]);
  const pages = PAGES.filter(([path, title]) => (kept ? run !== "" && OF_RUNS.has(title) : path[0] !== "mirrors" || mirrors || here === "mirrors"));
  // Before the page can be seen: a key that answers it must not be missed.
  useLayoutEffect(() => {
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  useEffect(() => {
    const page = kept && !run ? "Runs" : PAGES.find(([path]) => (path[0] ?? "") === here)?.[1] ?? "onejob";
    document.title = [...place.value.path.slice(1).reverse().map(visible), page, "onejob"].filter((t, i, all) => all.indexOf(t) === i).join(" · ");
  });
  return (
    <div class="frame">
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); main.current?.focus(); }}>Skip to the content</a>
      <header class="side">
        <a class="brand" href="#/" aria-label="onejob: overview"><img src={icon} alt="" /><span>onejob</span></a>
        <nav aria-label="Pages">
          {kept && <a href="#/" aria-current={run ? undefined : "page"}>Runs</a>}
          {pages.map(([path, title]) => (
            <a key={title} href={href(path)} aria-current={(path[0] ?? "") === here ? "page" : undefined}>{title}</a>
          ))}
        </nav>
        <div class="foot">
          <span class="who" title={who.value?.groups.map(visible).join(", ")}><span class="wide-only">Signed in as </span><b class="cut">{visible(who.value?.user ?? "")}</b></span>
          <div class="row">
            <button class="small wide-only" onClick={() => { helpOpen.value = true; }} aria-label="Keys">?</button>
            <button class="small" onClick={nextTheme} aria-label="Change between light, dark and the system's colours">◐</button>
            <button class="small" onClick={() => void signOut()}>Sign out</button>
          </div>
          <span class="wide-only">onejob {who.value?.version}</span>
        </div>
      </header>
      <main id="main" ref={main} tabIndex={-1}>
        <Suspense fallback={<p class="muted" aria-busy="true">Loading…</p>}>{shown && <RunBanner run={shown} />}<Page /></Suspense>
      </main>
      <Modal open={helpOpen.value} onClose={() => { helpOpen.value = false; }} label="Keys">
        <h2>Keys</h2>
        <table>
          <tbody>
            {[
              ...PAGES.map(([, title, key]) => [`g ${key}`, title]),
              ["/", "Filter or search"],
              ["j k, ↓ ↑", "Choose a row"],
              ["Enter", "Open the chosen row"],
              ["Space", "Select it, in the list of Jobs"],
              ["← ↑ → ↓", "In the graph of a Workflow: move between its tasks"],
              ["s", "Suspend or resume the Job or Workflow that is chosen or shown"],
              ["r", "Rerun it"],
              ["l", "Its logs"],
              ["x", "Delete it"],
              ["Escape", "Leave a field or dialog; in the YAML editor, Tab leaves it after Escape"],
            ].map(([keys, what]) => <tr key={keys}><td><kbd>{keys}</kbd></td><td>{what}</td></tr>)}
          </tbody>
        </table>
        <div class="bar"><button class="main" autofocus onClick={() => { helpOpen.value = false; }}>Close</button></div>
      </Modal>
      <Dialogs />
    </div>
  );
}
