// Users, rights, and the question that everybody has: may X do Y, and why?

import { html, useState } from "../lib.js";
import { place, refine } from "../router.js";
import { plural } from "../format.js";
import { ask } from "../store.js";
import { Confirmed, mayWrite, useChange } from "../parts/actions.js";
import { Command, named, ottla, Sorted, Titled, Trouble, useAsked } from "../parts/page.js";

// The words that the console suggests, of which the third is whom the right is for.
const allowing = ([noun, verb, who, ...rights]) => [noun, verb, named(who), ...rights];

export default function Security() {
  const asked = useAsked((signal) => ask("security", {}, { signal }), []);
  const { users, acls, trouble = [], words = {} } = asked.value ?? {};
  return html`<${Titled} title="Security" />
    <div class="head"><h1>Security</h1></div>
    <${Trouble} error=${asked.error} />
    ${trouble.map((line) => html`<p class="note" key=${line}>${line}</p>`)}
    ${acls ? html`<${May} words=${words} users=${users ?? []} />` : null}
    ${acls ? html`<${Acls} list=${acls} words=${words} again=${asked.again} />` : null}
    ${users ? html`<${Users} list=${users} acls=${acls ?? []} again=${asked.again} />` : null}
    ${asked.loading && !asked.value ? html`<p class="muted" role="status">Asking…</p>` : null}`;
}

const TYPES = { TOPIC: "topic", GROUP: "group", CLUSTER: "the cluster", TRANSACTIONAL_ID: "transactional id", USER: "user", DELEGATION_TOKEN: "delegation token" };

function May({ words, users }) {
  const { query } = place.value;
  const [fields, setFields] = useState({ who: query.who ?? "", operation: query.operation ?? "READ", type: query.type ?? "TOPIC", name: query.name ?? "", host: query.host ?? "" });
  const [answer, setAnswer] = useState(null);
  const set = (more) => { setAnswer(null); setFields({ ...fields, ...more }); };
  const operations = words[fields.type] ?? [];
  const test = async (event) => {
    event?.preventDefault();
    refine(fields);
    try {
      setAnswer(await ask("security/test", fields));
    } catch (error) {
      setAnswer({ error: error.message });
    }
  };
  return html`<section class="box"><header><h2>May somebody do something?</h2></header>
    <form class="fields" onSubmit=${test}>
      <label class="field">who<input list="security-users" placeholder="alice" value=${fields.who} onInput=${(e) => set({ who: e.target.value })} required /></label>
      <datalist id="security-users">${users.map((each) => html`<option key=${each.name} value=${each.name} />`)}</datalist>
      <label class="field">does<select value=${fields.operation} onChange=${(e) => set({ operation: e.target.value })}>${operations.map((each) => html`<option key=${each} value=${each}>${each.toLowerCase().replaceAll("_", " ")}</option>`)}</select></label>
      <label class="field">on<select value=${fields.type} onChange=${(e) => set({ type: e.target.value, operation: words[e.target.value]?.[0] ?? "READ" })}>${Object.entries(TYPES).map(([name, text]) => html`<option key=${name} value=${name}>${text}</option>`)}</select></label>
      ${fields.type === "CLUSTER" ? null : html`<label class="field">called<input value=${fields.name} onInput=${(e) => set({ name: e.target.value })} required /></label>`}
      <label class="field">from address<input class="short" placeholder="any" value=${fields.host} onInput=${(e) => set({ host: e.target.value })} /></label>
      <button class="main">Ask</button></form>
    ${answer ? answer.error ? html`<${Trouble} error=${answer.error} />` : html`<div class="answer" role="status"><p class=${`verdict-word ${answer.allowed ? "good" : "bad"}`}>${answer.allowed ? "Yes" : "No"}</p>
      <div><p>${answer.because}</p>${answer.super_users_known ? null : html`<p class="muted small">The cluster does not say who its super users are; if ${fields.who} is one, the answer is yes.</p>`}
      ${answer.command ? html`<p class="muted small">This would allow it:</p><${Command} text=${ottla(...allowing(answer.command))} />` : null}</div></div>` : null}
  </section>`;
}

function Acls({ list, words, again }) {
  const [filter, setFilter] = useState("");
  const rows = list.filter((each) => each.text.toLowerCase().includes(filter.toLowerCase()));
  return html`<section class="box flush"><header><h2>Rights</h2><span class="muted small">${plural(list.length, "ACL")}; deny wins, and what none allows is denied</span>
      <input type="search" placeholder="Filter" aria-label="Filter ACLs" value=${filter} onInput=${(e) => setFilter(e.target.value)} /></header>
    ${mayWrite() ? html`<${Add} words=${words} again=${again} />` : null}
    <${Sorted} label="ACLs" rows=${rows} rowKey=${(each) => each.text + each.host} empty="There are none." columns=${[
      { name: "principal", head: "who", show: (each) => html`<b>${each.principal}</b>` },
      { name: "permission", head: "", show: (each) => html`<span class=${`chip ${each.permission === "DENY" ? "bad" : "good"}`}>${each.permission.toLowerCase()}</span>` },
      { name: "operation", head: "operation", show: (each) => each.operation.toLowerCase().replaceAll("_", " ") },
      { name: "resource_type", head: "on", show: (each) => TYPES[each.resource_type] ?? each.resource_type },
      { name: "name", head: "called", show: (each) => html`<span class="mono">${each.resource_type === "CLUSTER" ? "" : each.name}${each.pattern_type === "PREFIXED" ? "…" : ""}</span>` },
      { name: "host", head: "from", show: (each) => (each.host === "*" ? "anywhere" : each.host) },
      { name: "gone", head: "", sort: false, show: (each) => { const { text, ...fields } = each; return html`<${Confirmed} danger quiet label="remove" title="Remove this ACL?" name="security/remove-acl" fields=${fields} confirm="Remove it" onDone=${again}><p class="mono">${text}</p></${Confirmed}>`; } },
    ]} /></section>`;
}

function Add({ words, again }) {
  const [fields, setFields] = useState({ principal: "", permission: "ALLOW", operation: "READ", resource_type: "TOPIC", pattern_type: "LITERAL", name: "", host: "*" });
  const change = useChange(again);
  const set = (more) => { change.reset(); setFields({ ...fields, ...more }); };
  return html`<details class="adding"><summary>Add an ACL</summary><form class="fields" onSubmit=${(e) => { e.preventDefault(); change.go("security/add-acl", fields); }}>
    <label class="field">who<input required placeholder="alice" value=${fields.principal} onInput=${(e) => set({ principal: e.target.value })} /></label>
    <label class="field">is<select value=${fields.permission} onChange=${(e) => set({ permission: e.target.value })}><option value="ALLOW">allowed</option><option value="DENY">denied</option></select></label>
    <label class="field">to<select value=${fields.operation} onChange=${(e) => set({ operation: e.target.value })}>${["ALL", ...(words[fields.resource_type] ?? [])].map((each) => html`<option key=${each} value=${each}>${each.toLowerCase().replaceAll("_", " ")}</option>`)}</select></label>
    <label class="field">on<select value=${fields.resource_type} onChange=${(e) => set({ resource_type: e.target.value, operation: "ALL" })}>${Object.entries(TYPES).map(([name, text]) => html`<option key=${name} value=${name}>${text}</option>`)}</select></label>
    ${fields.resource_type === "CLUSTER" ? null : html`<label class="field">whose name<select value=${fields.pattern_type} onChange=${(e) => set({ pattern_type: e.target.value })}><option value="LITERAL">is</option><option value="PREFIXED">begins with</option></select></label>
    <label class="field">name (* is all)<input required value=${fields.name} onInput=${(e) => set({ name: e.target.value })} /></label>`}
    <label class="field">from<input class="short" value=${fields.host} onInput=${(e) => set({ host: e.target.value })} /></label>
    <button class="main" disabled=${change.busy}>Add</button></form><${Trouble} error=${change.error} />${change.done ? html`<p class="note" role="status">Added: ${change.done.acl.text}</p>` : null}</details>`;
}

function Users({ list, acls, again }) {
  return html`<section class="box flush"><header><h2>Users with passwords</h2><span class="muted small">others log in with certificates or tokens</span></header>
    ${mayWrite() ? html`<${Password} again=${again} />` : null}
    <${Sorted} label="Users" rows=${list} rowKey=${(each) => each.name} empty="There are none." columns=${[
      { name: "name", head: "user", show: (each) => html`<b>${each.name}</b>` },
      { name: "credentials", head: "credentials", sort: false, show: (each) => each.credentials.map(([mechanism, iterations]) => `${mechanism} (${iterations})`).join(", ") },
      { name: "acls", head: "ACLs of its own", num: true, value: (each) => acls.filter((acl) => acl.principal === `User:${each.name}`).length, show: (each) => acls.filter((acl) => acl.principal === `User:${each.name}`).length },
      { name: "gone", head: "", sort: false, show: (each) => html`<${Confirmed} danger quiet label="remove" title=${`Remove user ${each.name}?`} name="security/remove-user" fields=${{ user: each.name }} typed=${each.name} confirm="Remove the user" command=${ottla("users", "remove", named(each.name), "--keep-acls")} onDone=${again}>
        <p>It cannot log in any more, and its connections end. Its ACLs stay: whoever gets that name again has them.</p></${Confirmed}>` },
    ]} /></section>`;
}

function Password({ again }) {
  const [fields, setFields] = useState({ user: "", password: "" });
  const change = useChange(() => { setFields({ user: "", password: "" }); again(); });
  return html`<details class="adding"><summary>Add a user, or set a password</summary><form class="fields" onSubmit=${(e) => { e.preventDefault(); change.go("security/set-password", fields); }}>
    <label class="field">user<input required autocomplete="off" value=${fields.user} onInput=${(e) => setFields({ ...fields, user: e.target.value })} /></label>
    <label class="field">password (12 characters or more)<input required type="password" autocomplete="new-password" minlength="12" value=${fields.password} onInput=${(e) => setFields({ ...fields, password: e.target.value })} /></label>
    <button class="main" disabled=${change.busy}>Set</button></form><${Trouble} error=${change.error} />${change.done ? html`<p class="note" role="status">Done.</p>` : null}</details>`;
}
