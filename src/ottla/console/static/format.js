// Numbers, sizes, durations and times, the same on every page.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export const count = (number) => (number === null || number === undefined ? "–" : whole.format(number));

export function short(number) {
  if (number === null || number === undefined) return "–";
  const size = Math.abs(number);
  if (size < 10 && size % 1) return number.toFixed(1);
  if (size < 10_000) return whole.format(number);
  if (size < 1e6) return `${(number / 1e3).toFixed(size < 1e5 ? 1 : 0)} k`;
  if (size < 1e9) return `${(number / 1e6).toFixed(size < 1e8 ? 1 : 0)} M`;
  return `${(number / 1e9).toFixed(1)} G`;
}

export function bytes(number) {
  if (number === null || number === undefined) return "–";
  let size = Math.abs(number);
  for (const unit of UNITS) {
    if (size < 1024 || unit === "PiB") return `${unit === "B" ? Math.round(size) : size.toFixed(size < 10 ? 1 : 0)} ${unit}`;
    size /= 1024;
  }
  return "–";
}

export const plural = (number, noun, many = `${noun}s`) => `${count(number)} ${number === 1 ? noun : many}`;

export const shortly = (number, noun, many = `${noun}s`) => `${short(number)} ${number === 1 ? noun : many}`;

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  const seconds = ms / 1000;
  if (seconds < 1) return `${Math.max(0, Math.round(ms))} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${Math.floor(hours / 24)} days`;
}

export const seconds = (number) => (number === null || number === undefined ? "–" : duration(number * 1000));

const pad = (number, width = 2) => String(number).padStart(width, "0");

// Producers may say any number; a date has at most 100 million days.
const isTime = (ms) => Boolean(ms) && Math.abs(ms) <= 8.64e15;

// The time of day, with the date where it is another day, and milliseconds if asked for. Local time, as people live in it.
export function time(ms, { millis = false, now = Date.now() } = {}) {
  if (!isTime(ms)) return ms ? String(ms) : "–";
  const at = new Date(ms);
  const day = new Date(now).toDateString() === at.toDateString()
    ? ""
    : `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} `;
  const text = `${day}${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  return millis ? `${text}.${pad(at.getMilliseconds(), 3)}` : text;
}

export const iso = (ms) => (isTime(ms) ? new Date(ms).toISOString() : undefined);

export const listed = (items) => {
  const words = items.map(String);
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
};
