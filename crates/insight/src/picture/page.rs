//! One page of HTML with everything in it: no script, style or font comes from elsewhere.

use super::{STYLE, escaped, roof};
use crate::report::{Rank, Report};
use crate::text::{dollars, parts, time};
use crate::timeline::Timeline;
use std::fmt::Write;
use windfall_core::english::grouped;

const SCRIPT: &str = include_str!("page.js");

/// Colours of the parts of time, in their order.
const COLOURS: [&str; 8] = ["#2f7d4f", "#8a4fbf", "#c2a01a", "#d1495b", "#e07a3f", "#e0a96d", "#848d97", "#a5adb5"];

/// Ranks whose timelines are drawn.
const DRAWN: usize = 16;

/// The page.
pub fn page(report: &Report, timelines: &[Timeline]) -> String {
    let mut html = String::from("<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n");
    let _ = write!(
        html,
        "<meta name=\"viewport\" content=\"width=device-width\">\n<title>{} · windfall profile</title>\n<style>{STYLE}</style>\n<main>\n",
        escaped(&report.verdict)
    );
    verdict(&mut html, report);
    fixes(&mut html, report);
    time_parts(&mut html, &report.ranks);
    critical_path(&mut html, &report.ranks);
    drawings(&mut html, report, timelines);
    steps(&mut html, &report.ranks);
    roofline(&mut html, &report.ranks);
    kernels(&mut html, &report.ranks);
    notes(&mut html, report);
    html.push_str("</main>\n");
    let drawn: Vec<&Timeline> = timelines.iter().take(DRAWN).collect();
    // `</script>` inside of a name must not end the block.
    let data = serde_json::to_string(&drawn).unwrap_or_else(|_| "[]".to_owned()).replace("</", "<\\/");
    let _ = write!(
        html,
        "<script type=\"application/json\" id=\"timelines\">{data}</script>\n<script>{SCRIPT}</script>\n</html>\n"
    );
    html
}

fn verdict(html: &mut String, report: &Report) {
    let _ =
        writeln!(html, "<h1>{}</h1>\n<p class=\"because\">{}</p>", escaped(&report.verdict), escaped(&report.because));
    let mut facts = Vec::new();
    if let Some(step) = report.step_us {
        facts.push(format!("{} a step", time(step)));
    }
    if let Some(accelerator) = &report.accelerator {
        facts.push(format!("{} × {}", report.accelerators, escaped(accelerator)));
    }
    facts.extend(report.usd_per_1000_steps.map(|usd| format!("{} for 1,000 steps", dollars(usd))));
    let mfu = report.ranks.iter().find_map(|rank| rank.roofline.mfu_percent);
    facts.extend(mfu.map(|mfu| format!("MFU {mfu:.1} %")));
    let _ = writeln!(html, "<p class=\"facts\">{}</p>", facts.join(" · "));
}

fn fixes(html: &mut String, report: &Report) {
    if report.fixes.is_empty() {
        return;
    }
    html.push_str("<h2>What would pay most</h2>\n<table><tr><th>shorter steps</th><th>saved on 1,000 steps</th><th>what</th><th>estimated from</th></tr>\n");
    for fix in &report.fixes {
        let usd = fix.usd_per_1000_steps.map_or("–".to_owned(), dollars);
        let _ = writeln!(
            html,
            "<tr><td class=\"n\">{:.1} %</td><td class=\"n\">{usd}</td><td>{}</td><td class=\"dim\">{}</td></tr>",
            fix.saves_percent,
            escaped(&fix.what),
            escaped(&fix.basis)
        );
    }
    html.push_str("</table>\n");
}

fn time_parts(html: &mut String, ranks: &[Rank]) {
    if ranks.iter().all(|rank| rank.kernel_time_us <= 0.0) {
        return;
    }
    html.push_str("<h2>Where the time goes</h2>\n<p class=\"legend\">");
    if let Some(rank) = ranks.first() {
        for ((what, _), colour) in parts(rank).iter().zip(COLOURS) {
            let _ = write!(html, "<span><i style=\"background:{colour}\"></i>{what}</span>");
        }
    }
    html.push_str("</p>\n");
    for rank in ranks.iter().filter(|rank| rank.kernel_time_us > 0.0) {
        let _ = write!(html, "<div class=\"bar\"><b>rank {}</b><div>", rank.rank);
        for ((what, us), colour) in parts(rank).iter().zip(COLOURS) {
            let share = 100.0 * us / rank.kernel_time_us;
            let label = if share >= 6.0 { format!("{share:.0} %") } else { String::new() };
            let _ = write!(
                html,
                "<span style=\"width:{share:.3}%;background:{colour}\" title=\"{what}: {} ({share:.1} %)\">{label}</span>",
                time(*us)
            );
        }
        let _ = writeln!(html, "</div><em>{}</em></div>", time(rank.kernel_time_us));
    }
}

fn critical_path(html: &mut String, ranks: &[Rank]) {
    let Some((rank, path)) = ranks.iter().find_map(|rank| Some((rank, rank.critical_path.as_ref()?))) else { return };
    let _ = writeln!(
        html,
        "<h2>Critical path of step {} of rank {}: {}</h2>\n<p>{}</p>\n<table><tr><th>time</th><th>share</th><th>part</th></tr>",
        path.step,
        rank.rank,
        time(path.length_us),
        escaped(&path.says)
    );
    for part in &path.parts {
        let _ = writeln!(
            html,
            "<tr><td class=\"n\">{}</td><td class=\"n\">{:.1} %</td><td>{}</td></tr>",
            time(part.us),
            part.percent,
            escaped(&part.what)
        );
    }
    html.push_str("</table>\n");
}

fn drawings(html: &mut String, report: &Report, timelines: &[Timeline]) {
    if timelines.iter().all(|timeline| timeline.spans.is_empty()) {
        return;
    }
    html.push_str("<h2>Timeline</h2>\n<p class=\"legend\"><span><i style=\"background:#2f7d4f\"></i>computation</span><span><i style=\"background:#8a4fbf\"></i>communication</span><span><i style=\"background:#c2a01a\"></i>copies</span><span class=\"dim\">above: the whole trace; below: one step, by stream. Wheel zooms, dragging moves, double click shows all.</span></p>\n");
    for (at, rank) in report.ranks.iter().take(timelines.len().min(DRAWN)).enumerate() {
        let _ = writeln!(
            html,
            "<div class=\"rank\"><b>rank {}</b><canvas class=\"overview\" data-at=\"{at}\" height=\"46\"></canvas><canvas class=\"window\" data-at=\"{at}\"></canvas></div>",
            rank.rank
        );
    }
    html.push_str("<div id=\"tip\" hidden></div>\n");
}

fn steps(html: &mut String, ranks: &[Rank]) {
    let Some(rank) = ranks.iter().find(|rank| rank.step_times.len() > 1) else { return };
    let longest = rank.step_times.iter().map(|step| step.time_us).fold(1e-9, f64::max);
    let _ = writeln!(html, "<h2>Steps of rank {}, as the host saw them</h2>\n<div class=\"steps\">", rank.rank);
    for step in &rank.step_times {
        let _ = write!(
            html,
            "<span style=\"height:{:.1}px\" title=\"step {}: {}, {} launches\"></span>",
            6.0 + 74.0 * step.time_us / longest,
            step.number,
            time(step.time_us),
            grouped(step.launches.into())
        );
    }
    let _ = writeln!(
        html,
        "</div><p class=\"dim\">longest {}{}</p>",
        time(longest),
        rank.step_variation_percent.map_or(String::new(), |percent| format!(", standard deviation {percent:.0} %"))
    );
}

fn roofline(html: &mut String, ranks: &[Rank]) {
    let Some((rank, svg)) = ranks.iter().find_map(|rank| Some((rank, roof(&rank.roofline)?))) else { return };
    let _ = writeln!(
        html,
        "<h2>Roofline of rank {}</h2>\n<p class=\"dim\">Operators with known shapes ({:.0} % of kernel time); the area of a point is its time. Orange: bandwidth is the limit.</p>\n{svg}",
        rank.rank, rank.roofline.known_percent
    );
}

fn kernels(html: &mut String, ranks: &[Rank]) {
    let Some(rank) = ranks.first().filter(|rank| !rank.kernels.is_empty()) else { return };
    let _ = writeln!(
        html,
        "<h2>Kernels of rank {}</h2>\n<table><tr><th>time</th><th>share</th><th>runs</th><th>mean</th><th>kind</th><th>name</th></tr>",
        rank.rank
    );
    for kernel in &rank.kernels {
        let tensor = if kernel.tensor { " · tensor cores" } else { "" };
        let precision = kernel.precision.map_or(String::new(), |precision| format!(" · {precision}"));
        let kind = match kernel.class {
            crate::trace::kernel::Class::Compute => format!("{}{precision}{tensor}", kernel.kind),
            crate::trace::kernel::Class::Communication => "communication".to_owned(),
            _ => "copy".to_owned(),
        };
        let _ = writeln!(
            html,
            "<tr><td class=\"n\">{}</td><td class=\"n\">{:.1} %</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{kind}</td><td title=\"{}\">{}</td></tr>",
            time(kernel.total_us),
            kernel.percent,
            grouped(kernel.count.into()),
            time(kernel.mean_us),
            escaped(&kernel.name),
            escaped(&kernel.short)
        );
    }
    html.push_str("</table>\n");
}

fn notes(html: &mut String, report: &Report) {
    let of_ranks =
        report.ranks.iter().flat_map(|rank| rank.notes.iter().map(move |note| format!("rank {}: {note}", rank.rank)));
    let all: Vec<String> = report.notes.iter().cloned().chain(of_ranks).collect();
    if !all.is_empty() {
        html.push_str("<h2>Notes</h2>\n<ul>\n");
        all.iter().for_each(|note| {
            let _ = writeln!(html, "<li>{}</li>", escaped(note));
        });
        html.push_str("</ul>\n");
    }
}
