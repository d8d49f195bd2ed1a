//! Which operator each kernel belongs to: both have the same external id.

use super::OperatorTime;
use crate::spool::Sorted;
use std::collections::HashMap;

/// Operators with the time of the kernels that belong to them, apart by accelerator.
pub fn own(owners: &Sorted<3>, known: &[OperatorTime]) -> Vec<OperatorTime> {
    let mut operators: Vec<OperatorTime> = Vec::new();
    let mut places: HashMap<(usize, u16), usize> = HashMap::new();
    let mut owner: Option<(u64, usize)> = None;
    let mut counted: Option<u16> = None;
    for [external, what, value] in owners.iter() {
        let Some(place) = what.checked_sub(1) else {
            (owner, counted) = (Some((external, value as usize)), None);
            continue;
        };
        let Some((_, at)) = owner.filter(|(of, _)| *of == external) else { continue };
        let Some(kind) = known.get(at) else { continue };
        let device = place as u16;
        let at = *places.entry((at, device)).or_insert_with(|| {
            operators.push(OperatorTime { device, ..kind.clone() });
            operators.len() - 1
        });
        let operator = &mut operators[at];
        operator.calls += u64::from(counted.replace(device) != Some(device));
        operator.add((value >> 1) as i64, value & 1 == 1);
    }
    operators
}
