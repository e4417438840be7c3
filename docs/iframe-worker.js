// A page that is opened from disk may start no worker. There the search runs in a hidden frame of the page instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const load = (source) =>
        new Promise((done, failed) => {
          const script = this.inside.document.createElement("script");
          Object.assign(script, { src: source, onload: done, onerror: failed });
          this.inside.document.body.append(script);
        });
      this.inside.importScripts = (...sources) => sources.reduce((before, one) => before.then(() => load(one)), Promise.resolve());
      this.ready = load(url);
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })));
    }
  };
}
