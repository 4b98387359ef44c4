// Changing things: what a console does that may write. Every change is shown before it is made, with the command that does the same.

import { html, useState } from "../lib.js";
import { send, session } from "../store.js";
import { Command, Dialog, named, ottla, Trouble } from "./page.js";

export const mayWrite = () => Boolean(session.value?.allow_writes);

// One request that changes something: { busy, error, done, go(name, fields) }
export function useChange(onDone) {
  const [state, setState] = useState({});
  const go = async (name, fields) => {
    setState({ busy: true });
    try {
      const value = await send(name, fields);
      setState({ done: value });
      onDone?.(value);
      return value;
    } catch (error) {
      setState({ error: error.message });
      return null;
    }
  };
  return { ...state, go, reset: () => setState({}) };
}

// A button that opens a dialog which says what will happen, and does it.
export function Confirmed({ label, title, children, name, fields, confirm = label, danger = false, command, onDone, quiet = false, typed }) {
  const [open, setOpen] = useState(false);
  const [word, setWord] = useState("");
  const change = useChange((value) => { setOpen(false); onDone?.(value); });
  if (!mayWrite()) return null;
  return html`<button class=${`${danger ? "danger" : ""} ${quiet ? "quiet small" : ""}`} onClick=${() => { change.reset(); setWord(""); setOpen(true); }}>${label}</button>
    ${open ? html`<${Dialog} title=${title} onClose=${() => setOpen(false)}>
      ${children}
      ${typed ? html`<label class="field">Write “${typed}” to confirm<input value=${word} onInput=${(e) => setWord(e.target.value)} autocomplete="off" /></label>` : null}
      ${command ? html`<div><p class="muted small">The same on the command line:</p><${Command} text=${command} /></div>` : null}
      <${Trouble} error=${change.error} />
      <div class="actions"><button onClick=${() => setOpen(false)}>Cancel</button>
        <button class=${danger ? "danger" : "main"} disabled=${change.busy || (typed && word !== typed)} onClick=${() => change.go(name, fields)}>${change.busy ? "Doing it…" : confirm}</button></div>
    </${Dialog}>` : null}`;
}

export const ONLY_READS = html`<p class="note">This console only reads. <code>ottla console --allow-writes</code> starts one that may change things.</p>`;

export function ElectLeader({ row }) {
  const preferred = row.replicas[0];
  const name = `${row.topic}-${row.partition}`;
  if (row.leader < 0) {
    const others = row.replicas.filter((id) => !row.isr.includes(id));
    if (!others.length) return null;
    return html`<${Confirmed} danger label="Elect another replica" title=${`Elect a leader of ${name} that is not in sync?`} confirm="Elect, and lose records" typed=${name}
      name="moves/elect" fields=${{ topic: row.topic, partition: row.partition, unclean: true }} command=${ottla("topics", "elect", named(row.topic), "--unclean", "-p", row.partition)}>
      <p>One of ${others.map((id) => `broker ${id}`).join(", ")} becomes leader if it lives. Committed records that it lacks are lost for good. Do this only if ${row.isr.length ? row.isr.map((id) => `broker ${id}`).join(" and ") : "the replicas in sync"} can never come back.</p></${Confirmed}>`;
  }
  if (row.leader === preferred || !row.isr.includes(preferred)) return null;
  return html`<${Confirmed} label=${`Let broker ${preferred} lead`} title=${`Give ${name} back to its preferred leader?`} name="moves/elect" confirm="Elect it"
    fields=${{ topic: row.topic, partition: row.partition, unclean: false }} command=${ottla("topics", "elect", named(row.topic), "-p", row.partition)}>
    <p>Broker ${preferred} is the first replica and in sync. Clients turn to it within milliseconds; nothing is lost.</p></${Confirmed}>`;
}
