//! What can be bought, as a search finds it: borrowed from the catalogue, with the figures people compare by.

use crate::knowledge::Accelerator;
use crate::words::{Band, Count, Source, Term};
use windfall_core::{Market, NanoUsd, OfferId, Span};

/// An instance type.
#[derive(Clone, Copy, Debug)]
pub struct InstanceType<'c> {
    pub(crate) at: u32,
    /// `aws`, `gcp`, `azure`, ….
    pub cloud: &'c str,
    /// As the cloud names it; a TPU slice by its own name.
    pub name: &'c str,
    /// The accelerator's family.
    pub accelerator: Option<&'c str>,
    /// The accelerator's data sheet.
    pub sheet: Option<&'c Accelerator>,
    /// Accelerators in it; zero without any.
    pub count: Count,
    /// Virtual cores.
    pub vcpus: Option<f64>,
    /// Main memory.
    pub memory_gib: Option<f64>,
    /// Memory of one accelerator, or of the share of one.
    pub accelerator_memory_gb: Option<f64>,
    pub network_gbps: Option<f64>,
    /// What that network is: `EFA`, `InfiniBand`, ….
    pub fabric: Option<&'c str>,
}

impl InstanceType<'_> {
    /// Memory of all accelerators together.
    pub fn total_accelerator_memory_gb(&self) -> Option<f64> {
        Some(self.accelerator_memory_gb? * self.count.as_f64().max(1.0))
    }

    /// Peak training TFLOP/s of all accelerators together.
    pub fn training_tflops(&self) -> Option<f64> {
        Some(f64::from(self.sheet?.training_tflops()?) * self.count.as_f64())
    }
}

/// How long before it takes spot capacity back a cloud says so, where it promises to.
pub fn notice(cloud: &str) -> Option<Span> {
    match cloud {
        "aws" => Some(Span::seconds(120)),
        "gcp" | "azure" => Some(Span::seconds(30)),
        _ => None,
    }
}

/// Something that can be bought.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'c> {
    pub kind: InstanceType<'c>,
    pub region: &'c str,
    /// Where exactly; none when the price holds in the whole region.
    pub zone: Option<&'c str>,
    pub(crate) zone_mask: u64,
    pub(crate) region_at: u32,
    /// How it is bought.
    pub term: Term,
    /// An instance-hour.
    pub price: NanoUsd,
    /// Who says so, and since when.
    pub source: &'c Source,
    /// How often it is taken back.
    pub band: Option<Band>,
    /// Who says how often, and since when.
    pub band_source: Option<&'c Source>,
}

impl Offer<'_> {
    /// An hour of one accelerator.
    pub fn price_per_accelerator(&self) -> Option<NanoUsd> {
        let milli = i128::from(self.kind.count.0);
        let price = i128::from(self.price.0) * 1_000 / Some(milli).filter(|milli| *milli > 0)?;
        i64::try_from(price).ok().map(NanoUsd)
    }

    /// An hour of one peak training TFLOP/s.
    pub fn price_per_tflop(&self) -> Option<NanoUsd> {
        self.price_per(self.kind.training_tflops()?)
    }

    /// An hour of one GB of accelerator memory.
    pub fn price_per_gb(&self) -> Option<NanoUsd> {
        self.price_per(self.kind.total_accelerator_memory_gb()?)
    }

    /// As the brain knows offers, for a zone where it can be had; none for a share of an accelerator, which no gang
    /// can be placed on, and where nobody says how long the warning is.
    pub fn for_engine(&self, engine: &str, zone: &str) -> Option<windfall_core::Offer> {
        let market = self.term.market();
        let name = format!(
            "{engine}/{zone}/{}/{}:{}/{market}",
            self.kind.name,
            self.kind.accelerator.unwrap_or_default(),
            self.kind.count
        );
        let notice = match market {
            Market::Spot => notice(self.kind.cloud)?,
            _ => Span::ZERO,
        };
        Some(windfall_core::Offer {
            id: OfferId::new(&name),
            engine: engine.to_owned(),
            pool: windfall_core::PoolId::default(),
            cloud: self.kind.cloud.to_owned(),
            region: self.region.to_owned(),
            zone: zone.to_owned(),
            instance_type: self.kind.name.to_owned(),
            market,
            accelerator: self.kind.accelerator.unwrap_or_default().to_owned(),
            accelerators: self.kind.count.0.is_multiple_of(1_000).then_some(self.kind.count.0 / 1_000)?,
            price_per_hour: self.price,
            capacity: None,
            notice,
        })
    }

    fn price_per(&self, amount: f64) -> Option<NanoUsd> {
        (amount > 0.0).then(|| NanoUsd((self.price.0 as f64 / amount).round() as i64))
    }
}
