//! Worlds in one line, and what the brain makes of them.
