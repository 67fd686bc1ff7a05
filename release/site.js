// Names for landmarks that the theme leaves without a unique one (axe: aria-dialog-name, landmark-unique).
document$.subscribe(() => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  document.querySelectorAll("nav.md-nav[data-md-level]").forEach((nav, number) => {
    const title = nav.querySelector(".md-nav__title")?.textContent.trim() ?? "Pages";
    nav.removeAttribute("aria-labelledby");
    nav.setAttribute("aria-label", `${title} (navigation ${number + 1})`);
  });
  document.querySelectorAll("nav.md-code__nav").forEach((nav, number) => {
    nav.setAttribute("aria-label", `Code ${number + 1}`);
  });
});
