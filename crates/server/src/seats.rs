//! How many connections guests have at the same time: together, and each of them, so that one cannot shut the others out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Connections of guests at the same time; descriptors are needed for agents and files.
const GUESTS: usize = 256;
/// Connections of one guest: far below what all of them have.
const EACH: usize = 32;

/// The connections that guests have now, by the number of the account.
#[derive(Clone, Default)]
pub struct Seats(Arc<Mutex<BTreeMap<u32, usize>>>);

/// A guest's place, free again when it is dropped.
pub struct Seat {
    uid: u32,
    seats: Seats,
}

impl Seats {
    /// A place for a connection of this account; none where it, or all guests together, have as many as they may.
    pub fn take(&self, uid: u32) -> Option<Seat> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (own, all) = (taken.get(&uid).copied().unwrap_or(0), taken.values().sum::<usize>());
        if own >= EACH || all >= GUESTS {
            return None;
        }
        taken.insert(uid, own + 1);
        Some(Seat { uid, seats: self.clone() })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = taken.get(&self.uid).map_or(0, |own| own - 1);
        if left == 0 {
            taken.remove(&self.uid);
        } else {
            taken.insert(self.uid, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_guest_does_not_take_the_seats_of_the_others() {
        let seats = Seats::default();
        let held: Vec<Seat> = std::iter::from_fn(|| seats.take(1_000)).take(GUESTS).collect();
        assert_eq!(held.len(), EACH);
        assert!(seats.take(1_001).is_some());
        drop(held);
        assert!(seats.take(1_000).is_some() && seats.0.lock().expect("it works").is_empty(), "all are free again");
    }

    #[test]
    fn all_guests_together_leave_descriptors_for_others() {
        let seats = Seats::default();
        let held: Vec<Seat> = (0..).map_while(|n| seats.take(1_000 + n / 10)).collect();
        assert_eq!(held.len(), GUESTS);
    }
}
