//! What can be wrong with a machine, and what is done about it: said, drained, its work moved. Pure functions from what a
//! machine's agent has seen to what its engine does; nothing here looks at a machine.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Something that is wrong with a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Symptom {
    pub kind: SymptomKind,
    /// The accelerator that has it, as programs name it; none for the machine itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// When it was first seen, by the machine's clock: milliseconds since 1970.
    pub seen_unix_ms: u64,
    /// Somebody put the machine to work again although this was known.
    #[serde(default, skip_serializing_if = "is_false")]
    pub accepted: bool,
}

fn is_false(is: &bool) -> bool {
    !is
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum SymptomKind {
    /// The driver reported an error under this number.
    Xid { number: u32 },
    /// Memory errors that could not be corrected, since the driver was loaded.
    Uncorrected { errors: u64 },
    /// Broken memory could not be replaced by spare memory.
    RemapFailed,
    /// Spare memory takes the place of broken memory at the next reset.
    RemapPending,
    /// It was there and is not any more.
    Gone,
    /// The driver does not answer.
    Unanswered,
    /// It runs slower than it could because of heat or power.
    Slowed,
    /// The disk that jobs are written to is nearly full.
    DiskFull { free_bytes: u64, of_bytes: u64 },
    /// The disk that jobs are written to cannot be written to.
    DiskReadOnly,
    /// The agent's state directory was removed while it ran; the agent ends.
    StateRemoved,
    /// A newer agent knows it.
    #[serde(other)]
    Unknown,
}

/// What is done about a symptom; each does what the ones before it do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remedy {
    /// The program that had it is at fault, not the machine.
    Nothing,
    /// People are told.
    Say,
    /// The machine takes nothing new; what runs there goes on.
    Drain,
    /// Work on the accelerator is moved: a reset mends it, and needs it empty.
    MoveFromDevice,
    /// All work on the machine is moved: only a restart mends it.
    MoveAll,
}

/// Errors of NVIDIA's driver that matter, in words, with what is done. Sources: NVIDIA's Xid catalogue, whose immediate
/// actions are to restart the application (nothing), to reset the accelerator, or to restart the machine.
const XIDS: &[(u32, Remedy, &str)] = &[
    (8, Remedy::Nothing, "a program's channel stood still"),
    (11, Remedy::Nothing, "a program sent invalid commands"),
    (13, Remedy::Nothing, "a program's kernel failed"),
    (31, Remedy::Nothing, "a program used memory that is not its own"),
    (32, Remedy::Nothing, "a program sent invalid commands"),
    (43, Remedy::Nothing, "a program was stopped after an error of its own"),
    (45, Remedy::Nothing, "a program was removed, usually after another error"),
    (46, Remedy::MoveFromDevice, "it stopped processing"),
    (48, Remedy::MoveFromDevice, "a memory error that could not be corrected"),
    (54, Remedy::MoveFromDevice, "its power cable is not connected"),
    (61, Remedy::MoveFromDevice, "its controller failed"),
    (62, Remedy::MoveFromDevice, "its controller halted"),
    (63, Remedy::Say, "broken memory is replaced by spare memory at the next reset"),
    (64, Remedy::MoveFromDevice, "broken memory could not be replaced by spare memory"),
    (68, Remedy::Nothing, "a program's video decoding failed"),
    (69, Remedy::Nothing, "a program used the graphics engine wrongly"),
    (74, Remedy::MoveFromDevice, "an NVLink error"),
    (79, Remedy::MoveAll, "it has fallen off the bus"),
    (92, Remedy::Say, "many memory errors, all corrected so far"),
    (94, Remedy::Drain, "a memory error that ended the program which had it, and no other"),
    (95, Remedy::MoveFromDevice, "a memory error that reached other programs"),
    (109, Remedy::MoveFromDevice, "it did not switch between programs in time"),
    (110, Remedy::MoveFromDevice, "a security fault"),
    (119, Remedy::MoveFromDevice, "its system processor (GSP) does not answer"),
    (120, Remedy::MoveFromDevice, "its system processor (GSP) failed"),
    (140, Remedy::MoveFromDevice, "memory errors that could not be repaired"),
    (143, Remedy::MoveFromDevice, "it could not be started"),
    (144, Remedy::MoveFromDevice, "an NVLink error"),
    (145, Remedy::MoveFromDevice, "an NVLink error"),
    (146, Remedy::MoveFromDevice, "an NVLink error"),
    (147, Remedy::MoveFromDevice, "an NVLink error"),
    (148, Remedy::MoveFromDevice, "an NVLink error"),
    (149, Remedy::MoveFromDevice, "an NVLink error"),
    (150, Remedy::MoveFromDevice, "an NVLink error"),
];

fn xid(number: u32) -> Option<&'static (u32, Remedy, &'static str)> {
    XIDS.iter().find(|(known, ..)| *known == number)
}

impl SymptomKind {
    /// What is done about it.
    pub fn remedy(&self) -> Remedy {
        match self {
            // What nobody has looked into is said, and moves nobody.
            SymptomKind::Xid { number } => xid(*number).map_or(Remedy::Say, |(_, remedy, _)| *remedy),
            SymptomKind::Gone => Remedy::MoveAll,
            SymptomKind::RemapFailed => Remedy::MoveFromDevice,
            SymptomKind::Uncorrected { .. }
            | SymptomKind::Unanswered
            | SymptomKind::DiskFull { .. }
            | SymptomKind::DiskReadOnly
            | SymptomKind::StateRemoved => Remedy::Drain,
            SymptomKind::RemapPending | SymptomKind::Slowed | SymptomKind::Unknown => Remedy::Say,
        }
    }

    /// Whether it is over when the machine does not tell of it any more. Other symptoms are kept until somebody says that
    /// they were seen to: a machine that was restarted is not mended by that.
    pub fn passes(&self) -> bool {
        self.remedy() < Remedy::Drain
            || matches!(
                self,
                SymptomKind::Unanswered
                    | SymptomKind::DiskFull { .. }
                    | SymptomKind::DiskReadOnly
                    | SymptomKind::StateRemoved
            )
    }

    /// What a person can do about it, without the command that puts the machine to work again.
    pub fn hint(&self) -> &'static str {
        match (self, self.remedy()) {
            (SymptomKind::DiskFull { .. }, _) => "make room there; the machine then takes work again by itself",
            (SymptomKind::DiskReadOnly, _) => "look at the kernel's log for errors of the disk, and mount it anew",
            (SymptomKind::StateRemoved, _) => "remove it with `windfall nodes remove`, and let it join anew",
            (SymptomKind::Unanswered, _) => "try `nvidia-smi` on the machine; restart it if that hangs",
            (SymptomKind::Slowed, _) => "look at its fans, the air around it and its power supply",
            (SymptomKind::Unknown, _) => "install the agent's version of windfall on the server as well",
            (_, Remedy::Nothing) => "look at the program that ran on it",
            (_, Remedy::Say) => "reset it when it is free: `nvidia-smi --gpu-reset`",
            (_, Remedy::Drain | Remedy::MoveFromDevice) => {
                "reset it: `nvidia-smi --gpu-reset`; replace it if this comes again"
            }
            (_, Remedy::MoveAll) => "restart the machine, and check slot, power and cables",
        }
    }
}

impl fmt::Display for SymptomKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SymptomKind::Xid { number } => {
                let words = xid(*number).map_or("an error that is not in our list", |(_, _, words)| *words);
                write!(f, "{words} (XID {number})")
            }
            SymptomKind::Uncorrected { errors: 1 } => f.write_str("1 memory error could not be corrected"),
            SymptomKind::Uncorrected { errors } => write!(f, "{errors} memory errors could not be corrected"),
            SymptomKind::RemapFailed => f.write_str("broken memory could not be replaced by spare memory"),
            SymptomKind::RemapPending => f.write_str("broken memory is replaced by spare memory at the next reset"),
            SymptomKind::Gone => f.write_str("it was there and is not any more"),
            SymptomKind::Unanswered => f.write_str("the accelerators' driver does not answer"),
            SymptomKind::Slowed => f.write_str("it is slowed down by heat or power"),
            SymptomKind::DiskFull { free_bytes, of_bytes } => {
                let megabytes = |bytes: u64| bytes as f64 / 1e6;
                write!(f, "the disk is full: {:.1} MB of {:.1} MB left", megabytes(*free_bytes), megabytes(*of_bytes))
            }
            SymptomKind::DiskReadOnly => f.write_str("the disk cannot be written to"),
            SymptomKind::StateRemoved => f.write_str("the agent's state directory was removed, so the agent has ended"),
            SymptomKind::Unknown => f.write_str("something that this version does not know"),
        }
    }
}

impl fmt::Display for Symptom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.device {
            Some(device) => write!(f, "{device}: {}", self.kind),
            None => write!(f, "{}", self.kind),
        }
    }
}

impl Symptom {
    /// Whether the two are one symptom, seen again: the same error at the same moment, the same count, the same state.
    fn is_same(&self, other: &Symptom) -> bool {
        let is_alike = match (&self.kind, &other.kind) {
            (SymptomKind::Xid { number: one }, SymptomKind::Xid { number: two }) => {
                one == two && self.seen_unix_ms == other.seen_unix_ms
            }
            (SymptomKind::DiskFull { .. }, SymptomKind::DiskFull { .. }) => true,
            (one, two) => one == two,
        };
        is_alike && self.device == other.device
    }

    /// Whether the later of two says all that there is to say: the same number again, or a higher count.
    fn replaces(&self, other: &Symptom) -> bool {
        let is_later = match (&self.kind, &other.kind) {
            (SymptomKind::Xid { number: one }, SymptomKind::Xid { number: two }) => one == two,
            (SymptomKind::Uncorrected { .. }, SymptomKind::Uncorrected { .. }) => true,
            _ => false,
        };
        is_later && self.device == other.device
    }

    /// Whether it is acted on: nobody has accepted it.
    fn counts(&self, at_least: Remedy) -> bool {
        !self.accepted && self.kind.remedy() >= at_least
    }
}

/// What is known of a machine after it has told what it sees. New symptoms count; one that was accepted stays so while
/// it is told of, and counts anew when it comes again after it was over.
pub fn merged(known: &[Symptom], told: &[Symptom]) -> Vec<Symptom> {
    let is_told = |symptom: &Symptom| told.iter().any(|one| one.is_same(symptom));
    let is_replaced = |symptom: &Symptom| told.iter().any(|one| !one.is_same(symptom) && one.replaces(symptom));
    let stays =
        |symptom: &&Symptom| is_told(symptom) || !(is_replaced(symptom) || symptom.accepted || symptom.kind.passes());
    let mut all: Vec<Symptom> = known.iter().filter(stays).cloned().collect();
    for symptom in told {
        if !all.iter().any(|one| one.is_same(symptom)) {
            all.push(Symptom { accepted: false, ..symptom.clone() });
        }
    }
    all
}

/// The symptoms for which a machine takes nothing new, the gravest first.
pub fn draining(symptoms: &[Symptom]) -> Vec<Symptom> {
    let mut found: Vec<Symptom> = symptoms.iter().filter(|one| one.counts(Remedy::Drain)).cloned().collect();
    found.sort_by_key(|one| (std::cmp::Reverse(one.kind.remedy()), one.seen_unix_ms));
    found
}

/// Why work that has these accelerators is moved away, if it is.
pub fn moving<'a>(symptoms: &'a [Symptom], devices: &[String]) -> Option<&'a Symptom> {
    let is_its = |one: &Symptom| one.device.as_ref().is_some_and(|device| devices.contains(device));
    let moves = |one: &&Symptom| one.counts(Remedy::MoveAll) || (one.counts(Remedy::MoveFromDevice) && is_its(one));
    symptoms.iter().filter(moves).max_by_key(|one| one.kind.remedy())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symptom(kind: SymptomKind, device: &str, seen_unix_ms: u64) -> Symptom {
        Symptom { kind, device: Some(device.to_owned()), seen_unix_ms, accepted: false }
    }

    fn xid(number: u32, device: &str, at: u64) -> Symptom {
        symptom(SymptomKind::Xid { number }, device, at)
    }

    fn disk(free_bytes: u64) -> Symptom {
        let kind = SymptomKind::DiskFull { free_bytes, of_bytes: 1_000 };
        Symptom { kind, device: None, seen_unix_ms: 5, accepted: false }
    }

    fn accepted(symptoms: &[Symptom]) -> Vec<Symptom> {
        symptoms.iter().map(|one| Symptom { accepted: true, ..one.clone() }).collect()
    }

    #[test]
    fn errors_of_programs_do_nothing_and_errors_of_machines_drain() {
        for number in [8, 11, 13, 31, 43, 45, 69] {
            assert_eq!(SymptomKind::Xid { number }.remedy(), Remedy::Nothing, "{number}");
        }
        for number in [48, 64, 74, 79, 94, 95, 119, 120] {
            assert!(SymptomKind::Xid { number }.remedy() >= Remedy::Drain, "{number}");
        }
        // What the hardware has dealt with by itself, and what nobody knows, is said.
        for number in [63, 92, 4711] {
            assert_eq!(SymptomKind::Xid { number }.remedy(), Remedy::Say, "{number}");
        }
        let mut numbers: Vec<u32> = XIDS.iter().map(|(number, ..)| *number).collect();
        numbers.dedup();
        assert!(numbers.is_sorted() && numbers.len() == XIDS.len(), "each once, in order");
    }

    #[test]
    fn work_leaves_what_must_be_empty_to_be_mended() {
        let [a, b] = ["GPU-a".to_owned(), "GPU-b".to_owned()];
        let reset = [xid(48, "GPU-a", 1)];
        assert_eq!(moving(&reset, std::slice::from_ref(&a)), Some(&reset[0]));
        assert_eq!(moving(&reset, std::slice::from_ref(&b)), None, "its neighbour goes on");
        assert_eq!(moving(&reset, &[]), None, "and so does what has no accelerator");
        let restart = [xid(48, "GPU-b", 1), xid(79, "GPU-a", 1)];
        assert_eq!(moving(&restart, std::slice::from_ref(&b)), Some(&restart[1]), "the machine is restarted");
        assert_eq!(moving(&accepted(&restart), &[b]), None);
        assert_eq!(moving(&[xid(94, "GPU-a", 1), disk(1)], &[a]), None);
    }

    #[test]
    fn what_was_accepted_drains_no_more_until_it_comes_again() {
        let first = merged(&[], &[xid(79, "GPU-a", 1)]);
        assert_eq!(draining(&first).len(), 1);
        let known = accepted(&first);
        let again = merged(&known, &[xid(79, "GPU-a", 1)]);
        assert_eq!((draining(&again).len(), again.len()), (0, 1), "the same old one");
        let anew = merged(&again, &[xid(79, "GPU-a", 2)]);
        assert_eq!((draining(&anew).len(), anew.len()), (1, 1), "it happened again");
        assert_eq!(draining(&merged(&again, &[xid(79, "GPU-a", 1), xid(48, "GPU-b", 1)])).len(), 1, "another one");
        let counted = |errors: u64| symptom(SymptomKind::Uncorrected { errors }, "GPU-a", errors);
        let more = merged(&accepted(&[counted(3)]), &[counted(4)]);
        assert_eq!((draining(&more).len(), more.len()), (1, 1), "one more error");
        // An accelerator that came back and went again.
        let gone = [symptom(SymptomKind::Gone, "GPU-a", 1)];
        let back = merged(&accepted(&gone), &[]);
        assert!(back.is_empty() && draining(&merged(&back, &gone)).len() == 1);
    }

    #[test]
    fn a_full_disk_passes_by_itself_and_hardware_does_not() {
        let known = merged(&[], &[disk(1), xid(95, "GPU-a", 1)]);
        assert_eq!(draining(&known).len(), 2);
        assert_eq!(merged(&known, &[disk(2), xid(95, "GPU-a", 1)]), known, "less or more room is the same disk");
        let later = merged(&known, &[]);
        assert_eq!(later, [xid(95, "GPU-a", 1)], "kept although the machine was restarted");
    }

    #[test]
    fn symptoms_of_a_newer_agent_are_read_as_unknown() {
        let text = r#"{"kind":{"is":"on-fire","celsius":900},"seen_unix_ms":1}"#;
        let read: Symptom = serde_json::from_str(text).expect("it is read");
        assert_eq!((read.kind.remedy(), read.accepted), (Remedy::Say, false));
        let one = xid(79, "GPU-a", 1);
        assert_eq!(serde_json::from_str::<Symptom>(&serde_json::to_string(&one).expect("JSON")).expect("read"), one);
    }
}
