//! How long which kinds of work went on, alone and together, from spans in the order of their starts.

use crate::trace::kernel::Class;

/// Sets of classes: a bit for each.
pub const COMPUTE: usize = 1;
pub const COMMUNICATION: usize = 2;
pub const MEMORY: usize = 4;

/// A sum of times that never overflows: traces may hold any numbers.
pub fn sum(times: impl Iterator<Item = i64>) -> i64 {
    times.fold(0, i64::saturating_add)
}

/// Time by which classes of work went on at once.
#[derive(Clone, Debug, Default)]
pub struct Unions {
    /// By the set of classes; the first is idle time.
    pub ns: [i64; 8],
    /// Until when each class goes on.
    until: [i64; 3],
    now: Option<i64>,
    pub first_ns: i64,
    pub last_ns: i64,
}

/// Time in which nothing ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    pub start_ns: i64,
    pub end_ns: i64,
}

impl Unions {
    /// Adds a span that starts no earlier than those before; returns the idle time that it ends.
    pub fn add(&mut self, class: Class, start_ns: i64, end_ns: i64) -> Option<Gap> {
        let at = match class {
            Class::Compute => 0,
            Class::Communication => 1,
            Class::Memory => 2,
            Class::Sync => return None,
        };
        let gap = match self.now {
            None => {
                self.until = [start_ns; 3];
                self.first_ns = start_ns;
                None
            }
            Some(_) => self.advance(start_ns),
        };
        self.now = Some(start_ns);
        self.until[at] = self.until[at].max(end_ns);
        self.last_ns = self.until.iter().copied().max().unwrap_or(end_ns);
        gap
    }

    /// Ends the last spans.
    pub fn finish(&mut self) {
        self.advance(self.last_ns);
    }

    fn advance(&mut self, to: i64) -> Option<Gap> {
        let mut now = self.now?;
        while now < to {
            let running = |until: &i64| *until > now;
            let set = self.until.iter().enumerate().fold(0, |set, (at, until)| set | usize::from(running(until)) << at);
            let next = self.until.iter().copied().filter(running).min().unwrap_or(to).min(to);
            self.ns[set] += next - now;
            if set == 0 {
                self.now = Some(to);
                return Some(Gap { start_ns: now, end_ns: to });
            }
            now = next;
        }
        self.now = Some(to);
        None
    }

    /// Time in which work of a set's classes went on, whatever else did.
    pub fn with(&self, class: usize) -> i64 {
        (1..8).filter(|set| set & class != 0).map(|set| self.ns[set]).sum()
    }

    /// Time in which both classes went on.
    pub fn both(&self, one: usize, other: usize) -> i64 {
        (1..8).filter(|set| set & one != 0 && set & other != 0).map(|set| self.ns[set]).sum()
    }

    /// Time in which anything went on.
    pub fn busy(&self) -> i64 {
        self.ns[1..].iter().sum()
    }

    /// From the first start to the last end.
    pub fn span(&self) -> i64 {
        self.last_ns - self.first_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_and_gaps_add_up_to_the_span() {
        let mut unions = Unions::default();
        assert_eq!(unions.add(Class::Compute, 0, 10), None);
        assert_eq!(unions.add(Class::Communication, 5, 20), None);
        assert_eq!(unions.add(Class::Compute, 6, 8), None);
        assert_eq!(unions.add(Class::Memory, 25, 30), Some(Gap { start_ns: 20, end_ns: 25 }));
        assert_eq!(unions.add(Class::Compute, 28, 29), None);
        unions.finish();
        assert_eq!(unions.ns, [5, 5, 10, 5, 4, 1, 0, 0]);
        assert_eq!((unions.busy(), unions.span()), (25, 30));
        assert_eq!((unions.with(COMPUTE), unions.with(COMMUNICATION), unions.with(MEMORY)), (11, 15, 5));
        assert_eq!(unions.both(COMPUTE, COMMUNICATION), 5);
    }

    #[test]
    fn spans_of_no_length_and_no_spans_are_fine() {
        let mut unions = Unions::default();
        unions.finish();
        assert_eq!((unions.busy(), unions.span()), (0, 0));
        unions.add(Class::Compute, 3, 3);
        assert_eq!(unions.add(Class::Compute, 7, 7), Some(Gap { start_ns: 3, end_ns: 7 }));
        unions.finish();
        assert_eq!((unions.busy(), unions.span()), (0, 4));
    }
}
