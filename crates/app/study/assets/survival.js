// SPDX-License-Identifier: MIT OR Apache-2.0
'use strict';
(() => {
  const { data, colour, short, count, narrow, marks, axis, log, logTo, bars, options, draw } = plots;
  const { rows, map, study } = data.results;
  // the place of a scheme in the list is its colour and its mark
  const place = (scheme) => data.schemes.indexOf(scheme);
  const paint = (scheme) => colour(`c${place(scheme)}`);
  const used = data.schemes.filter((s) => rows.some((r) => r.scheme === s));
  const percent = (share) => `${short(share * 100)} %`;
  const span = (s) => {
    for (const [unit, name] of [[31536000, 'y'], [86400, 'd'], [3600, 'h'], [60, 'min']]) if (s >= unit) return `${short(s / unit)} ${name}`;
    return `${short(s)} s`;
  };
  const size = (v) => (v >= 1048576 && v % 1048576 === 0 ? `${v / 1048576}M` : v >= 1024 && v % 1024 === 0 ? `${v / 1024}K` : count(v));

  // what there are values of, rising, and the edges between neighbours on a logarithmic axis
  const sorted = (values) => [...new Set(values)].sort((a, b) => a - b);
  const edges = (values) => {
    const middles = values.slice(1).map((v, i) => Math.sqrt(v * values[i]));
    const first = values.length > 1 ? values[0] ** 2 / middles[0] : values[0] / 2;
    const last = values.length > 1 ? values[values.length - 1] ** 2 / middles[middles.length - 1] : values[0] * 2;
    return [first, ...middles, last];
  };

  // coloured cells under the points, which only answer the pointer
  const cells = (xs, ys, choice) => ({
    id: 'cells',
    beforeDatasetsDraw({ ctx, scales: { x, y } }) {
      const [ex, ey] = [edges(xs), edges(ys)];
      ctx.save();
      for (const c of map) {
        const [i, j] = [xs.indexOf(c.pes), ys.indexOf(c.mtbf_s)];
        const [left, right] = [x.getPixelForValue(ex[i]), x.getPixelForValue(ex[i + 1])];
        const [top, bottom] = [y.getPixelForValue(ey[j + 1]), y.getPixelForValue(ey[j])];
        if (!choice(c)) continue;
        ctx.fillStyle = paint(choice(c));
        ctx.fillRect(left, top, right - left + 0.5, bottom - top + 0.5);
        if (c.undecided) {
          ctx.fillStyle = colour('card');
          ctx.beginPath();
          ctx.arc((left + right) / 2, (top + bottom) / 2, 3, 0, 2 * Math.PI);
          ctx.fill();
        }
      }
      ctx.restore();
    },
  });
  const costs = (c) => c.candidates.map((d) => `${d.scheme}: ${d.time === null ? 'no progress' : percent(d.time)}`);
  const region = (choice) => {
    const [xs, ys] = [sorted(map.map((c) => c.pes)), sorted(map.map((c) => c.mtbf_s))];
    const sets = data.schemes.map((s) => ({
      label: s, backgroundColor: paint(s), borderColor: paint(s), pointStyle: 'rect', pointRadius: 0, pointHitRadius: 14,
      data: map.filter((c) => choice(c) === s).map((c) => ({ x: c.pes, y: c.mtbf_s, cell: c })),
    })).filter((s) => s.data.length);
    const ticks = (values, most) => values.filter((v, i) => i % Math.ceil(values.length / most) === 0).map((value) => ({ value }));
    const at = (title, values, format, most) => {
      const all = edges(values);
      return axis('logarithmic', title, {
        min: all[0], max: all[all.length - 1], grid: { display: false }, ticks: { autoSkip: false, callback: format },
        afterBuildTicks: (a) => { a.ticks = ticks(values, most); },
      });
    };
    return {
      type: 'scatter', data: { datasets: sets }, plugins: [cells(xs, ys, choice)],
      options: options({
        pointLegend: true,
        scales: { x: at('PEs (log)', xs, size, narrow() ? 4 : 11), y: at('MTBF of a node (log)', ys, span, 12) },
        tooltip: { callbacks: { title: (c) => (c.length ? `${count(c[0].raw.x)} PEs, a node fails each ${span(c[0].raw.y)}` : ''), label: (c) => costs(c.raw.cell) } },
      }),
    };
  };

  const line = (scheme, points, more = {}) => ({
    label: scheme, borderColor: paint(scheme), backgroundColor: paint(scheme), borderWidth: 2, pointRadius: 4, pointHitRadius: 10,
    pointStyle: marks[place(scheme)], clip: 8, data: points, ...more,
  });
  const chart = (sets, x, y, title) => ({
    type: 'line', data: { datasets: sets }, plugins: [bars],
    options: options({
      scales: { x, y },
      legend: { filter: (item) => !sets[item.datasetIndex].quiet },
      tooltip: { callbacks: { title: (c) => (c.length ? title(c[0].parsed.x) : ''), label: (c) => `${c.dataset.label}: ${percent(c.parsed.y)}${c.raw.half ? ` ± ${percent(c.raw.half)}` : ''}` } },
    }),
  });
  const sizes = () => {
    const all = sorted(rows.map((r) => r.pes));
    const beside = all.length > 1 ? 1 : 2;
    return axis('logarithmic', 'PEs (log)', {
      min: all[0] / beside, max: all[all.length - 1] * beside, ticks: { autoSkip: false, callback: size },
      afterBuildTicks: (a) => { a.ticks = all.map((value) => ({ value })); },
    });
  };
  const added = (what, title) => {
    const of = (s) => rows.filter((r) => r.scheme === s && r.estimate && r.estimate[what].mean > 0).map((r) => ({ x: r.pes, y: r.estimate[what].mean, half: r.estimate[what].ci95 }));
    const sets = used.map((s) => line(s, of(s))).filter((s) => s.data.length);
    const all = sets.flatMap((s) => s.data.map((p) => p.y));
    return chart(sets, sizes(), logTo(title, percent, all.length ? all : [0.01]), (x) => `${count(x)} PEs`);
  };

  const interval = () => {
    const most = Math.max(...rows.map((r) => r.pes));
    const with_ = rows.filter((r) => r.pes === most && r.optimum);
    const sets = with_.map((r) => line(r.scheme, r.optimum.tried.map((t) => ({ x: t.interval_s, y: t.time })), { pointRadius: 2 }));
    for (const r of with_) {
      const near = r.optimum.tried.reduce((a, b) => (Math.abs(Math.log(a.interval_s / r.daly_s)) < Math.abs(Math.log(b.interval_s / r.daly_s)) ? a : b));
      sets.push(line(r.scheme, [{ x: r.daly_s, y: near.time }], { quiet: true, label: `${r.scheme}, Daly`, pointRadius: 7 }));
    }
    const points = sets.flatMap((s) => s.data);
    const found = points.map((p) => p.x);
    const [from, to] = [Math.min(...found), Math.max(...found)];
    const rounds = [1, 2, 5, 10, 20, 30, ...[1, 2, 5, 10, 20, 30].map((v) => v * 60), ...[1, 2, 4, 8, 16].map((v) => v * 3600), ...[1, 2, 4, 8, 16, 32].map((v) => v * 86400)];
    const ticks = rounds.filter((v) => v >= from && v <= to);
    const x = points.length && ticks.length > 1
      ? axis('logarithmic', 'work between two checkpoints (log)', {
        min: from, max: to, ticks: { autoSkip: false, callback: span }, afterBuildTicks: (a) => { a.ticks = ticks.map((value) => ({ value })); },
      })
      : log('work between two checkpoints (log)', span);
    return chart(sets, x, logTo('time added (log)', percent, points.length ? points.map((p) => p.y).filter((v) => v > 0) : [0.01]), span);
  };

  draw({
    choice: () => region((c) => c.choice),
    unwarned: () => region((c) => c.choice_unwarned),
    time: () => added('time', 'time added (log)'),
    energy: () => added('energy', 'energy added (log)'),
    interval,
  });
  document.body.dataset.cells = String(map.length * study.schemes.length);
})();
