//! What people are told about a job without having asked. The brain goes by the kind; the words are for people only.

use crate::spec::Late;
use crate::trouble::{Trouble, TroubleKind};
use crate::units::{NanoUsd, Span};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Something that people should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    /// The deadline has passed.
    Late,
    /// The deadline cannot be met, not even on on-demand capacity.
    Infeasible {
        /// The earliest finish is so long after it.
        late: Span,
        /// What the rest costs on on-demand, where that is known.
        price: Option<NanoUsd>,
        /// What the job file says to do then.
        then: Late,
    },
    /// What was saved last did not reach its store.
    Unsaved {
        /// Why, and where the files are.
        why: String,
    },
    /// What the job leaves behind was not brought back, or not all of it.
    NotReturned {
        /// What and why, and where it is.
        why: String,
    },
    /// Its machines end by agreement, and it saves nothing before they do.
    BeginsAgain {
        /// So often in a row.
        times: u32,
        /// How long the last of them lasted.
        lasted: Span,
    },
    /// An older version said this, in its own words.
    Former {
        /// The words.
        text: String,
        /// Whether they are about the deadline.
        about_the_deadline: bool,
    },
}

impl Told {
    /// What is said of a job that is done and had this trouble last; nothing of a remark.
    pub fn at_the_end(trouble: &Trouble) -> Option<Told> {
        let why = trouble.text.clone();
        match trouble.kind {
            TroubleKind::Remark => None,
            TroubleKind::NotReturned => Some(Told::NotReturned { why }),
            _ => Some(Told::Unsaved { why }),
        }
    }

    /// Whether it is about the deadline: then it is not worth repeating once that was met.
    pub fn is_about_the_deadline(&self) -> bool {
        match self {
            Told::Late | Told::Infeasible { .. } => true,
            Told::Unsaved { .. } | Told::NotReturned { .. } | Told::BeginsAgain { .. } => false,
            Told::Former { about_the_deadline, .. } => *about_the_deadline,
        }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Told::Late => write!(f, "late: the deadline has passed"),
            Told::Infeasible { late, price, then } => {
                write!(f, "cannot make the deadline: the earliest finish is {late} after it")?;
                if let Some(price) = price {
                    write!(f, ", for another {price} on on-demand")?;
                }
                match then {
                    Late::Cheapest => write!(f, "; it goes on as cheaply as it can (late: cheapest)"),
                    Late::Soonest => write!(f, "; it goes on as fast as it can (late: soonest)"),
                    Late::Stop => write!(f, "; it stops (late: stop)"),
                }
            }
            Told::Unsaved { why } => write!(f, "what it saved last is not in its store: {why}"),
            Told::NotReturned { why } => f.write_str(why),
            Told::BeginsAgain { times, lasted } => {
                write!(
                    f,
                    "it begins again where it was: its machine ended by agreement after {lasted}, and nothing had been saved"
                )?;
                if *times > 1 {
                    write!(f, " ({times} times in a row)")?;
                }
                write!(f, "; have it save in checkpoint.path when it gets SIGTERM, or now and then")
            }
            Told::Former { text, .. } => f.write_str(text),
        }
    }
}
