//! The roofline as SVG: arithmetic intensity to the right, rate upwards, both logarithmic.

use super::escaped;
use crate::roofline::{Point, Roofline};
use std::fmt::Write;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 52.0;

/// Points that are drawn.
const POINTS: usize = 120;

/// Both axes, as powers of ten.
struct Axes {
    x: (f64, f64),
    y: (f64, f64),
}

impl Axes {
    fn of(points: &[Point], roofline: &Roofline) -> Axes {
        let (mut x, mut y) = ((-1.0f64, 3.5f64), (-1.0f64, 2.0f64));
        for point in points {
            x = (x.0.min(point.flop_per_byte.log10().floor()), x.1.max(point.flop_per_byte.log10() + 0.2));
            y = (y.0.min(point.tflops.log10().floor()), y.1.max(point.tflops.log10() + 0.3));
        }
        let peaks = roofline.ceilings.iter().flat_map(|ceilings| &ceilings.peak_tflops);
        y.1 = peaks.fold(y.1, |top, (_, peak)| top.max(peak.log10() + 0.3));
        Axes { x: (x.0.max(-4.0), x.1.min(6.0)), y: (y.0.max(-5.0), y.1.min(6.0)) }
    }

    fn x(&self, intensity: f64) -> f64 {
        let share = (intensity.max(1e-9).log10() - self.x.0) / (self.x.1 - self.x.0);
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, tflops: f64) -> f64 {
        let share = (tflops.max(1e-9).log10() - self.y.0) / (self.y.1 - self.y.0);
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }
}

/// Draws a roofline; none where no operator has known shapes.
pub fn roof(roofline: &Roofline) -> Option<String> {
    let points: Vec<Point> = roofline.points.iter().take(POINTS).cloned().collect();
    if points.is_empty() {
        return None;
    }
    let axes = Axes::of(&points, roofline);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n"
    );
    grid(&mut svg, &axes);
    ceilings(&mut svg, &axes, roofline, &points);
    let longest = points.iter().map(|point| point.time_us).fold(1e-9, f64::max);
    for point in &points {
        let radius = 3.0 + 9.0 * (point.time_us / longest).sqrt();
        let colour = if point.memory_bound == Some(true) { "#c2571a" } else { "#1f6fb2" };
        let reached = point.reached_percent.map_or(String::new(), |percent| format!(", {percent:.0} % of attainable"));
        let _ = writeln!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius:.1}\" fill=\"{colour}\" fill-opacity=\"0.55\" stroke=\"{colour}\"><title>{} {} {}: {:.2} GFLOP, {:.1} FLOP/byte, {:.2} TFLOP/s{reached}, {} calls, {:.1} µs</title></circle>",
            axes.x(point.flop_per_byte),
            axes.y(point.tflops),
            escaped(&point.operator),
            escaped(&point.shapes),
            point.precision,
            point.gflop,
            point.flop_per_byte,
            point.tflops,
            point.calls,
            point.time_us,
        );
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

fn grid(svg: &mut String, axes: &Axes) {
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for power in axes.x.0.ceil() as i32..=axes.x.1.floor() as i32 {
        let x = axes.x(10f64.powi(power));
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"#e4e4e4\"/><text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">{}</text>",
            bottom + 18.0,
            power_of_ten(power)
        );
    }
    for power in axes.y.0.ceil() as i32..=axes.y.1.floor() as i32 {
        let y = axes.y(10f64.powi(power));
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#e4e4e4\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{}</text>",
            LEFT - 8.0,
            y + 4.0,
            power_of_ten(power)
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#333\">FLOP for each byte that must move</text><text x=\"18\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#333\" transform=\"rotate(-90 18 {:.1})\">TFLOP/s</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 12.0,
        (TOP + bottom) / 2.0,
        (TOP + bottom) / 2.0
    );
}

fn power_of_ten(power: i32) -> String {
    if (0..=4).contains(&power) { format!("{}", 10i64.pow(power as u32)) } else { format!("10^{power}") }
}

/// The slope of the memory and the peaks of the number formats that occur.
fn ceilings(svg: &mut String, axes: &Axes, roofline: &Roofline, points: &[Point]) {
    let Some(ceilings) = &roofline.ceilings else { return };
    let right = WIDTH - RIGHT;
    let used = |precision: &str| points.iter().any(|point| point.precision == precision);
    let highest = ceilings.peak_tflops.iter().filter(|(name, _)| used(name)).map(|(_, peak)| *peak).fold(0.0, f64::max);
    let from = 10f64.powf(axes.x.0);
    let slope = |intensity: f64| ceilings.bandwidth_gb_s.map(|bandwidth| bandwidth * intensity / 1e3);
    for (name, peak) in ceilings.peak_tflops.iter().filter(|(name, _)| used(name)) {
        let ridge = ceilings.bandwidth_gb_s.map_or(from, |bandwidth| (peak * 1e3 / bandwidth).max(from));
        let _ = writeln!(
            svg,
            "<line x1=\"{:.1}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#333\" stroke-width=\"1.5\"/><text x=\"{:.1}\" y=\"{:.1}\" fill=\"#333\">{name} {peak:.0} TFLOP/s</text>",
            axes.x(ridge),
            right + 8.0,
            axes.y(*peak) + 4.0,
            y = axes.y(*peak)
        );
    }
    if let (Some(bandwidth), Some(start)) = (ceilings.bandwidth_gb_s, slope(from)) {
        let bottom = 10f64.powf(axes.y.0);
        let first = if start < bottom { bottom * 1e3 / bandwidth } else { from };
        let last = highest * 1e3 / bandwidth;
        if last > first {
            let _ = writeln!(
                svg,
                "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#333\" stroke-width=\"1.5\"/><text x=\"{:.1}\" y=\"{:.1}\" fill=\"#333\">{} memory {bandwidth:.0} GB/s</text>",
                axes.x(first),
                axes.y(first * bandwidth / 1e3),
                axes.x(last),
                axes.y(highest),
                LEFT + 8.0,
                TOP + 14.0,
                escaped(&ceilings.accelerator)
            );
        }
    }
}
