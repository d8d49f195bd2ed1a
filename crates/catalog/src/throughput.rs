//! Questions to the tables of what programs get out of accelerators. An answer names how much it rests on; where no
//! table speaks, there is none.

use crate::catalog::Catalog;
use crate::knowledge::{Mfu, Precision, PrecisionGain, Throughput, TrainingTime};

/// A share of peak, and the run it was measured on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MfuEstimate<'t> {
    /// Model FLOPs utilisation, 0 to 1.
    pub mfu: f32,
    /// The run nearest to the question.
    pub nearest: &'t Mfu,
    /// The fewest and the most accelerators that were measured with such a model.
    pub counts: (u32, u32),
}

/// What is known of a gain: the middle of the measured ones and their range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GainEstimate {
    /// Throughput ratio: the median; below one it is slower.
    pub speed: f32,
    /// The least and the most measured.
    pub range: (f32, f32),
    /// Memory ratio at an equal batch, where measured: the median.
    pub memory: Option<f32>,
    pub measurements: usize,
    /// Whether they are of other accelerators of the same generation.
    pub of_its_generation: bool,
}

impl Catalog {
    /// What a smaller number format gains for a class of models (`cnn`, `transformer`, `recurrent`, `recommender`,
    /// `vocoder`) on an accelerator: as measured on it, else on others of its generation; none where nobody measured.
    pub fn precision_gain(
        &self,
        class: &str,
        accelerator: &str,
        from: Precision,
        to: Precision,
    ) -> Option<GainEstimate> {
        let known = self.throughput();
        let own = known.precision_gain(class, &[accelerator], from, to);
        own.or_else(|| {
            let generation = &self.accelerator(accelerator)?.generation;
            let sheets = self.accelerators().iter().filter(|sheet| sheet.generation == *generation);
            let families: Vec<&str> = sheets.map(|sheet| sheet.family.as_str()).collect();
            let theirs = known.precision_gain(class, &families, from, to)?;
            Some(GainEstimate { of_its_generation: true, ..theirs })
        })
    }
}

impl Throughput {
    /// The share of peak that training a model of so many parameters reaches on so many accelerators: of the runs on
    /// that accelerator those nearest in parameters, and between the counts measured on a straight line over the
    /// logarithm of the count. Beyond the measured counts the nearest holds.
    pub fn mfu_for(
        &self,
        accelerator: &str,
        parameters: u64,
        count: u32,
        precision: Precision,
    ) -> Option<MfuEstimate<'_>> {
        let runs = self.mfu.iter().filter(|run| run.accelerator == accelerator && run.precision == precision);
        let apart = |run: &Mfu| ((run.parameters.max(1) as f64).ln() - (parameters.max(1) as f64).ln()).abs();
        let nearest_size = runs.clone().min_by(|a, b| apart(a).total_cmp(&apart(b)))?;
        let alike: Vec<&Mfu> = runs.filter(|run| run.model == nearest_size.model).collect();
        let best_at =
            |count: u32| alike.iter().filter(|run| run.count == count).max_by(|a, b| a.mfu.total_cmp(&b.mfu)).copied();
        let below = alike.iter().map(|run| run.count).filter(|known| *known <= count).max().and_then(best_at);
        let above = alike.iter().map(|run| run.count).filter(|known| *known >= count).min().and_then(best_at);
        let counts = alike.iter().map(|run| run.count);
        let counts = (counts.clone().min()?, counts.max()?);
        match (below, above) {
            (Some(below), Some(above)) if below.count < above.count => {
                let log = |count: u32| f64::from(count.max(1)).ln();
                let share = ((log(count) - log(below.count)) / (log(above.count) - log(below.count))) as f32;
                let nearest = if share < 0.5 { below } else { above };
                Some(MfuEstimate { mfu: below.mfu + share * (above.mfu - below.mfu), nearest, counts })
            }
            (Some(run), _) | (None, Some(run)) => Some(MfuEstimate { mfu: run.mfu, nearest: run, counts }),
            (None, None) => None,
        }
    }

    /// How much of so many accelerators of one node data-parallel training uses: the median over models.
    pub fn node_efficiency(&self, accelerator: &str, count: u32) -> Option<f32> {
        if count <= 1 {
            return Some(1.0);
        }
        let measured = self.node_scaling.iter().filter(|row| row.accelerator == accelerator && row.count == count);
        median(measured.map(|row| row.efficiency).collect())
    }

    /// What of the speed is left after each doubling of the accelerators when the work stays the same (MLPerf, time to
    /// quality): the median over benchmarks and counts.
    pub fn strong_scaling_per_doubling(&self, accelerator: &str) -> Option<f32> {
        let mut kept = Vec::new();
        let of_it: Vec<_> = self.training_times.iter().filter(|time| time.accelerator == accelerator).collect();
        let same = |pair: &&[&TrainingTime]| pair[0].benchmark == pair[1].benchmark && pair[0].round == pair[1].round;
        for pair in of_it.windows(2).filter(same) {
            let (few, many) = (pair[0], pair[1]);
            let work = |minutes: f32, count: u32| f64::from(minutes) * f64::from(count);
            let ratio = work(few.minutes, few.count) / work(many.minutes, many.count);
            let doublings = (f64::from(many.count) / f64::from(few.count)).log2();
            if doublings >= 0.9 {
                kept.push(ratio.powf(1.0 / doublings) as f32);
            }
        }
        median(kept)
    }

    /// The shortest time to quality of a benchmark on so many accelerators.
    pub fn training_minutes(&self, benchmark: &str, accelerator: &str, count: u32) -> Option<f32> {
        let asked = |time: &&TrainingTime| {
            time.benchmark == benchmark && time.accelerator == accelerator && time.count == count
        };
        self.training_times.iter().filter(asked).map(|time| time.minutes).reduce(f32::min)
    }

    /// What of the share of peak is left after each doubling when the batch grows with the accelerators.
    pub fn weak_scaling_per_doubling(&self, accelerator: &str) -> Option<f32> {
        let of_it: Vec<&Mfu> = self.mfu.iter().filter(|run| run.accelerator == accelerator).collect();
        let mut kept = Vec::new();
        for few in &of_it {
            let alike = |run: &&&Mfu| {
                run.model == few.model
                    && run.sequence == few.sequence
                    && run.precision == few.precision
                    && run.count >= 2 * few.count
            };
            for many in of_it.iter().filter(alike) {
                let doublings = (many.count as f32 / few.count as f32).log2();
                kept.push((many.mfu / few.mfu).powf(1.0 / doublings));
            }
        }
        median(kept)
    }

    fn precision_gain(
        &self,
        class: &str,
        accelerators: &[&str],
        from: Precision,
        to: Precision,
    ) -> Option<GainEstimate> {
        let asked = |row: &&PrecisionGain| {
            row.class == class && accelerators.contains(&row.accelerator.as_str()) && row.from == from && row.to == to
        };
        let rows: Vec<&PrecisionGain> = self.precision.iter().filter(asked).collect();
        let speeds: Vec<f32> = rows.iter().map(|row| row.speed).collect();
        let least = speeds.iter().copied().reduce(f32::min)?;
        let most = speeds.iter().copied().reduce(f32::max)?;
        let memory = median(rows.iter().filter_map(|row| row.memory).collect());
        let (speed, range, measurements) = (median(speeds)?, (least, most), rows.len());
        Some(GainEstimate { speed, range, memory, measurements, of_its_generation: false })
    }
}

fn median(mut values: Vec<f32>) -> Option<f32> {
    values.sort_by(f32::total_cmp);
    let middle = values.len().checked_sub(1)? / 2;
    Some(if values.len() % 2 == 1 { values[middle] } else { (values[middle] + values[middle + 1]) / 2.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_shares_of_peak_come_back() {
        let catalog = Catalog::embedded();
        let known = catalog.throughput();
        let mfu = |count| known.mfu_for("H100", 65_000_000_000, count, Precision::Bf16).map(|estimate| estimate.mfu);
        assert!((mfu(128).unwrap_or(0.0) - 0.4336).abs() < 1e-4);
        assert!((mfu(512).unwrap_or(0.0) - 0.4125).abs() < 1e-4);
        let between = mfu(200).unwrap_or(0.0);
        assert!(between < 0.4336 && between > 0.4125);
        assert_eq!(known.mfu_for("K80", 1, 1, Precision::Bf16), None);
    }

    #[test]
    fn scaling_loses_a_little_with_each_doubling() {
        let catalog = Catalog::embedded();
        let known = catalog.throughput();
        let strong = known.strong_scaling_per_doubling("H100").unwrap_or(0.0);
        let weak = known.weak_scaling_per_doubling("H100").unwrap_or(0.0);
        assert!((0.7..1.0).contains(&strong), "{strong}");
        assert!((0.9..1.05).contains(&weak), "{weak}");
        assert!(known.node_efficiency("H100", 8).is_some_and(|share| (0.7..=1.02).contains(&share)));
        assert_eq!(known.node_efficiency("H100", 1), Some(1.0));
    }

    #[test]
    fn mixed_precision_is_not_always_a_gain() {
        let catalog = Catalog::embedded();
        let h200 =
            catalog.precision_gain("transformer", "H200", Precision::Tf32, Precision::Bf16).map(|gain| gain.range);
        assert!(h200.is_some_and(|(least, most)| least < 0.9 && most > 1.4), "{h200:?}");
        let a100 = catalog.precision_gain("recurrent", "A100", Precision::Tf32, Precision::Fp16);
        assert!(a100.is_some_and(|gain| gain.range.0 < 0.85));
        let v100 =
            catalog.precision_gain("cnn", "V100", Precision::Fp32, Precision::Fp16).map_or(0.0, |gain| gain.speed);
        assert!(v100 > 1.5);
        let h100 = catalog.precision_gain("transformer", "H100", Precision::Tf32, Precision::Bf16);
        assert!(h100.is_some_and(|gain| gain.of_its_generation && gain.memory.is_some_and(|share| share < 1.0)));
        assert_eq!(catalog.precision_gain("transformer", "K80", Precision::Fp32, Precision::Bf16), None);
    }
}
