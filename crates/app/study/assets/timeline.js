// SPDX-License-Identifier: MIT OR Apache-2.0
'use strict';
(() => {
  const { data, colour, alpha, time, short, count, narrow, axis, options, draw } = plots;
  const { drawn, summary } = data;
  const [IDLE, OVERHEAD, BALANCING, MIXED] = [-1, -2, -3, -100];
  const states = ['busy', 'overhead', 'balancing', 'idle'];
  const byId = (id) => document.getElementById(id);
  // orange and grey are left to the runtime
  const palette = ['c0', 'c2', 'c3', 'c4', 'c5', 'c6', 'c1'];
  const rank = new Map(drawn.order.map((e, i) => [e, i]));
  const entryColour = (e) => palette[(rank.get(e) ?? 0) % palette.length];
  const bytes = (n) => {
    for (const [unit, name] of [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']]) if (n >= unit) return `${short(n / unit)} ${name}`;
    return `${n} B`;
  };

  // ---- lanes: absolute begins out of gaps and lengths
  const lanes = drawn.lanes.map((l) => {
    const begins = new Float64Array(l.kinds.length);
    let at = 0;
    for (let i = 0; i < begins.length; i += 1) {
      begins[i] = at + l.gaps[i];
      at = begins[i] + l.lengths[i];
    }
    const detours = l.detours.slice().sort((a, b) => a[0] - b[0]);
    const longest = detours.reduce((most, d) => Math.max(most, d[1]), 0);
    return { ...l, begins, detours, longest };
  });
  const noisy = lanes.some((l) => l.detours.length);
  const marksOf = lanes.map((_, lane) => drawn.marks.filter((m) => m[1] === lane));
  // the first index of a sorted list that is not below a value
  const lower = (n, below) => {
    let [a, b] = [0, n];
    while (a < b) {
      const m = (a + b) >> 1;
      if (below(m)) a = m + 1; else b = m;
    }
    return a;
  };
  const at = (lane, ns) => lower(lane.begins.length, (i) => lane.begins[i] + lane.lengths[i] <= ns);
  const hits = (lane, from, to) => {
    const found = [];
    for (let i = lower(lane.detours.length, (k) => lane.detours[k][0] + lane.longest <= from); i < lane.detours.length && lane.detours[i][0] < to; i += 1) {
      if (lane.detours[i][0] + lane.detours[i][1] > from) found.push(lane.detours[i]);
    }
    return found;
  };

  const name = (kind) => {
    if (kind >= 0) return drawn.entries[kind];
    if (kind === IDLE) return 'idle';
    if (kind === OVERHEAD) return 'overhead of the runtime';
    if (kind === BALANCING) return 'load balancing';
    return `many short intervals, ${MIXED - kind} % busy`;
  };
  const fill = (kind) => {
    if (kind >= 0) return colour(entryColour(kind));
    if (kind === IDLE) return colour('idle');
    if (kind === OVERHEAD) return colour('overhead');
    if (kind === BALANCING) return colour('balancing');
    return alpha(colour('c0'), 0.12 + 0.6 * ((MIXED - kind) / 100));
  };

  // ---- the canvas of time lines
  const whole = Math.max(1, drawn.duration_ns);
  const view = { from: 0, to: whole };
  const chosen = { lane: 0, index: -1 };
  const layout = () => {
    const many = lanes.length > 64;
    return { left: narrow() ? 44 : 64, axis: 24, bar: many ? 7 : 20, noise: noisy ? (many ? 3 : 8) : 0, gap: many ? 2 : 6 };
  };
  let canvas = null;
  const pitch = (g) => g.bar + g.noise + g.gap;

  const ticks = (from, to, most) => {
    const rough = (to - from) / most;
    const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1e-3)));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough) || power * 10;
    const all = [];
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) all.push(t);
    return all;
  };
  // an instant with enough digits to tell it from its neighbours
  const instant = (ns) => {
    const span = view.to - view.from;
    const [unit, label] = whole >= 2e9 ? [1e9, 's'] : whole >= 2e6 ? [1e6, 'ms'] : [1e3, 'µs'];
    const digits = Math.min(9, Math.max(0, Math.ceil(Math.log10(unit / span)) + 2));
    return `${(ns / unit).toFixed(digits)} ${label}`;
  };

  const paint = () => {
    if (!canvas) return;
    const g = layout();
    const width = canvas.parentElement.clientWidth || 300;
    const height = g.axis + lanes.length * pitch(g) + 4;
    const scale = Math.min(devicePixelRatio || 1, 2);
    canvas.style.height = `${height}px`;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    const c = canvas.getContext('2d');
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.fillStyle = colour('card');
    c.fillRect(0, 0, width, height);
    const perNs = (width - g.left - 6) / (view.to - view.from);
    const x = (ns) => g.left + (ns - view.from) * perNs;
    c.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    c.textBaseline = 'middle';
    c.fillStyle = colour('soft');
    c.textAlign = 'center';
    for (const t of ticks(view.from, view.to, narrow() ? 3 : 8)) {
      c.fillStyle = colour('grid');
      c.fillRect(x(t), g.axis - 6, 1, height);
      c.fillStyle = colour('soft');
      const text = instant(t);
      const half = c.measureText(text).width / 2;
      c.fillText(text, Math.min(Math.max(x(t), half + 2), width - half - 2), 9);
    }
    lanes.forEach((lane, row) => {
      const top = g.axis + row * pitch(g);
      c.save();
      c.beginPath();
      c.rect(g.left, top, width - g.left - 6, pitch(g));
      c.clip();
      for (let i = at(lane, view.from); i < lane.begins.length && lane.begins[i] < view.to; i += 1) {
        const [from, to] = [x(lane.begins[i]), x(lane.begins[i] + lane.lengths[i])];
        c.fillStyle = fill(lane.kinds[i]);
        c.fillRect(from, top, to - from, g.bar);
        // neighbours of one colour are told apart
        if (to - from > 6 && lane.kinds[i] >= 0) {
          c.fillStyle = colour('card');
          c.fillRect(to - 0.75, top, 0.75, g.bar);
        }
        if (to - from > 60 && lane.kinds[i] >= 0 && g.bar > 12) {
          c.fillStyle = colour('card');
          c.textAlign = 'left';
          const seen = Math.max(from, g.left);
          const label = drawn.entries[lane.kinds[i]];
          if (c.measureText(label).width < to - seen - 8) c.fillText(label, seen + 4, top + g.bar / 2 + 0.5);
        }
      }
      c.fillStyle = colour('detour');
      for (const d of hits(lane, view.from, view.to)) c.fillRect(x(d[0]), top + g.bar + 1, Math.max(1, d[1] * perNs), g.noise - 1);
      c.fillStyle = colour('ink');
      for (const m of marksOf[row]) {
        if (m[0] < view.from || m[0] > view.to) continue;
        c.beginPath();
        c.moveTo(x(m[0]) - 3.5, top - 1);
        c.lineTo(x(m[0]) + 3.5, top - 1);
        c.lineTo(x(m[0]), top + 5);
        c.fill();
      }
      if (row === chosen.lane && chosen.index >= 0) {
        const [from, to] = [x(lane.begins[chosen.index]), x(lane.begins[chosen.index] + lane.lengths[chosen.index])];
        c.strokeStyle = colour('ink');
        c.lineWidth = 2;
        c.strokeRect(from, top + 1, Math.max(2, to - from), g.bar - 2);
      }
      c.restore();
      if (g.bar > 12 || row % 8 === 0) {
        c.textAlign = 'right';
        c.fillStyle = row === chosen.lane ? colour('accent') : colour('soft');
        c.fillText(narrow() ? String(lane.pe) : `PE ${lane.pe}`, g.left - 8, top + g.bar / 2 + 0.5);
      }
    });
  };
  const tell = () => { byId('range').textContent = `${instant(view.from)} to ${instant(view.to)}`; };

  let queued = false;
  const repaint = () => {
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => { queued = false; paint(); });
  };
  const show = (from, to) => {
    const least = Math.min(whole, 100);
    const length = Math.min(whole, Math.max(least, to - from));
    view.from = Math.min(Math.max(0, from), whole - length);
    view.to = view.from + length;
    tell();
    repaint();
  };
  const zoom = (factor, around = (view.from + view.to) / 2) => {
    const length = Math.min(whole, Math.max(Math.min(whole, 100), (view.to - view.from) * factor));
    const share = (around - view.from) / (view.to - view.from);
    show(around - share * length, around - share * length + length);
  };
  const pan = (share) => show(view.from + share * (view.to - view.from), view.to + share * (view.to - view.from));

  const read = () => {
    const lane = lanes[chosen.lane];
    if (!lane || chosen.index < 0) return;
    const [from, length, kind] = [lane.begins[chosen.index], lane.lengths[chosen.index], lane.kinds[chosen.index]];
    let text = `PE ${lane.pe} on ${lane.host}: ${name(kind)}, ${time(length)} from ${instant(from)}.`;
    if (lane.sources[chosen.index] >= 0) text += ` Its message came from PE ${lane.sources[chosen.index]}.`;
    const sums = new Map();
    for (const d of hits(lane, from, from + length)) {
      const ns = Math.min(from + length, d[0] + d[1]) - Math.max(from, d[0]);
      sums.set(d[2], (sums.get(d[2]) || 0) + ns);
    }
    const detours = [...sums].sort((a, b) => b[1] - a[1]).slice(0, 4).map(([s, ns]) => `${drawn.sources[s]} ${time(ns)}`);
    if (detours.length) text += ` Detours meanwhile: ${detours.join(', ')}.`;
    const marks = marksOf[chosen.lane].filter((m) => m[0] >= from && m[0] < from + length).slice(0, 3).map((m) => m[2]);
    if (marks.length) text += ` Events: ${marks.join(', ')}.`;
    byId('reading').textContent = text;
    repaint();
  };
  const choose = (row, index) => {
    const lane = lanes[row];
    if (!lane || !lane.begins.length) return;
    chosen.lane = row;
    chosen.index = Math.min(Math.max(0, index), lane.begins.length - 1);
    read();
  };
  // what the keys chose comes into sight
  const reveal = () => {
    const lane = lanes[chosen.lane];
    const [from, length] = [lane.begins[chosen.index], lane.lengths[chosen.index]];
    if (from < view.from || from + length > view.to) {
      const span = Math.max(view.to - view.from, length * 1.2);
      show(from + length / 2 - span / 2, from + length / 2 + span / 2);
    }
    const g = layout();
    const box = canvas.parentElement;
    const top = g.axis + chosen.lane * pitch(g);
    if (top < box.scrollTop + g.axis) box.scrollTop = Math.max(0, top - g.axis);
    else if (top + pitch(g) > box.scrollTop + box.clientHeight) box.scrollTop = top + pitch(g) - box.clientHeight;
  };

  const actions = {
    earlier: () => pan(-0.25), later: () => pan(0.25), in: () => zoom(0.5), out: () => zoom(2), all: () => show(0, whole),
  };
  const keys = {
    ArrowLeft: actions.earlier, ArrowRight: actions.later, '+': actions.in, '=': actions.in, '-': actions.out, Home: actions.all,
    ArrowUp: () => { choose(Math.max(0, chosen.lane - 1), chosen.index < 0 ? 0 : at(lanes[Math.max(0, chosen.lane - 1)], (view.from + view.to) / 2)); reveal(); },
    ArrowDown: () => { const to = Math.min(lanes.length - 1, chosen.lane + 1); choose(to, at(lanes[to], (view.from + view.to) / 2)); reveal(); },
    n: () => { choose(chosen.lane, chosen.index + 1); reveal(); },
    p: () => { choose(chosen.lane, chosen.index - 1); reveal(); },
  };

  const listen = () => {
    const ns = (e) => {
      const g = layout();
      const width = canvas.parentElement.clientWidth;
      return view.from + ((e.offsetX - g.left) / (width - g.left - 6)) * (view.to - view.from);
    };
    const row = (e) => Math.floor((e.offsetY - layout().axis) / pitch(layout()));
    const pointers = new Map();
    canvas.addEventListener('wheel', (e) => {
      // a wheel over many lanes scrolls them; with Ctrl, or over few, it zooms
      const box = canvas.parentElement;
      if (!e.ctrlKey && box.scrollHeight > box.clientHeight + 1 && !e.shiftKey) return;
      e.preventDefault();
      zoom(e.deltaY > 0 ? 1.25 : 0.8, ns(e));
    }, { passive: false });
    canvas.addEventListener('pointerdown', (e) => {
      pointers.set(e.pointerId, e.offsetX);
      canvas.setPointerCapture(e.pointerId);
    });
    canvas.addEventListener('pointermove', (e) => {
      if (!pointers.has(e.pointerId)) {
        const found = row(e);
        if (found >= 0 && found < lanes.length && e.offsetX > layout().left) choose(found, at(lanes[found], ns(e)));
        return;
      }
      const before = [...pointers.values()];
      pointers.set(e.pointerId, e.offsetX);
      const after = [...pointers.values()];
      const perPixel = (view.to - view.from) / (canvas.parentElement.clientWidth - layout().left - 6);
      if (after.length === 2) {
        const [wide, now] = [Math.abs(before[0] - before[1]), Math.abs(after[0] - after[1])];
        if (wide > 10 && now > 10) zoom(wide / now, view.from + ((after[0] + after[1]) / 2 - layout().left) * perPixel);
      } else if (after.length === 1) {
        const moved = (before[0] - after[0]) * perPixel;
        show(view.from + moved, view.to + moved);
      }
    });
    for (const end of ['pointerup', 'pointercancel']) canvas.addEventListener(end, (e) => pointers.delete(e.pointerId));
    canvas.addEventListener('click', (e) => {
      const found = row(e);
      if (found >= 0 && found < lanes.length) choose(found, at(lanes[found], ns(e)));
    });
    canvas.addEventListener('keydown', (e) => {
      const act = keys[e.key.length === 1 ? e.key.toLowerCase() : e.key];
      if (!act || !lanes.length || e.ctrlKey || e.metaKey || e.altKey) return;
      e.preventDefault();
      act();
    });
    for (const button of document.querySelectorAll('[data-action]')) button.addEventListener('click', () => actions[button.dataset.action]());
    for (const button of document.querySelectorAll('[data-straggler]')) {
      button.addEventListener('click', () => {
        const s = summary.stragglers.list[Number(button.dataset.straggler)];
        const found = lanes.findIndex((l) => l.pe === s.pe);
        if (found < 0) return;
        // instants of the summary are beyond what a number holds to the nanosecond
        const from = drawn.stragglers[Number(button.dataset.straggler)];
        choose(found, at(lanes[found], from + 1));
        show(from - 2 * s.duration_ns, from + 3 * s.duration_ns);
        reveal();
        byId('timeline').scrollIntoView({ block: 'nearest' });
        canvas.focus({ preventScroll: true });
      });
    }
    new ResizeObserver(repaint).observe(canvas.parentElement);
  };

  const key = () => {
    const list = byId('key');
    list.textContent = '';
    const add = (shade, text) => {
      const item = document.createElement('li');
      const box = document.createElement('i');
      box.style.background = shade;
      item.append(box, text);
      list.append(item);
    };
    const named = drawn.order.slice(0, narrow() ? 4 : 7);
    for (const e of named) add(colour(entryColour(e)), drawn.entries[e]);
    if (drawn.order.length > named.length) add(colour('card'), `and ${drawn.order.length - named.length} more entry methods`);
    add(colour('overhead'), 'overhead');
    add(colour('balancing'), 'load balancing');
    add(colour('idle'), 'idle');
    if (noisy) add(colour('detour'), 'detours');
  };

  const timeline = (element) => {
    const first = canvas !== element;
    canvas = element;
    if (first) listen();
    key();
    tell();
    paint();
  };

  // ---- utilization
  const stateColours = () => [colour('c0'), colour('overhead'), colour('balancing'), colour('idle')];
  const shares = (times) => {
    const all = states.reduce((sum, s) => sum + times[`${s}_ns`], 0);
    return states.map((s) => (all ? (100 * times[`${s}_ns`]) / all : 0));
  };
  const percent = { min: 0, max: 100, stacked: true, ticks: { callback: (v) => `${v} %` } };
  const tip = { callbacks: { label: (c) => `${c.dataset.label}: ${short(c.raw.y ?? c.raw)} %` } };

  const overTime = () => {
    const [unit, label] = whole >= 2e9 ? [1e9, 's'] : whole >= 2e6 ? [1e6, 'ms'] : [1e3, 'µs'];
    const rows = drawn.slices.map(shares);
    const shades = stateColours();
    const sets = states.map((s, k) => ({
      label: s, backgroundColor: shades[k], borderColor: colour('card'), borderWidth: 0.5, fill: true, pointRadius: 0, pointHitRadius: 6, pointStyle: 'rect',
      data: rows.map((r, i) => ({ x: ((i + 0.5) * drawn.slice_ns) / unit, y: r[k] })),
    }));
    return {
      type: 'line', data: { datasets: sets },
      options: options({
        pointLegend: true, interaction: { mode: 'index', intersect: false },
        scales: { x: axis('linear', `time since the begin (${label})`, { min: 0, max: whole / unit }), y: axis('linear', 'of all PEs', percent) },
        tooltip: { ...tip, callbacks: { ...tip.callbacks, title: (c) => (c.length ? `${short(c[0].parsed.x)} ${label}` : '') } },
      }),
    };
  };

  const byPe = () => {
    const rows = drawn.groups.map(([, times]) => shares(times));
    const shades = stateColours();
    return {
      type: 'bar',
      data: {
        labels: drawn.groups.map(([pes]) => `PE ${pes}`),
        datasets: states.map((s, k) => ({ label: s, backgroundColor: shades[k], data: rows.map((r) => r[k]), pointStyle: 'rect', categoryPercentage: 0.9, barPercentage: 0.95 })),
      },
      options: options({
        indexAxis: 'y', pointLegend: true, interaction: { mode: 'nearest', axis: 'y', intersect: false },
        scales: { x: axis('linear', 'of its time', percent), y: axis('category', '', { stacked: true, title: { display: false }, grid: { display: false } }) },
        tooltip: tip,
      }),
    };
  };

  // ---- matrix: painted by hand, one square a pair
  const matrix = (element) => {
    const { groups, cells } = drawn.matrix;
    const box = element.parentElement;
    const [width, height] = [box.clientWidth, box.clientHeight];
    const scale = Math.min(devicePixelRatio || 1, 2);
    Object.assign(element.style, { width: `${width}px`, height: `${height}px` });
    element.width = Math.round(width * scale);
    element.height = Math.round(height * scale);
    const c = element.getContext('2d');
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.clearRect(0, 0, width, height);
    const n = Math.max(1, groups.length);
    const [left, top] = [52, 40];
    const size = Math.min((width - left - 8) / n, (height - top - 44) / n, 72);
    const most = cells.reduce((m, x) => Math.max(m, x[3]), 1);
    const all = new Map(cells.map((x) => [x[0] * n + x[1], x]));
    c.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    c.textBaseline = 'middle';
    c.textAlign = 'center';
    const each = Math.ceil((size < 26 ? 26 : size) / Math.max(size, 1));
    for (let i = 0; i < n; i += 1) {
      for (let k = 0; k < n; k += 1) {
        const cell = all.get(i * n + k);
        const shade = cell ? 0.12 + 0.88 * Math.sqrt(cell[3] / most) : 0;
        c.fillStyle = cell ? alpha(colour('c0'), shade) : colour('idle');
        c.fillRect(left + k * size, top + i * size, size - (size > 8 ? 1.5 : 0.25), size - (size > 8 ? 1.5 : 0.25));
        if (cell && size >= 54) {
          c.fillStyle = shade > 0.65 ? colour('card') : colour('ink');
          c.fillText(bytes(cell[3]), left + (k + 0.5) * size, top + (i + 0.5) * size);
        }
      }
      if (groups[i] === undefined || i % each) continue;
      c.fillStyle = colour('soft');
      c.fillText(groups[i], left + (i + 0.5) * size, top - 10);
      c.textAlign = 'right';
      c.fillText(groups[i], left - 6, top + (i + 0.5) * size);
      c.textAlign = 'center';
    }
    c.fillStyle = colour('soft');
    c.textAlign = 'left';
    c.fillText('to PE →', left, 10);
    c.fillText('from ↓', 4, top - 10);
    const foot = top + n * size + 18;
    const total = cells.reduce((sum, x) => [sum[0] + x[2], sum[1] + x[3]], [0, 0]);
    const say = (text) => {
      c.clearRect(0, foot - 10, width, 24);
      c.fillStyle = colour('ink');
      c.fillText(text, 4, foot);
    };
    say(`All pairs: ${count(total[0])} messages, ${bytes(total[1])}`);
    element.onpointermove = (e) => {
      const [k, i] = [Math.floor((e.offsetX - left) / size), Math.floor((e.offsetY - top) / size)];
      if (i < 0 || k < 0 || i >= groups.length || k >= groups.length) return;
      const cell = all.get(i * n + k);
      say(`PE ${groups[i]} to PE ${groups[k]}: ${cell ? `${count(cell[2])} messages, ${bytes(cell[3])}` : 'no message'}`);
    };
  };

  draw({ timeline, 'over-time': overTime, 'by-pe': byPe, matrix });
  let settled = 0;
  addEventListener('resize', () => {
    clearTimeout(settled);
    settled = setTimeout(() => matrix(document.querySelector('#matrix canvas')), 100);
  });
})();
