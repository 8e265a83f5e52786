// Runs the script of the served page with just enough of a document, and uses it as a person would.
//   node page_test.mjs URL
import assert from "node:assert/strict";
import vm from "node:vm";

const url = process.argv[2];
const html = await (await fetch(`${url}/`)).text();
const script = html.match(/<script>([^]*)<\/script>/)[1];

class Element {
  constructor(tag) {
    this.tagName = tag.toUpperCase();
    this.children = [];
    this.text = "";
    this.dataset = {};
    this.style = {};
    this.attributes = {};
    this.value = "";
    this.classes = new Set();
    this.classList = {add: (name) => this.classes.add(name), remove: (name) => this.classes.delete(name)};
  }
  set className(names) { this.classes = new Set(names.split(" ")); }
  get className() { return [...this.classes].join(" "); }
  set textContent(text) { this.children = []; this.text = String(text); }
  get textContent() { return this.text + this.children.map((child) => child.textContent ?? child).join(""); }
  append(...children) {
    for (const child of children) {
      if (child instanceof Element) child.remove();
      this.children.push(child);
      if (child instanceof Element) child.parent = this;
    }
    const first = this.children[0];
    if (this.tagName === "SELECT" && first) this.value = first.attributes.value ?? first.textContent;
  }
  insertBefore(child, before) {
    this.children.splice(this.children.indexOf(before), 0, child);
    child.parent = this;
  }
  replaceChildren(...children) { this.children = []; this.text = ""; this.append(...children); }
  remove() {
    if (this.parent) this.parent.children = this.parent.children.filter((child) => child !== this);
  }
  setAttribute(name, value) { this.attributes[name] = value; this[name] = value; }
  all() { return this.children.flatMap((child) => child instanceof Element ? [child, ...child.all()] : []); }
  querySelectorAll(selector) {
    const tags = selector.toUpperCase().split(", ");
    return this.all().filter((element) => tags.includes(element.tagName));
  }
  get selectedIndex() { return 0; }
  getBoundingClientRect() { return {left: 0, top: 0, bottom: 40, width: 120}; }
  scrollIntoView() {}
  focus() {}
}

const byId = new Map();
for (const [, tag, id] of html.matchAll(/<(\w+)[^>]*? id="([\w-]+)"/g)) byId.set(id, new Element(tag));
const document = {
  documentElement: new Element("html"),
  getElementById: (id) => byId.get(id) ?? assert.fail(`no element ${id}`),
  createElement: (tag) => new Element(tag),
};
const timers = [];
const context = {
  document, console, AbortController, FormData, Blob, TextDecoder, TextDecoderStream, Uint8Array, URL, crypto,
  performance, atob, Promise, JSON, Math, Map, Set, localStorage: {getItem: () => null, setItem() {}},
  fetch: (path, options) => fetch(new URL(path, url), options), setTimeout,
  setInterval: (function_) => timers.push(function_), window: {},
};
vm.runInNewContext(script, context);

const $ = document.getElementById;
async function until(what, holds) {
  for (let turn = 0; turn < 600; ++turn) {
    if (holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.fail(`not within 30 s: ${what}; the log says "${$("log").textContent}"`);
}
const idle = () => !$("send").disabled;
const last = () => $("log").children.at(-1);
const key = (name) => $("prompt").onkeydown({key: name, preventDefault() {}});

await until("ready", () => $("state").dataset.ready === "yes");
assert.ok($("graph").textContent.includes("↻ decode_loop"), "the walks are drawn");
assert.ok($("fields").all().some((field) => field.name === "temperature"), "parameters have fields");

const field = (name) => $("fields").all().find((one) => one.name === name);
field("max_tokens").value = "40";
field("ignore_eos").value = "true";
$("prompt").value = "t5 t6 t7";
key("Enter");
await until("an answer", () => idle() && last().className === "model");
assert.match(last().textContent, /^( t\d+){40}3 \+ 40 tokens, first after .* length$/);
// The answer can end before the first event about it arrives: a tick shows what has arrived by then.
await until("the steps were seen", () => {
  timers.forEach((function_) => function_());
  return /LLM · decode/.test($("nodes").textContent);
});
assert.match($("pages").textContent, /^\d+ \/ \d+$/);

field("temperature").value = "-1";
$("prompt").value = "t5";
key("Enter");
await until("an error", () => idle() && last().className === "error");
assert.match(last().textContent, /temperature/);
field("temperature").value = "";

field("max_tokens").value = "200";
$("prompt").value = "t5";
key("Enter");
document.onkeydown({key: "Escape"});
await until("it stopped", idle);
assert.match(last().textContent, /stopped/);

console.log("page: ok");
process.exit(0);
