//! Half a million jobs of accounting, invented from a seed: how fast they become a report, beside `wc -l` and Python's csv
//! module, which only sums GPU-hours, on the same file in the same run.

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use windfall_insight::slurm::{Options, Prices, Reading, report};

const HEAD: &str = "JobID|JobName|User|Account|Partition|State|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw|\
    AllocCPUS|AllocTRES|ReqTRES|ReqMem|MaxRSS|NTasks|TotalCPU|TRESUsageInTot";

/// What a person would write to sum GPU-hours.
const PYTHON: &str = r#"
import csv, re, sys
hours = 0.0
for row in csv.DictReader(open(sys.argv[1]), delimiter="|"):
    if "." not in row["JobID"]:
        gpus = re.search(r"gres/gpu=(\d+)", row["AllocTRES"])
        hours += int(gpus.group(1)) * int(row["ElapsedRaw"]) / 3600 if gpus else 0
print(f"{hours:.3f}")
"#;

/// A generator of numbers that look random: the same from the same seed, on every machine.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % most
    }
}

fn stamp(seconds: u64) -> String {
    let shown = windfall_insight::slurm::fields::date(seconds as u32);
    format!("{}:{:02}", shown.replace(' ', "T"), seconds % 60)
}

/// Writes a dump of so many jobs, with two steps each, as sacct would.
fn invent(path: &Path, jobs: u64) -> std::io::Result<()> {
    let (mut dice, mut file) = (Dice(0x2545_f491_4f6c_dd1d), BufWriter::with_capacity(1 << 20, File::create(path)?));
    writeln!(file, "{HEAD}")?;
    let mut submit = 1_767_225_600;
    for job in 1..=jobs {
        submit += dice.below(30);
        let user = dice.below(400).min(dice.below(400));
        let (gpus, nodes) =
            if dice.below(4) == 0 { (8 * (1 + dice.below(4)), 1 + dice.below(4)) } else { (dice.below(5), 1) };
        let start = submit + dice.below(120) * dice.below(120);
        let elapsed = 20 + dice.below(300) * dice.below(300);
        let limit = (elapsed / 60 + 1) * (1 + dice.below(12));
        let state = ["COMPLETED", "COMPLETED", "COMPLETED", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED by 1042"];
        let state = state[dice.below(7) as usize];
        let held = match gpus {
            0 => format!("billing=8,cpu=8,mem=64G,node={nodes}"),
            gpus => format!("billing=8,cpu=8,gres/gpu:h100={gpus},gres/gpu={gpus},mem=64G,node={nodes}"),
        };
        let (submitted, started, ended) = (stamp(submit), stamp(start), stamp(start + elapsed));
        writeln!(
            file,
            "{job}|train_{job}|user{user}|lab{}|{}|{state}|{submitted}|{submitted}|{started}|{ended}|{elapsed}|{limit}|8|{held}|{held}|64G|||00:{:02}:30|",
            user % 25,
            if gpus == 0 { "cpu" } else { "gpu" },
            dice.below(60)
        )?;
        for (step, rss) in [("batch", 12_000), ("0", 900_000 + 1_000 * dice.below(40_000))] {
            let usage = format!(
                "cpu=00:10:00,energy=0,fs/disk=28427,gres/gpuutil={},mem={rss}K,pages=0",
                dice.below(100) * gpus
            );
            writeln!(
                file,
                "{job}.{step}|{step}||lab{}||{state}|{started}|{started}|{started}|{ended}|{elapsed}||8|cpu=8,mem=64G,node={nodes}|||{rss}K|1|00:10:00|{usage}",
                user % 25
            )?;
        }
    }
    file.flush()
}

fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

/// The shortest of three runs, in seconds, and what the last one printed.
fn timed(mut command: Command) -> Option<(f64, String)> {
    let mut best = f64::INFINITY;
    let mut printed = String::new();
    for _ in 0..3 {
        let began = Instant::now();
        let output = command.output().ok().filter(|output| output.status.success())?;
        best = best.min(began.elapsed().as_secs_f64());
        printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    }
    Some((best, printed))
}

fn main() -> Result<(), Box<dyn Error>> {
    let jobs: u64 = std::env::args().nth(1).map_or(Ok(500_000), |word| word.parse())?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("sacct.txt");
    invent(&path, jobs)?;
    let bytes = path.metadata()?.len();
    println!("{jobs} jobs, {} lines, {:.0} MB", 3 * jobs + 1, bytes as f64 / 1e6);
    let before = peak_mb();
    let mut best = f64::INFINITY;
    let mut hours = 0.0;
    for _ in 0..3 {
        let began = Instant::now();
        let mut reading = Reading::new();
        reading.take("sacct.txt", BufReader::with_capacity(1 << 18, File::open(&path)?))?;
        let read = began.elapsed().as_secs_f64();
        let prices = Prices { each: Some(2.5), ..Prices::default() };
        let split = Some(1_767_225_600 + jobs as u32 * 7);
        let made = report(reading, &Options { prices, split, starved: 10, ..Options::default() });
        let all = began.elapsed().as_secs_f64();
        println!("  read {read:.2} s, report {:.2} s, {} sentences of advice", all - read, made.advice.len());
        hours = made.whole.total.gpu_hours;
        best = best.min(all);
    }
    println!("report: {best:.2} s, {:.0} jobs/s, {:.0} MB/s", jobs as f64 / best, bytes as f64 / 1e6 / best);
    println!(
        "memory at its peak: {:.0} MB ({:.0} bytes a job)",
        peak_mb(),
        (peak_mb() - before) * 1024.0 * 1024.0 / jobs as f64
    );
    let mut wc = Command::new("wc");
    wc.arg("-l").arg(&path);
    if let Some((seconds, _)) = timed(wc) {
        println!("wc -l: {seconds:.2} s; the report takes {:.1} times as long", best / seconds);
    }
    let mut python = Command::new("python3");
    python.args(["-c", PYTHON]).arg(&path);
    match timed(python) {
        Some((seconds, printed)) => {
            println!("Python's csv, GPU-hours only: {seconds:.2} s; the report takes {:.2} of that", best / seconds);
            println!("GPU-hours: {hours:.3} here, {printed} there");
            if printed.parse::<f64>().is_ok_and(|there| (there - hours).abs() > 0.01) {
                return Err("the sums differ".into());
            }
        }
        None => println!("python3 is not here: its time is left out"),
    }
    Ok(())
}
