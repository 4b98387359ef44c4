// Which page an address shows. Every view has an address of its own, which can be sent to somebody else.

import { html, signal } from "./lib.js";

export const place = signal(read());

function read() {
  return { path: location.pathname, query: Object.fromEntries(new URLSearchParams(location.search)) };
}

addEventListener("popstate", () => { place.value = read(); });

export function go(address, { replace = false } = {}) {
  const url = new URL(address, location.origin);
  if (url.pathname + url.search === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  place.value = read();
  if (!replace) scrollTo(0, 0);
}

// Change the query of this view: filters, a time. Undefined takes a name out.
export function refine(changes, { replace = true } = {}) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined || value === null || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  go(location.pathname + (text ? `?${text}` : ""), { replace });
}

addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  if (link.origin !== location.origin || link.target || link.hasAttribute("download")) return;
  if (link.hash && link.pathname === location.pathname) return;
  event.preventDefault();
  go(link.pathname + link.search);
});

// Addresses of things

const part = encodeURIComponent;
// Browsers take . and .. out of an address, however they are written, and clients may call a group so: these begin with ~, as do
// those that begin with ~ themselves.
const groupPart = (id) => part(id === "" || id === "." || id === ".." || id.startsWith("~") ? `~${id}` : id);
export const groupOf = (part) => (part.startsWith("~") ? part.slice(1) : part);
export const to = {
  partition: (topic, number) => `/topics/${part(topic)}/${number}`,
  topic: (name) => `/topics/${part(name)}`,
  group: (id) => `/groups/${groupPart(id)}`,
  broker: (id) => `/brokers/${part(id)}`,
  messages: (topic, query = {}) => `/messages/${part(topic)}?${new URLSearchParams(query)}`,
  // `partition:orders-0`, `group:billing`, `broker:2`, as problems and events name what they are about.
  about: (about) => {
    const [kind, ...rest] = about.split(":");
    const name = rest.join(":");
    if (kind === "partition") {
      const dash = name.lastIndexOf("-");
      return to.partition(name.slice(0, dash), name.slice(dash + 1));
    }
    if (kind === "topic") return to.topic(name);
    if (kind === "group") return to.group(name);
    if (kind === "broker") return to.broker(name);
    if (kind === "transaction") return "/transactions";
    return "/";
  },
};

export const partsOf = (name) => {
  const dash = name.lastIndexOf("-");
  return [name.slice(0, dash), Number(name.slice(dash + 1))];
};

export const PartitionLink = ({ name }) => {
  const [topic, number] = partsOf(name);
  return html`<a class="name" href=${to.partition(topic, number)}>${name}</a>`;
};
