//! Whose an agent is. One that root starts for somebody becomes that person before it touches anything of the lease, and
//! with it everything that it starts: the program, its setup, restore, upload and every file. Nothing gets more rights
//! again afterwards, by programs that change their user when they are run either.

use crate::AgentError;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::fmt;
use std::str::FromStr;

/// An account by its numbers. Written as `1001:1001:27,44`: user, group, and the groups that it is in besides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

impl FromStr for Account {
    type Err = String;

    fn from_str(text: &str) -> Result<Account, String> {
        let wrong = || format!("not an account by its numbers: {text}");
        let number = |part: &str| part.parse::<u32>().ok().filter(|number| *number != u32::MAX).ok_or_else(wrong);
        let mut parts = text.split(':');
        let (Some(uid), Some(gid), Some(groups), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        let groups = groups.split(',').filter(|group| !group.is_empty()).map(number).collect::<Result<_, _>>()?;
        Ok(Account { uid: number(uid)?, gid: number(gid)?, groups })
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
        write!(f, "{}:{}:{}", self.uid, self.gid, groups.join(","))
    }
}

impl Account {
    /// Becomes this account for good. Only for a process of one thread: the kernel keeps who it is by thread.
    pub fn assume(&self) -> Result<(), AgentError> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        let groups: Vec<Gid> = self.groups.iter().map(|group| Gid::from_raw(*group)).collect();
        crate::limits::spare_no_more_than_others();
        // The order counts: whoever is not root any more may change none of the others.
        set_thread_groups(&groups)
            .and_then(|()| set_thread_res_gid(gid, gid, gid))
            .and_then(|()| set_thread_res_uid(uid, uid, uid))
            .and_then(|()| set_no_new_privs(true))
            .map_err(|error| AgentError::new(format!("cannot become the user with the number {uid:?}"))(error.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_read_as_it_was_written_and_nothing_else_is_one() {
        for account in [
            Account { uid: 1_001, gid: 1_002, groups: vec![27, 44] },
            Account { uid: 65_534, gid: 65_534, groups: Vec::new() },
        ] {
            assert_eq!(account.to_string().parse(), Ok(account));
        }
        // The last is what the kernel takes for "leave it as it is".
        for text in ["", "1001", "1:1", "1:1:x", "-1:1:", "1:1:2:3", "root:root:", "4294967295:1:"] {
            assert!(text.parse::<Account>().is_err(), "{text}");
        }
    }
}
