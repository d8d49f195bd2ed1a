//! Columns that `nvidia-smi dmon` and `dcgmi dmon` print: one line a GPU and moment, headers that come again, `-` or `N/A` where
//! nothing is known. What nvidia-smi's `sm` column shows is the share of time in which some kernel ran, not the share of
//! multiprocessors: that is dcgmi's `SMACT`.

use super::clock::{date_time, time_of_day};
use super::sample::{Sample, Which};

/// A log while it is read.
#[derive(Debug, Default)]
pub struct Dmon {
    columns: Vec<String>,
}

impl Dmon {
    /// Whether a line names columns.
    pub fn is_header(line: &str) -> bool {
        let mut words = names(line);
        line.starts_with('#') && words.any(|word| matches!(word.as_str(), "gpu" | "entity"))
    }

    /// Takes a line; none where it is no reading, nothing where it is a header.
    pub fn line(&mut self, line: &str, mut sample: impl FnMut(Which, Sample)) -> Option<()> {
        if Dmon::is_header(line) {
            self.columns = names(line).collect();
            return Some(());
        }
        if line.starts_with('#') || line.trim() == "ID" || line.trim() == "Id" {
            return Some(());
        }
        let mut words: Vec<&str> = line.split_whitespace().collect();
        // dcgmi names an entity by two words: `GPU 0`.
        if self.columns.first().is_some_and(|first| first == "entity") && words.len() > 1 {
            if !words.first().is_some_and(|first| first.eq_ignore_ascii_case("gpu")) {
                return Some(());
            }
            words.remove(0);
        }
        if self.columns.is_empty() || words.len() != self.columns.len() {
            return None;
        }
        let (mut which, mut read) = (Which::default(), Sample::default());
        let (mut date, mut time) = (None, None);
        for (column, word) in self.columns.iter().zip(words) {
            let number: Option<f64> = word.parse().ok().filter(|number: &f64| number.is_finite());
            if number.is_none() && !matches!(word, "-" | "N/A") && !matches!(column.as_str(), "date" | "time") {
                return None;
            }
            // dcgmi's shares are of one.
            let share = number.map(|number| number * 100.0);
            match column.as_str() {
                "gpu" | "entity" => which.index = Some(word.to_owned()),
                "date" => date = Some(word.to_owned()),
                "time" => time = Some(word.to_owned()),
                "pwr" | "power" => read.power_w = number,
                "gtemp" | "temp" | "tmptr" => read.celsius = number,
                "sm" | "gputl" => read.busy_percent = number,
                "mem" | "mcutl" => read.memory_busy_percent = number,
                "pclk" | "smclk" => read.sm_clock_mhz = number,
                "fb" | "fbusd" => read.memory_used_bytes = number.map(|mib| mib * 1_048_576.0),
                "smact" => read.sm_percent = share,
                "smocc" => read.occupancy_percent = share,
                "tenso" => read.tensor_percent = share,
                "drama" => read.dram_percent = share,
                "toteg" => read.energy_j = number.map(|millijoules| millijoules / 1e3),
                _ => {}
            }
        }
        read.at_s = match (date, time) {
            (Some(date), Some(time)) => Some(date_time(&format!("{date} {time}"))?),
            (None, Some(time)) => Some(time_of_day(&time)?),
            _ => None,
        };
        which.key = which.index.clone()?;
        let read = read.checked();
        read.says_anything().then(|| sample(which, read))
    }
}

/// Names of columns in small letters, without the sign of a comment.
fn names(line: &str) -> impl Iterator<Item = String> {
    let line = line.trim_start_matches(['#', ' ']);
    line.split_whitespace().map(str::to_ascii_lowercase)
}
