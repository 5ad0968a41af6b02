// Values as people read them.

const UNITS = ["", "k", "M", "G", "T"];

export function count(value) {
  if (value === null || value === undefined) return "–";
  if (Math.abs(value) < 10_000) return Number.isInteger(value) ? value.toLocaleString("en") : short(value);
  let step = 0;
  let left = value;
  while (Math.abs(left) >= 1000 && step < UNITS.length - 1) [left, step] = [left / 1000, step + 1];
  return `${short(left)} ${UNITS[step]}`;
}

export function short(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && size < 0.01) return value.toPrecision(2);
  return value.toLocaleString("en", { maximumFractionDigits: size < 10 ? 2 : size < 100 ? 1 : 0 });
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let step = 0;
  while (value >= 1000 && step < units.length - 1) [value, step] = [value / 1000, step + 1];
  return `${step === 0 ? value : short(value)} ${units[step]}`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0 s";
  if (value < 0.001) return `${short(value * 1e6)} µs`;
  if (value < 1) return `${short(value * 1000)} ms`;
  if (value < 120) return `${short(value)} s`;
  if (value < 7200) return `${short(value / 60)} min`;
  return `${short(value / 3600)} h`;
}

// A length of application time: ticks are whatever an integer clock counts, or microseconds.
export function span(ticks, time) {
  if (ticks === null || ticks === undefined) return "–";
  return time === "timestamp" ? seconds(ticks / 1e6) : `${count(Math.round(ticks * 10) / 10)} ticks`;
}

// From and to which value a figure is expected; in the same unit, the unit once.
export function range(bounds, show) {
  const [low, high] = bounds.map(show);
  const [number, unit] = low.split(" ");
  return low === high ? high : `${unit && high.endsWith(` ${unit}`) ? number : low} to ${high}`;
}

// An instant of application time.
export function instant(tick, time) {
  if (tick === null || tick === undefined) return "–";
  if (time !== "timestamp") return short(tick);
  return new Date(tick / 1000).toISOString().replace("T", " ").replace(/\.?0*Z$/, "");
}

export function percent(part) {
  return part === null || part === undefined ? "–" : `${short(part * 100)} %`;
}

export function clock(at) {
  return at ? new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" }) : "–";
}

// A day and a time by the clock.
export function moment(at) {
  const day = new Date(typeof at === "number" ? at * 1000 : at);
  return Number.isNaN(day.getTime()) ? String(at) : day.toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

export function tail(path) {
  const parts = path.replace(/\/+$/, "").split("/");
  return parts[parts.length - 1] || path;
}

// The groups that are on their way to other slots, in words.
export const movingText = ({ groups, protocol, since }) =>
  `${plural(groups, "group")} on the way to other slots by ${protocol} since batch ${since}.`;
