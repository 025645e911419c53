// A page opened from a folder (file:) may not start a worker; the search of the site then runs in a frame.
// It stands in for the shim that the theme would fetch from the network.
if (location.protocol === "file:" && !("IFrameWorker" in window)) {
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      const frame = document.createElement("iframe");
      frame.width = frame.height = frame.style.border = "0";
      frame.title = "search";
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inside = frame.contentWindow;
      window.addEventListener("message", (event) => {
        if (event.source !== this.inside) return;
        event.stopImmediatePropagation();
        this.dispatchEvent(new MessageEvent("message", { data: event.data }));
        if (this.onmessage) this.onmessage(event);
      });
      this.ready = new Promise((resolve) => {
        const page = this.inside.document;
        page.open();
        page.write(`<!DOCTYPE html><html><body><script>
          var postMessage = (data) => parent.dispatchEvent(new MessageEvent("message", { data, source: window }));
          var importScripts = (...urls) => urls.reduce((done, url) => done.then(() => new Promise((good, bad) => {
            const script = document.createElement("script");
            script.src = url; script.onload = good; script.onerror = bad;
            document.body.appendChild(script);
          })), Promise.resolve());
        <\/script></body></html>`);
        page.close();
        const script = page.createElement("script");
        script.src = url;
        script.onload = resolve;
        page.body.appendChild(script);
      });
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  }
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}
