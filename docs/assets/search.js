// The theme loads its search with every page: a worker, and an index of the whole site. This keeps
// both back until somebody is about to search. It stands in for the worker, and answers "ready".
(() => {
  "use strict";
  const [SETUP, READY, QUERY] = [0, 1, 2];
  const Real = window.Worker;

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.url = url;
      this.waiting = [];
      addEventListener("focusin", (event) => event.target.closest?.("[data-md-component=search]") && this.start());
    }

    postMessage(message) {
      if (message.type === SETUP) {
        this.setup = message;
        this.dispatchEvent(new MessageEvent("message", { data: { type: READY } }));
      } else if (this.worker) {
        this.worker.postMessage(message);
      } else {
        this.waiting.push(message);
        if (message.type === QUERY && message.data) this.start();
      }
    }

    async start() {
      if (this.started || !this.setup) return;
      this.started = true;
      const { base } = JSON.parse(document.getElementById("__config").textContent);
      const answer = await fetch(new URL("search/all.json", new URL(base + "/", location)));
      const { docs } = await answer.json();
      const worker = new Real(this.url);
      worker.addEventListener("message", ({ data }) => this.dispatchEvent(new MessageEvent("message", { data })));
      worker.postMessage({ ...this.setup, data: { ...this.setup.data, docs } });
      this.waiting.splice(0).forEach((message) => worker.postMessage(message));
      this.worker = worker;
    }
  };
})();
