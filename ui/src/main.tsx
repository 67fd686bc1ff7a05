import { signal } from "@preact/signals";
import { render } from "preact";
import { useEffect } from "preact/hooks";
import icon from "./icon.svg";
import { homeNamespace, showNamespace } from "./lib/paths";
import { place } from "./lib/router";
import { ApiFailure, explainError, lastUser, resume, signedOutBecause, signIn, who } from "./lib/session";
import { visible } from "./lib/text";
import { Frame } from "./parts/frame";
import "./style.css";

// Most of these pages are what somebody comes for: their code is fetched while signing in.
if (place.value.path[0] === "jobs" && place.value.path.length > 2) void import("./pages/job");

const theme = localStorage.getItem("onejob-theme");
if (theme) document.documentElement.dataset["theme"] = theme;

interface Link {
  code: string;
  namespace: string | null;
  open: string | null;
}

/** A link of somebody else than who was signed in last, and what the server says of it. */
const questioned = signal<{ link: Link; why: string } | null>(null);

async function start(): Promise<void> {
  const { path, query } = place.value;
  if (path[0] === "sign-in" && path[1]) {
    const link = { code: path[1], namespace: query.get("namespace"), open: query.get("open") };
    // The code is good only once, but it need not stay in the history either.
    history.replaceState(null, "", "#/");
    dispatchEvent(new HashChangeEvent("hashchange"));
    await follow(link);
    return;
  }
  await goOn();
}

async function follow(link: Link, asAnybody = false): Promise<void> {
  questioned.value = null;
  try {
    await signIn(link.code, asAnybody);
    if (link.namespace && !homeNamespace.value) showNamespace(link.namespace);
    if (link.open) location.replace(`#/${link.open}`);
  } catch (error) {
    if (error instanceof ApiFailure && error.code === 409) {
      questioned.value = { link, why: error.message };
      return;
    }
    signedOutBecause.value = explainError(error);
    who.value = null;
  }
}

async function goOn(): Promise<void> {
  questioned.value = null;
  try {
    await resume();
  } catch (error) {
    signedOutBecause.value = explainError(error);
    who.value = null;
  }
}

function Question({ link, why }: { link: Link; why: string }) {
  return (
    <main class="signin">
      <h1><img src={icon} alt="" />Sign in as another user?</h1>
      <p role="alert">{visible(why)}.</p>
      <p>Continue only if you created the link yourself with <code>onejob ui</code>: all further actions are performed as that user.</p>
      <div class="bar">
        <button onClick={() => void follow(link, true)}>Sign in with this link</button>
        <button class="main" autofocus onClick={() => void goOn()}>Stay {visible(lastUser())}</button>
      </div>
    </main>
  );
}

function SignedOut() {
  return (
    <main class="signin">
      <h1><img src={icon} alt="" />Sign in to onejob</h1>
      {signedOutBecause.value && <p role="alert">{visible(signedOutBecause.value)}</p>}
      <p>In a terminal that has the server's kubeconfig, run:</p>
      <pre tabIndex={0}>onejob ui</pre>
      <p class="muted">It opens this page and signs in with the permissions of that kubeconfig.</p>
    </main>
  );
}

function App() {
  useEffect(() => {
    void start();
    const onHash = () => { if (place.value.path[0] === "sign-in") void start(); };
    addEventListener("hashchange", onHash);
    return () => removeEventListener("hashchange", onHash);
  }, []);
  if (questioned.value) return <Question {...questioned.value} />;
  if (who.value === undefined) return <main class="signin" aria-busy="true"><p class="muted">Signing in…</p></main>;
  if (who.value === null) return <SignedOut />;
  return <Frame />;
}

const root = document.getElementById("app");
if (root) render(<App />, root);
