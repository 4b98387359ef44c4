// Lines over time, drawn by uPlot. The table below says the same to those who do not see it.

import { html, useEffect, useLayoutEffect, useRef } from "../lib.js";
import uPlot from "../vendor/uplot.js";

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Custom properties with light-dark() have to be resolved by the browser.
export function colour(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

// `data`: [times in seconds, values, …]; `series`: [{ label, colour (a custom property), fill }]
export function Chart({ label, data, series, format, height = 170, onBrush, bars = false, sync }) {
  const box = useRef(null);
  const chart = useRef(null);
  const latest = useRef({});
  latest.current = { format, onBrush };

  const make = () => {
    chart.current?.destroy();
    const muted = colour("--muted");
    const grid = { stroke: colour("--line"), width: 1 };
    const font = `11px ${css("--sans") || "sans-serif"}`;
    chart.current = new uPlot({
      width: box.current.clientWidth,
      height,
      padding: [8, 26, 0, 0], // room for half of the last time
      legend: { show: false },
      cursor: {
        y: false,
        points: { size: 6 },
        drag: { x: Boolean(onBrush), y: false, setScale: false },
        ...(sync ? { sync: { key: sync } } : {}),
      },
      scales: { x: { range: (_, low, high) => timeRange(low, high) }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high || 1) * 1.08] } },
      axes: [
        { stroke: muted, grid: { show: false }, ticks: { show: false }, font, size: 26, values: (_, splits) => splits.map(clockText) },
        { stroke: muted, grid, ticks: { show: false }, font, size: 62, values: (_, values) => values.map((each) => latest.current.format(each)) },
      ],
      series: [
        {},
        ...series.map((each) => {
          const stroke = colour(each.colour);
          return {
            label: each.label,
            stroke,
            width: bars ? 0 : 1.6,
            fill: bars || each.fill ? fade(stroke, bars ? 0.75 : 0.13) : undefined,
            points: { show: false },
            spanGaps: false,
            ...(bars ? { paths: uPlot.paths.bars({ size: [0.86, 60] }) } : {}),
          };
        }),
      ],
      hooks: {
        setCursor: [(plot) => readout(box.current, plot, series, latest.current.format)],
        setSelect: [(plot) => {
          const { left, width } = plot.select;
          if (!latest.current.onBrush || width < 3) return;
          latest.current.onBrush(plot.posToVal(left, "x") * 1000, plot.posToVal(left + width, "x") * 1000);
          plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        }],
      },
    }, data, box.current);
  };

  useLayoutEffect(() => {
    make();
    const observer = new ResizeObserver(() => chart.current?.setSize({ width: box.current.clientWidth, height }));
    observer.observe(box.current);
    const media = matchMedia("(prefers-color-scheme: dark)");
    media.addEventListener("change", make);
    addEventListener("theme", make);
    return () => {
      observer.disconnect();
      media.removeEventListener("change", make);
      removeEventListener("theme", make);
      chart.current?.destroy();
      chart.current = null;
    };
  }, [series.map((each) => each.label).join()]);
  useEffect(() => {
    chart.current?.setData(data);
    if (chart.current) readout(box.current, chart.current, series, format);
  }, [data]);

  const now = series.map((each, index) => `${each.label} ${format(data[index + 1].at(-1) ?? null)}`).join(", ");
  return html`<figure class="chart">
    <figcaption><span>${label}</span>
      <span class="keys">${series.map((each) => html`<span class="key" key=${each.label}><i style=${{ background: `var(${each.colour})` }}></i>${each.label} <b data-key=${each.label}></b></span>`)}</span></figcaption>
    <div ref=${box} role="img" aria-label=${`${label}: now ${now}`}></div>
  </figure>`;
}

// At least a minute: one point alone has no width.
function timeRange(low, high) {
  const end = high ?? 1;
  return [Math.min(low || end, end - 60), end];
}

function readout(element, plot, series, format) {
  const index = plot.cursor.idx ?? plot.data[0].length - 1;
  const keys = element.parentNode.querySelectorAll("[data-key]");
  series.forEach((_, at) => { if (keys[at]) keys[at].textContent = format(plot.data[at + 1][index] ?? null); });
}

const pad = (number) => String(number).padStart(2, "0");

function clockText(seconds, index, all) {
  const at = new Date(seconds * 1000);
  const step = all.length > 1 ? all[1] - all[0] : 60;
  if (step >= 86400) return `${at.getMonth() + 1}-${pad(at.getDate())}`;
  return step < 60 ? `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}` : `${pad(at.getHours())}:${pad(at.getMinutes())}`;
}

const fade = (rgb, part) => rgb.replace(/^rgba?\(([^)]+)\)$/, (_, parts) => `rgba(${parts.split(",").slice(0, 3).join(",")}, ${part})`);

// A few numbers as a line, without axes.
export function Spark({ values, label, width = 90, height = 22 }) {
  const known = values.filter((each) => each !== null && each !== undefined);
  if (known.length < 2) return html`<span class="muted">–</span>`;
  const top = Math.max(...known, 1e-9);
  const points = values.map((each, index) => each === null || each === undefined ? null
    : `${((index / (values.length - 1)) * width).toFixed(1)},${(height - 1 - (each / top) * (height - 3)).toFixed(1)}`).filter(Boolean).join(" ");
  return html`<svg class="spark" width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${label}><polyline points=${points} /></svg>`;
}

// Points of a ring, (time, value, …), as uPlot wants them: columns, with a gap where there was nothing for long.
export function columnsOf(points, gapMs) {
  const width = points[0]?.length ?? 1;
  const columns = Array.from({ length: width }, () => []);
  let before = null;
  for (const point of points) {
    if (before !== null && point[0] - before > gapMs) {
      columns[0].push((before + 1) / 1000);
      for (let at = 1; at < width; at++) columns[at].push(null);
    }
    columns[0].push(point[0] / 1000);
    for (let at = 1; at < width; at++) columns[at].push(point[at]);
    before = point[0];
  }
  return columns;
}
