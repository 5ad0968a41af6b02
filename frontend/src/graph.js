// A plan as a drawing: operators as boxes, sources at one end and results at the other.
import { layout as dagreLayout, Graph } from "@dagrejs/dagre";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { bytes, count, percent, seconds } from "./format.js";
import { html } from "./html.js";

const WIDTH = 172;
const HEIGHT = 58;
const SMALLEST = 0.62; // how small a drawing is made to fit
const LARGE = 60; // operators from which on a plan is laid out as a tree, in linear time, and folded at first
const DEPTH = 3; // how many operators deep a folded plan is shown

export const METRICS = {
  rows: { title: "Rows in", of: (f) => f.rows_in, show: (v) => `${count(v)} in` },
  selectivity: {
    title: "Selectivity",
    of: (f) => (f.rows_in ? f.rows_out / f.rows_in : null),
    show: (v) => `${percent(v)} out`,
  },
  time: { title: "Time", of: (f) => f.seconds, show: seconds },
  state: { title: "State", of: (f) => f.state_bytes, show: bytes },
};

const KINDS = {
  Source: "Source",
  HashJoin: "Join",
  MultiwayJoin: "Multi-join",
  OuterJoin: "Outer join",
  GroupAggregate: "Aggregate",
  Deduplicate: "Distinct",
  Compute: "Compute",
  Filter: "Filter",
  AssignWindow: "Window",
  RowWindow: "Row window",
  Instants: "Instants",
  Concatenate: "Union",
  SetOperation: "Set operation",
  Changes: "To stream",
  FollowedBy: "Sequence",
};

// An operator in words: one without a word of its own is called as its class, MatchRows for instance: Match rows.
export const kindOf = (node) => KINDS[node.kind] ?? node.kind.replace(/\B[A-Z]/g, (sign) => ` ${sign.toLowerCase()}`);

export function measure(node, metric) {
  return node.figures ? METRICS[metric].of(node.figures) : null;
}

export function topFive(nodes, metric) {
  return nodes
    .map((node) => ({ node, value: measure(node, metric) }))
    .filter((each) => each.value !== null && each.value > 0)
    .sort((a, b) => b.value - a.value)
    .slice(0, 5);
}

// The operators to show: all of a small plan; of a large one, those near the one in focus.
export function visible(nodes, focus, all) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const fed = new Set(nodes.flatMap((node) => node.inputs));
  const roots = nodes.filter((node) => !fed.has(node.id));
  const start = byId.has(focus) ? [byId.get(focus)] : roots;
  const folded = !all && nodes.length > LARGE;
  const kept = new Map();
  let level = start;
  for (let depth = 0; level.length && (!folded || depth <= DEPTH); depth++) {
    for (const node of level) kept.set(node.id, node);
    level = level.flatMap((node) => node.inputs.map((id) => byId.get(id)).filter((each) => each && !kept.has(each.id)));
  }
  const below = (id, seen = new Set()) => {
    const stack = [id];
    while (stack.length) {
      const now = stack.pop();
      if (seen.has(now) || !byId.has(now)) continue;
      seen.add(now);
      stack.push(...byId.get(now).inputs);
    }
    return seen.size - 1;
  };
  return [...kept.values()].map((node) => {
    const hidden = node.inputs.filter((id) => byId.has(id) && !kept.has(id));
    return { ...node, shown: node.inputs.filter((id) => kept.has(id)), hidden: hidden.length ? below(node.id) : 0 };
  });
}

function byDagre(nodes, upright) {
  const graph = new Graph();
  graph.setGraph({ rankdir: upright ? "BT" : "LR", nodesep: 18, ranksep: upright ? 36 : 44, marginx: 8, marginy: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of nodes) graph.setNode(node.id, { width: WIDTH, height: HEIGHT });
  for (const node of nodes) for (const input of node.shown) graph.setEdge(input, node.id);
  dagreLayout(graph);
  const size = graph.graph();
  const places = new Map(nodes.map((node) => [node.id, graph.node(node.id)]));
  return { places, width: size.width || WIDTH, height: size.height || HEIGHT };
}

// Leaves one below the other, every other operator in the middle of what feeds it.
function asTree(nodes, upright) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const fed = new Set(nodes.flatMap((node) => node.shown));
  const across = upright ? WIDTH + 18 : HEIGHT + 16;
  const along = upright ? HEIGHT + 40 : WIDTH + 48;
  const raw = new Map();
  let next = 0;
  let deepest = 0;
  const done = new Set();
  for (const root of nodes.filter((node) => !fed.has(node.id))) {
    const stack = [[root, 0, false]];
    while (stack.length) {
      const [node, depth, back] = stack.pop();
      deepest = Math.max(deepest, depth);
      if (!back) {
        if (done.has(node.id)) continue;
        done.add(node.id);
        stack.push([node, depth, true]);
        for (const id of [...node.shown].reverse()) stack.push([byId.get(id), depth + 1, false]);
        continue;
      }
      const below = node.shown.map((id) => raw.get(id)).filter(Boolean);
      const middle = below.length ? below.reduce((sum, place) => sum + place.across, 0) / below.length : next++;
      raw.set(node.id, { across: middle, depth });
    }
  }
  const places = new Map();
  for (const [id, place] of raw) {
    const a = 8 + place.across * across;
    const d = 8 + (upright ? place.depth : deepest - place.depth) * along;
    places.set(id, upright ? { x: a + WIDTH / 2, y: d + HEIGHT / 2 } : { x: d + WIDTH / 2, y: a + HEIGHT / 2 });
  }
  const wide = upright ? next * across : (deepest + 1) * along;
  const high = upright ? (deepest + 1) * along : next * across;
  return { places, width: wide + 16, height: high + 16 };
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function detail(node) {
  const label = node.label.replace(/^(Source|Join on|Join|Compute|Filter|Group by)\s+/, "");
  return label === node.label && label === kindOf(node) ? "" : label;
}

function path(from, to, upright) {
  if (upright) {
    const [a, b] = [from.y - HEIGHT / 2, to.y + HEIGHT / 2];
    const middle = (a + b) / 2;
    return `M${from.x},${a} C${from.x},${middle} ${to.x},${middle} ${to.x},${b}`;
  }
  const [a, b] = [from.x + WIDTH / 2, to.x - WIDTH / 2];
  const middle = (a + b) / 2;
  return `M${a},${from.y} C${middle},${from.y} ${middle},${to.y} ${b},${to.y}`;
}

export function PlanGraph({ graph, metric = "time", chosen, focus, all, onChoose, onFocus, marked, label, flowing, inflow }) {
  const frame = useRef(null);
  const [wide, widen] = useState(0);
  const upright = wide < 560;
  useLayoutEffect(() => {
    const look = () => frame.current && widen(frame.current.clientWidth);
    look();
    const watch = new ResizeObserver(look);
    watch.observe(frame.current);
    return () => watch.disconnect();
  }, []);
  // The drawing changes with the operators, not with what they did in the last batch.
  const shape = graph.nodes.map((node) => `${node.id}:${node.inputs}`).join(" ");
  const drawn = useMemo(() => {
    const nodes = visible(graph.nodes, focus, all);
    return { nodes, ...(nodes.length > LARGE ? asTree(nodes, upright) : byDagre(nodes, upright)) };
  }, [shape, focus, all, upright]);
  const byId = new Map(graph.nodes.map((node) => [node.id, node]));
  const values = graph.nodes.map((node) => measure(node, metric)).filter((value) => value !== null);
  const most = Math.max(...values, 0);
  const busiest = Math.max(...graph.nodes.map((node) => rowsOut(node, inflow)), 1);
  useEffect(() => {
    if (chosen) frame.current?.querySelector(`[data-id="${CSS.escape(chosen)}"]`)?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [chosen]);
  const move = (event) => arrows(event, drawn);
  // A drawing that is a little too wide is made smaller; one that is much too wide is scrolled.
  const scale = Math.max(SMALLEST, Math.min(1, wide / drawn.width || 1));
  return html`<div class="graph" ref=${frame} role="group" aria-label=${label} tabindex="-1" onKeyDown=${move}>
    <svg
      viewBox=${`0 0 ${drawn.width} ${drawn.height}`}
      width=${drawn.width * scale}
      height=${drawn.height * scale}
      class=${flowing ? "flowing" : ""}
    >
      <g class="edges" aria-hidden="true">
        ${drawn.nodes.flatMap((node) =>
          node.shown.map((id) => {
            const out = rowsOut(byId.get(id), inflow);
            const width = 1.2 + 3.2 * (Math.log1p(out) / Math.log1p(busiest));
            return html`<path
              key=${`${id}-${node.id}`}
              d=${path(drawn.places.get(id), drawn.places.get(node.id), upright)}
              stroke-width=${width}
              class=${out ? "busy" : ""}
            />`;
          }),
        )}
      </g>
      ${drawn.nodes.map((drawnNode) => {
        const node = byId.get(drawnNode.id) ?? drawnNode;
        const place = drawn.places.get(node.id);
        const value = measure(node, metric);
        const heat = most > 0 && value ? Math.round(8 + 62 * Math.sqrt(value / most)) : 0;
        const came = node.kind === "Source" && inflow?.[node.stream];
        const shown = value ? METRICS[metric].show(value) : came && metric === "rows" ? `${count(came)} in` : "";
        const mark = marked?.(node) ?? "";
        return html`<g
          key=${node.id}
          data-id=${node.id}
          class=${`node ${mark} ${node.id === chosen ? "chosen" : ""} heat-${Math.round(heat / 10)}`}
          transform=${`translate(${place.x - WIDTH / 2},${place.y - HEIGHT / 2})`}
          role="button"
          tabindex="0"
          aria-pressed=${node.id === chosen}
          aria-label=${`${kindOf(node)}: ${node.label}${shown ? `, ${shown}` : ""}${mark ? `, ${mark}` : ""}`}
          onClick=${() => onChoose?.(node.id)}
          onDblClick=${() => onFocus?.(node.id)}
          onKeyDown=${(event) => {
            if (event.key !== "Enter" && event.key !== " ") return;
            event.preventDefault();
            onChoose?.(node.id);
          }}
        >
          <title>${node.label}</title>
          <rect class="box" width=${WIDTH} height=${HEIGHT} rx="10" />
          <rect class="heat" width=${WIDTH} height=${HEIGHT} rx="10" style=${{ opacity: heat / 100 }} />
          <text class="kind" x="12" y="22">${kindOf(node)}</text>
          <text class="value" x=${WIDTH - 12} y="22" text-anchor="end">${shown}</text>
          <text class="what" x="12" y="42">${cut(detail(node) || node.label, 22)}</text>
          ${drawnNode.hidden
            ? html`<g class="more" onClick=${(event) => (event.stopPropagation(), onFocus?.(node.id))}>
                <rect x="56" y=${HEIGHT - 9} width="60" height="17" rx="8.5" />
                <text x="86" y=${HEIGHT + 3.5} text-anchor="middle">+ ${drawnNode.hidden}</text>
              </g>`
            : null}
        </g>`;
      })}
    </svg>
  </div>`;
}

// What an operator gave in the last batch; of a stream, what came.
function rowsOut(node, inflow) {
  return node?.figures?.rows_out ?? inflow?.[node?.stream] ?? 0;
}

// With the arrow keys to the operator next to the one that has the focus.
function arrows(event, drawn) {
  const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const way = ways[event.key];
  const from = event.target.closest?.("[data-id]");
  if (!way || !from) return;
  const here = drawn.places.get(from.dataset.id);
  let best = null;
  for (const [id, place] of drawn.places) {
    const [dx, dy] = [place.x - here.x, place.y - here.y];
    const ahead = dx * way[0] + dy * way[1];
    if (ahead < 4) continue;
    const far = ahead + 2.5 * Math.abs(way[0] ? dy : dx);
    if (!best || far < best.far) best = { id, far };
  }
  if (best) {
    event.preventDefault();
    event.currentTarget.querySelector(`[data-id="${CSS.escape(best.id)}"]`)?.focus();
  }
}
