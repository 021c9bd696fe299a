// SPDX-License-Identifier: MIT OR Apache-2.0
'use strict';
(() => {
  const { data, colour, short, count, narrow, marks, axis, time, bars, logTo, options, draw } = plots;
  const { curves, plan } = data.results;
  const sizes = plan.sizes_mib;
  const seconds = (s) => time(s * 1e9);
  const curve = (c, i, what) => ({
    label: data.names[i], borderColor: colour(`c${i}`), backgroundColor: colour(`c${i}`), borderWidth: 2, pointRadius: 4, pointHitRadius: 10,
    pointStyle: marks[i], clip: 8, data: c.rows.map((r) => ({ x: r.mib, y: r[what].mean, half: r[what].ci95 })),
  });
  const x = () => {
    const beside = sizes.length > 1 ? 1 : 2;
    const [min, max] = [Math.min(...sizes) / beside, Math.max(...sizes) * beside];
    const step = Math.ceil(sizes.length / (narrow() ? 5 : 12));
    return axis('logarithmic', 'MiB (log)', {
      min, max, ticks: { autoSkip: false, callback: count },
      afterBuildTicks: (a) => { a.ticks = sizes.filter((v, i) => i % step === 0).map((value) => ({ value })); },
    });
  };
  const figure = (what, title) => {
    const sets = curves.map((c, i) => curve(c, i, what));
    const values = sets.flatMap((s) => s.data.map((p) => p.y)).filter((v) => v > 0);
    return {
      type: 'line', data: { datasets: sets }, plugins: [bars],
      options: options({
        pointLegend: true,
        scales: { x: x(), y: logTo(title, seconds, values.length ? values : [1]) },
        tooltip: { callbacks: { title: (c) => (c.length ? `${short(c[0].parsed.x)} MiB` : ''), label: (c) => `${c.dataset.label}: ${seconds(c.parsed.y)}${c.raw.half ? ` ± ${seconds(c.raw.half)}` : ''}` } },
      }),
    };
  };
  draw({
    cpu: () => figure('cpu_s', 'processor time (log)'),
    guest: () => figure('guest_s', 'guest time (log)'),
  });
})();
