/** A custom property as a colour for canvases, which do not know light-dark(). */
export function colour(name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** Calls when the colours change; returns what ends that. */
export function onColours(call: () => void): () => void {
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", call);
  const themes = new MutationObserver(call);
  themes.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  return () => {
    scheme.removeEventListener("change", call);
    themes.disconnect();
  };
}
