// What the theme leaves undone for people who use a keyboard or a screen reader.
// Every page can be read without this file.
(() => {
  "use strict";

  // The menu and its sections open by labels, which a keyboard cannot reach: a button lies on each.
  const opener = (label) => {
    const input = document.getElementById(label.htmlFor);
    const button = document.createElement("button");
    const tell = () => button.setAttribute("aria-expanded", String(input.checked));
    button.type = "button";
    button.className = "opener";
    button.setAttribute("aria-label", label.textContent.trim() || "Menu");
    button.addEventListener("click", (event) => {
      event.preventDefault();
      input.click();
    });
    input.addEventListener("change", tell);
    tell();
    label.append(button);
  };
  document
    .querySelectorAll("label[for='__drawer'].md-header__button, .md-nav--primary .md-nav__item label[for]")
    .forEach(opener);

  addEventListener("keydown", (event) => {
    const drawer = document.getElementById("__drawer");
    if (event.key === "Escape" && drawer.checked) {
      drawer.click();
      document.querySelector("label[for='__drawer'] > .opener").focus();
    }
  });

  // A table that scrolls sideways can be reached, and then scrolled with the arrow keys.
  const scrollable = (region) => {
    if (region.scrollWidth > region.clientWidth) {
      region.tabIndex = 0;
      region.setAttribute("role", "group");
      region.setAttribute("aria-label", "Table, scrolls sideways");
    } else {
      ["tabindex", "role", "aria-label"].forEach((name) => region.removeAttribute(name));
    }
  };
  const sizes = new ResizeObserver((entries) => entries.forEach((entry) => scrollable(entry.target)));

  // The theme adds these once it has started: tables' wrappers, and a landmark per copy button.
  const tidy = () => {
    document.querySelectorAll(".md-typeset__scrollwrap").forEach((region) => sizes.observe(region));
    document.querySelectorAll("nav.md-code__nav:not([role])").forEach((nav) => nav.setAttribute("role", "none"));
  };
  tidy();
  new MutationObserver(tidy).observe(document.querySelector("article"), { childList: true, subtree: true });

  // Each part of "On this page" is a landmark of its own, and may have the name of another one.
  document.querySelectorAll(".md-nav--secondary nav").forEach((nav) => {
    nav.setAttribute("role", "none");
    nav.removeAttribute("aria-label");
  });

  // What an item says ticks it as well, unless it is a link or is being selected.
  document.querySelectorAll(".task-list-item").forEach((item) => {
    const input = item.querySelector("input");
    input.setAttribute("aria-label", item.textContent.trim());
    item.addEventListener("click", (event) => {
      if (!event.target.closest("a, label") && getSelection().isCollapsed) input.click();
    });
  });

  // The page that is not there offers the search where it speaks of it.
  const prompt = document.querySelector(".search-prompt");
  if (prompt) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Search";
    button.addEventListener("click", () => document.querySelector(".md-search__input").focus());
    prompt.append(button);
  }

  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
})();
