//! The recorded markets that the figures are made on, read from the folder that WINDFALL_DATA names.

use std::path::{Path, PathBuf};
use std::process::Command;
use windfall_core::{NanoUsd, Span};
use windfall_sim::{Course, Reading, Recording, Scenario, Terms, Zone, read_recording, read_recordings, resample};

pub const ON_DEMAND: f64 = 3.06;
pub const SPOT: f64 = 0.9731;
const HOUR: f64 = 3_600_000.0;

/// The folder of recorded spot markets, and where archives were unpacked.
pub struct Data {
    spot: PathBuf,
    unpacked: PathBuf,
}

impl Drop for Data {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.unpacked);
    }
}

pub fn hours(hours: f64) -> Span {
    Span((hours * HOUR).round() as i64)
}

impl Data {
    pub fn open() -> Result<Data, String> {
        let root = std::env::var_os("WINDFALL_DATA").ok_or("WINDFALL_DATA names no folder of recorded markets")?;
        let spot = Path::new(&root).join("spot");
        let unpacked = std::env::temp_dir().join(format!("windfall-bench-market-{}", std::process::id()));
        std::fs::create_dir_all(&unpacked).map_err(|error| error.to_string())?;
        for archive in ["cant_be_late_single.tar.gz", "cant_be_late_multi.tar.gz"] {
            let status = Command::new("tar").arg("xzf").arg(spot.join(archive)).current_dir(&unpacked).status();
            if !status.is_ok_and(|status| status.success()) {
                return Err(format!("{} cannot be unpacked", spot.join(archive).display()));
            }
        }
        Ok(Data { spot, unpacked })
    }

    /// The public table: six zones of 2022, thirty starts, two deadlines, three changeovers.
    pub fn table(&self) -> Vec<Scenario> {
        const ZONES: [&str; 6] = [
            "us-west-2a_k80_8",
            "us-west-2b_k80_1",
            "us-west-2b_k80_8",
            "us-west-2a_v100_1",
            "us-west-2a_v100_8",
            "us-west-2b_v100_1",
        ];
        let mut scenarios = Vec::new();
        for (folder, restart) in [("0.02", 0.02), ("0.05", 0.05), ("0.10", 0.1)] {
            for zone in ZONES {
                let folder = format!("real/ddl=search+task=48+overhead={folder}/real/{zone}/traces/random_start");
                let mut files = self.json_files(&self.unpacked.join(folder));
                let reading = Reading { unavailable_is_one: true, tick: None };
                files.sort();
                let all: Vec<Recording> = files.iter().map(|file| read(file, reading)).collect();
                let long: Vec<&Recording> =
                    all.iter().filter(|r| r.tick.0 * r.counts.len() as i64 >= hours(70.0).0).collect();
                for start in 0..30 {
                    let place = (start as f64 * (long.len() - 1) as f64 / 29.0).round() as usize;
                    for deadline in [52.0, 70.0] {
                        let terms = Terms { work: hours(48.0), deadline: hours(deadline), restart: hours(restart) };
                        scenarios.push(Scenario {
                            course: alone(long[place], 0, SPOT, 1),
                            terms,
                            name: format!("{zone}/{}", long[place].name),
                        });
                    }
                }
            }
        }
        scenarios
    }

    fn json_files(&self, folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "json")).collect()
    }

    /// Eight zones of 2022 over four weeks, looked at every 600 s: the market that the table is cut from.
    pub fn zones_2022(&self) -> Vec<Recording> {
        let folder = self.unpacked.join("real/ping_based/random_start_time");
        let mut zones: Vec<PathBuf> =
            std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
        zones.retain(|zone| zone.is_dir());
        zones.sort();
        let reading = Reading { unavailable_is_one: true, tick: None };
        // Windows end with the recording: the longest is nearly all of it.
        let longest = |zone: &PathBuf| {
            let windows = self.json_files(zone).into_iter().map(|file| read(&file, reading));
            let mut longest = windows.max_by_key(|window| window.counts.len()).expect("a window");
            longest.name = zone.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            longest
        };
        zones.iter().map(longest).collect()
    }

    /// Nine V100 zones of 2023 over 45 days, looked at every 195 s, with their prices.
    pub fn zones_2023(&self) -> Vec<Recording> {
        let mut zones = self.plain("availability/aws-02-15-2023");
        let prices = self.spot.join("v100_spot_prices.json.gz");
        let text = Command::new("gzip").arg("-dc").arg(prices).output().expect("gzip").stdout;
        let prices: serde_json::Value = serde_json::from_slice(&text).expect("prices by zone");
        for zone in &mut zones {
            let list = prices[&zone.name].as_array().expect("a zone's prices");
            zone.prices = Some(list.iter().map(|p| NanoUsd::from_dollars(p.as_f64().unwrap_or(1.0))).collect());
        }
        zones
    }

    /// Four V100 zones in April 2023, instances kept, looked at every 32 s.
    pub fn kept_2023(&self) -> Vec<Recording> {
        self.plain("preemption/aws-04-22-2023")
    }

    /// How many of 16 could be had, and how many of 4 were kept, looked at every 300 s.
    pub fn counts(&self) -> Vec<Recording> {
        [self.plain("availability/16-node"), self.plain("preemption/4-node")].concat()
    }

    fn plain(&self, folder: &str) -> Vec<Recording> {
        read_recordings(&self.spot.join(folder), Reading::default()).expect("recordings")
    }

    /// What it costs to take a checkpoint from each zone's region to every other's.
    pub fn egress(&self, zones: &[Recording], gigabytes: f64) -> Vec<Vec<NanoUsd>> {
        let file = self.spot.join("../prices/aws_egress_pricing.csv");
        let text = std::fs::read_to_string(file).expect("egress prices");
        let price = |from: &str, to: &str| {
            let line = text.lines().find(|line| line.starts_with(&format!("{from},{to},")));
            line.and_then(|line| line.rsplit(',').next()?.parse().ok()).unwrap_or(0.02)
        };
        let region = |zone: &Recording| {
            let name = zone.name.split('_').next().unwrap_or_default();
            name.trim_end_matches(|letter: char| letter.is_ascii_lowercase()).to_owned()
        };
        let cost = |from: &Recording, to: &Recording| match region(from) == region(to) {
            true => NanoUsd(0),
            false => NanoUsd::from_dollars(gigabytes * price(&region(from), &region(to))),
        };
        zones.iter().map(|from| zones.iter().map(|to| cost(from, to)).collect()).collect()
    }

    /// Nine zones side by side, a hundred windows of 2023 with prices.
    pub fn multi(&self) -> Vec<Vec<Recording>> {
        let folder = self.unpacked.join("data/converted_multi_region_aligned");
        let mut zones: Vec<PathBuf> =
            std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
        zones.sort();
        let reading = Reading { unavailable_is_one: true, tick: None };
        let window = |number: usize| {
            let zone = |zone: &PathBuf| {
                let mut recording = read(&zone.join(format!("{number}.json")), reading);
                recording.name = zone.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                recording
            };
            zones.iter().map(zone).collect()
        };
        (0..100).map(window).collect()
    }
}

fn read(file: &Path, reading: Reading) -> Recording {
    read_recording(file, reading).unwrap_or_else(|error| panic!("{error}"))
}

/// One zone from a tick on, at a price that never moves.
pub fn alone(recording: &Recording, from: usize, spot: f64, gang: u32) -> Course {
    let up = recording.counts[from..].iter().map(|count| *count >= gang).collect();
    let zone = Zone::new(&recording.name, up, NanoUsd::from_dollars(spot));
    Course {
        tick: recording.tick,
        zones: vec![zone],
        on_demand: NanoUsd::from_dollars(ON_DEMAND),
        gang,
        egress: Vec::new(),
    }
}

/// A recording as a gang sees it about every 600 s, and every 1,200 s as a flakier market.
pub fn teach(recordings: &[Recording], gangs: &[u32], every: &[i64]) -> Vec<Vec<bool>> {
    let mut zones = Vec::new();
    for recording in recordings {
        for gang in gangs {
            let up: Vec<bool> = recording.counts.iter().map(|count| count >= gang).collect();
            for seconds in every {
                let step = (seconds * 1_000 + recording.tick.0 / 2) / recording.tick.0;
                zones.push(resample(&up, usize::try_from(step).unwrap_or(1)));
            }
        }
    }
    zones
}
