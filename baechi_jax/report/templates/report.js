"use strict";
(() => {
  const D = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const escape = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

  // Units ------------------------------------------------------------------------------------
  const digits = (v) => (Math.abs(v) < 9.995 ? v.toFixed(2) : Math.abs(v) < 99.95 ? v.toFixed(1) : v.toFixed(0));
  const seconds = (s) => {
    for (const [factor, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "us"]]) {
      if (Math.abs(s) >= 0.9995 * factor) return `${digits(s / factor)} ${unit}`;
    }
    return s === 0 ? "0 s" : `${digits(s / 1e-9)} ns`;
  };
  const scaled = (v, step, units) => {
    let i = 0;
    while (Math.abs(v) >= step - 0.5 && i < units.length - 1) { v /= step; i += 1; }
    return i === 0 ? `${Math.round(v)} ${units[0]}`.trim() : `${digits(v)} ${units[i]}`;
  };
  const bytes = (b) => scaled(b, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
  const count = (c) => scaled(c, 1000, ["", "k", "M", "G", "T", "P"]);

  // Colours ----------------------------------------------------------------------------------
  const PHASES = { forward: "#5b8def", backward: "#e9a23b", update: "#43a883", compute: "#5b8def" };
  const deviceColour = (d) => `var(--device-${d % 8})`;
  const layerColour = (l) => `hsl(${Math.round((l * 137.508 + 210) % 360)} 52% ${l % 2 ? 60 : 52}%)`;
  const TRANSFER = "#9aa6b6";

  // Tooltip ----------------------------------------------------------------------------------
  const tip = byId("tip");
  const show = (event, html) => {
    tip.innerHTML = html;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const x = event.clientX + 14 + box.width > innerWidth ? event.clientX - box.width - 10 : event.clientX + 14;
    const y = event.clientY + 16 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 16;
    tip.style.left = `${Math.max(4, x)}px`;
    tip.style.top = `${Math.max(4, y)}px`;
  };
  const hide = () => { tip.hidden = true; };
  const deviceName = (d) => `device ${d}${D.devices[d].name ? ` (${D.devices[d].name})` : ""}`;
  const partsOf = (t) => {
    const sums = new Map();
    t.parts.forEach((p) => {
      const key = `${D.layers[p.layer]} ${D.phases[p.phase]}`;
      sums.set(key, (sums.get(key) || 0) + p.share);
    });
    const list = [...sums].sort((a, b) => b[1] - a[1]);
    return list.slice(0, 8).map(([key, share]) => `<br>${Math.round(share * 100)}% ${escape(key)}`).join("") +
      (list.length > 8 ? `<br><span>and ${list.length - 8} more</span>` : "");
  };
  const taskTip = (t) => `<b>${escape(t.name)}</b> on ${escape(deviceName(t.device))}<br>` +
    `<span>from</span> ${seconds(t.start)} <span>for</span> ${seconds(t.end - t.start)}` +
    (t.other === undefined ? "<br>" : ` (${t.measured ? "predicted" : "measured"} ${seconds(t.other)})<br>`) +
    `<span>ops</span> ${t.ops} <span>flops</span> ${count(t.flops)}<br>` +
    `<span>results</span> ${bytes(t.output)} <span>temporaries</span> ${bytes(t.temporary)}` +
    (t.origin ? `<br><span>heaviest op</span> ${escape(t.origin)}` : "") + partsOf(t);
  const transferTip = (t) => `<b>device ${t.source} to ${t.target}</b>${t.measured ? ", measured" : `, channel ${t.channel}`}<br>` +
    `<span>from</span> ${seconds(t.start)} <span>for</span> ${seconds(t.end - t.start)}<br>` +
    `<span>size</span> ${bytes(t.bytes)}<br><span>value</span> ${escape(t.value)}`;

  // The shared stretch of time -----------------------------------------------------------------
  const LEFT = 104;
  const RIGHT = 14;
  const whole = Math.max(D.step, D.measured ? D.measured.step : 0, 1e-12);
  let from = 0;
  let to = whole;
  const width = () => Math.max(360, byId("timeline-chart").clientWidth);
  const xOf = (t) => LEFT + ((t - from) / (to - from)) * (width() - LEFT - RIGHT);
  const timeAt = (x) => from + ((x - LEFT) / (width() - LEFT - RIGHT)) * (to - from);
  const zoom = (factor, centre) => {
    const span = Math.min(whole, Math.max(whole * 1e-5, (to - from) * factor));
    const share = (centre - from) / (to - from);
    from = Math.max(0, Math.min(whole - span, centre - share * span));
    to = from + span;
    draw();
  };
  const pan = (dt) => {
    const span = to - from;
    from = Math.max(0, Math.min(whole - span, from + dt));
    to = from + span;
    draw();
  };
  const ticks = () => {
    const raw = (to - from) / Math.max(3, Math.floor((width() - LEFT) / 110));
    const base = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * base).find((s) => s >= raw);
    const list = [];
    for (let t = Math.ceil(from / step) * step; t <= to * (1 + 1e-12); t += step) list.push(Math.abs(t) < step / 1e6 ? 0 : t);
    return list;
  };
  const axis = (top, bottom) => ticks().map((t) => {
    const x = xOf(t).toFixed(1);
    return `<line x1="${x}" x2="${x}" y1="${top}" y2="${bottom}" stroke="#edf0f4"/>` +
      `<text x="${x}" y="${top - 5}" text-anchor="middle">${seconds(t)}</text>`;
  }).join("");

  // The step as it ran: the planned spans at their measured times.
  const taskNamed = new Map(D.tasks.map((t) => [t.name, t]));
  const ran = D.measured ? {
    tasks: D.measured.tasks.map((t) => {
      const planned = taskNamed.get(t.name);
      const span = { ...planned, start: t.start, end: t.end, measured: true, other: planned.end - planned.start };
      planned.other = t.end - t.start;
      return span;
    }),
    transfers: D.measured.transfers.map((t) => ({ ...t, measured: true })),
  } : null;

  // Timeline ---------------------------------------------------------------------------------
  const lanes = [];
  D.devices.forEach((device, index) => {
    lanes.push({ label: `device ${index}`, height: 26, spans: D.tasks.filter((t) => t.device === index), colour: deviceColour(index) });
    const links = new Map();
    D.transfers.filter((t) => t.source === index).forEach((t) => {
      if (!links.has(t.target)) links.set(t.target, []);
      links.get(t.target).push(t);
    });
    [...links.keys()].sort((a, b) => a - b).forEach((target) => {
      lanes.push({ label: `${index} \u2192 ${target}`, height: 13, spans: links.get(target), transfer: true });
    });
    if (!ran) return;
    lanes.push({ label: "measured", height: 26, spans: ran.tasks.filter((t) => t.device === index), measured: true });
    const copies = ran.transfers.filter((t) => t.source === index);
    if (copies.length) lanes.push({ label: `${index} \u2192`, height: 13, spans: copies, transfer: true, measured: true });
  });
  lanes.forEach((lane) => lane.spans.sort((a, b) => a.start - b.start));
  const colourOf = (span) => (byId("colour").value === "layer" ? layerColour(span.layer) : PHASES[D.phases[span.phase]] || "#5b8def");

  const box = (x, y, wide, height, round, fill) =>
    `<rect x="${x.toFixed(2)}" y="${y}" width="${wide.toFixed(2)}" height="${height}" rx="${round}" fill="${fill}"/>`;
  const label = (layer, x, wide, y) => {
    const text = D.layers[layer];
    if (wide < 30 || text.length * 6.2 > wide - 6) return "";
    return `<text x="${(x + wide / 2).toFixed(1)}" y="${y + 17}" text-anchor="middle" style="fill:#fff;pointer-events:none">${escape(text)}</text>`;
  };

  const drawTimeline = () => {
    const top = 20;
    let y = top + 4;
    let body = "";
    const w = width();
    for (const lane of lanes) {
      if (!lane.transfer && !lane.measured && y > top + 4) y += 6;
      lane.y = y;
      body += `<rect x="${LEFT}" y="${y}" width="${w - LEFT - RIGHT}" height="${lane.height}" fill="${lane.transfer ? "#fafbfc" : "#f3f5f8"}"/>`;
      let drawn = -1;
      lane.spans.forEach((span) => {
        if (span.end < from || span.start > to) return;
        const x0 = Math.max(LEFT, xOf(span.start));
        const x1 = Math.min(w - RIGHT, xOf(span.end));
        if (x1 - drawn < 0.3) return;
        const wide = Math.max(0.6, x1 - x0 - (x1 - x0 > 3 ? 0.6 : 0));
        const round = wide > 6 ? 2 : 0;
        if (lane.transfer || span.parts.length === 1 || wide < 4) {
          body += box(x0, y + 1, wide, lane.height - 2, round, lane.transfer ? TRANSFER : colourOf(span));
          if (!lane.transfer) body += label(span.layer, x0, wide, y);
        } else {
          // A merged task: its parts, in proportion to their predicted seconds.
          let at = span.start;
          for (const part of span.parts) {
            const next = at + part.share * (span.end - span.start);
            const left = Math.max(LEFT, xOf(at));
            const right = Math.min(w - RIGHT, xOf(next));
            at = next;
            if (right - left < 0.25) continue;
            body += box(left, y + 1, Math.max(0.4, right - left - (right - left > 5 ? 0.5 : 0)), lane.height - 2, 0, colourOf(part));
            body += label(part.layer, left, right - left, y);
          }
          body += `<rect x="${x0.toFixed(2)}" y="${y + 1}" width="${wide.toFixed(2)}" height="${lane.height - 2}" rx="2" fill="none" stroke="#1c2430" stroke-opacity=".55"/>`;
        }
        drawn = x1;
      });
      if (!lane.transfer && !lane.measured) body += `<rect x="${LEFT - 100}" y="${y + 8}" width="10" height="10" rx="3" fill="${lane.colour}"/>`;
      body += `<text class="${lane.transfer || lane.measured ? "" : "strong"}" x="${lane.transfer ? LEFT - 8 : LEFT - 84}" y="${y + lane.height / 2 + 4}" text-anchor="${lane.transfer ? "end" : "start"}">${lane.label}</text>`;
      y += lane.height + 2;
    }
    byId("timeline-chart").innerHTML = `<svg class="pan" width="${w}" height="${y + 4}" role="img" aria-label="timeline of tasks and transfers">${axis(top, y)}${body}</svg>`;
    const names = byId("colour").value === "layer"
      ? D.layers.slice(0, 24).map((name, l) => [name, layerColour(l)])
      : D.phases.map((name) => [name, PHASES[name] || "#5b8def"]);
    names.push(["transfer", TRANSFER]);
    byId("legend").innerHTML = names.map(([name, colour]) => `<span><i class="chip" style="background:${colour}"></i>${escape(name)}</span>`).join("");
  };

  const spanAt = (event) => {
    const rect = byId("timeline-chart").getBoundingClientRect();
    const x = event.clientX - rect.left;
    const y = event.clientY - rect.top;
    const lane = lanes.find((l) => y >= l.y && y < l.y + l.height);
    if (!lane || x < LEFT) return null;
    const t = timeAt(x);
    const slack = (to - from) / width();
    let best = null;
    for (const span of lane.spans) {
      if (span.start - slack > t) break;
      if (span.end + slack >= t) best = span;
    }
    return best && { span: best, transfer: lane.transfer };
  };

  // Memory -----------------------------------------------------------------------------------
  const HEIGHT = 74;
  const drawMemory = () => {
    const w = width();
    const top = 20;
    let y = top + 6;
    let body = "";
    D.devices.forEach((device, index) => {
      const points = D.memory[index];
      const highest = Math.max(device.peak, ...points.map((p) => p[1]), 1);
      const offScale = device.limit > 8 * highest;
      const full = offScale ? highest * 1.25 : Math.max(device.limit, highest) * 1.22;
      const yOf = (b) => y + HEIGHT - (b / full) * HEIGHT;
      body += `<rect x="${LEFT}" y="${y}" width="${w - LEFT - RIGHT}" height="${HEIGHT}" fill="#f8f9fb"/>`;
      let path = "";
      let last = 0;
      let started = false;
      points.forEach(([t, b]) => {
        if (t <= from) { last = b; return; }
        if (t > to) return;
        if (!started) { path = `M${LEFT} ${y + HEIGHT}V${yOf(last).toFixed(1)}`; started = true; }
        path += `H${xOf(t).toFixed(2)}V${yOf(b).toFixed(1)}`;
        last = b;
      });
      if (!started) path = `M${LEFT} ${y + HEIGHT}V${yOf(last).toFixed(1)}`;
      path += `H${w - RIGHT}V${y + HEIGHT}Z`;
      body += `<path d="${path}" fill="${deviceColour(index)}" fill-opacity=".35" stroke="${deviceColour(index)}" stroke-width="1"/>`;
      const line = (value, colour, dash, name) => {
        const at = yOf(value).toFixed(1);
        body += `<line x1="${LEFT}" x2="${w - RIGHT}" y1="${at}" y2="${at}" stroke="${colour}" stroke-dasharray="${dash}"/>`;
        body += `<text x="${w - RIGHT - 4}" y="${Number(at) - 3}" text-anchor="end" style="fill:${colour}">${name}</text>`;
      };
      if (!offScale) line(device.limit, "#cf3b3b", "none", `limit ${bytes(device.limit)}`);
      if (device.runAhead > device.peak) line(device.runAhead, "#98702f", "2 3", "");
      body += `<rect x="${LEFT - 100}" y="${y + 4}" width="10" height="10" rx="3" fill="${deviceColour(index)}"/>`;
      body += `<text class="strong" x="${LEFT - 84}" y="${y + 13}">device ${index}</text>`;
      body += `<text x="${LEFT - 100}" y="${y + 30}">peak ${bytes(device.peak)}</text>`;
      body += `<text x="${LEFT - 100}" y="${y + 45}">${offScale ? "limit (off scale)" : "of limit"}</text><text x="${LEFT - 100}" y="${y + 59}">${bytes(device.limit)}</text>`;
      device.top = y;
      y += HEIGHT + 16;
    });
    byId("memory-chart").innerHTML = `<svg class="pan" width="${w}" height="${y}" role="img" aria-label="memory over time">${axis(top, y - 12)}${body}<line id="cursor" class="mark" visibility="hidden" y1="${top}" y2="${y - 12}"/></svg>`;
  };
  const heldAt = (points, t) => {
    let low = 0;
    let high = points.length;
    while (low < high) { const mid = (low + high) >> 1; if (points[mid][0] <= t) low = mid + 1; else high = mid; }
    return low ? points[low - 1][1] : 0;
  };

  // Layers -----------------------------------------------------------------------------------
  const drawLayers = () => {
    const nodes = D.nodes;
    const left = 84;
    const column = Math.max(104, Math.min(150, Math.floor((width() - left) / D.layers.length)));
    const gap = Math.max(24, Math.round(column * 0.3));
    const longest = Math.max(...nodes.map((n) => n.seconds), 1e-12);
    const rows = D.phases.map(() => 0);
    const cells = new Map();
    nodes.forEach((node, index) => {
      const key = `${node.layer}/${node.phase}`;
      if (!cells.has(key)) cells.set(key, []);
      cells.get(key).push(index);
      node.h = 16 + 26 * Math.sqrt(node.seconds / longest);
    });
    cells.forEach((members) => {
      members.sort((a, b) => nodes[a].device - nodes[b].device);
      const total = members.reduce((sum, m) => sum + nodes[m].h + 3, 0);
      const phase = nodes[members[0]].phase;
      rows[phase] = Math.max(rows[phase], total);
    });
    let y = 34;
    const tops = rows.map((h) => { const top = y; y += h + 46; return top; });
    cells.forEach((members) => {
      let at = tops[nodes[members[0]].phase];
      members.forEach((m) => {
        nodes[m].x = left + nodes[m].layer * column;
        nodes[m].y = at;
        nodes[m].w = column - gap;
        at += nodes[m].h + 3;
      });
    });
    const most = Math.max(...D.edges.map((e) => e.bytes), 1);
    const lines = D.edges.map((edge, index) => {
      const a = nodes[edge.source];
      const b = nodes[edge.target];
      const crossing = a.device !== b.device;
      const thick = 0.8 + 6 * Math.sqrt(edge.bytes / most);
      let d;
      if (a.layer < b.layer || a.layer > b.layer) {
        const right = a.layer < b.layer;
        const x0 = right ? a.x + a.w : a.x;
        const x1 = right ? b.x : b.x + b.w;
        const y0 = a.y + a.h / 2;
        const y1 = b.y + b.h / 2;
        const bend = Math.min(60, Math.abs(x1 - x0) / 2) * (right ? 1 : -1);
        d = `M${x0} ${y0}C${x0 + bend} ${y0} ${x1 - bend} ${y1} ${x1} ${y1}`;
      } else {
        const shift = 4 + 10 * ((index % 5) / 5);
        const side = a.x + a.w;
        d = `M${side} ${a.y + a.h / 2}C${side + shift + 12} ${a.y + a.h / 2} ${side + shift + 12} ${b.y + b.h / 2} ${side} ${b.y + b.h / 2}`;
      }
      return `<path class="edge${crossing ? " crossing" : ""}" data-e="${index}" d="${d}" stroke="${crossing ? deviceColour(a.device) : "#c3cad5"}" stroke-width="${crossing ? thick.toFixed(1) : 0.8}"/>`;
    }).join("");
    const boxes = nodes.map((node, index) => `<g class="node" data-n="${index}"><rect x="${node.x}" y="${node.y}" width="${node.w}" height="${node.h.toFixed(1)}" rx="4" fill="${deviceColour(node.device)}"/>` +
      `<text x="${node.x + node.w / 2}" y="${node.y + node.h / 2 + 4}" text-anchor="middle" style="fill:#fff">${node.device}: ${seconds(node.seconds)}</text></g>`).join("");
    const heads = D.layers.map((name, l) => {
      const short = name.length > 14 ? `${name.slice(0, 13)}\u2026` : name;
      return `<text class="strong" x="${left + l * column + (column - gap) / 2}" y="20" text-anchor="middle"><title>${escape(name)}</title>${escape(short)}</text>`;
    }).join("");
    const sides = D.phases.map((name, p) => `<text class="strong" x="4" y="${tops[p] + 12}">${escape(name)}</text>`).join("");
    byId("layer-chart").innerHTML = `<svg width="${left + D.layers.length * column}" height="${y - 20}" role="img" aria-label="placed graph by layer">${lines}${boxes}${heads}${sides}</svg>`;
  };
  const focusNode = (index) => {
    const near = new Set([index]);
    document.querySelectorAll("#layer-chart .edge").forEach((path) => {
      const edge = D.edges[Number(path.dataset.e)];
      const on = index !== null && (edge.source === index || edge.target === index);
      if (on) { near.add(edge.source); near.add(edge.target); }
      path.classList.toggle("on", on);
      path.classList.toggle("off", index !== null && !on);
    });
    document.querySelectorAll("#layer-chart .node").forEach((group) => {
      group.classList.toggle("off", index !== null && !near.has(Number(group.dataset.n)));
    });
  };
  const nodeTip = (index) => {
    const node = D.nodes[index];
    const flow = (list, side) => list.sort((a, b) => b.bytes - a.bytes).slice(0, 5).map((e) => {
      const other = D.nodes[e[side]];
      return `<br><span>${side === "source" ? "from" : "to"}</span> ${escape(D.layers[other.layer])} ${escape(D.phases[other.phase])} on ${other.device}: ${bytes(e.bytes)}`;
    }).join("");
    return `<b>${escape(D.layers[node.layer])}</b> ${escape(D.phases[node.phase])} on ${escape(deviceName(node.device))}<br>` +
      `<span>tasks</span> ${node.tasks} <span>time</span> ${seconds(node.seconds)}` +
      flow(D.edges.filter((e) => e.target === index), "source") + flow(D.edges.filter((e) => e.source === index), "target");
  };

  // Events -----------------------------------------------------------------------------------
  const draw = () => { drawTimeline(); drawMemory(); };
  let dragged = null;
  const panning = (id) => {
    const chart = byId(id);
    chart.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event.clientX - chart.getBoundingClientRect().left));
    }, { passive: false });
    chart.addEventListener("pointerdown", (event) => { dragged = event.clientX; });
    chart.addEventListener("dblclick", () => { from = 0; to = whole; draw(); });
    chart.addEventListener("pointerleave", hide);
  };
  panning("timeline-chart");
  panning("memory-chart");
  addEventListener("pointerup", () => { dragged = null; });
  addEventListener("pointermove", (event) => {
    if (dragged === null) return;
    const dx = event.clientX - dragged;
    dragged = event.clientX;
    pan((-dx / (width() - LEFT - RIGHT)) * (to - from));
  });
  byId("timeline-chart").addEventListener("pointermove", (event) => {
    const found = dragged === null ? spanAt(event) : null;
    if (found) show(event, found.transfer ? transferTip(found.span) : taskTip(found.span));
    else hide();
  });
  byId("memory-chart").addEventListener("pointermove", (event) => {
    const rect = byId("memory-chart").getBoundingClientRect();
    const x = event.clientX - rect.left;
    const y = event.clientY - rect.top;
    const index = D.devices.findIndex((d) => y >= d.top && y < d.top + HEIGHT);
    const cursor = byId("cursor");
    if (index < 0 || x < LEFT || dragged !== null) { hide(); cursor.setAttribute("visibility", "hidden"); return; }
    const t = timeAt(x);
    cursor.setAttribute("visibility", "visible");
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    const running = D.tasks.find((task) => task.device === index && task.start <= t && t < task.end);
    show(event, `<b>${escape(deviceName(index))}</b> at ${seconds(t)}<br>${bytes(heldAt(D.memory[index], t))} <span>of</span> ${bytes(D.devices[index].limit)}` +
      (running ? `<br><span>running</span> ${escape(running.name)} (${escape(D.layers[running.layer])} ${escape(D.phases[running.phase])})` : ""));
  });
  byId("layer-chart").addEventListener("pointermove", (event) => {
    const group = event.target.closest(".node");
    if (!group) { focusNode(null); hide(); return; }
    const index = Number(group.dataset.n);
    focusNode(index);
    show(event, nodeTip(index));
  });
  byId("layer-chart").addEventListener("pointerleave", () => { focusNode(null); hide(); });
  byId("colour").addEventListener("change", drawTimeline);
  document.querySelectorAll("[data-zoom]").forEach((button) => button.addEventListener("click", () => {
    if (button.dataset.zoom === "all") { from = 0; to = whole; draw(); } else zoom(Number(button.dataset.zoom), (from + to) / 2);
  }));
  addEventListener("resize", () => { draw(); drawLayers(); });

  document.querySelectorAll("table.sortable").forEach((table) => {
    const heads = [...table.querySelectorAll("th")];
    heads.forEach((head, column) => head.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent;
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        const order = Number.isNaN(Number(x)) || Number.isNaN(Number(y)) ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
        return down ? -order : order;
      });
      table.tBodies[0].append(...rows);
    }));
  });

  draw();
  drawLayers();
})();
