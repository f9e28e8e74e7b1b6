// The theme loads its search with every page: a worker, and an index of the whole site. This keeps
// both back until somebody is about to search. It stands in for the worker, and answers "ready".
// It also asks one question at a time, the newest, and takes an error's name as a traceback has it.
(() => {
  "use strict";
  const [SETUP, READY, QUERY, RESULT] = [0, 1, 2, 3];
  const Real = window.Worker;
  // A dot inside a number stays; any other, and a colon, would mean something to the search.
  const plain = (words) => words.replace(/:|\.(?!\d)/g, " ");

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.url = url;
      addEventListener("focusin", (event) => event.target.closest?.("[data-md-component=search]") && this.start());
    }

    postMessage(message) {
      if (message.type === SETUP) {
        this.setup = message;
        this.dispatchEvent(new MessageEvent("message", { data: { type: READY } }));
      } else if (message.type === QUERY) {
        this.question = { ...message, data: plain(message.data) };
        if (message.data) this.start();
        this.ask();
      }
    }

    ask() {
      if (!this.worker || this.asked || !this.question) return;
      this.worker.postMessage(this.question);
      [this.asked, this.question] = [true, null];
    }

    async start() {
      if (this.started || !this.setup) return;
      this.started = true;
      const { base } = JSON.parse(document.getElementById("__config").textContent);
      const index = new URL("search/all.json", new URL(base + "/", location));
      // Without a network the next word that is typed tries again.
      const docs = await fetch(index).then((answer) => answer.json()).then((all) => all.docs, () => null);
      if (!docs) {
        this.started = false;
        return;
      }
      const worker = new Real(this.url);
      worker.addEventListener("message", ({ data }) => {
        this.dispatchEvent(new MessageEvent("message", { data }));
        if (data.type === RESULT) this.asked = false;
        this.ask();
      });
      worker.postMessage({ ...this.setup, data: { ...this.setup.data, docs } });
      this.worker = worker;
      this.ask();
    }
  };
})();
