// Ticks that stay in this browser, and ways to take the list elsewhere.
// Without this file the list reads, ticks and prints; nothing is kept.
(() => {
  "use strict";
  const list = document.querySelector(".checklist");
  if (!list) return;

  const squeeze = (text) => text.replace(/\s+/g, " ").trim();
  const folder = (url) => url.replace(/(index\.html)?([?#].*)?$/, "");
  const here = folder(location.href);
  // Read from a disk, an address names the reader's folders: nothing takes those along.
  const web = /^http/.test(here);
  const root = web ? "" : folder(document.querySelector(".md-logo").href);
  const place = web ? [here] : [];
  const prefix = `checklist ${new URL(here).pathname} `;
  const boxes = [...document.querySelectorAll(".checklist .task-list-item")].map((item) => ({
    input: item.querySelector("input"),
    // The text and not the place: an item that moves keeps its tick, one that changes loses it.
    key: prefix + squeeze(item.textContent),
  }));
  const done = () => boxes.filter((box) => box.input.checked).length;
  const count = () => `${done()} of ${boxes.length} done`;
  const today = () => new Date().toLocaleDateString("sv"); // 2026-01-31

  const make = (name, className, text = "") =>
    Object.assign(document.createElement(name), { className, textContent: text });
  const bar = make("div", "checklist__bar");
  const state = make("p", "checklist__state");
  const note = make("p", "checklist__note");
  const printed = make("p", "checklist__printed");
  state.role = note.role = "status";
  bar.append(state, note);
  const button = (text, act) => {
    const made = make("button", "", text);
    made.addEventListener("click", act);
    bar.append(made);
    return made;
  };

  const tell = (also = "") => {
    state.textContent = `${count()}. ${also}`;
    printed.textContent = [count(), today(), ...place].join(" \u00b7 ");
    clear.textContent = "Clear";
  };
  // Storage can be blocked or full, in each of its calls.
  const storage = (use) => {
    let text = "Ticks stay in this browser.";
    let found;
    try {
      found = use(localStorage);
    } catch {
      text = "Ticks are not kept: this browser stores nothing for this page.";
    }
    if (note.textContent !== text) note.textContent = text;
    return found;
  };
  const recall = () => {
    const ticked = storage((store) => boxes.map(({ key }) => store.getItem(key) !== null));
    ticked?.forEach((is, index) => { boxes[index].input.checked = is; });
    tell();
  };

  const markdown = (node) => [...node.childNodes].map((part) => {
    if (part.nodeType !== 1) return part.data;
    if (part.matches("label, .headerlink")) return "";
    if (part.matches("code")) return `\`${part.textContent}\``;
    return part.matches("a") ? `[${markdown(part)}](${part.href.replace(root, "")})` : markdown(part);
  }).join("");
  const exported = () => {
    const lines = [
      `# ${squeeze(markdown(document.querySelector("h1")))}\n`,
      [count(), today(), ...place.map((url) => `<${url}>`)].join(", "),
    ];
    document.querySelectorAll(".checklist :is(h2, h3, .task-list-item)").forEach((part) => {
      const box = part.querySelector("input");
      const start = box ? `- [${box.checked ? "x" : " "}] ` : `\n${part.matches("h2") ? "##" : "###"} `;
      lines.push(start + squeeze(markdown(part)) + (box ? "" : "\n"));
    });
    return `${lines.join("\n")}\n`;
  };

  button("Print", () => print());
  button("Copy as Markdown", async () => {
    try {
      await navigator.clipboard.writeText(exported());
      tell("Copied.");
    } catch {
      tell("This browser does not let the page copy. Download instead.");
    }
  });
  button("Download", () => {
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([exported()], { type: "text/markdown" }));
    link.download = "checklists.md";
    link.click();
  });
  const clear = button("Clear", () => {
    const question = `Clear ${done()} tick${done() > 1 ? "s" : ""}?`;
    if (!done()) {
      tell("There is nothing to clear.");
    } else if (clear.textContent !== question) {
      tell("To clear, press again.");
      clear.textContent = question;
    } else {
      boxes.forEach(({ input }) => { input.checked = false; });
      storage((store) => Object.keys(store).forEach((key) => key.startsWith(prefix) && store.removeItem(key)));
      tell("Cleared.");
    }
  });
  // Whoever goes elsewhere did not mean it.
  const unask = () => clear.textContent === "Clear" || tell();
  clear.addEventListener("blur", unask);
  clear.addEventListener("keydown", (event) => event.key === "Escape" && unask());

  boxes.forEach(({ input, key }) => input.addEventListener("change", () => {
    storage((store) => store[input.checked ? "setItem" : "removeItem"](key, ""));
    tell();
  }));
  addEventListener("storage", recall); // another tab
  addEventListener("beforeprint", () => tell());

  list.prepend(bar, printed);
  recall();
})();
