//! Means that were measured a few times, and whether two of them differ: Student's distribution, because few repetitions are
//! what people have the patience for, and Welch's test, because two machines do not vary alike.

use serde::Serialize;

/// A mean of repetitions and the interval that it lies in 19 times of 20.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// Half the interval's width, as a share of the mean.
    pub fn looseness(&self) -> f64 {
        if self.mean == 0.0 { f64::INFINITY } else { ((self.high - self.low) / 2.0 / self.mean).abs() }
    }
}

/// Mean and variance of a sample; none of an empty one, no variance of a single value.
fn moments(values: &[f64]) -> Option<(f64, Option<f64>)> {
    let count = values.len() as f64;
    let mean = (!values.is_empty()).then(|| values.iter().sum::<f64>() / count)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((mean, (values.len() > 1).then(|| squares / (count - 1.0))))
}

/// The mean of repetitions with its 95 % interval; none of fewer than two.
pub fn interval(values: &[f64]) -> Option<Interval> {
    let (mean, variance) = moments(values)?;
    let count = values.len() as f64;
    let half = quantile(0.975, count - 1.0) * (variance? / count).sqrt();
    Some(Interval { mean, low: mean - half, high: mean + half })
}

/// How far two samples are apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The second mean over the first, and its 95 % interval.
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
    /// How likely a difference as large is if there is none.
    pub p: f64,
}

/// Compares two samples; none where one has fewer than two values or no positive mean. Samples that do not vary at all differ
/// as much as their means do.
pub fn difference(first: &[f64], second: &[f64]) -> Option<Difference> {
    let ((one, var_one), (two, var_two)) = (moments(first)?, moments(second)?);
    let (share_one, share_two) = (var_one? / first.len() as f64, var_two? / second.len() as f64);
    if one <= 0.0 || two <= 0.0 {
        return None;
    }
    let ratio = two / one;
    let variance = share_one + share_two;
    if variance <= 0.0 {
        return Some(Difference { ratio, low: ratio, high: ratio, p: if one == two { 1.0 } else { 0.0 } });
    }
    let part = |share: f64, count: usize| share.powi(2) / (count as f64 - 1.0);
    let freedom = variance.powi(2) / (part(share_one, first.len()) + part(share_two, second.len()));
    let p = 2.0 * (1.0 - distribution(((two - one) / variance.sqrt()).abs(), freedom));
    // The logarithm of the ratio, to first order.
    let spread = (share_one / one.powi(2) + share_two / two.powi(2)).sqrt() * quantile(0.975, freedom);
    Some(Difference { ratio, low: ratio * (-spread).exp(), high: ratio * spread.exp(), p: p.clamp(0.0, 1.0) })
}

/// Student's distribution: the probability of a value up to `t`.
fn distribution(t: f64, freedom: f64) -> f64 {
    let tail = 0.5 * incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5);
    if t >= 0.0 { 1.0 - tail } else { tail }
}

/// Its inverse, by bisection.
fn quantile(probability: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1e4);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if distribution(middle, freedom) < probability { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// The regularised incomplete beta function, by its continued fraction (Lentz's way).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges fast on one side of the mean.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    let tiny = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let (mut c, mut d) = (1.0, 1.0 / tiny(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for step in 1..300 {
        let m = f64::from(step);
        for term in [
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)),
        ] {
            d = 1.0 / tiny(1.0 + term * d);
            c = tiny(1.0 + term / c);
            fraction *= c * d;
        }
        if (c * d - 1.0).abs() < 1e-14 {
            break;
        }
    }
    front * fraction
}

/// The logarithm of the gamma function for positive numbers (Stirling's series, after a shift).
fn ln_gamma(mut x: f64) -> f64 {
    let mut shift = 0.0;
    while x < 12.0 {
        shift += x.ln();
        x += 1.0;
    }
    let square = 1.0 / (x * x);
    let series = (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0))) / x;
    (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_printed_tables() {
        for (freedom, wanted) in [(1.0, 12.706), (2.0, 4.303), (4.0, 2.776), (9.0, 2.262), (30.0, 2.042), (1e6, 1.960)]
        {
            assert!((quantile(0.975, freedom) - wanted).abs() < 6e-4, "{freedom}: {}", quantile(0.975, freedom));
        }
    }

    #[test]
    fn an_interval_is_the_one_of_a_textbook() {
        // Mean 10, standard deviation 1, n = 5: 10 ± 2.776 / √5.
        let values = [9.0, 9.5, 10.0, 10.5, 11.0].map(|value: f64| 10.0 + (value - 10.0) / 0.625f64.sqrt());
        let interval = interval(&values).expect("five values");
        assert!((interval.mean - 10.0).abs() < 1e-9 && (interval.high - 11.2415).abs() < 1e-3, "{interval:?}");
        assert_eq!(super::interval(&[1.0]), None);
    }

    #[test]
    fn welch_s_test_gives_the_known_p() {
        // Two samples with t = -2.0 and 8 degrees of freedom: p = 0.0805.
        let one = [1.0, 2.0, 3.0, 4.0, 5.0];
        let two = [3.0, 4.0, 5.0, 6.0, 7.0];
        let found = difference(&one, &two).expect("it is there");
        assert!((found.p - 0.0805).abs() < 1e-3, "{found:?}");
        assert!(difference(&one, &one).expect("it is there").p > 0.999);
        assert_eq!(difference(&[2.0, 2.0], &[2.2, 2.2]).map(|found| found.p), Some(0.0));
        assert_eq!(difference(&[1.0], &two), None);
    }
}
