//! Exit codes and expected errors: what went wrong, and what to do about it.

use std::fmt;

/// Exit codes, as documented in `windfall --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// Done.
    Done = 0,
    /// Something that should not happen.
    Bug = 1,
    /// Bad input; nothing was changed.
    BadInput = 2,
    /// The job failed, was cancelled or was stopped by its own rule.
    JobFailed = 3,
    /// The job succeeded after its deadline.
    Late = 4,
    /// The service cannot be reached or started.
    Unreachable = 5,
    /// Detached or interrupted.
    Detached = 130,
}

/// An expected error.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: Code,
    /// What went wrong.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
    /// Already shown in another form.
    pub shown: bool,
}

impl Failure {
    /// An expected error.
    pub fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into(), hint: None, shown: false }
    }
    /// With what to do.
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}
