// The theme loads its search with every page: a worker, and an index of the whole site. This keeps
// both back until somebody is about to search. It stands in for the worker, and answers "ready".
// It also asks one question at a time, the newest, reads what is pasted for a name that the site
// knows (an error's, a rule's, an advisory's), and puts what has that name first.
(() => {
  "use strict";
  const [SETUP, READY, QUERY, RESULT] = [0, 1, 2, 3];
  const Real = window.Worker;
  const STOP = new Set(("a an and are as at be by can do for from how i if in is it my not of on or so that the this "
    + "to was we what when which who with you").split(" "));
  const page = (place) => place.split("#")[0];

  // Return the places that a question names, and what to ask: words, without what lunr acts on.
  const read = (text, known, said) => {
    // A traceback, or the address in one, is about one error: the last that it names.
    const named = [...text.matchAll(/(?:errors[./#]+|explain )(\w+)|\b([A-Z]\w+):/g)];
    const name = named.map((found) => (found[1] || found[2]).toLowerCase())
      .findLast((each) => known.get(each)?.[0].startsWith("errors/"));
    if (name) return [known.get(name), name];
    const words = text.match(/[\p{L}\p{N}_]+(?:(?:-|\.(?=\d))[\p{L}\p{N}_]+)*/gu) || [];
    // Some names are words that people use, such as "conflict". Among others, they are no name.
    const places = words.filter((word) => words.length < 2 || /\d|-|[a-z][A-Z]/.test(word))
      .flatMap((word) => known.get(word.toLowerCase()) || []);
    const kept = words.filter((word) => !STOP.has(word.toLowerCase()));
    const query = (kept.length ? kept : words).slice(0, 24).map((word) => {
      const parts = word.slice(0, 48).match(/[^-]+/g);
      // Each part of an advisory's id is in many others, so all have to be there.
      return /^(cve|ghsa|pysec)-/i.test(word) ? `+${parts.join(" +")}*` : parts.join(" ");
    });
    if (places.length) return [places, query.join(" ")];
    const [place, all] = sentence(text, said);
    return [place, all ? place[0].split(".").pop() : query.join(" ")];
  };

  // A message that lost its name: the error that says it, or most of its words.
  const sentence = (text, said) => {
    const words = (text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) || []).slice(0, 60);
    const whole = ` ${words.join(" ")} `;
    let [best, most] = [[], 0.74];
    for (const [place, paragraphs] of words.length < 4 ? [] : said) {
      for (const each of paragraphs) {
        const has = (part) => ` ${each} `.includes(part);
        const share = has(whole) ? 2 : words.filter((word) => has(` ${word} `)).length / words.length;
        // Of two that say as much of it, the one that says less besides.
        const score = share - each.length / 1e5;
        if (score > most) [best, most] = [[place], score];
      }
    }
    return [best, most > 1];
  };

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.url = url;
      addEventListener("focusin", (event) => event.target.closest?.("[data-md-component=search]") && this.start());
      // The theme looks when a key is pressed and released. A paste from a menu does neither.
      addEventListener("input", ({ target }) => target.matches("[data-md-component=search-query]")
        && ["keydown", "keyup"].forEach((name) => target.dispatchEvent(new Event(name))));
    }

    postMessage(message) {
      if (message.type === SETUP) {
        this.setup = message;
        this.dispatchEvent(new MessageEvent("message", { data: { type: READY } }));
      } else if (message.type === QUERY) {
        this.question = message;
        if (message.data) this.start();
        this.ask();
      }
    }

    ask() {
      if (!this.worker || this.asked || !this.question) return;
      const [places, data] = read(this.question.data, this.known, this.said);
      this.places = [...new Set(places)].slice(0, 3);
      this.worker.postMessage({ type: QUERY, data });
      [this.asked, this.question] = [true, null];
    }

    // Put what was asked for by name before what the index thinks of.
    lead(items) {
      let score = items.flat().reduce((most, item) => Math.max(most, item.score), 0);
      for (const place of this.places.reverse().filter((each) => this.docs.has(each))) {
        const blank = (where) => ({ ...this.docs.get(where), text: "", score: 0, terms: {} });
        const group = items.find(([item]) => page(item.location) === page(place)) || [blank(page(place))];
        const item = group.find(({ location }) => location === place) || blank(place);
        const others = group.filter(({ location }) => location !== place);
        items = [[{ ...item, score: ++score }, ...others], ...items.filter((each) => each !== group)];
      }
      return items;
    }

    async start() {
      if (this.started || !this.setup) return;
      this.started = true;
      const { base } = JSON.parse(document.getElementById("__config").textContent);
      const index = new URL("search/all.json", new URL(base + "/", location));
      // Without a network the next word that is typed tries again.
      const all = await fetch(index).then((answer) => answer.json()).catch(() => null);
      if (!all) {
        this.started = false;
        return;
      }
      this.docs = new Map(all.docs.map((doc) => [doc.location, doc]));
      this.known = new Map(Object.entries(all.known));
      this.said = Object.entries(all.said);
      const worker = new Real(this.url);
      worker.addEventListener("message", ({ data }) => {
        if (data.type === RESULT) {
          data.data.items = this.lead(data.data.items);
          this.asked = false;
        }
        this.dispatchEvent(new MessageEvent("message", { data }));
        this.ask();
      });
      worker.postMessage({ ...this.setup, data: { ...this.setup.data, docs: all.docs } });
      this.worker = worker;
      this.ask();
    }
  };
})();
