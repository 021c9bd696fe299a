// SPDX-License-Identifier: MIT OR Apache-2.0
'use strict';
(() => {
  const { data, colour, time, short, count, narrow, marks, axis, logTo, bars, nodesAxis, options, draw } = plots;
  // the scheduler is the colour, a swept value the line and the mark
  const dashes = [[], [8, 4], [14, 7], [2, 4]];
  const nodesOf = (p) => p.lines.flatMap((l) => l.points.map((q) => q.nodes));

  // what is behind is larger: lines that lie on one another show as rings
  const line = (l, points) => ({
    label: l.label, borderColor: colour(`c${l.colour}`), backgroundColor: colour(`c${l.colour}`),
    borderDash: dashes[l.style % 4], borderWidth: 2, pointRadius: 3.5 + 1.1 * Math.min(l.colour, 5), pointHitRadius: 10, clip: 8,
    pointStyle: marks[l.style % 4], data: points,
  });
  const chart = (sets, nodes, y, show) => ({
    type: 'line', data: { datasets: sets }, plugins: [bars],
    options: options({
      scales: { x: nodesAxis(nodes), y },
      // one key for all dotted lines
      legend: { filter: (item) => !sets[item.datasetIndex].of || sets.findIndex((s) => s.of) === item.datasetIndex },
      tooltip: {
        callbacks: {
          title: (c) => (c.length ? `${count(c[0].parsed.x)} nodes` : ''),
          label: (c) => `${c.dataset.of || c.dataset.label}: ${show(c.parsed.y)}${c.raw.half ? ` ± ${show(c.raw.half)}` : ''}`,
        },
      },
    }),
  });

  const iteration = (p) => {
    const sets = p.lines.map((l) => line(l, l.points.map((q) => ({ x: q.nodes, y: q.mean_ns, half: q.ci95_ns }))));
    for (const q of p.quiet) {
      sets.push({
        label: 'quiet', of: q.label, borderColor: colour('base'), backgroundColor: colour('base'), borderDash: [1, 4], borderWidth: 2,
        pointRadius: 0, pointHitRadius: 8, pointStyle: marks[q.style % 4], data: q.points.map(([x, y]) => ({ x, y })),
      });
    }
    const found = sets.flatMap((s) => s.data.map((d) => d.y)).filter((v) => v > 0);
    // one rank alone may take no time at all
    const all = found.length ? found : [1];
    return chart(sets, nodesOf(p), logTo('mean time of an iteration (log)', time, all), time);
  };

  const slowdown = (p) => {
    const sets = p.lines.map((l) => line(l, l.points.map((q) => ({ x: q.nodes, y: q.slowdown, half: q.slowdown_half }))));
    const all = sets.flatMap((s) => s.data.map((d) => d.y + (d.half || 0)));
    const [least, most] = [Math.min(1, ...all), Math.max(1, ...all)];
    const times = (v) => `${short(v)}×`;
    // small losses are read off a linear axis that begins with none
    const y = most > 10
      ? logTo(narrow() ? 'slower than quiet (log)' : 'time over the quiet time (log)', times, [least, most])
      : axis('linear', narrow() ? 'slower than quiet' : 'time over the quiet time', { min: least, max: least + (most - least || 0.01) * 1.05, ticks: { callback: (v) => `${Number(v.toPrecision(5))}×`, includeBounds: false } });
    return chart(sets, nodesOf(p), y, (v) => `${Number(v.toPrecision(4))}×`);
  };

  const figures = {};
  data.plots.forEach((p, i) => {
    figures[`time-${i}`] = () => iteration(p);
    figures[`slowdown-${i}`] = () => slowdown(p);
  });
  draw(figures);
})();
