//! The report on a screen, and for programs.

use crate::args::SlurmBy;
use crate::fitted::{Column, fitted, labelled, wrapped};
use serde_json::Value;
use windfall_core::english::grouped;
use windfall_insight::slurm::{self, Figures, Group, Part, Report, Split, figure, lasting};
use windfall_server::client::{Code, Failure};

/// What stands in the columns that do not say it themselves.
const MEANING: &str = "WAIT is the median. FAILED counts time limits too. TIME and MEMORY: used of what was asked for. \
    IDLE: of GPU-hours whose use was recorded.";

const ALL: [SlurmBy; 4] = [SlurmBy::User, SlurmBy::Account, SlurmBy::Partition, SlurmBy::Type];

fn wanted(by: &[SlurmBy]) -> impl Iterator<Item = SlurmBy> + use<'_> {
    ALL.into_iter().filter(move |one| by.is_empty() || by.contains(one))
}

fn groups(part: &Part, by: SlurmBy) -> &[Group] {
    match by {
        SlurmBy::User => &part.user,
        SlurmBy::Account => &part.account,
        SlurmBy::Partition => &part.partition,
        SlurmBy::Type => &part.r#type,
    }
}

/// The report in at most `width` columns, with so many rows in a table.
pub fn screen(report: &Report, by: &[SlurmBy], top: usize, width: usize) -> String {
    let mut text = head(&report.whole, width);
    if !report.advice.is_empty() {
        text.push_str("\nWhat stands out\n");
        for advice in &report.advice {
            text.push_str(&labelled("-", &advice.text, 2, width));
        }
    }
    if let Some(split) = &report.split {
        text.push_str(&before_and_after(split, by, top, width));
    } else {
        for by in wanted(by) {
            text.push_str(&table(by.name(), groups(&report.whole, by), top, width));
        }
        text.push_str(&wrapped(MEANING, width));
    }
    text.push_str(&fairness(&report.whole, top, width));
    text.push_str(&starved(report, width));
    if !report.notes.is_empty() {
        text.push('\n');
    }
    for note in &report.notes {
        text.push_str(&labelled("note:", note, 6, width));
    }
    text
}

fn head(whole: &Part, width: usize) -> String {
    let total = &whole.total;
    let usd = total.usd.map_or(String::new(), |usd| format!(", {}", crate::show::usd(usd)));
    let mut text = wrapped(
        &format!(
            "{} jobs, {} GPU-hours{usd}, {} CPU-hours{}",
            grouped(total.jobs.into()),
            figure(total.gpu_hours),
            figure(total.cpu_hours),
            whole
                .from
                .as_ref()
                .zip(whole.to.as_ref())
                .map_or(String::new(), |(from, to)| format!(", from {from} to {to}")),
        ),
        width,
    );
    let mut line = |label: &str, said: String| text.push_str(&labelled(label, &said, 8, width));
    if let Some(wait) = total.wait {
        let [median, p90, p99] = [wait.median_s, wait.p90_s, wait.p99_s].map(|seconds| lasting(seconds.into()));
        line(
            "wait",
            format!(
                "median {median}, P90 {p90}, P99 {p99}; {} still wait, {} gave up",
                grouped(total.waiting.into()),
                grouped(total.gave_up.into())
            ),
        );
    }
    if let Some(failed) = total.failed_percent {
        let (failures, timeouts) = (grouped(total.failed.into()), grouped(total.timed_out.into()));
        line("ended", format!("{failed:.1} % badly: {failures} failed, {timeouts} reached their time limit"));
    }
    if let Some(time) = total.time {
        let unused = figure(total.unused_gpu_hours);
        line(
            "time",
            format!(
                "{:.1} % of what completed jobs asked for was used; limits held {unused} GPU-hours more",
                time.used_percent
            ),
        );
    }
    if let Some(memory) = total.memory {
        line("memory", format!("{:.1} % of what was asked for was used, where recorded", memory.used_percent));
    }
    if total.gpu_hours > 0.0 {
        line(
            "GPUs",
            match total.gpu_idle_percent.zip(total.gpu_idle_hours) {
                Some((percent, hours)) => format!(
                    "idle {percent:.1} %: {} of {} recorded GPU-hours",
                    figure(hours),
                    figure(total.gpu_recorded_hours)
                ),
                None => "how busy they were is not recorded".to_owned(),
            },
        );
    }
    text
}

fn percent(value: Option<f64>) -> String {
    value.map_or(String::new(), |value| format!("{value:.1} %"))
}

/// The figures of groups. A column that nobody has anything in leaves by itself.
fn table(head: &str, groups: &[Group], top: usize, width: usize) -> String {
    let rows = &groups[..groups.len().min(top)];
    if rows.is_empty() {
        return String::new();
    }
    let figures = |head: &str, leaves, cell: &dyn Fn(&Figures) -> String| {
        Column::figures(head, leaves, rows.iter().map(|group| cell(&group.figures)).collect::<Vec<_>>())
    };
    let wait = |of: fn(&slurm::Spread) -> u32| {
        move |figures: &Figures| figures.wait.map_or(String::new(), |wait| lasting(of(&wait).into()))
    };
    let columns = vec![
        Column::words(head.to_uppercase(), 0, rows.iter().map(|group| group.name.clone()).collect::<Vec<_>>()).least(8),
        figures("GPU-H", 0, &|figures| figure(figures.gpu_hours)),
        figures("SHARE", 1, &|figures| format!("{:.1} %", figures.share_percent)),
        figures("COST", 2, &|figures| figures.usd.map_or(String::new(), crate::show::usd)),
        figures("JOBS", 4, &|figures| grouped(figures.jobs.into())),
        figures("WAIT", 3, &wait(|wait| wait.median_s)),
        figures("P90", 7, &wait(|wait| wait.p90_s)),
        figures("FAILED", 5, &|figures| percent(figures.failed_percent)),
        figures("TIME", 6, &|figures| percent(figures.time.map(|time| time.used_percent))),
        figures("MEMORY", 8, &|figures| percent(figures.memory.map(|memory| memory.used_percent))),
        figures("IDLE", 6, &|figures| percent(figures.gpu_idle_percent)),
    ];
    format!("\n{}{}", fitted(columns, width), rest(groups.len(), top))
}

fn rest(all: usize, top: usize) -> String {
    if all > top { format!("… and {} more (--top)\n", grouped((all - top) as u128)) } else { String::new() }
}

fn before_and_after(split: &Split, by: &[SlurmBy], top: usize, width: usize) -> String {
    let rows = slurm::rows(&split.before, &split.after);
    let column = |cell: &dyn Fn(&slurm::Compared) -> String| rows.iter().map(cell).collect::<Vec<_>>();
    let columns = vec![
        Column::words("ALL JOBS", 0, column(&|row| row.what.to_owned())).least(12),
        Column::figures("BEFORE", 0, column(&|row| row.before.clone())),
        Column::figures("AFTER", 0, column(&|row| row.after.clone())),
        Column::figures("CHANGE", 1, column(&|row| row.change.clone())),
    ];
    let mut text = format!("\nBefore and after {}\n{}", split.at, fitted(columns, width));
    let wanted: Vec<&str> = wanted(by).map(SlurmBy::name).collect();
    for (head, all) in slurm::by(split).iter().filter(|(head, _)| wanted.contains(head)) {
        let rows: Vec<([String; 6], &str)> = all.iter().take(top).map(|row| (row.cells(), row.name.as_str())).collect();
        if rows.is_empty() {
            continue;
        }
        let cells = |at: usize| rows.iter().map(|(cells, _)| cells[at].clone()).collect::<Vec<_>>();
        let columns = vec![
            Column::words(head.to_uppercase(), 0, rows.iter().map(|(_, name)| (*name).to_owned())).least(8),
            Column::figures("GPU-H/DAY", 0, cells(0)),
            Column::figures("AFTER", 0, cells(1)),
            Column::figures("WAIT", 1, cells(2)),
            Column::figures("AFTER", 1, cells(3)),
            Column::figures("FAILED", 2, cells(4)),
            Column::figures("AFTER", 2, cells(5)),
        ];
        text.push_str(&format!("\n{}{}", fitted(columns, width), rest(all.len(), top)));
    }
    text
}

fn fairness(whole: &Part, top: usize, width: usize) -> String {
    let fair = &whole.fairness;
    let Some(index) = fair.jain_index.filter(|_| fair.accounts.len() > 1) else { return String::new() };
    let of = if fair.basis == "granted" {
        "use against granted shares"
    } else {
        "use of accounts, as if all had the same share"
    };
    let least = 1.0 / fair.accounts.len() as f64;
    let said = format!("Jain's index {index:.2}, {of} (1 is even, {least:.2} is all to one)");
    let mut text = format!("\nFairness\n{}", wrapped(&said, width));
    if fair.basis == "granted" {
        let rows = &fair.accounts[..fair.accounts.len().min(top)];
        text.push_str(&fitted(
            vec![
                Column::words("ACCOUNT", 0, rows.iter().map(|row| row.account.clone())).least(8),
                Column::figures("USED", 0, rows.iter().map(|row| format!("{:.1} %", row.used_percent))),
                Column::figures("GRANTED", 0, rows.iter().map(|row| percent(row.granted_percent))),
            ],
            width,
        ));
    }
    text
}

fn starved(report: &Report, width: usize) -> String {
    let rows = &report.starved;
    if rows.is_empty() {
        return String::new();
    }
    let longer = report.waited_longer_than_asked;
    let said = format!(
        "{} job{} waited longer than {} asked to run. The worst of each user, partition and type:",
        grouped(longer.into()),
        if longer == 1 { "" } else { "s" },
        if longer == 1 { "it" } else { "they" },
    );
    let words = |cell: &dyn Fn(&slurm::Starved) -> String| rows.iter().map(cell).collect::<Vec<_>>();
    let behind = |row: &slurm::Starved| {
        let named: Vec<String> =
            row.behind.iter().map(|holder| format!("{} {:.0} %", holder.user, holder.percent)).collect();
        named.join(", ")
    };
    let columns = vec![
        Column::words("USER", 0, words(&|row| row.user.clone())).least(8),
        Column::figures("WAITED", 0, words(&|row| lasting(row.waited_s.into()))),
        Column::figures("FOR", 0, words(&|row| lasting(row.asked_s.into()))),
        Column::figures("GPUS", 3, words(&|row| row.gpus.to_string())),
        Column::words("JOB", 5, words(&|row| row.job.clone())),
        Column::words("PARTITION", 4, words(&|row| row.partition.clone())).least(9),
        Column::words(
            "",
            6,
            words(&|row| if row.outcome == "started" { String::new() } else { row.outcome.replace('-', " ") }),
        ),
        Column::words("BEHIND", 1, words(&behind)).least(12),
    ];
    format!("\nStarvation\n{}{}", wrapped(&said, width), fitted(columns, width))
}

/// For programs. Tables that were not asked for are left out; rows are all there unless a number of them is named.
pub fn json(report: &mut Report, top: Option<u32>, by: &[SlurmBy]) -> Result<String, Failure> {
    let split = report.split.as_mut().map(|split| [&mut split.before, &mut split.after]);
    for part in split.into_iter().flatten().chain([&mut report.whole]) {
        let most = top.map_or(usize::MAX, |top| top as usize);
        for rows in [&mut part.user, &mut part.account, &mut part.partition, &mut part.r#type] {
            rows.truncate(most);
        }
    }
    let bug = |error: serde_json::Error| Failure::new(Code::Bug, error.to_string());
    let mut value = serde_json::to_value(&*report).map_err(bug)?;
    for part in ["/whole", "/split/before", "/split/after"] {
        if let Some(Value::Object(part)) = value.pointer_mut(part) {
            ALL.iter().filter(|one| !by.is_empty() && !by.contains(one)).for_each(|one| {
                part.remove(one.name());
            });
        }
    }
    serde_json::to_string(&value).map_err(bug)
}
