//! Cost against time: the ways that no other beats in both, in the terminal and as SVG.

use super::ask::Asked;
use super::shown::machines;
use crate::show::usd;
use std::fmt::Write as _;
use windfall_catalog::plan::{Candidate, Ranking};

const ROWS: usize = 10;

/// A scale that knows where a value lies between the least and the most.
struct Scale {
    least: f64,
    most: f64,
}

impl Scale {
    fn of(values: impl Iterator<Item = f64>) -> Scale {
        let (least, most) = values.fold((f64::INFINITY, 0.0f64), |(least, most), v| (least.min(v), most.max(v)));
        Scale { least: least.max(1e-9), most: most.max(least * 1.0001).max(1e-9) }
    }

    /// 0 to 1, by the logarithm: candidates differ by factors.
    fn at(&self, value: f64) -> f64 {
        ((value.max(1e-9) / self.least).ln() / (self.most / self.least).ln()).clamp(0.0, 1.0)
    }
}

fn scales(ranking: &Ranking<'_>) -> (Scale, Scale) {
    let of = |value: fn(&Candidate<'_>) -> f64| Scale::of(ranking.candidates.iter().map(value));
    (of(|candidate| candidate.hours.mean), of(|candidate| candidate.cost.mean))
}

/// Whole dollars for an axis; small ones in full.
fn whole(dollars: f64) -> String {
    if dollars < 100.0 { usd(dollars) } else { usd(dollars.round()).trim_end_matches(".00").to_owned() }
}

pub fn plot(ranking: &Ranking<'_>, width: usize) -> String {
    let (hours, cost) = scales(ranking);
    let edge = [cost.least, cost.most].map(|dollars| whole(dollars).chars().count()).into_iter().fold(9, usize::max);
    let columns = width.clamp(40, 100) - edge - 3;
    let mut grid = vec![vec![' '; columns]; ROWS];
    let pareto = ranking.pareto();
    let mut place = |at: usize, mark: char| {
        let candidate = &ranking.candidates[at];
        let x = (hours.at(candidate.hours.mean) * (columns - 1) as f64).round() as usize;
        let y = ((1.0 - cost.at(candidate.cost.mean)) * (ROWS - 1) as f64).round() as usize;
        grid[y][x] = mark;
    };
    (0..ranking.candidates.len()).for_each(|at| place(at, '·'));
    for (number, at) in pareto.iter().enumerate() {
        place(*at, char::from_digit(number as u32 + 1, 36).unwrap_or('*'));
    }
    let mut text = String::from("cost against time; numbered: no other way is both cheaper and faster\n");
    for (row, line) in grid.iter().enumerate() {
        let label = match row {
            0 => whole(cost.most),
            row if row == ROWS - 1 => whole(cost.least),
            _ => String::new(),
        };
        let _ = writeln!(text, "{label:>edge$} │{}", line.iter().collect::<String>().trim_end());
    }
    let _ = writeln!(text, "{:>edge$} └{}", "", "─".repeat(columns));
    let right = format!("{:.1} h", hours.most);
    let left = format!("{:.1} h", hours.least);
    let _ = writeln!(text, "{:>edge$}  {left}{:>pad$}", "", right, pad = columns.saturating_sub(left.chars().count()));
    for (number, at) in pareto.iter().enumerate() {
        let c = &ranking.candidates[*at];
        let last = if number == 0 {
            ", fastest"
        } else if number + 1 == pareto.len() {
            ", cheapest"
        } else {
            ""
        };
        let mark = char::from_digit(number as u32 + 1, 36).unwrap_or('*');
        let _ = writeln!(
            text,
            "{mark:>edge$}  {:.1} h  {}  {} {} {}{last}",
            c.hours.mean,
            usd(c.cost.mean),
            c.offer.kind.cloud,
            machines(c),
            c.market
        );
    }
    text
}

pub fn svg(asked: &Asked, ranking: &Ranking<'_>) -> String {
    const WIDTH: f64 = 760.0;
    const HEIGHT: f64 = 440.0;
    const LEFT: f64 = 70.0;
    const BOTTOM: f64 = 390.0;
    const RIGHT: f64 = 730.0;
    const TOP: f64 = 50.0;
    let (hours, cost) = scales(ranking);
    let x = |value: f64| LEFT + 12.0 + hours.at(value) * (RIGHT - LEFT - 24.0);
    let y = |value: f64| BOTTOM - 12.0 - cost.at(value) * (BOTTOM - TOP - 24.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\" font-weight=\"600\">{}: cost against time</text>\n\
         <path d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\" fill=\"none\" stroke=\"#666\"/>\n",
        escaped(&asked.name)
    );
    for (at, anchor) in [(hours.least, "start"), (hours.most, "end")] {
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{at:.1} h</text>",
            x(at),
            BOTTOM + 20.0
        );
    }
    for at in [cost.least, cost.most] {
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y(at) + 4.0,
            whole(at)
        );
    }
    let pareto = ranking.pareto();
    let line: Vec<String> = pareto
        .iter()
        .map(|at| &ranking.candidates[*at])
        .map(|c| format!("{:.1},{:.1}", x(c.hours.mean), y(c.cost.mean)))
        .collect();
    for candidate in &ranking.candidates {
        let _ = writeln!(
            text,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"#b8c4d0\"><title>{} {} {}: {}, {:.1} h</title></circle>",
            x(candidate.hours.mean),
            y(candidate.cost.mean),
            escaped(candidate.offer.kind.cloud),
            escaped(&machines(candidate)),
            candidate.market,
            usd(candidate.cost.mean),
            candidate.hours.mean
        );
    }
    let _ = writeln!(
        text,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"#1f6feb\" stroke-width=\"1.5\"/>",
        line.join(" ")
    );
    for (number, at) in pareto.iter().enumerate() {
        let candidate = &ranking.candidates[*at];
        let (cx, cy) = (x(candidate.hours.mean), y(candidate.cost.mean));
        let (dx, anchor) = if cx > WIDTH * 0.6 { (-8.0, "end") } else { (8.0, "start") };
        let dy = if number % 2 == 0 { -8.0 } else { 16.0 };
        let _ = writeln!(text, "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"4.5\" fill=\"#1f6feb\"/>");
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{} {} {}, {}</text>",
            cx + dx,
            cy + dy,
            escaped(candidate.offer.kind.cloud),
            escaped(&machines(candidate)),
            candidate.market,
            whole(candidate.cost.mean)
        );
    }
    text.push_str("</svg>\n");
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
