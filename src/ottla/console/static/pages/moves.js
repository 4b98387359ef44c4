// Replicas that move to other brokers, and plans that would give every broker its share: before and after.

import { html, signal, useEffect, useState } from "../lib.js";
import { PartitionLink, to } from "../router.js";
import { bytes, count, duration, plural } from "../format.js";
import { ask, clock, tables } from "../store.js";
import { Confirmed, mayWrite, useChange } from "../parts/actions.js";
import { Command, ottla, Sorted, Titled, Trouble } from "../parts/page.js";

export default function Moves() {
  const rows = tables.moves.list;
  const copied = rows.reduce((sum, row) => sum + (row.copied ?? 0), 0);
  const total = rows.reduce((sum, row) => sum + (row.total ?? 0), 0);
  return html`<${Titled} title="Moves" />
    <div class="head"><h1>Moves</h1>${rows.length ? html`<${Cancel} places=${[]} all=${rows.length} />` : null}</div>
    <${Run} />
    <section class="box flush"><header><h2>Under way</h2>${rows.length ? html`<span class="muted small">${plural(rows.length, "partition")}, ${bytes(copied)} of ${bytes(total)} copied</span>` : null}</header>
      <${Sorted} label="Moves under way" rows=${rows} rowKey=${(row) => `${row.topic}-${row.partition}`} empty="Nothing is being moved." columns=${[
        { name: "name", head: "partition", value: (row) => `${row.topic}-${row.partition}`, show: (row) => html`<${PartitionLink} name=${`${row.topic}-${row.partition}`} />` },
        { name: "replicas", head: "from → to", sort: false, show: (row) => html`<${FromTo} row=${row} />` },
        { name: "copied", head: "copied", value: (row) => (row.total ? row.copied / row.total : 1), show: (row) => html`<${Progress} done=${row.copied} all=${row.total} />` },
        { name: "rate", head: "per second", num: true, show: (row) => (row.rate === null ? "–" : `${bytes(row.rate)}/s`) },
        { name: "left", head: "left", num: true, value: (row) => leftMs(row), show: (row) => duration(leftMs(row)) },
        { name: "since_ms", head: "since", show: (row) => `${duration(clock.value - row.since_ms)} ago` },
        { name: "cancel", head: "", sort: false, show: (row) => html`<${Cancel} places=${[[row.topic, row.partition]]} quiet />` },
      ]} /></section>
    <${Plan} busy=${rows.length > 0} />`;
}

const leftMs = (row) => (row.rate > 0 && row.total ? ((row.total - row.copied) / row.rate) * 1000 : null);

function FromTo({ row }) {
  const stays = row.replicas.filter((id) => !row.adding.includes(id) && !row.removing.includes(id));
  return html`<span class="fromto">${stays.map((id) => html`<span class="chip" key=${id}>${id}</span>`)}${row.removing.map((id) => html`<span class="chip warn" key=${id}>− ${id}</span>`)}${row.adding.map((id) => html`<span class="chip good" key=${id}>+ ${id}</span>`)}</span>`;
}

function Progress({ done, all }) {
  if (all === null || all === undefined) return html`<span class="muted">–</span>`;
  const part = all ? done / all : 1;
  return html`<span class="progress"><progress max="1" value=${part} aria-label=${`${Math.round(part * 100)} %`}></progress> <small>${bytes(done)} of ${bytes(all)}</small></span>`;
}

const Cancel = ({ places, all, quiet }) => html`<${Confirmed} danger quiet=${quiet} label=${all ? `Cancel all ${all}` : "cancel"} title=${all ? "Cancel all moves?" : `Cancel the move of ${places[0]?.join("-")}?`} name="moves/cancel" fields=${{ places }}
  confirm="Cancel the moves" command=${all ? ottla("reassign", "cancel") : undefined}><p>The partitions stay on the brokers on which they were. What was copied is deleted.</p></${Confirmed}>`;

// The run that was started from here

const started = signal(0);

function Run() {
  const [run, setRun] = useState(null);
  const active = tables.moves.now.size > 0;
  useEffect(() => {
    let timer = null;
    let gone = false;
    const look = async () => {
      const found = await ask("moves/run").catch(() => null);
      if (gone) return;
      setRun(found);
      if (found && !found.over) timer = setTimeout(look, 1000);
    };
    look();
    return () => { gone = true; clearTimeout(timer); };
  }, [active, started.value]);
  if (!run) return null;
  return html`<section class="box"><header><h2>${run.over ? "The last run from here" : "A run from here"}</h2><span class="muted small">${run.throttle ? `each broker copies ${bytes(run.throttle)}/s at most` : ""}</span></header>
    ${run.trouble ? html`<${Trouble} error=${run.trouble} />` : html`<p>${run.done ?? 0} of ${plural(run.partitions, "partition")} done. <${Progress} done=${run.moved ?? 0} all=${run.total ?? null} />
      ${run.over ? " No limit is left behind." : run.seconds_left !== null && run.seconds_left !== undefined ? ` ${duration(run.seconds_left * 1000)} left.` : ""}</p>`}</section>`;
}

// A plan

function Plan({ busy }) {
  const [percent, setPercent] = useState(10);
  const [plan, setPlan] = useState(null);
  const [state, setState] = useState({});
  const [throttle, setThrottle] = useState("auto");
  const change = useChange(() => { started.value++; });
  const make = async () => {
    setState({ busy: true });
    change.reset();
    try {
      setPlan(await ask("moves/plan", { tolerance: percent }));
      setState({});
    } catch (error) {
      setState({ error: error.message });
    }
  };
  return html`<section class="box"><header><h2>Balance</h2><span class="muted small">leaders, replicas, disk and bytes per second of each broker, with as few bytes moved as possible</span></header>
    <div class="fields"><label class="field">may differ by<select value=${percent} onChange=${(e) => setPercent(Number(e.target.value))}>${[5, 10, 20, 50].map((each) => html`<option key=${each} value=${each}>${each} % of a share</option>`)}</select></label>
      <button onClick=${make} disabled=${state.busy}>${state.busy ? "Planning…" : "Make a plan"}</button></div>
    <${Trouble} error=${state.error} />
    ${plan ? html`<${Shown} plan=${plan} />
      ${plan.changes.length ? html`<${Command} text=${ottla("balance", "apply", "--tolerance", percent)} />
        ${mayWrite() ? html`<div class="fields"><label class="field">copying<select value=${throttle} onChange=${(e) => setThrottle(e.target.value)}><option value="auto">as fast as clients do not notice</option><option value="10000000">10 MB/s for each broker</option><option value="50000000">50 MB/s for each broker</option><option value="none">without a limit</option></select></label>
          <button class="main" disabled=${busy || change.busy} onClick=${() => change.go("moves/start", { moves: plan.changes.map((each) => ({ topic: each.topic, partition: each.partition, replicas: each.after })), throttle })}>Carry it out</button></div>` : null}` : null}
      <${Trouble} error=${change.error} />${change.done ? html`<p class="note" role="status">It is under way.</p>` : null}` : null}
  </section>`;
}

const GOALS = [["leaders", "leaders", count], ["replicas", "replicas", count], ["disk", "disk", bytes], ["rate", "bytes/s", bytes]];

function Shown({ plan }) {
  const goals = GOALS.filter(([name]) => plan.brokers.some((each) => name in each.before));
  const most = Object.fromEntries(goals.map(([name]) => [name, Math.max(1e-9, ...plan.brokers.flatMap((each) => [each.before[name], each.after[name]]))]));
  if (!plan.changes.length) return html`<p class="note">${plan.balanced ? "The cluster is balanced: nothing has to move." : "Nothing that could be moved would make it better."}</p>`;
  const places = plan.changes.filter((each) => [...each.before].sort().join() !== [...each.after].sort().join()).length;
  return html`<p>${plural(plan.changes.length, "partition")} would change, ${places ? `${count(places)} of them with copying` : "only their leaders"}; ${bytes(plan.bytes_to_move)} would be copied (at least ${bytes(plan.bytes_bound)} have to be).</p>
    <div class="scroll"><table aria-label="Loads before and after"><thead><tr><th>broker</th>${goals.map(([name, text]) => html`<th key=${name}>${text}, before and after</th>`)}<th class="num">score</th></tr></thead>
      <tbody>${plan.brokers.map((each) => html`<tr key=${each.broker}><td><a href=${to.broker(each.broker)}>${each.broker}</a></td>
        ${goals.map(([name, , format]) => html`<td key=${name}><span class="ba"><i style=${{ width: `${(each.before[name] / most[name]) * 100}%` }}></i><small>${format(each.before[name])}</small></span><span class="ba after"><i style=${{ width: `${(each.after[name] / most[name]) * 100}%` }}></i><small>${format(each.after[name])}</small></span></td>`)}
        <td class="num">${each.score_before === null ? "–" : `${each.score_before.toFixed(2)} → ${each.score_after.toFixed(2)}`}</td></tr>`)}</tbody></table></div>
    <details><summary>${plural(plan.changes.length, "change")}</summary><div class="tall"><table><thead><tr><th>partition</th><th>replicas before</th><th>after</th><th class="num">to copy</th></tr></thead>
      <tbody>${plan.changes.slice(0, 500).map((each) => html`<tr key=${`${each.topic}-${each.partition}`}><td><${PartitionLink} name=${`${each.topic}-${each.partition}`} /></td><td class="mono">${each.before.join(", ")}</td><td class="mono">${each.after.join(", ")}</td><td class="num">${bytes(each.bytes)}</td></tr>`)}</tbody></table></div></details>`;
}
