// SPDX-License-Identifier: MIT OR Apache-2.0
'use strict';
(() => {
  const { data, colour, time, short, count, marks, logTo, nodesAxis, options, draw } = plots;
  const bytes = (v) => {
    for (const [unit, name] of [[1e12, 'TB/s'], [1e9, 'GB/s']]) if (v >= unit * 0.9995) return `${short(v / unit)} ${name}`;
    return `${short(v / 1e6)} MB/s`;
  };
  const kinds = { ns: [time, 'time (log)'], times: [(v) => `${short(v)}×`, 'ratio (log)'], bytes_per_s: [bytes, 'bandwidth (log)'] };
  // what is behind is larger: lines that lie on one another show as rings
  const line = (c, l, i) => ({
    label: l.name, borderColor: colour(`c${i % 8}`), backgroundColor: colour(`c${i % 8}`), borderWidth: 2, pointRadius: 3.5 + 0.8 * Math.min(i, 6),
    pointHitRadius: 10, clip: 8, pointStyle: marks[i % marks.length], data: c.nodes.map((x, k) => ({ x, y: l.values[k] })),
  });
  const figure = (c) => {
    const [show, name] = kinds[c.quantity];
    const sets = c.lines.map((l, i) => line(c, l, i));
    const values = sets.flatMap((s) => s.data.map((p) => p.y)).filter((v) => v > 0);
    return {
      type: 'line', data: { datasets: sets },
      options: options({
        pointLegend: true,
        scales: { x: nodesAxis(c.nodes), y: logTo(name, show, values.length ? values : [1]) },
        tooltip: { callbacks: { title: (p) => (p.length ? `${count(p[0].parsed.x)} nodes` : ''), label: (p) => `${p.dataset.label}: ${show(p.parsed.y)}` } },
      }),
    };
  };
  const figures = {};
  data.charts.forEach((c) => { figures[c.id] = () => figure(c); });
  draw(figures);
})();
