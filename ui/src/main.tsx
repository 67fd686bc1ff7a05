import { render } from "preact";
import { useEffect } from "preact/hooks";
import icon from "./icon.svg";
import { homeNamespace, showNamespace } from "./lib/paths";
import { place } from "./lib/router";
import { explainError, resume, signedOutBecause, signIn, who } from "./lib/session";
import { visible } from "./lib/text";
import { Frame } from "./parts/frame";
import "./style.css";

// Most of these pages are what somebody comes for: their code is fetched while signing in.
if (place.value.path[0] === "jobs" && place.value.path.length > 2) void import("./pages/job");

const theme = localStorage.getItem("onejob-theme");
if (theme) document.documentElement.dataset["theme"] = theme;

async function start(): Promise<void> {
  const { path, query } = place.value;
  if (path[0] === "sign-in" && path[1]) {
    const code = path[1];
    const namespace = query.get("namespace");
    const open = query.get("open");
    // The code is good only once, but it need not stay in the history either.
    history.replaceState(null, "", "#/");
    dispatchEvent(new HashChangeEvent("hashchange"));
    try {
      await signIn(code);
      if (namespace && !homeNamespace.value) showNamespace(namespace);
      if (open) location.replace(`#/${open}`);
    } catch (error) {
      signedOutBecause.value = explainError(error);
      who.value = null;
    }
    return;
  }
  try {
    await resume();
  } catch (error) {
    signedOutBecause.value = explainError(error);
    who.value = null;
  }
}

function SignedOut() {
  return (
    <main class="signin">
      <h1><img src={icon} alt="" />Sign in to onejob</h1>
      {signedOutBecause.value && <p role="alert">{visible(signedOutBecause.value)}</p>}
      <p>In a terminal that has the server's kubeconfig, run:</p>
      <pre tabIndex={0}>onejob ui</pre>
      <p class="muted">It opens this page signed in, with the permissions of that kubeconfig.</p>
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
  if (who.value === undefined) return <main class="signin" aria-busy="true"><p class="muted">Signing in…</p></main>;
  if (who.value === null) return <SignedOut />;
  return <Frame />;
}

const root = document.getElementById("app");
if (root) render(<App />, root);
