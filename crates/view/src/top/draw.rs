//! Puts the state on the screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Bar, BarChart, BarGroup, Block, Borders, Cell, Paragraph, Row, Sparkline, Table};

use super::state::State;
use crate::table::name;
use crate::units::{count, percent, time};

const LENGTHS: [&str; super::state::DECADES] =
    ["10n", "100n", "1µ", "10µ", "100µ", "1m", "10m", "100m", "1s"];

pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let cpu_rows = (state.cpus.len() as u16 + 3).min(frame.area().height / 3 + 1);
    let [head, cpus, trend, below, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(cpu_rows),
        Constraint::Length(4),
        Constraint::Min(4),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let [sources, lengths] =
        Layout::horizontal([Constraint::Percentage(55), Constraint::Min(20)]).areas(below);
    frame.render_widget(headline(state), head);
    frame.render_widget(per_cpu(state), cpus);
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
        Some(w) => format!("windows: period {}, favored {}", time(w.period_ns() as f64), percent(w.duty())),
        None => "no windows in force".into(),
    };
    let attributed = state.not_attributed.as_deref().unwrap_or("attributed by BPF");
    let paused = if state.paused { "PAUSED · " } else { "" };
    Paragraph::new(format!("colony top · {paused}{windows} · {attributed}")).style(Style::new().bold())
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
    use colony_noise::measure::{Frame, FrameCpu};
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
        let mut lengths = colony_noise::selfish::recorder::histogram();
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
        state.add(&frame(), Some(windows));
        let text = screen(&state, 100, 30);
        for part in ["2.14 %", "irq:local_timer", "20.0 ms", "1.40 ms", "95.0 %", "100 ms"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(!text.contains('\u{1b}'), "a thread's name must not reach the terminal as it is");
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
