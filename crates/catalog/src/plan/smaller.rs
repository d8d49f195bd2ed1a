//! Precision and size: what a smaller number format gains, and which smaller accelerators it makes room on.

use super::request::{Request, Work};
use super::room;
use super::speed::Need;
use crate::catalog::Catalog;
use crate::knowledge::{Precision, PrecisionGain};
use crate::offer::InstanceType;
use crate::search::Wanted;
use crate::words::Count;
use windfall_core::Span;
use windfall_core::spec::{Ask, Smaller};

/// Memory at a 16-bit precision against 32 bits, where nobody measured it: weights and optimiser keep a copy of 32.
const USUAL_MEMORY: f64 = 0.65;
/// A gain that is worth a word.
const WORTHWHILE: f64 = 1.02;

impl Catalog {
    /// The work as stated, and at each precision that gains something on this accelerator.
    pub(super) fn with_precisions(&self, request: &Request, kind: &InstanceType<'_>, need: Need) -> Vec<Need> {
        let family = kind.accelerator.unwrap_or_default();
        // Parameters and tokens are planned by a share of the 16-bit peak: nothing is gained twice.
        let tokens = matches!(request.work, Some(Work::Tokens { .. }));
        // What was stated was stated in the precision that the program runs in.
        let stated = request.stated_precision.and_then(|stated| self.gain(family, stated, None)).unwrap_or(1.0);
        let others = request.precision.iter().filter(|precision| Some(**precision) != request.stated_precision);
        let gains = others.filter(|_| !tokens).filter_map(|precision| {
            let gain = self.gain(family, *precision, None)? / stated;
            (gain > WORTHWHILE).then(|| Need {
                span: Span((need.span.0 as f64 / gain) as i64),
                precision: Some(*precision),
                how: format!("{}; {} is {gain:.2} times as fast", need.how, precision.word()),
                ..need.clone()
            })
        });
        let best = gains.min_by_key(|need| need.span);
        // An accelerator that was only considered because of the precision does not fit without it.
        let asked = request.accelerators.iter().any(|asked| asked.family == family);
        let fits = asked || tokens || request.accelerators.is_empty() || request.equivalents;
        if fits || best.is_some() {
            return fits.then_some(need).into_iter().chain(best).collect();
        }
        let has = |precision: &&Precision| {
            self.accelerator(family).is_some_and(|sheet| sheet.peak_tflops(**precision).is_some())
        };
        let precision = request.precision.iter().find(has).copied();
        let how = format!("{}; no gain from its precision known", need.how);
        vec![Need { precision, how, ..need }]
    }

    /// How much faster a precision is on an accelerator for a class of models, or for any: as measured on it, or on
    /// its generation.
    pub fn gain(&self, family: &str, precision: Precision, class: Option<&str>) -> Option<f64> {
        let sheet = self.accelerator(family)?;
        let peak = sheet.peak_tflops(precision)?;
        // People who measure say "16 bits" and mean fp16; bf16 of the same peak gains as much.
        let alike = |other: Precision| {
            let sixteen = [Precision::Fp16, Precision::Bf16];
            other == precision
                || (sixteen.contains(&precision) && sixteen.contains(&other) && sheet.peak_tflops(other) == Some(peak))
        };
        // What a program uses that says nothing: TF32 where there is one.
        let usual = if sheet.peak_tflops(Precision::Tf32).is_some() { Precision::Tf32 } else { Precision::Fp32 };
        let all = &self.throughput().precision;
        let of = |keeps: &dyn Fn(&PrecisionGain) -> bool| {
            let mut speeds: Vec<f32> = all
                .iter()
                .filter(|gain| alike(gain.to) && gain.from == usual && keeps(gain))
                .filter(|gain| class.is_none_or(|class| gain.class == class))
                .map(|gain| gain.speed)
                .collect();
            speeds.sort_by(f32::total_cmp);
            speeds.get(speeds.len() / 2).map(|speed| f64::from(*speed))
        };
        let generation = |name: &str| self.accelerator(name).map(|sheet| sheet.generation.as_str());
        of(&|gain| gain.accelerator == family)
            .or_else(|| of(&|gain| generation(&gain.accelerator) == Some(sheet.generation.as_str())))
    }

    /// Accelerators with less memory than was asked for, on which the job fits at a lower precision.
    pub(super) fn smaller(&self, request: &Request) -> Vec<Wanted> {
        let asked: Vec<(f64, &Wanted)> = request
            .accelerators
            .iter()
            .filter_map(|wanted| Some((f64::from(self.accelerator(&wanted.family)?.memory_gb), wanted)))
            .collect();
        let Some((memory, least)) = asked.iter().min_by(|a, b| a.0.total_cmp(&b.0)) else { return Vec::new() };
        if request.precision.is_empty() || !request.smaller {
            return Vec::new();
        }
        let room = memory * self.memory_share(&request.precision);
        let fits = self.accelerators().iter().filter(|sheet| {
            let size = f64::from(sheet.memory_gb);
            let runs = self.same_maker(&sheet.family, &least.family) && room::trains(&sheet.family);
            let has = request.precision.iter().any(|precision| sheet.peak_tflops(*precision).is_some());
            runs && has && size >= room && size < *memory
        });
        let mut families: Vec<&str> = fits.map(|sheet| sheet.family.as_str()).collect();
        families.sort_unstable();
        families.dedup();
        let wanted = |family: &str| Wanted { family: family.to_owned(), model: None, count: least.count };
        families.into_iter().map(wanted).collect()
    }

    /// What `smaller+bf16` in a job's fallback stands for: accelerators with less memory than any that it asks for, on
    /// which it fits at that precision, with their speed against the first that it asks for.
    pub fn fallbacks(&self, asks: &[Ask], precision: Precision) -> Vec<Smaller> {
        let wanted =
            |ask: &Ask| Wanted { family: ask.accelerator.clone(), model: None, count: Some(Count::whole(ask.count)) };
        let request = Request {
            accelerators: asks.iter().map(wanted).collect(),
            precision: vec![precision],
            smaller: true,
            ..Request::default()
        };
        let Some(first) = asks.first() else { return Vec::new() };
        let Some(asked) = self.usual_tflops(&first.accelerator) else { return Vec::new() };
        let smaller = self.smaller(&request).into_iter().filter_map(|wanted| {
            let gain = self.gain(&wanted.family, precision, None).unwrap_or(1.0);
            let speed = self.usual_tflops(&wanted.family)? * gain / asked;
            Some(Smaller {
                ask: Ask::of(wanted.family, first.count),
                precision: precision.word().to_owned(),
                speed_permille: (speed * 1_000.0).clamp(1.0, 1e6) as u32,
            })
        });
        smaller.collect()
    }

    fn memory_share(&self, precisions: &[Precision]) -> f64 {
        let all = self.throughput().precision.iter();
        let mut shares: Vec<f32> = all
            .filter(|gain| precisions.contains(&gain.to) && gain.from == Precision::Fp32 && gain.equal_batch)
            .filter_map(|gain| gain.memory)
            .collect();
        shares.sort_by(f32::total_cmp);
        shares.get(shares.len() / 2).map_or(USUAL_MEMORY, |share| f64::from(*share))
    }
}
