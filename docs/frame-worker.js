// Browsers start no Worker from a page of a folder. The search of the site then runs in a hidden frame of the page.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      const inside = (this.inside = frame.contentWindow);
      const load = (source) =>
        new Promise((done, failed) => {
          const script = inside.document.createElement("script");
          [script.src, script.onload, script.onerror] = [source, done, failed];
          inside.document.body.append(script);
        });
      inside.importScripts = (...sources) => sources.reduce((last, source) => last.then(() => load(source)), Promise.resolve());
      inside.postMessage = (data) => this.deliver(this, data);
      this.ready = load(url);
    }
    deliver(target, data) {
      const event = new MessageEvent("message", { data });
      target.dispatchEvent(event);
      if (target === this && this.onmessage) this.onmessage(event);
    }
    postMessage(data) {
      this.ready.then(() => this.deliver(this.inside, data));
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
