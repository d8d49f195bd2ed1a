//! The report as one page of HTML with everything in it: no script, style or font comes from elsewhere.

use super::advice::{figure, lasting};
use super::compare::{by, rows};
use super::figures::{Figures, Group};
use super::part::Part;
use super::report::{Report, Split};
use crate::picture::{STYLE, escaped};
use std::fmt::Write;
use windfall_core::NanoUsd;
use windfall_core::english::grouped;

/// What this page has beside the style of all.
const MORE: &str = ".part { display: inline-block; height: 9px; border-radius: 2px; background: #1f6fb2; }
td.part-cell { width: 120px; } .better { color: #2f7d4f; } .worse { color: #b3363f; } td.l, th.l { text-align: left; }
th { text-align: right; } table { margin-bottom: 6px; } ul { padding-left: 20px; } li { margin: 4px 0; } main { overflow-x: auto; }";

/// The page, with so many rows in a table.
pub fn page(report: &Report, top: usize) -> String {
    let whole = &report.whole;
    let mut html = String::from("<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n");
    let title = format!("{} GPU-hours of {} jobs", figure(whole.total.gpu_hours), grouped(whole.total.jobs.into()));
    let _ = write!(
        html,
        "<meta name=\"viewport\" content=\"width=device-width\">\n<title>{title} · windfall slurm report</title>\n<style>{STYLE}{MORE}</style>\n<main>\n<h1>{title}</h1>\n"
    );
    facts(&mut html, whole);
    advice(&mut html, report);
    if let Some(split) = &report.split {
        before_and_after(&mut html, split, top);
    }
    for (head, groups) in
        [("user", &whole.user), ("account", &whole.account), ("partition", &whole.partition), ("type", &whole.r#type)]
    {
        table(&mut html, head, groups, top);
    }
    fairness(&mut html, whole);
    starved(&mut html, report);
    notes(&mut html, report);
    html.push_str("</main>\n</html>\n");
    html
}

fn usd(figures: &Figures) -> Option<String> {
    figures.usd.map(|usd| NanoUsd::from_dollars(usd).to_string())
}

fn percent(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:.1} %"))
}

fn wait(figures: &Figures) -> String {
    figures.wait.map_or("–".to_owned(), |wait| lasting(wait.median_s.into()))
}

fn facts(html: &mut String, whole: &Part) {
    let total = &whole.total;
    let dates = whole.from.as_ref().zip(whole.to.as_ref()).map(|(from, to)| format!("{from} to {to}"));
    let mut facts: Vec<String> = dates.into_iter().collect();
    facts.push(format!("{} CPU-hours", figure(total.cpu_hours)));
    facts.extend(usd(total));
    let _ = writeln!(html, "<p class=\"because\">{}</p>", facts.join(" · "));
    let mut more = Vec::new();
    if let Some(wait) = total.wait {
        let words = [wait.median_s, wait.p90_s, wait.p99_s].map(|seconds| lasting(seconds.into()));
        more.push(format!("wait: median {}, P90 {}, P99 {}", words[0], words[1], words[2]));
    }
    more.push(format!("failed or timed out {}", percent(total.failed_percent)));
    more.push(match total.gpu_idle_percent {
        Some(idle) => format!("GPUs idle {idle:.1} % of {} recorded GPU-hours", figure(total.gpu_recorded_hours)),
        None => "use of GPUs not recorded".to_owned(),
    });
    let _ = writeln!(html, "<p class=\"facts\">{}</p>", more.join(" · "));
}

fn advice(html: &mut String, report: &Report) {
    if report.advice.is_empty() {
        return;
    }
    html.push_str("<h2>What stands out</h2>\n<ul>\n");
    for advice in &report.advice {
        let _ = writeln!(html, "<li>{}</li>", escaped(&advice.text));
    }
    html.push_str("</ul>\n");
}

fn table(html: &mut String, head: &str, groups: &[Group], top: usize) {
    if groups.is_empty() {
        return;
    }
    let _ = writeln!(
        html,
        "<h2>By {head}</h2>\n<table><tr><th class=\"l\">{head}</th><th class=\"l\">share</th><th>%</th><th>GPU-hours</th><th>dollars</th><th>jobs</th><th>wait, median</th><th>wait, P90</th><th>failed</th><th>time used</th><th>memory used</th><th>GPUs idle</th></tr>"
    );
    for Group { name, figures } in groups.iter().take(top) {
        let p90 = figures.wait.map_or("–".to_owned(), |wait| lasting(wait.p90_s.into()));
        let _ = write!(
            html,
            "<tr><td>{}</td><td class=\"part-cell\"><span class=\"part\" style=\"width:{:.1}px\"></span></td>",
            escaped(name),
            figures.share_percent * 1.1
        );
        let cells = [
            format!("{:.1} %", figures.share_percent),
            figure(figures.gpu_hours),
            usd(figures).unwrap_or_else(|| "–".to_owned()),
            grouped(figures.jobs.into()),
            wait(figures),
            p90,
            percent(figures.failed_percent),
            percent(figures.time.map(|time| time.used_percent)),
            percent(figures.memory.map(|memory| memory.used_percent)),
            percent(figures.gpu_idle_percent),
        ];
        cells.iter().for_each(|cell| {
            let _ = write!(html, "<td class=\"n\">{cell}</td>");
        });
        html.push_str("</tr>\n");
    }
    html.push_str("</table>\n");
    if groups.len() > top {
        let _ = writeln!(html, "<p class=\"dim\">and {} more</p>", grouped((groups.len() - top) as u128));
    }
}

fn before_and_after(html: &mut String, split: &Split, top: usize) {
    let _ = writeln!(
        html,
        "<h2>Before and after {}</h2>\n<table><tr><th class=\"l\">of all jobs</th><th>before</th><th>after</th><th>change</th></tr>",
        split.at
    );
    for row in rows(&split.before, &split.after) {
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n {}\">{}</td></tr>",
            row.what,
            row.before,
            row.after,
            row.class(),
            row.change
        );
    }
    html.push_str("</table>\n");
    for (head, groups) in by(split) {
        let _ = writeln!(
            html,
            "<h2>By {head}, before and after</h2>\n<table><tr><th class=\"l\">{head}</th><th>GPU-hours a day, before</th><th>after</th><th>wait, before</th><th>after</th><th>failed, before</th><th>after</th></tr>"
        );
        for row in groups.iter().take(top) {
            let _ = write!(html, "<tr><td>{}</td>", escaped(&row.name));
            row.cells().iter().for_each(|cell| {
                let _ = write!(html, "<td class=\"n\">{cell}</td>");
            });
            html.push_str("</tr>\n");
        }
        html.push_str("</table>\n");
    }
}

fn fairness(html: &mut String, whole: &Part) {
    let fair = &whole.fairness;
    let Some(index) = fair.jain_index else { return };
    let of = if fair.basis == "granted" { "use against granted shares" } else { "use of accounts, all alike" };
    let _ = writeln!(
        html,
        "<h2>Fairness</h2>\n<p class=\"dim\">Jain's index {index:.2} ({of}; 1 is even, {:.2} is all to one)</p>\n<table><tr><th class=\"l\">account</th><th>used</th><th>granted</th></tr>",
        1.0 / fair.accounts.len().max(1) as f64
    );
    for row in fair.accounts.iter().take(40) {
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td class=\"n\">{:.1} %</td><td class=\"n\">{}</td></tr>",
            escaped(&row.account),
            row.used_percent,
            percent(row.granted_percent)
        );
    }
    html.push_str("</table>\n");
}

fn starved(html: &mut String, report: &Report) {
    if report.starved.is_empty() {
        return;
    }
    let _ = writeln!(
        html,
        "<h2>Who waited longest for what they asked</h2>\n<p class=\"dim\">{} jobs waited longer than they asked to run. The worst of each user, partition and type:</p>\n<table><tr><th class=\"l\">job</th><th class=\"l\">user</th><th class=\"l\">partition</th><th class=\"l\">type</th><th>GPUs</th><th>asked</th><th>waited</th><th>times</th><th class=\"l\">in the end</th><th class=\"l\">who had the partition</th></tr>",
        grouped(report.waited_longer_than_asked.into())
    );
    for row in &report.starved {
        let behind: Vec<String> =
            row.behind.iter().map(|holder| format!("{} {:.0} %", escaped(&holder.user), holder.percent)).collect();
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{:.1}</td><td>{}</td><td>{}</td></tr>",
            row.job,
            escaped(&row.user),
            escaped(&row.partition),
            escaped(&row.kind),
            row.gpus,
            lasting(row.asked_s.into()),
            lasting(row.waited_s.into()),
            row.ratio,
            row.outcome.replace('-', " "),
            behind.join(", ")
        );
    }
    html.push_str("</table>\n");
}

fn notes(html: &mut String, report: &Report) {
    if !report.notes.is_empty() {
        html.push_str("<h2>Notes</h2>\n<ul>\n");
        for note in &report.notes {
            let _ = writeln!(html, "<li>{}</li>", escaped(note));
        }
        html.push_str("</ul>\n");
    }
}
