// SPDX-License-Identifier: MIT OR Apache-2.0
//! Puts the state on the screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Bar, BarChart, BarGroup, Block, Borders, Cell, Paragraph, Row, Sparkline, Table};

use super::InForce;
use super::state::State;
use crate::keeper;
use crate::table::{broken, name};
use crate::units::{count, percent, time};

const LENGTHS: [&str; super::state::DECADES] =
    ["10n", "100n", "1µ", "10µ", "100µ", "1m", "10m", "100m", "1s"];

pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let cpu_rows = (state.cpus.len() as u16 + 3).min(frame.area().height / 3 + 1);
    let kept = kept(state, frame.area());
    let [head, cpus, windows, trend, below, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(cpu_rows),
        Constraint::Length(kept.as_ref().map_or(0, |(_, rows)| *rows)),
        Constraint::Length(4),
        Constraint::Min(4),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let [sources, lengths] =
        Layout::horizontal([Constraint::Percentage(55), Constraint::Min(20)]).areas(below);
    frame.render_widget(headline(state), head);
    frame.render_widget(per_cpu(state), cpus);
    if let Some((panel, _)) = kept {
        frame.render_widget(panel, windows);
    }
    draw_trend(frame, state, trend);
    frame.render_widget(by_source(state), sources);
    draw_lengths(frame, state, lengths);
    let keys = Line::from(" q quit   p pause   r reset ").style(Style::new().add_modifier(Modifier::DIM));
    frame.render_widget(keys, foot);
}

fn panel(title: &str) -> Block<'_> {
    Block::new().borders(Borders::TOP).title(title)
}

fn headline(state: &State) -> Paragraph<'_> {
    let windows = match &state.windows {
        Some(InForce { windows: w, coordinated, .. }) => {
            let (period, duty) = (time(w.period_ns() as f64), percent(w.duty()));
            format!("windows: period {period}, favored {duty}, {}", name(coordinated, 60))
        }
        None => "no windows in force".into(),
    };
    let attributed = state.not_attributed.as_deref().unwrap_or("attributed by BPF");
    let paused = if state.paused { "PAUSED · " } else { "" };
    Paragraph::new(format!("colony top · {paused}{windows} · {attributed}")).style(Style::new().bold())
}

/// Paragraph on the backend and its counters, and the rows it takes: at most a third of the screen.
fn kept(state: &State, area: Rect) -> Option<(Paragraph<'static>, u16)> {
    let (heading, sentences) = keeper::of_daemon(&state.windows.as_ref()?.stats)?;
    let width = usize::from(area.width).max(1);
    let lines = sentences.iter().flat_map(|s| broken(&name(s, usize::MAX - 1), width)).map(Line::from);
    let lines: Vec<Line<'static>> = lines.take(usize::from(area.height / 3)).collect();
    let rows = lines.len() as u16 + 1;
    let block = Block::new().borders(Borders::TOP).title(heading);
    Some((Paragraph::new(lines).block(block), rows))
}

fn per_cpu(state: &State) -> Table<'_> {
    let rows = state.cpus.iter().map(|c| {
        let share = c.stolen_ns as f64 / state.span_ns as f64;
        let colour = match share {
            s if s < 0.001 => Color::Green,
            s if s < 0.02 => Color::Yellow,
            _ => Color::Red,
        };
        let split =
            c.split_ns.map_or(("–".into(), "–".into()), |(f, r)| (time(f as f64), time(r as f64)));
        Row::new([
            Cell::new(c.cpu.to_string()),
            Cell::new(percent(share)).style(Style::new().fg(colour)),
            Cell::new(count(c.detours * 1_000_000_000 / state.span_ns)),
            Cell::new(time(c.longest_ns as f64)),
            Cell::new(split.0),
            Cell::new(split.1),
        ])
    });
    let widths = [5, 10, 11, 10, 10, 10].map(Constraint::Length);
    Table::new(rows, widths)
        .header(Row::new(["CPU", "stolen", "detours/s", "longest", "favored", "regular"]).bold())
        .block(panel(" stolen per CPU "))
}

fn draw_trend(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let data: Vec<u64> = state.trend.iter().rev().take(area.width.into()).rev().copied().collect();
    let now = data.last().map_or_else(String::new, |ppm| percent(*ppm as f64 / 1e6));
    let title = format!(" stolen, all CPUs: {now} ");
    frame.render_widget(Sparkline::default().data(&data).block(panel(&title)), area);
}

fn by_source(state: &State) -> Table<'_> {
    let mut sources: Vec<_> = state.sources.iter().collect();
    sources.sort_by_key(|(_, ns)| std::cmp::Reverse(**ns));
    let rows = sources.into_iter().map(|(source, &ns)| {
        let share = ns as f64 / state.observed_ns.max(1) as f64;
        Row::new([name(&source.to_string(), 24), percent(share), time(ns as f64)])
    });
    Table::new(rows, [Constraint::Min(16), Constraint::Length(9), Constraint::Length(9)])
        .header(Row::new(["source", "of CPU", "stolen"]).bold())
        .block(panel(" by source since the start "))
}

fn draw_lengths(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let bars: Vec<Bar<'_>> = LENGTHS
        .iter()
        .zip(state.decades)
        // the height is the logarithm: one long detour must show beside a million short ones
        .map(|(label, n)| {
            let height = if n == 0 { 0 } else { 10 + u64::from(n.ilog2()) * 10 };
            Bar::default().label(*label).value(height).text_value(count(n))
        })
        .collect();
    let width = (area.width / LENGTHS.len() as u16).saturating_sub(1).clamp(1, 5);
    let chart = BarChart::default()
        .data(BarGroup::default().bars(&bars))
        .bar_width(width)
        .bar_gap(1)
        .block(panel(" detours by length, log "));
    frame.render_widget(chart, area);
}

#[cfg(test)]
mod tests {
    use colony_client::AgentStats;
    use colony_client::Backend;
    use colony_client::{Coordination, Mode};
    use colony_client::{CpuTimes, ExtStats, Waited};
    use colony_client::{JobReport, StatsReport};
    use colony_measure::{Frame, FrameCpu};
    use colony_stats::Distribution;
    use colony_time::ClockQuality;
    use colony_time::{DutyCycle, Windows};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn screen(state: &State, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("test terminal");
        terminal.draw(|f| draw(f, state)).expect("draws");
        terminal.backend().to_string()
    }

    fn frame() -> Frame {
        let mut lengths = colony_measure::selfish::recorder::histogram();
        lengths.record_n(1_400, 1000).expect("in range");
        lengths.record(20_000_000).expect("in range");
        Frame {
            span_ns: 1_000_000_000,
            cpus: vec![FrameCpu {
                cpu: 1,
                detours: 1001,
                stolen_ns: 21_400_000,
                longest_ns: 20_000_000,
                split_ns: Some((1_400_000, 20_000_000)),
            }],
            sources: [("thread:evil\u{1b}[2J".into(), 20_000_000), ("irq:local_timer".into(), 1_400_000)]
                .into(),
            lengths,
        }
    }

    #[test]
    fn a_look_shows_cpus_sources_lengths_and_the_split() {
        let mut state = State::new(None);
        let windows = Windows::new(100_000_000, DutyCycle::Ppm(950_000), 0).expect("valid");
        let coordinated = "coordinated within 21.0 µs".into();
        state.add(&frame(), Some(InForce { windows, coordinated, stats: stats(windows) }));
        let text = screen(&state, 100, 30);
        for part in ["2.14 %", "irq:local_timer", "20.0 ms", "1.40 ms", "95.0 %", "100 ms", "within 21.0 µs"]
        {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(!text.contains('\u{1b}'), "a thread's name must not reach the terminal as it is");
    }

    fn stats(windows: Windows) -> StatsReport {
        let kernel = ClockQuality {
            synchronised: true,
            source: None,
            error_bound_ns: None,
            kernel_max_error_ns: 0,
            estimated_error_ns: 0,
            tai_offset_s: 37,
            frequency_ppm: 0.0,
            leap: None,
        };
        let coordination = Coordination {
            mode: Mode::Coordinated,
            reason: None,
            kept: Some(windows),
            guard_ns: 0,
            error_bound_ns: None,
            error_bound_source: None,
            max_error_ns: 0,
            cluster: None,
            steps: 0,
            last_step_ns: None,
            kernel,
        };
        StatsReport {
            schema: StatsReport::SCHEMA.into(),
            pid: 1,
            uptime_ns: 0,
            windows,
            coordination,
            duty_cycle: "95%".into(),
            cpus: [1].into_iter().collect(),
            job: JobReport::default(),
            agent: None,
            kept_by: Backend::None,
            sched_ext: None,
            warnings: Vec::new(),
        }
    }

    /// Counters of a scheduler in the kernel that held back seven threads, the last one with a hostile name.
    fn ext() -> ExtStats {
        let waited = |i: u64| Waited {
            comm: if i == 7 { "evil\u{1b}[2J".into() } else { format!("daemon{i}") },
            times: i,
            total_ns: i * 1_000_000,
            max_ns: i * 1_000,
        };
        ExtStats {
            favored: CpuTimes { job_ns: 9_998_000_000, other_ns: 2_000_000, ..CpuTimes::default() },
            edges: 200,
            lateness: Distribution {
                count: 200,
                p50_ns: 3_100,
                p99_ns: 5_700,
                max_ns: 9_000,
                ..Distribution::default()
            },
            ticks_favored: 9,
            deferred: (1..=7).rev().map(waited).collect(),
            ..ExtStats::default()
        }
    }

    #[test]
    fn where_colonyd_keeps_windows_a_panel_says_how_well() {
        let mut state = State::new(None);
        let windows = Windows::new(100_000_000, DutyCycle::Ppm(950_000), 0).expect("valid");
        let shown = |state: &mut State, stats: StatsReport| {
            state.add(&frame(), Some(InForce { windows, coordinated: "coordinated".into(), stats }));
            (screen(state, 80, 30), screen(state, 140, 30))
        };
        let before = shown(&mut state, stats(windows)).0;
        assert!(!before.contains("windows of the"), "no job yet:\n{before}");
        let job = JobReport { active: true, ..JobReport::default() };
        let by_kernel =
            StatsReport { kept_by: Backend::SchedExt, sched_ext: Some(ext()), job, ..stats(windows) };
        let (narrow, wide) = shown(&mut state, by_kernel);
        assert!(narrow.contains("kept by sched_ext") && narrow.contains("by source"), "{narrow}");
        for part in [
            "stolen in favored windows: 2.00 ms, 0.020 % of 10.0 s",
            "median 3.10 µs, 99 % 5.70 µs",
            "9 in favored",
        ] {
            assert!(wide.contains(part), "{part} is missing in\n{wide}");
        }
        let five = wide.lines().find(|l| l.contains("held back")).expect("a line of them");
        assert!(
            five.contains("[2J 7.00 ms, daemon6 6.00 ms")
                && five.contains("daemon3")
                && !five.contains("daemon2")
        );
        assert!(!wide.contains('\u{1b}'), "a thread's name must not reach the terminal as it is");
        let agent = AgentStats { edges: 40, switches: 120, ..AgentStats::default() };
        let by_agent = StatsReport { kept_by: Backend::Agent, agent: Some(agent), ..stats(windows) };
        let wide = shown(&mut state, by_agent).1;
        assert!(wide.contains("the last job, kept by the agent") && wide.contains("120 switches"), "{wide}");
        for (width, height) in [(1, 1), (20, 3), (300, 80)] {
            screen(&state, width, height);
        }
    }

    #[test]
    fn any_size_of_terminal_is_drawn() {
        let mut state = State::new(Some("no privilege"));
        state.add(&frame(), None);
        for (width, height) in [(1, 1), (20, 3), (80, 24), (300, 80)] {
            screen(&state, width, height);
        }
    }

    #[test]
    fn paused_means_nothing_changes() {
        let mut state = State::new(None);
        state.paused = true;
        state.add(&frame(), None);
        assert!(state.cpus.is_empty());
    }
}
