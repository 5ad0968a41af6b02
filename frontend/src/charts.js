// Measures over time, with the moments at which something changed.
import uPlot from "uplot";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { html } from "./html.js";

export const HUES = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7", "--c8"];
const MARKS = { fault: "--bad", resume: "--good", migration: "--new", move: "--move", rescale: "--move", restart: "--bad", start: "--good" };

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Draws when something changed: a line for a moment, a band for what lasted.
function marking(marks, at) {
  return {
    hooks: {
      drawClear: (plot) => {
        const { ctx, bbox } = plot;
        ctx.save();
        for (const mark of marks()) {
          const from = at(mark.batch);
          if (from === null) continue;
          // What has not ended yet lasts until now.
          const until = (mark.until === null ? plot.data[0].at(-1) : at(mark.until)) ?? from;
          const x = plot.valToPos(from, "x", true);
          const end = plot.valToPos(until, "x", true);
          if (end < bbox.left || x > bbox.left + bbox.width) continue;
          const left = Math.max(x, bbox.left);
          ctx.fillStyle = ctx.strokeStyle = colour(MARKS[mark.kind] ?? "--muted");
          if (end - left > 3) {
            ctx.globalAlpha = 0.14;
            ctx.fillRect(left, bbox.top, Math.min(end, bbox.left + bbox.width) - left, bbox.height);
          }
          ctx.globalAlpha = 0.9;
          ctx.lineWidth = devicePixelRatio;
          ctx.setLineDash(mark.kind === "migration" ? [] : [4 * devicePixelRatio, 3 * devicePixelRatio]);
          ctx.beginPath();
          ctx.moveTo(left, bbox.top);
          ctx.lineTo(left, bbox.top + bbox.height);
          ctx.stroke();
        }
        ctx.restore();
      },
    },
  };
}

// Adds up layers from the bottom, so that each is drawn on what lies below it.
function stacked(columns) {
  const sums = [];
  let below = null;
  for (const column of columns) {
    below = column.map((value, i) => (value ?? 0) + (below ? below[i] : 0));
    sums.push(below);
  }
  return sums;
}

export function Chart({ title, names, columns, series, show, stack = false, height = 170, now, label }) {
  const element = useRef(null);
  const plot = useRef(null);
  const latest = useRef({});
  const x = series.at;
  latest.current = { marks: series.marks, now, batch: series.batch, at: series.at };
  const data = useMemo(() => {
    const drawn = stack ? stacked(columns) : columns;
    return [x, ...(stack ? [...drawn].reverse() : drawn)];
  }, [x, columns]);
  const key = `${names.join("|")}${stack}`;
  useEffect(() => {
    const shown = stack ? [...names].reverse() : names;
    const hue = (i) => HUES[(stack ? names.length - 1 - i : i) % HUES.length];
    const options = {
      width: element.current.clientWidth || 300,
      height,
      cursor: { sync: { key: "midstream", setSeries: false }, points: { size: 6 }, drag: { x: true, y: false } },
      legend: { live: false, show: false },
      scales: { x: { time: true } },
      axes: [
        axis({ space: 70 }),
        axis({ size: 62, values: (_, ticks) => ticks.map((tick) => show(tick)) }),
      ],
      series: [
        {},
        ...shown.map((name, i) => ({
          label: name,
          stroke: () => colour(hue(i)),
          width: 1.6,
          points: { show: false },
          spanGaps: true,
          fill: stack ? () => `${colour(hue(i))}55` : undefined,
        })),
      ],
      bands: stack ? shown.slice(1).map((_, i) => ({ series: [i + 1, i + 2] })) : [],
      plugins: [
        marking(
          () => latest.current.marks,
          (batch) => timeOf(latest.current, batch),
        ),
        replaying(() => timeOf(latest.current, latest.current.now)),
      ],
    };
    plot.current = new uPlot(options, data, element.current);
    const watch = new ResizeObserver(() => {
      const width = element.current?.clientWidth;
      if (width && plot.current && width !== plot.current.width) plot.current.setSize({ width, height });
    });
    watch.observe(element.current);
    const theme = () => plot.current?.redraw(false, true);
    window.addEventListener("themechange", theme);
    return () => {
      watch.disconnect();
      window.removeEventListener("themechange", theme);
      plot.current.destroy();
      plot.current = null;
    };
  }, [key]);
  useEffect(() => {
    plot.current?.setData(data, !zoomed(plot.current));
  }, [data, now]);
  const last = columns.map((column) => column.at(-1));
  return html`<figure class="chart">
    <figcaption>
      <h3>${title}</h3>
      <ul class="legend">
        ${names.map(
          (name, i) => html`<li key=${name}>
            <span class="swatch" style=${{ background: `var(${HUES[i % HUES.length]})` }} aria-hidden="true"></span>${name} <b>${show(last[i] ?? null)}</b>
          </li>`,
        )}
      </ul>
    </figcaption>
    <div class="plot" ref=${element} role="img" aria-label=${label ?? `${title} over time`}></div>
  </figure>`;
}

function zoomed(plot) {
  const { min, max } = plot.scales.x;
  const x = plot.data[0];
  return min != null && x.length > 1 && (min > x[0] || max < x[x.length - 2]);
}

function axis(more) {
  return {
    stroke: () => colour("--muted"),
    grid: { stroke: () => colour("--line"), width: 1 },
    ticks: { show: false },
    font: "11px ui-sans-serif, system-ui, sans-serif",
    ...more,
  };
}

function replaying(at) {
  return {
    hooks: {
      draw: (plot) => {
        const moment = at();
        if (moment === null) return;
        const { ctx, bbox } = plot;
        const x = plot.valToPos(moment, "x", true);
        ctx.save();
        ctx.strokeStyle = colour("--accent");
        ctx.lineWidth = 2 * devicePixelRatio;
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
        ctx.restore();
      },
    },
  };
}

// When a batch was done; those before the first or after the last that are known have no time.
function timeOf({ batch, at }, wanted) {
  if (wanted === null || wanted === undefined || !batch.length) return null;
  let [low, high] = [0, batch.length - 1];
  if (wanted < batch[0] || wanted > batch[high]) return null;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (batch[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return at[low];
}

// A small line without axes.
export function Spark({ values, hue = "--accent" }) {
  const shown = values.slice(-60).map((value) => value ?? 0);
  if (shown.length < 2) return null;
  const most = Math.max(...shown, 1e-9);
  const points = shown.map((value, i) => `${((i / (shown.length - 1)) * 100).toFixed(2)},${(26 - (value / most) * 24).toFixed(2)}`);
  return html`<svg class="spark" viewBox="0 0 100 28" preserveAspectRatio="none" aria-hidden="true">
    <polyline points=${points.join(" ")} style=${{ stroke: `var(${hue})` }} />
  </svg>`;
}

// Columns added up, row by row.
export function total(columns) {
  const lists = Object.values(columns ?? {});
  return lists.length ? lists[0].map((_, i) => lists.reduce((sum, list) => sum + (list[i] ?? 0), 0)) : [];
}

// What came in each batch, for each second since the batch before.
export function perSecond(column, at) {
  return column.map((value, i) => {
    const passed = i ? at[i] - at[i - 1] : null;
    return passed > 0 ? (value ?? 0) / passed : null;
  });
}
