"use strict";
// Runs a report's scripts without a browser: node node.js PAGE.html DRIVE.js prints the outcome.
// The document has what report.js uses of one; its tables do not exist.
const fs = require("fs");
const vm = require("vm");

class Element {
  constructor(parent) {
    Object.assign(this, { parent, listeners: {}, style: {}, dataset: {}, attributes: {}, classes: new Set() });
    Object.assign(this, { hidden: true, textContent: "", html: "", kept: [], value: "phase", clientWidth: 1000 });
    this.classList = { toggle: (name, on) => (on ? this.classes.add(name) : this.classes.delete(name)) };
  }
  get innerHTML() { return this.html; }
  // Elements with data-n or data-e are the ones that report.js looks for in what it drew.
  set innerHTML(html) {
    this.html = html;
    this.kept = [...html.matchAll(/<\w+ class="(node|edge)[^"]*" data-([ne])="(\d+)"/g)].map(([, kind, key, value]) => {
      const made = new Element(this);
      made.classes.add(kind);
      made.dataset[key] = value;
      return made;
    });
  }
  addEventListener(type, listener) { this.listeners[type] = [...(this.listeners[type] || []), listener]; }
  dispatchEvent(event) {
    if (!event.target) event.target = this;
    (this.listeners[event.type] || []).forEach((listener) => listener(event));
    if (this.parent) this.parent.dispatchEvent(event);
  }
  closest(selector) { return this.classes.has(selector.slice(1)) ? this : null; }
  setAttribute(name, value) { this.attributes[name] = value; }
  getBoundingClientRect() {
    const height = /<svg[^>]* height="([\d.]+)"/.exec(this.html);
    return { left: 0, top: 0, width: 1000, height: height ? Number(height[1]) : 0 };
  }
}

const [page, drive] = process.argv.slice(2).map((path) => fs.readFileSync(path, "utf8"));
const window = new Element(null);
const elements = new Map();
const byId = (id) => {
  if (!elements.has(id)) elements.set(id, new Element(window));
  return elements.get(id);
};
const buttons = ["0.5", "2", "all"].map((zoom) => Object.assign(new Element(window), { dataset: { zoom } }));
const document = {
  getElementById: byId,
  querySelectorAll: (selector) => {
    if (selector === "[data-zoom]") return buttons;
    const inside = /^#([\w-]+) \.(\w+)$/.exec(selector);
    return inside ? byId(inside[1]).kept.filter((each) => each.classes.has(inside[2])) : [];
  },
};
const [, data, script] = /id="data">([^]*?)<\/script>\s*<script>([^]*?)<\/script>/.exec(page);
byId("data").textContent = data;
class Event {
  constructor(type) { this.type = type; }
  preventDefault() {}
}
const globals = { document, window, Event, innerWidth: 1000, innerHeight: 800 };
globals.addEventListener = window.addEventListener.bind(window);
vm.createContext(globals);
vm.runInContext(script, globals, { filename: "report.js" });
vm.runInContext(drive, globals, { filename: "drive.js" });
console.log(byId("outcome").textContent);
