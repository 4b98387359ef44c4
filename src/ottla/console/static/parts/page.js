// What every page begins with, and small things that many pages show.

import { html, useEffect, useRef, useState } from "../lib.js";
import { clock, session } from "../store.js";
import { duration, iso, time } from "../format.js";
import { Icon } from "./icons.js";
import { compare } from "./virtual.js";

export const asset = (name) => new URL(`../${name}`, import.meta.url).pathname;

export function Titled({ title }) {
  useEffect(() => { document.title = `${title} · ottla`; }, [title]);
  return null;
}

// A time, and how long ago that was; it goes on by itself.
export function Ago({ at, prefix = "", zero = "" }) {
  if (!at) return zero || null;
  return html`<time datetime=${iso(at)} title=${time(at, { millis: true })}>${prefix}${duration(clock.value - at)} ago</time>`;
}

export function Since({ at, zero = "since before this console looked" }) {
  if (!at) return html`<span class="muted">${zero}</span>`;
  return html`<time class="muted" datetime=${iso(at)} title=${time(at, { millis: true })}>since ${time(at)} · ${duration(clock.value - at)}</time>`;
}

// A word of a command that somebody chose as a name.
export const named = (name) => ({ name });

const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${String(word).replaceAll("'", "'\\''")}'`);

// A command of ottla for this cluster, to type into a shell: each word stays one, and a name is no option, whatever clients chose.
export function ottla(...words) {
  const option = session.value?.command_option ?? "";
  const names = words.filter((word) => word.name !== undefined).map((word) => word.name);
  if (!names.some((name) => String(name).startsWith("-"))) {
    return `ottla ${words.map((word) => quoted(word.name ?? word)).join(" ")}${option}`;
  }
  const others = words.filter((word) => word.name === undefined);
  return `ottla ${others.map(quoted).join(" ")}${option} -- ${names.map(quoted).join(" ")}`;
}

// A command to type, with a button that copies it.
export function Command({ text }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard?.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return html`<div class="command"><code>${text}</code>
    <button class="quiet icon" onClick=${copy} aria-label=${copied ? "Copied" : "Copy the command"}>${copied ? "✓" : html`<${Icon} name="copy" />`}</button></div>`;
}

// Something that is asked for once, and again when what it depends on changes.
export function useAsked(question, dependencies) {
  const [state, setState] = useState({ loading: true });
  const turn = useRef(0);
  const again = () => {
    const mine = ++turn.current;
    const stop = new AbortController();
    setState((before) => ({ ...before, loading: true }));
    question(stop.signal).then(
      (value) => { if (mine === turn.current) setState({ value }); },
      (error) => { if (mine === turn.current && error.name !== "AbortError") setState({ error: error.message, status: error.status }); },
    );
    return () => stop.abort();
  };
  useEffect(again, dependencies);
  return { ...state, again };
}

export const Trouble = ({ error }) => (error ? html`<p class="note bad" role="alert">${error}</p>` : null);

// Rows to sort by their heads.
export function Sorted({ columns, rows, initial, rowKey, empty = "Nothing here.", label }) {
  const [[by, down], setBy] = useState(initial ?? [columns[0].name, false]);
  const column = columns.find((each) => each.name === by) ?? columns[0];
  const value = column.value ?? ((row) => row[column.name]);
  const ordered = [...rows].sort((a, b) => compare(value(a), value(b)) * (down ? -1 : 1));
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  return html`<div class="scroll"><table aria-label=${label}>
    <thead><tr>${columns.map((each) => html`<th scope="col" class=${each.num ? "num" : ""}
      aria-sort=${each.name === by ? (down ? "descending" : "ascending") : undefined}>
      ${each.sort === false ? each.head : html`<button onClick=${() => setBy([each.name, each.name === by ? !down : Boolean(each.num)])}>${each.head}</button>`}</th>`)}</tr></thead>
    <tbody>${ordered.map((row) => html`<tr key=${rowKey(row)}>${columns.map((each) => html`<td class=${each.num ? "num" : ""}>${each.show ? each.show(row) : row[each.name]}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

// A dialog that is open while it is there.
export function Dialog({ title, onClose, children }) {
  const ref = useRef(null);
  useEffect(() => {
    ref.current.showModal();
    ref.current.querySelector("input, textarea, select")?.focus();
  }, []);
  return html`<dialog ref=${ref} aria-label=${title} onClose=${onClose}>
    <div class="head"><h2>${title}</h2><button class="quiet icon" onClick=${() => ref.current.close()} aria-label="Close"><${Icon} name="close" /></button></div>
    ${children}</dialog>`;
}
