// SPDX-License-Identifier: MIT OR Apache-2.0
'use strict';
// what the pages' plots have in common
const plots = (() => {
  const page = document.body.dataset;
  page.plots = '0';
  page.errors = '';
  const problem = (e) => { page.errors += `${e && e.message ? e.message : e}\n`; };
  addEventListener('error', problem);
  addEventListener('unhandledrejection', (e) => problem(e.reason));

  const data = JSON.parse(document.getElementById('data').textContent);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const alpha = (hex, a) => hex + Math.round(a * 255).toString(16).padStart(2, '0');
  const short = (v) => Number(v.toPrecision(3)).toLocaleString('en', { maximumSignificantDigits: 3 });
  const time = (ns) => {
    for (const [unit, name] of [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs']]) if (ns >= unit * 0.9995) return `${short(ns / unit)} ${name}`;
    return `${short(ns)} ns`;
  };
  const count = (v) => (v < 10000 ? String(v) : v.toLocaleString('en'));
  const decade = (v) => Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-9;
  const below = (v) => 10 ** Math.floor(Math.log10(v) + 1e-9);
  const above = (v) => 10 ** Math.ceil(Math.log10(v) - 1e-9);
  const narrow = () => innerWidth < 640;

  const marks = ['circle', 'rectRot', 'triangle', 'rect', 'star', 'crossRot', 'cross', 'circle'];

  const axis = (type, title, more = {}) => ({
    type, title: { display: true, text: title, color: colour('soft') },
    border: { color: colour('line') }, grid: { color: colour('grid') },
    ...more, ticks: { color: colour('soft'), maxRotation: 0, ...more.ticks },
  });
  // one tick a decade, in the unit that fits; every other or third one on a narrow screen
  const decades = (format) => ({
    ticks: { callback: (v) => format(v), autoSkip: false },
    afterBuildTicks: (a) => {
      const all = a.ticks.filter((t) => decade(t.value));
      const step = a.isHorizontal() ? Math.ceil(all.length / (narrow() ? 4 : 12)) : 1;
      a.ticks = all.filter((t, i) => i % step === 0);
    },
  });
  const log = (title, format, more = {}) => axis('logarithmic', title, { ...decades(format), ...more });
  // 1, 2, 5, 10 … from the last not above `least` to the first not below `most`
  const steps = (least, most) => {
    const all = [];
    for (let k = Math.floor(Math.log10(least)) - 1; k <= Math.ceil(Math.log10(most)) + 1; k += 1) all.push(...[1, 2, 5].map((m) => Number(`${m}e${k}`)));
    const from = all.findLastIndex((v) => v <= least);
    return all.slice(from, Math.max(from + 1, all.findIndex((v) => v >= most)) + 1);
  };
  const logTo = (title, format, values) => {
    const all = steps(Math.min(...values), Math.max(...values));
    const ticks = all.length > 10 ? all.filter(decade) : all;
    return log(title, format, {
      min: all[0], max: all[all.length - 1], afterBuildTicks: (a) => { a.ticks = ticks.map((value) => ({ value })); },
    });
  };

  // 95 % confidence intervals, where there are repetitions
  const bars = {
    id: 'bars',
    afterDatasetsDraw({ ctx, chartArea, scales, data: { datasets } }) {
      ctx.save();
      ctx.beginPath();
      ctx.rect(chartArea.left - 6, chartArea.top, chartArea.width + 12, chartArea.height);
      ctx.clip();
      for (const set of datasets) {
        ctx.strokeStyle = set.borderColor;
        ctx.lineWidth = 1.5;
        for (const { x, y, half } of set.data) {
          if (!half) continue;
          const at = scales.x.getPixelForValue(x);
          const high = scales.y.getPixelForValue(y + half);
          const low = y - half > 0 ? scales.y.getPixelForValue(y - half) : chartArea.bottom;
          if (low - high < 2) continue;
          ctx.beginPath();
          for (const end of [high, low]) { ctx.moveTo(at - 4, end); ctx.lineTo(at + 4, end); }
          ctx.moveTo(at, high);
          ctx.lineTo(at, low);
          ctx.stroke();
        }
      }
      ctx.restore();
    },
  };

  // node counts, powers of two; `all` are those there are
  const nodesAxis = (all) => {
    // a single count stands in the middle
    const beside = new Set(all).size > 1 ? 1 : 2;
    const [min, max] = [Math.min(...all) / beside, Math.max(...all) * beside];
    const powers = () => {
      const [a, b] = [Math.floor(Math.log2(min)), Math.ceil(Math.log2(max))];
      const step = Math.max(1, Math.ceil((b - a) / (narrow() ? 4 : 11)));
      return Array.from({ length: Math.floor((b - a) / step) + 1 }, (_, i) => ({ value: 2 ** (a + i * step) })).filter((t) => t.value >= Math.max(1, min) && t.value <= max);
    };
    return axis('logarithmic', 'nodes (log₂)', {
      min, max, afterBuildTicks: (a) => { a.ticks = powers(); }, ticks: { autoSkip: false, callback: count },
    });
  };
  // the key draws a line forth and back: dashes show in it where twice its width is a whole number of periods and a dash
  const options = (more) => ({
    responsive: true, maintainAspectRatio: false, animation: false, color: colour('ink'),
    interaction: { mode: 'nearest', intersect: false }, layout: { padding: { right: 8 } },
    ...more,
    plugins: {
      legend: { position: 'bottom', align: 'start', labels: { color: colour('ink'), usePointStyle: more.pointLegend, boxWidth: 28, boxHeight: more.pointLegend ? 7 : 0, padding: narrow() ? 8 : 14, ...more.legend } },
      tooltip: { backgroundColor: colour('ink'), titleColor: colour('paper'), bodyColor: colour('paper'), padding: 8, ...more.tooltip },
    },
  });

  let figures = {};
  const charts = [];
  const drawAll = () => {
    charts.splice(0).forEach((c) => c.destroy());
    let drawn = 0;
    for (const [id, make] of Object.entries(figures)) {
      const canvas = document.querySelector(`#${CSS.escape(id)} canvas`);
      if (!canvas) continue;
      try {
        const made = make(canvas);
        // a figure that the chart library cannot draw has painted itself
        if (made) {
          const { bare, ...config } = made;
          if (bare) config.options.plugins.legend.display = false;
          charts.push(new Chart(canvas, config));
        }
        drawn += 1;
      } catch (e) {
        problem(e);
        const note = document.createElement('p');
        note.className = 'problem';
        note.textContent = 'This plot could not be drawn; its numbers are below.';
        canvas.parentElement.replaceWith(note);
      }
    }
    page.plots = String(drawn);
  };

  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  Chart.defaults.font.size = 12;
  // `all`: what makes the plot of each figure, by its id
  const draw = (all) => {
    figures = all;
    drawAll();
    // paper is white and has a width of its own
    for (const query of ['(prefers-color-scheme: dark)', '(max-width: 639px)', 'print']) matchMedia(query).addEventListener('change', drawAll);
  };

  for (const t of document.querySelectorAll('time[data-unix]')) {
    const when = new Date(Number(t.dataset.unix) * 1000);
    t.dateTime = when.toISOString();
    t.textContent = when.toLocaleString(undefined, { dateStyle: 'long', timeStyle: 'short' });
  }
  for (const button of document.querySelectorAll('.copy')) {
    button.addEventListener('click', () => {
      const code = button.parentElement.querySelector('code');
      const done = () => { button.textContent = 'Copied'; setTimeout(() => { button.textContent = 'Copy'; }, 1500); };
      const select = () => getSelection().selectAllChildren(code);
      if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(done, select);
      else select();
    });
  }
  return { data, colour, alpha, short, time, count, decade, below, above, narrow, marks, axis, log, logTo, bars, nodesAxis, options, draw };
})();
