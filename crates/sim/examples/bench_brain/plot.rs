//! Medians and P99 by the number of live jobs, both on logarithmic scales, as an SVG of a few kilobytes.

use crate::Measured;
use crate::table::time;
use std::fmt::Write;
use windfall_sim::crowd::Happening;

const SHOWN: [(Happening, &str); 6] = [
    (Happening::Submit, "#0072b2"),
    (Happening::End, "#e69f00"),
    (Happening::LeaseLost, "#009e73"),
    (Happening::PriceMoves, "#cc79a7"),
    (Happening::PriceFalls, "#d55e00"),
    (Happening::NodeLost, "#56b4e9"),
];
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 560.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 260.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 60.0;

/// A place on a logarithmic scale.
struct Scale {
    low: i32,
    high: i32,
    from: f64,
    to: f64,
}

impl Scale {
    fn over(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Scale {
        let low = values.clone().fold(f64::INFINITY, f64::min).log10().floor() as i32;
        let high = values.fold(0.0, f64::max).log10().ceil() as i32;
        Scale { low, high: high.max(low + 1), from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let part = (value.log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        self.from + part * (self.to - self.from)
    }
}

pub fn svg(measured: &[Measured]) -> String {
    let times = || {
        let both = |size: &Measured, kind| [size.median(kind), size.p99(kind)];
        let of = move |size: &Measured| SHOWN.iter().flat_map(|(kind, _)| both(size, *kind)).collect::<Vec<_>>();
        // The aim belongs in the picture.
        measured.iter().flat_map(of).flatten().chain([1e-3]).collect::<Vec<f64>>()
    };
    let jobs: Vec<f64> = measured.iter().map(|size| size.jobs as f64).collect();
    let x = Scale::over(jobs.iter().copied(), LEFT, WIDTH - RIGHT);
    let y = Scale::over(times().into_iter(), HEIGHT - BOTTOM, TOP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"13\"><rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\
         <text x=\"{LEFT}\" y=\"28\" font-size=\"17\">One step of the brain by live jobs</text>\
         <text x=\"{LEFT}\" y=\"46\" fill=\"#555\">solid: median, dashed: P99</text>\n"
    );
    axes(&mut svg, &x, &y);
    for (number, (kind, colour)) in SHOWN.into_iter().enumerate() {
        for (dash, of) in [("", Measured::median as fn(&Measured, Happening) -> Option<f64>), ("5 4", Measured::p99)] {
            let points: Vec<(f64, f64)> =
                measured.iter().filter_map(|size| Some((x.at(size.jobs as f64), y.at(of(size, kind)?)))).collect();
            let line: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>",
                line.join(" ")
            );
            for (x, y) in points.iter().filter(|_| dash.is_empty()) {
                let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>");
            }
        }
        let (left, top) = (WIDTH - RIGHT + 24.0, TOP + 14.0 + number as f64 * 22.0);
        let _ = writeln!(
            svg,
            "<rect x=\"{left}\" y=\"{:.1}\" width=\"14\" height=\"4\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{top}\">{}</text>",
            top - 7.0,
            left + 22.0,
            kind.name()
        );
    }
    svg + "</svg>\n"
}

fn axes(svg: &mut String, x: &Scale, y: &Scale) {
    for power in x.low..=x.high {
        let (at, jobs) = (x.at(10f64.powi(power)), 10u64.pow(power.max(0) as u32));
        let label = windfall_core::english::grouped(jobs.into());
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            y.from,
            y.to,
            y.from + 20.0
        );
    }
    for power in y.low..=y.high {
        let (at, colour) = (y.at(10f64.powi(power)), if power == -3 { "#999" } else { "#ddd" });
        let _ = writeln!(
            svg,
            "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            x.from,
            x.to,
            x.from - 8.0,
            at + 4.0,
            time(10f64.powi(power)).replace(".00 ", " ").replace(".0 ", " ")
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">live jobs</text>",
        (x.from + x.to) / 2.0,
        HEIGHT - 14.0
    );
}
