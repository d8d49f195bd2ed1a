//! What a forecast is made for: a job on one kind of machine, and how often its market takes capacity back.

use crate::units::Span;

/// Worlds that are drawn: enough for a tenth and a nine-tenths quantile, few enough to plan in a blink.
pub const WORLDS: usize = 120;
/// How many rates, spread between the least and the most, the worlds are shared out to.
const RATES: usize = 5;
/// The power of its size by which a gang is interrupted more often than one machine. Most losses are common, because a
/// whole market runs dry: of two AWS markets in which capacity was counted in 2023, gangs of 16 (us-east-2b) lost it 2.1
/// times and gangs of 4 (us-east-1f) 1.5 times as often as one machine.
const GANG_POWER: f64 = 0.28;
/// Most of those further losses are short, and cost less than the recorded spells that a forecast would put in their
/// place: with this power it expects what gangs of 2 to 16 paid on these markets.
const GANG_POWER_RECORDED: f64 = 0.1;

/// How often a market takes capacity back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Losses {
    /// As in the recorded markets, but so many times as likely at any moment.
    Recorded(f64),
    /// At a steady rate an hour that lies between these: nobody recorded more than that.
    Rate {
        /// It is at least this.
        least: f64,
        /// It is at most this.
        most: f64,
    },
}

impl Losses {
    /// A market that takes back this share of its machines within so many hours, from the least to the most.
    pub fn of_share(least: f64, most: f64, hours: f64) -> Losses {
        Losses::Rate { least: rate(least, hours), most: rate(most, hours) }
    }

    /// The same for a gang, which is interrupted when one of its machines is taken.
    pub fn of_gang(self, nodes: u32) -> Losses {
        let of_gang = |power: f64| libm::pow(f64::from(nodes.max(1)), power);
        let (rate, recorded) = (of_gang(GANG_POWER), of_gang(GANG_POWER_RECORDED));
        match self {
            Losses::Recorded(times) => Losses::Recorded(times * recorded),
            Losses::Rate { least, most } => Losses::Rate { least: least * rate, most: most * rate },
        }
    }

    /// The loss rates that the worlds are shared out to.
    pub(super) fn dealt(self) -> Vec<Losses> {
        let Losses::Rate { least, most } = self else { return vec![self] };
        let rate = |n: usize| least + (most - least) * (n as f64 + 0.5) / RATES as f64;
        (0..RATES).map(|n| Losses::Rate { least: rate(n), most: rate(n) }).collect()
    }
}

/// The steady rate an hour at which this share is lost within so many hours.
fn rate(share: f64, hours: f64) -> f64 {
    -libm::log1p(-share.clamp(0.0, 0.999)) / hours
}

/// A job on one kind of machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForecastTerms {
    /// Running time that the work needs, saving included.
    pub need: Span,
    /// How sure that is: about two of three times it is off by less than this share.
    pub spread: f64,
    /// Time to the deadline.
    pub left: Option<Span>,
    /// Changeover: from asking for a lease to progress.
    pub restart: Span,
    /// Work that an interruption is expected to undo.
    pub undone: Span,
    /// How often the market is looked at. This much time is also kept in reserve before a deadline.
    pub tick: Span,
    /// How often a lease on spot is taken back.
    pub losses: Losses,
    /// Whether there is a market to fall back to that cannot be taken away.
    pub has_firm: bool,
    /// Chance that this market has nothing when it is asked.
    pub refused: f64,
}

impl ForecastTerms {
    /// The same job in one world, where its work takes somewhat more or less. The mean over all worlds stays.
    pub(super) fn in_world(&self, world: usize, mean: f64) -> ForecastTerms {
        ForecastTerms { need: Span((self.need.0 as f64 * self.factor(world) / mean) as i64), ..*self }
    }

    pub(super) fn mean_factor(&self) -> f64 {
        (0..WORLDS).map(|world| self.factor(world)).sum::<f64>() / WORLDS as f64
    }

    /// Worlds are dealt out over the bell curve (its quantiles as those of the logistic one, which is near enough), in
    /// an order that has nothing to do with what else they differ in.
    fn factor(&self, world: usize) -> f64 {
        let place = ((world * 49 + 17) % WORLDS) as f64 + 0.5;
        let odds = place / (WORLDS as f64 - place);
        libm::exp(self.spread * libm::log(odds) / 1.702)
    }
}
