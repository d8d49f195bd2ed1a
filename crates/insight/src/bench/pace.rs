//! How fast a program went, from the moments at which it said that steps were done: the warm-up is left out, and what is left
//! is cut into stretches of equal length, whose spread says how much the speed varied.

/// Stretches that one run is cut into.
const STRETCHES: usize = 8;

/// A moment and how many steps were done by then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    pub at_s: f64,
    pub steps: u64,
}

/// The speed of one run of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Pace {
    pub steps: u64,
    pub seconds: f64,
    pub from_s: f64,
    pub to_s: f64,
    /// The speed in each stretch.
    pub stretches: Vec<f64>,
}

impl Pace {
    /// Steps a second.
    pub fn steps_per_second(&self) -> f64 {
        self.steps as f64 / self.seconds
    }
}

/// The pace after the warm-up. Marks whose steps do not grow are left out: programs count anew in each epoch. None where fewer
/// than two marks are left.
pub fn pace(marks: &[Mark], warm_up: u64) -> Option<Pace> {
    let mut grown: Vec<Mark> = Vec::new();
    let (mut base, mut before) = (0, None::<u64>);
    for mark in marks {
        // A count that begins anew goes on from the last.
        if let (Some(last), Some(before)) = (grown.last(), before)
            && mark.steps < before
        {
            base = last.steps;
        }
        before = Some(mark.steps);
        let steps = base.saturating_add(mark.steps);
        if grown.last().is_none_or(|last| steps > last.steps && mark.at_s > last.at_s) {
            grown.push(Mark { steps, ..*mark });
        }
    }
    let first = grown.first()?.steps;
    let begin = grown.iter().position(|mark| mark.steps - first >= warm_up)?;
    let kept = &grown[begin..];
    let (from, to) = (kept.first()?, kept.last()?);
    if to.steps == from.steps {
        return None;
    }
    let pace = Pace {
        steps: to.steps - from.steps,
        seconds: to.at_s - from.at_s,
        from_s: from.at_s,
        to_s: to.at_s,
        stretches: stretches(kept),
    };
    (pace.seconds > 0.0).then_some(pace)
}

fn stretches(marks: &[Mark]) -> Vec<f64> {
    let parts = STRETCHES.min(marks.len().saturating_sub(1));
    let at = |part: usize| marks[part * (marks.len() - 1) / parts.max(1)];
    let speed = |from: Mark, to: Mark| (to.steps - from.steps) as f64 / (to.at_s - from.at_s);
    (0..parts).map(|part| speed(at(part), at(part + 1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warm_up_does_not_count() {
        let slow = (0..10u64).map(|step| Mark { at_s: step as f64, steps: step });
        let fast = (10..30u64).map(|step| Mark { at_s: 9.0 + (step - 9) as f64 * 0.1, steps: step });
        let marks: Vec<Mark> = slow.chain(fast).collect();
        let pace = pace(&marks, 9).expect("a pace");
        assert_eq!((pace.steps, pace.stretches.len()), (20, 8));
        assert!((pace.steps_per_second() - 10.0).abs() < 1e-9, "{pace:?}");
        assert_eq!(super::pace(&marks, 29), None);
        assert_eq!(super::pace(&[], 0), None);
    }

    #[test]
    fn counts_that_begin_anew_go_on() {
        let mark = |at_s, steps| Mark { at_s, steps };
        let marks = [mark(0.0, 1), mark(1.0, 2), mark(2.0, 3), mark(3.0, 1), mark(4.0, 2)];
        assert_eq!(pace(&marks, 0).map(|pace| (pace.steps, pace.seconds)), Some((4, 4.0)));
    }
}
