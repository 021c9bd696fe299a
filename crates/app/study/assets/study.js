// SPDX-License-Identifier: MIT OR Apache-2.0
'use strict';
(() => {
  const { data, colour, alpha, short, time, count, decade, below, above, narrow, marks, axis, log, logTo, bars, nodesAxis, options, draw } = plots;
  const noiseName = (p) => (p > 0 ? `${p} %` : 'quiet');
  const label = (c) => `${noiseName(c.noise_percent)}, ${c.scheduler}`;
  const share = (v) => (v >= 1e-3 ? `${short(v * 100)} %` : `1 in ${short(1 / v)}`);

  // the scheduler is the colour, the noise the line
  const dashes = (levels, p) => [[2, 4], [8, 4], []][Math.max(0, Math.min(2, levels.indexOf(p) + 3 - Math.max(3, levels.length)))];
  const levels = [...new Set([...data.allreduce, ...(data.scaling ? data.scaling.curves : [])].map((c) => c.noise_percent))].sort((a, b) => a - b);
  const line = (c) => ({
    label: label(c), borderColor: colour(c.scheduler), backgroundColor: colour(c.scheduler),
    borderDash: dashes(levels, c.noise_percent), borderWidth: 2, pointRadius: 0, pointHitRadius: 12, clip: 8,
    pointStyle: marks[levels.indexOf(c.noise_percent) % 3],
  });

  const percent = (v) => `${short(v * 100)} %`;
  const ofNodes = (sets, y, show) => ({
    type: 'line', data: { datasets: sets }, plugins: [bars],
    options: options({
      scales: { x: nodesAxis(sets.flatMap((s) => s.data.map((p) => p.x))), y },
      tooltip: {
        callbacks: {
          title: (c) => (c.length ? `${count(c[0].parsed.x)} nodes` : ''),
          label: (c) => `${c.dataset.label}: ${show(c.parsed.y)}${c.raw.half ? ` ± ${show(c.raw.half)}` : ''}`,
        },
      },
    }),
  });

  const costs = () => {
    const { scaling, sources: names, doctor } = data.card;
    const points = (of) => scaling.map((s) => ({ x: s.nodes, a: of(s) })).filter((p) => p.a && p.a.share > 0).map(({ x, a }) => ({ x, y: a.share, half: a.ci95 }));
    const set = (label, paint, more, of) => ({ label, borderColor: colour(paint), backgroundColor: colour(paint), borderWidth: 2, pointRadius: 4, pointHitRadius: 10, clip: 8, data: points(of), ...more });
    const sets = [set('all noise', 'unmodified', { borderWidth: 3 }, (s) => s.all)];
    if (doctor.sequence.length) sets.push(set('after all changes', 'coordinated', { borderWidth: 3 }, (s) => s.changed));
    names.forEach((n, i) => {
      const name = n.source.length > 26 ? `${n.source.slice(0, 25)}…` : n.source;
      sets.push(set(`${name} alone`, `c${2 + (i % 6)}`, { borderDash: [8, 4], pointStyle: marks[1 + (i % 6)] }, (s) => (s.alone[i] && s.alone[i].kind === 'added' ? s.alone[i] : null)));
    });
    const shown = sets.filter((s) => s.data.length);
    const all = shown.flatMap((s) => s.data.map((p) => p.y));
    return ofNodes(shown.length ? shown : sets, logTo('time added to a step (log)', percent, all.length ? all : [1]), percent);
  };

  const choice = () => {
    const { choices, scales } = data.card.choice;
    const name = (c) => [c.spare || c.favored === null ? `${c.spare} spare` : '', c.favored === null ? '' : `windows ${short(c.favored * 100)} %`].filter(Boolean).join(', ');
    const sets = choices.map((c, i) => ({
      label: name(c), borderColor: colour(`c${i % 8}`), backgroundColor: colour(`c${i % 8}`), borderWidth: 2, pointHitRadius: 10, clip: 10,
      borderDash: c.favored === null ? [] : [8, 4], pointStyle: marks[i % 8],
      // the best choice on each node count is the largest mark
      pointRadius: scales.filter((s) => s.throughput[i]).map((s) => (s.best === i ? 8 : 4)),
      data: scales.filter((s) => s.throughput[i]).map((s) => ({ x: s.nodes, y: s.throughput[i].share, half: s.throughput[i].ci95 })),
    })).filter((s) => s.data.length);
    return ofNodes(sets, axis('linear', 'throughput of a node', { min: 0, max: 1, ticks: { callback: percent } }), percent);
  };

  const sources = () => {
    // a logarithmic axis has no place for sources all below the threshold
    const rows = data.noise.sources.filter((s) => s.stolen_ns > 0).slice(0, 14);
    const perSecond = (s) => s.stolen_ns / data.noise.observed_s;
    const values = rows.map(perSecond);
    return {
      type: 'bar',
      data: { labels: rows.map((s) => s.source), datasets: [{ data: values, backgroundColor: rows.map((s, i) => colour(`c${Math.min(i, 7)}`)), maxBarThickness: 22 }] },
      options: options({
        indexAxis: 'y', legend: {},
        scales: {
          x: log('stolen each second (log)', time, { min: below(Math.min(...values)) / (values.some(decade) ? 10 : 1), max: above(Math.max(...values)) }),
          y: axis('category', '', { grid: { display: false }, title: { display: false }, ticks: { color: colour('ink'), autoSkip: false, callback(v) { const l = this.getLabelForValue(v); const n = narrow() ? 16 : 28; return l.length > n ? `${l.slice(0, n - 1)}…` : l; } } }),
        },
        tooltip: { callbacks: { label: (c) => `${time(c.parsed.x)} each second, ${count(rows[c.dataIndex].count)} detours` } },
      }),
      bare: true,
    };
  };

  const timeline = () => {
    const points = data.noise.timeline;
    const shown = data.noise.sources.length > 8 ? 7 : 8;
    const groups = data.noise.sources.slice(0, shown).map((s, i) => ({ name: s.source, points: points.filter((p) => p.source === i) }));
    groups.push({ name: 'others', points: points.filter((p) => p.source >= shown) });
    const used = groups.map((g, i) => ({ ...g, i })).filter((g) => g.points.length);
    const seconds = points.map((p) => p.start_ns / 1e9);
    return {
      type: 'scatter',
      data: {
        datasets: used.map(({ name, points: of, i }) => ({
          label: name.length > 26 ? `${name.slice(0, 25)}…` : name, pointStyle: marks[Math.min(i, 7)], radius: 2.6, hoverRadius: 5,
          borderColor: colour(`c${Math.min(i, 7)}`), backgroundColor: alpha(colour(`c${Math.min(i, 7)}`), 0.55),
          data: of.map((p) => ({ x: p.start_ns / 1e9, y: p.duration_ns, cpu: p.cpu })),
        })),
      },
      options: options({
        pointLegend: true,
        scales: {
          x: axis('linear', 'time since the start, s', { min: 0, max: Math.max(data.noise.observed_s, ...seconds.slice(-1)), ticks: { maxTicksLimit: narrow() ? 6 : 12 } }),
          y: log('length of the detour (log)', time, { min: below(points.reduce((m, p) => Math.min(m, p.duration_ns), Infinity)), max: above(points.reduce((m, p) => Math.max(m, p.duration_ns), 1)) }),
        },
        tooltip: { callbacks: { label: (c) => `${c.dataset.label}: ${time(c.parsed.y)} at ${c.parsed.x.toFixed(6)} s on CPU ${c.raw.cpu}` } },
      }),
    };
  };

  // share of operations longer than each bucket's beginning
  const ccdf = (histogram) => {
    const total = histogram.reduce((n, b) => n + b.count, 0);
    let left = total;
    const out = [];
    for (const b of histogram) {
      if (!b.count) continue;
      out.push({ x: Math.max(b.low_ns, 1), y: left / total });
      left -= b.count;
      if (left > 0) out.push({ x: b.high_ns, y: left / total });
    }
    if (histogram.length && total) out.push({ x: out[out.length - 1].x, y: 1 / total / 1.5 });
    return out;
  };

  const distribution = () => {
    const sets = data.allreduce.map((c) => ({ ...line(c), data: ccdf(c.histogram), borderJoinStyle: 'round' }));
    const all = sets.flatMap((s) => s.data);
    const least = all.reduce((m, p) => Math.min(m, p.y), 1);
    return {
      type: 'line', data: { datasets: sets },
      options: options({
        scales: {
          x: log('time of an operation (log)', time, { min: below(all.reduce((m, p) => Math.min(m, p.x), Infinity)), max: above(all.reduce((m, p) => Math.max(m, p.x), 1)) }),
          y: log('share that took longer (log)', share, { min: below(least), max: 1 }),
        },
        tooltip: { callbacks: { title: () => '', label: (c) => `${c.dataset.label}: ${share(c.parsed.y)} took longer than ${time(c.parsed.x)}` } },
      }),
    };
  };

  const scaling = () => {
    const { curves } = data.scaling;
    const nodes = [...new Set(curves.flatMap((c) => c.points.map((p) => p.nodes)))];
    const sets = curves.map((c) => ({
      ...line(c), pointRadius: 4, data: c.points.map((p) => ({ x: p.nodes, y: p.mean_ns, p })),
    }));
    sets.push({
      label: 'no noise at all', borderColor: colour('base'), backgroundColor: colour('base'), borderDash: [1, 4], borderWidth: 2, pointRadius: 0, pointHitRadius: 8,
      data: curves[0].points.map((p) => ({ x: p.nodes, y: p.base_ns })),
    });
    const all = sets.flatMap((s) => s.data.map((p) => p.y));
    return {
      type: 'line', data: { datasets: sets },
      options: options({
        scales: {
          x: nodesAxis(nodes),
          y: log('mean time of an allreduce (log)', time, { min: below(Math.min(...all)), max: above(Math.max(...all)) }),
        },
        tooltip: { callbacks: { title: (c) => (c.length ? `${count(c[0].parsed.x)} nodes` : ''), label: (c) => `${c.dataset.label}: ${time(c.parsed.y)}` } },
      }),
    };
  };

  const split = () => {
    const cells = data.allreduce.filter((c) => c.split);
    const perSecond = (part) => (c) => c.split[part] / ((c.split.favored_ns + c.split.regular_ns) / 1e9) / 1e6;
    const bar = (name, part, paint) => ({ label: name, data: cells.map(perSecond(part)), backgroundColor: paint, maxBarThickness: 46 });
    return {
      type: 'bar',
      data: {
        labels: cells.map((c) => [noiseName(c.noise_percent), narrow() ? c.scheduler.slice(0, 5) + '.' : c.scheduler]),
        datasets: [bar('in favored windows', 'stolen_favored_ns', colour('unmodified')), bar('in regular windows', 'stolen_regular_ns', colour('c5'))],
      },
      options: options({
        legend: { boxHeight: 9, boxWidth: 14 }, interaction: { mode: 'index', intersect: false },
        scales: {
          x: axis('category', 'noise and scheduler', { stacked: true, grid: { display: false }, ticks: { color: colour('ink'), autoSkip: false } }),
          y: axis('linear', 'stolen, ms each second of a CPU', { stacked: true, beginAtZero: true }),
        },
        tooltip: { callbacks: { label: (c) => `${c.dataset.label}: ${short(c.parsed.y)} ms each second` } },
      }),
    };
  };

  const edges = () => {
    const sums = new Map();
    for (const c of data.allreduce) {
      for (const b of c.edges ? c.edges.histogram : []) {
        // four bars a factor of ten
        const k = Math.floor(4 * Math.log10(Math.max(1, (b.low_ns + b.high_ns) / 2)) + 1e-9);
        sums.set(k, (sums.get(k) || 0) + b.count);
      }
    }
    const keys = [...sums.keys()].sort((a, b) => a - b);
    const bins = [];
    for (let k = keys[0]; k <= keys[keys.length - 1]; k += 1) bins.push(k);
    const at = (k) => time(10 ** (k / 4));
    return {
      type: 'bar',
      data: { labels: bins.map((k) => at(k)), datasets: [{ label: 'edges', data: bins.map((k) => sums.get(k) || 0), backgroundColor: colour('coordinated'), categoryPercentage: 1, barPercentage: 0.94 }] },
      options: options({
        scales: {
          x: axis('category', 'lateness, from (log)', { grid: { display: false } }),
          y: axis('linear', 'edges', { beginAtZero: true, ticks: { precision: 0 } }),
        },
        tooltip: { callbacks: { title: (c) => (c.length ? `${at(bins[c[0].dataIndex])} to ${at(bins[c[0].dataIndex] + 1)}` : ''), label: (c) => `${count(c.parsed.y)} edges` } },
      }),
      bare: true,
    };
  };

  draw({ costs, choice, scaling, distribution, split, edges, sources, timeline });
})();
