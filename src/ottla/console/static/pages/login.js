// Logging in with the cluster's own users: a name and a password, or a certificate with its key.

import { html, useEffect, useState } from "../lib.js";
import { askSession, refused, send, session } from "../store.js";
import { asset, Titled, Trouble } from "../parts/page.js";

export function Login() {
  const { by, mechanisms, mechanism } = session.value.login;
  const [fields, setFields] = useState({ user: "", password: "", mechanism, certificate: "", key: "", key_password: "" });
  const [state, setState] = useState({});
  const set = (more) => { setFields({ ...fields, ...more }); setState({}); };
  useEffect(() => { document.querySelector("form.login input")?.focus(); }, []);
  const submit = async (event) => {
    event.preventDefault();
    setState({ busy: true });
    const none = (text) => text || null;
    try {
      await send("login", by === "password"
        ? { user: fields.user, password: fields.password, mechanism: fields.mechanism, certificate: null, key: null, key_password: null }
        : { user: null, password: null, mechanism: null, certificate: none(fields.certificate), key: none(fields.key), key_password: none(fields.key_password) });
      setFields({ ...fields, password: "", key: "", key_password: "" });
      refused.value = null;
      await askSession();
    } catch (error) {
      setState({ error: error.message });
    }
  };
  const file = (name) => async (event) => { if (event.target.files[0]) set({ [name]: await event.target.files[0].text() }); };
  return html`<${Titled} title="Log in" /><main class="login"><form class="box login" onSubmit=${submit}>
    <p class="brand"><img src=${asset("icon.svg")} alt="" />ottla</p>
    <h1>Log in</h1>
    <p class="muted">With a user of the cluster. You see what this user may see.</p>
    ${by === "password" ? html`
      <label class="field">user<input name="username" autocomplete="username" autocapitalize="none" spellcheck=${false} required value=${fields.user} onInput=${(e) => set({ user: e.target.value })} /></label>
      <label class="field">password<input name="password" type="password" autocomplete="current-password" required value=${fields.password} onInput=${(e) => set({ password: e.target.value })} /></label>
      <details><summary class="muted small">How (${fields.mechanism})</summary><label class="field">mechanism<select value=${fields.mechanism} onChange=${(e) => set({ mechanism: e.target.value })}>${mechanisms.map((each) => html`<option key=${each}>${each}</option>`)}</select></label></details>`
    : html`
      <label class="field">certificate (PEM)<input type="file" accept=".pem,.crt,.cer" onChange=${file("certificate")} /></label>
      <label class="field">its key (PEM)<input type="file" accept=".pem,.key" onChange=${file("key")} /></label>
      <label class="field">password of the key, if it has one<input type="password" autocomplete="off" value=${fields.key_password} onInput=${(e) => set({ key_password: e.target.value })} /></label>
      <p class="muted small">Both stay in the memory of the console until you log out. Without them you come as nobody in particular, if the cluster allows that.</p>`}
    <${Trouble} error=${state.error} />
    <button class="main" disabled=${state.busy}>${state.busy ? "Asking the cluster…" : "Log in"}</button></form></main>`;
}
