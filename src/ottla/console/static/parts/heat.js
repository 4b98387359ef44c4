// Brokers × partitions: one line for each topic, one column for each broker, one square for each replica there.
//
// Only the lines that can be seen are in the document, so that thousands of topics scroll like ten.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib.js";
import { to } from "../router.js";
import { ask } from "../store.js";
import { count, plural } from "../format.js";

const CELL = 17; // a square and the gap after it
const LINE = 17;
const PADDING = 13;
const MANY = 120; // replicas of a topic on one broker beyond which bars stand for squares
const OVERSCAN = 6;

export const WORDS = { leader: "leader", insync: "in sync", behind: "catching up", offline: "offline" };

export function stateOf(row, id, brokers) {
  const standing = brokers.get(String(id))?.standing ?? "gone";
  if (standing !== "up" || (row.offline.includes(id) && !row.isr.includes(id))) return "offline";
  if (row.leader === id) return "leader";
  return row.isr.includes(id) ? "insync" : "behind";
}

// One line for each topic: which of its replicas each broker has.
function linesOf(topics, partitions, brokers, ids) {
  const lines = [];
  for (const topic of topics.values()) {
    const cells = new Map(ids.map((id) => [id, []]));
    let unwell = 0;
    let leaderless = 0;
    for (let number = 0; number < topic.partitions; number++) {
      const row = partitions.get(`${topic.name}-${number}`);
      if (!row) continue;
      if (row.leader < 0) leaderless++;
      if (row.leader < 0 || row.isr.length < row.replicas.length) unwell++;
      for (const id of row.replicas) cells.get(id)?.push(row);
    }
    lines.push({ topic, cells, unwell, leaderless });
  }
  const rank = (line) => (line.leaderless ? 0 : line.topic.internal ? 3 : line.unwell ? 1 : 2);
  return lines.sort((a, b) => rank(a) - rank(b) || (a.topic.name < b.topic.name ? -1 : 1));
}

export function Heat({ topics, partitions, brokers, versions, height = "min(70vh, 720px)", internal = true, tools = true }) {
  const [filter, setFilter] = useState("");
  const [only, setOnly] = useState(false);
  const [width, setWidth] = useState(600);
  const [top, setTop] = useState(0);
  const [seen, setSeen] = useState(600);
  const box = useRef(null);
  const ids = useMemo(() => [...brokers.keys()].map(Number).sort((a, b) => a - b), versions);
  const all = useMemo(() => linesOf(topics, partitions, brokers, ids), versions);
  const lines = useMemo(() => {
    const text = filter.trim().toLowerCase();
    return all.filter((line) => (!text || line.topic.name.toLowerCase().includes(text))
      && (!only || line.unwell) && (internal || !line.topic.internal));
  }, [all, filter, only, internal]);

  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => {
      setWidth(box.current.clientWidth);
      setSeen(box.current.clientHeight);
    });
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);

  const names = Math.min(300, Math.max(120, width * 0.24));
  const column = Math.max(46, (width - names - 8) / Math.max(ids.length, 1));
  const perLine = Math.max(1, Math.floor((column - 10) / CELL));
  const tops = useMemo(() => {
    const found = [0];
    for (const line of lines) {
      let most = 1;
      for (const cells of line.cells.values()) most = Math.max(most, cells.length > MANY ? 1 : Math.ceil(cells.length / perLine));
      found.push(found.at(-1) + most * LINE + PADDING);
    }
    return found;
  }, [lines, perLine]);
  const whole = tops.at(-1);
  const first = Math.max(0, indexAt(tops, top) - OVERSCAN);
  const last = Math.min(lines.length, indexAt(tops, top + seen) + 1 + OVERSCAN);

  const onKeyDown = (event) => {
    const cell = event.target.closest(".c");
    const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!steps) return;
    const line = event.target.closest("[data-line]");
    if (!line) return;
    event.preventDefault();
    const index = Number(line.dataset.line);
    if (steps[0]) return focusOn(index + steps[0], cell ? [...line.querySelectorAll(".c")].indexOf(cell) : -1);
    const here = [...line.querySelectorAll("a")];
    here[here.indexOf(event.target) + steps[1]]?.focus();
  };
  const focusOn = (index, at) => {
    if (index < 0 || index >= lines.length) return;
    const { scrollTop, clientHeight } = box.current;
    if (tops[index] < scrollTop) box.current.scrollTop = tops[index];
    else if (tops[index + 1] > scrollTop + clientHeight) box.current.scrollTop = tops[index + 1] - clientHeight;
    requestAnimationFrame(() => requestAnimationFrame(() => {
      const line = box.current?.querySelector(`[data-line="${index}"]`);
      (at < 0 ? line?.querySelector("a") : line?.querySelectorAll(".c")[at] ?? line?.querySelector("a"))?.focus();
    }));
  };

  const tip = useTip(box);
  const style = { "--names": `${names}px`, "--column": `${column}px` };
  return html`
    <div class="heat-tools">
      ${tools ? html`<input type="search" placeholder="Filter topics" aria-label="Filter topics" value=${filter} onInput=${(e) => setFilter(e.target.value)} />
      <label class="check"><input type="checkbox" checked=${only} onChange=${(e) => setOnly(e.target.checked)} />Only what is not well</label>` : null}
      <${Legend} />
    </div>
    <div class="heat" role="grid" aria-label="Brokers and partitions" aria-rowcount=${lines.length + 1} aria-colcount=${ids.length + 1} style=${style} onKeyDown=${onKeyDown}>
      <div class="heat-head" role="row">
        <span role="columnheader">${plural(lines.length, "topic")}</span>
        ${ids.map((id) => html`<span role="columnheader" key=${id}><${BrokerHead} row=${brokers.get(String(id))} id=${id} narrow=${column < 90} /></span>`)}
      </div>
      <div class="heat-box" ref=${box} style=${{ maxHeight: height }} onScroll=${(e) => setTop(e.target.scrollTop)}>
        <div class="heat-inner" role="presentation" style=${{ height: `${whole}px` }}>
          ${lines.slice(first, last).map((line, at) => html`<${Line} key=${line.topic.name} line=${line} ids=${ids} brokers=${brokers}
            index=${first + at} top=${tops[first + at]} height=${tops[first + at + 1] - tops[first + at]} />`)}
        </div>
        ${lines.length ? null : html`<p class="empty">${all.length ? "No topic is like that." : "There are no topics yet."}</p>`}
      </div>
    </div>
    ${tip}`;
}

function indexAt(tops, y) {
  let low = 0;
  let high = tops.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (tops[middle] <= y) low = middle;
    else high = middle - 1;
  }
  return low;
}

const Legend = () => html`<ul class="legend" aria-label="What the squares mean">
  ${Object.entries(WORDS).map(([state, word]) => html`<li key=${state}><i class=${`c ${state}`}></i>${word}</li>`)}</ul>`;

function BrokerHead({ row, id, narrow }) {
  const standing = row?.standing ?? "gone";
  return html`<a href=${to.broker(id)} class=${`broker-head ${standing}`}><b>${id}</b>
    <small>${standing === "up" ? (narrow ? count(row.leaders) : plural(row.leaders, "leader")) : { fenced: "down", silent: "silent", gone: "gone" }[standing]}</small></a>`;
}

function Line({ line, ids, brokers, index, top, height }) {
  const { topic, cells, unwell, leaderless } = line;
  return html`<div class="heat-line" role="row" aria-rowindex=${index + 2} data-line=${index}
    style=${{ transform: `translateY(${top}px)`, height: `${height}px` }}>
    <span role="rowheader" class="heat-name"><a href=${to.topic(topic.name)} class=${topic.internal ? "muted" : ""}>${topic.name}</a>
      ${leaderless ? html`<span class="chip bad">${count(leaderless)} offline</span>` : unwell ? html`<span class="chip warn">${count(unwell)}</span>` : null}</span>
    ${ids.map((id) => html`<span role="gridcell" key=${id} class="heat-cells">${
      cells.get(id).length > MANY ? html`<${Bars} rows=${cells.get(id)} id=${id} brokers=${brokers} topic=${topic.name} />`
      : cells.get(id).map((row) => {
        const state = stateOf(row, id, brokers);
        return html`<a key=${row.partition} class=${`c ${state}`} tabindex="-1" href=${to.partition(row.topic, row.partition)} data-broker=${id}
          aria-label=${`${row.topic}-${row.partition} on broker ${id}: ${WORDS[state]}`}></a>`;
      })}</span>`)}
  </div>`;
}

// Of a topic with very many partitions: how many replicas are in each state.
function Bars({ rows, id, brokers, topic }) {
  const counts = { leader: 0, insync: 0, behind: 0, offline: 0 };
  for (const row of rows) counts[stateOf(row, id, brokers)]++;
  const told = Object.entries(counts).filter(([, number]) => number).map(([state, number]) => `${count(number)} ${WORDS[state]}`).join(", ");
  return html`<a class="bars" href=${to.topic(topic)} title=${told} aria-label=${`${topic} on broker ${id}: ${told}`}>
    ${Object.entries(counts).map(([state, number]) => number ? html`<i class=${`b ${state}`} style=${{ flexGrow: number }}></i>` : null)}</a>`;
}

// What a square tells when the pointer or the focus is on it: asked for then, of the replicas themselves.
function useTip(box) {
  const [tip, setTip] = useState(null);
  useEffect(() => {
    let timer = null;
    let turn = 0;
    const show = (event) => {
      const cell = event.target.closest?.("a.c");
      clearTimeout(timer);
      const mine = ++turn;
      if (!cell) return setTip(null);
      timer = setTimeout(async () => {
        const [, , topic, partition] = cell.getAttribute("href").split("/");
        const at = cell.getBoundingClientRect();
        const place = { x: Math.max(8, Math.min(at.left, innerWidth - 300)), y: at.bottom + 6, up: at.bottom > innerHeight - 170, above: innerHeight - at.top + 6 };
        const name = `${decodeURIComponent(topic)}-${partition}`;
        setTip({ place, name, broker: Number(cell.dataset.broker), label: cell.ariaLabel });
        const replicas = await ask("replicas", { topic: decodeURIComponent(topic), partition }).catch(() => null);
        if (mine === turn) setTip((before) => before && { ...before, replicas });
      }, 90);
    };
    const hide = () => { clearTimeout(timer); turn++; setTip(null); };
    const element = box.current;
    element.addEventListener("pointerover", show);
    element.addEventListener("focusin", show);
    element.addEventListener("pointerleave", hide);
    element.addEventListener("focusout", hide);
    element.addEventListener("scroll", hide, { passive: true });
    return () => {
      hide();
      for (const [name, call] of [["pointerover", show], ["focusin", show], ["pointerleave", hide], ["focusout", hide], ["scroll", hide]]) element.removeEventListener(name, call);
    };
  }, []);
  if (!tip) return null;
  const { place } = tip;
  const style = place.up ? { left: `${place.x}px`, bottom: `${place.above}px` } : { left: `${place.x}px`, top: `${place.y}px` };
  return html`<div class="tip" role="tooltip" style=${style}>
    <b>${tip.name}</b>
    ${tip.replicas ? html`<table><thead><tr><th>broker</th><th class="num">LEO</th><th class="num">HW</th><th class="num">lag</th></tr></thead>
      <tbody>${tip.replicas.map((each) => html`<tr class=${each.broker === tip.broker ? "here" : ""} key=${each.broker}>
        <td>${each.broker} ${each.role}</td><td class="num">${count(each.end)}</td><td class="num">${count(each.high_watermark)}</td><td class="num">${count(each.lag)}</td></tr>`)}</tbody></table>`
      : html`<p class="muted small">${tip.label.split(": ")[1]}</p>`}
  </div>`;
}
