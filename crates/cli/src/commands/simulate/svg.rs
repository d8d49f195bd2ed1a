//! Pictures: what each policy held in one scenario, tick by tick; and cost against the time there was.

use super::ask::Asked;
use std::fmt::Write;
use std::path::Path;
use windfall_core::Span;
use windfall_server::client::{Code, Failure};
use windfall_sim::{PolicyResult, Use, mean};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 230.0;
const ROW: f64 = 26.0;
const SPOT: &str = "#2f9e6e";
const OTHER_SPOT: &str = "#8cc7a9";
const FIRM: &str = "#d9822b";
const HAD: &str = "#b9d8c8";
const INK: &str = "#22303c";
const FAINT: &str = "#d7dde2";
const LINES: [&str; 9] =
    ["#7a8794", "#8a63b5", "#b08a2e", "#3f7fb5", "#5fb0c9", "#c0504d", "#9c6b4f", "#2f9e6e", "#22303c"];

/// Writes `timeline.svg` and `cost.svg` into a folder.
pub fn write(folder: &Path, asked: &Asked, standings: &[PolicyResult], optimum: &[f64]) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(Code::BadInput, format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let scenario = telling(standings);
    std::fs::write(folder.join("timeline.svg"), timeline(asked, standings, scenario)).map_err(failed)?;
    std::fs::write(folder.join("cost.svg"), cost(asked, standings, optimum)).map_err(failed)?;
    eprintln!("timeline.svg and cost.svg are in {}", folder.display());
    Ok(())
}

/// The scenario in which policies differ most: it shows what they do.
fn telling(standings: &[PolicyResult]) -> usize {
    let count = standings.first().map_or(0, |standing| standing.played.len());
    let spread = |number: usize| {
        let costs = standings.iter().map(|standing| standing.played[number].cost);
        costs.clone().max().unwrap_or_default() - costs.min().unwrap_or_default()
    };
    (0..count).max_by_key(|number| spread(*number)).unwrap_or(0)
}

fn begin(height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"{INK}\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    )
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
}

fn bar(svg: &mut String, x: f64, y: f64, width: f64, height: f64, fill: &str) {
    let _ =
        writeln!(svg, "<rect x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{height:.1}\" fill=\"{fill}\"/>");
}

/// Draws runs of equal things as one bar each.
fn runs<T: PartialEq + Copy>(things: &[T], mut draw: impl FnMut(usize, usize, T)) {
    let mut from = 0;
    while let Some(thing) = things.get(from) {
        let length = things[from..].iter().take_while(|other| *other == thing).count();
        draw(from, from + length, *thing);
        from += length;
    }
}

fn timeline(asked: &Asked, standings: &[PolicyResult], number: usize) -> String {
    let Some(scenario) = asked.scenarios.get(number) else { return begin(ROW) };
    let (course, terms) = (&scenario.course, &scenario.terms);
    let ticks = (terms.deadline.0 as f64 / course.tick.0 as f64).max(1.0);
    let x = |tick: f64| LEFT + tick / ticks * (WIDTH - LEFT - 90.0);
    let rows = course.zones.len() + standings.len();
    let height = 84.0 + ROW * rows as f64 + 40.0;
    let mut svg = begin(height);
    let title =
        format!("{}: {} of work in {}, a restart takes {}", scenario.name, terms.work, terms.deadline, terms.restart);
    text(&mut svg, 16.0, 24.0, "start", &title);
    let legend = [(HAD, "could be had"), (SPOT, "spot held"), (FIRM, "on-demand held")];
    for (place, (fill, words)) in legend.iter().enumerate() {
        let left = 16.0 + 140.0 * place as f64;
        bar(&mut svg, left, 38.0, 12.0, 12.0, fill);
        text(&mut svg, left + 18.0, 48.0, "start", words);
    }
    let mut y = 64.0;
    for zone in &course.zones {
        text(&mut svg, LEFT - 12.0, y + 15.0, "end", &zone.name);
        let until = (ticks.ceil() as usize).min(zone.up.len());
        runs(&zone.up[..until], |from, to, up| {
            if up {
                bar(&mut svg, x(from as f64), y + 4.0, x(to as f64) - x(from as f64), 12.0, HAD);
            }
        });
        y += ROW;
    }
    for standing in standings {
        let played = &standing.played[number];
        text(&mut svg, LEFT - 12.0, y + 15.0, "end", &standing.name);
        runs(&played.uses, |from, to, used| {
            let fill = match used {
                Use::Idle => return,
                Use::OnDemand => FIRM,
                Use::Spot(zone) if zone % 2 == 0 => SPOT,
                Use::Spot(_) => OTHER_SPOT,
            };
            bar(&mut svg, x(from as f64), y + 2.0, x(to as f64) - x(from as f64), 17.0, fill);
        });
        text(&mut svg, WIDTH - 84.0, y + 15.0, "start", &played.cost.to_string());
        y += ROW;
    }
    hours(&mut svg, terms.deadline, y, x, course.tick);
    svg + "</svg>\n"
}

fn hours(svg: &mut String, until: Span, y: f64, x: impl Fn(f64) -> f64, tick: Span) {
    let all = until.0 as f64 / Span::hours(1).0 as f64;
    let step = [1.0, 2.0, 4.0, 6.0, 12.0, 24.0, 48.0].into_iter().find(|step| all / step <= 12.0).unwrap_or(96.0);
    let mut hour = 0.0;
    while hour <= all {
        let at = x(hour * Span::hours(1).0 as f64 / tick.0 as f64);
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"60\" y2=\"{y:.1}\" stroke=\"{FAINT}\" stroke-width=\"0.6\"/>"
        );
        text(svg, at, y + 18.0, "middle", &format!("{hour} h"));
        hour += step;
    }
    let end = x(until.0 as f64 / tick.0 as f64);
    let _ = writeln!(
        svg,
        "<line x1=\"{end:.1}\" x2=\"{end:.1}\" y1=\"56\" y2=\"{y:.1}\" stroke=\"{INK}\" stroke-width=\"1.2\"/>"
    );
    text(svg, end, y + 32.0, "middle", "deadline");
}

/// Mean cost at each deadline: (time over work, dollars).
fn curve(asked: &Asked, costs: &[f64]) -> Vec<(f64, f64)> {
    let mut deadlines: Vec<Span> = asked.scenarios.iter().map(|scenario| scenario.terms.deadline).collect();
    deadlines.sort_unstable();
    deadlines.dedup();
    let point = |deadline: Span| {
        let those = asked.scenarios.iter().zip(costs).filter(|(scenario, _)| scenario.terms.deadline == deadline);
        let costs: Vec<f64> = those.map(|(_, cost)| *cost).collect();
        let work = asked.scenarios.first().map_or(1, |scenario| scenario.terms.work.0.max(1));
        (deadline.0 as f64 / work as f64, mean(costs.into_iter()))
    };
    deadlines.into_iter().map(point).collect()
}

fn cost(asked: &Asked, standings: &[PolicyResult], optimum: &[f64]) -> String {
    let mut curves: Vec<(&str, Vec<(f64, f64)>)> = standings
        .iter()
        .map(|standing| {
            let costs: Vec<f64> = standing.played.iter().map(|played| played.cost.dollars()).collect();
            (standing.name.as_str(), curve(asked, &costs))
        })
        .collect();
    curves.push(("optimum", curve(asked, optimum)));
    let points = || curves.iter().flat_map(|(_, curve)| curve.iter().copied());
    let most = points().map(|(_, cost)| cost).fold(0.0, f64::max) * 1.05;
    let (first, last) = points().fold((f64::MAX, 0.0_f64), |(low, high), (ratio, _)| (low.min(ratio), high.max(ratio)));
    let (first, last) = if last > first { (first, last) } else { (first - 0.1, last + 0.1) };
    let (height, right, base) = (460.0, WIDTH - 290.0, 400.0);
    let x = |ratio: f64| 70.0 + (ratio - first) / (last - first) * (right - 90.0);
    let y = |cost: f64| base - cost / most.max(1e-9) * (base - 50.0);
    let mut svg = begin(height);
    text(&mut svg, 16.0, 24.0, "start", "Mean cost against time to the deadline over work");
    for step in 0..=5 {
        let cost = most * f64::from(step) / 5.0;
        let at = y(cost);
        let _ = writeln!(svg, "<line x1=\"70\" x2=\"{right:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"{FAINT}\"/>");
        text(&mut svg, 62.0, at + 4.0, "end", &format!("${cost:.0}"));
    }
    for (ratio, _) in curves.first().map(|(_, curve)| curve.clone()).unwrap_or_default() {
        text(&mut svg, x(ratio), base + 20.0, "middle", &format!("{ratio:.2}"));
    }
    text(&mut svg, (70.0 + right) / 2.0, base + 42.0, "middle", "T / P");
    let mut order: Vec<usize> = (0..curves.len()).collect();
    let end = |number: usize| curves[number].1.last().map_or(0.0, |(_, cost)| *cost);
    order.sort_by(|a, b| end(*b).total_cmp(&end(*a)));
    let mut label = 0.0_f64;
    for number in order {
        let (name, curve) = &curves[number];
        let colour = LINES[number % LINES.len()];
        let dash = if *name == "optimum" { " stroke-dasharray=\"5 4\"" } else { "" };
        let path: Vec<String> = curve.iter().map(|(ratio, cost)| format!("{:.1},{:.1}", x(*ratio), y(*cost))).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>",
            path.join(" ")
        );
        for (ratio, cost) in curve {
            let _ = writeln!(svg, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>", x(*ratio), y(*cost));
        }
        // Labels in the order of the lines' ends, none on another.
        label = y(end(number)).max(label + 16.0);
        bar(&mut svg, right + 12.0, label - 8.0, 10.0, 10.0, colour);
        text(&mut svg, right + 28.0, label + 1.0, "start", &format!("{name} ${:.2}", end(number)));
    }
    svg + "</svg>\n"
}
