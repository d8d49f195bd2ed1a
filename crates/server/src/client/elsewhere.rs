//! What is said where a state directory belongs to somebody else: this user starts no server there, and may yet be served.

use super::{Client, Code, Failure};
use std::os::unix::fs::MetadataExt;

impl Client {
    /// Who owns the state directory, where that is somebody else.
    pub(super) fn owner_elsewhere(&self) -> Option<String> {
        let owner = std::fs::metadata(&self.home).ok()?.uid();
        (owner != rustix::process::geteuid().as_raw()).then(|| crate::name_of(owner))
    }

    /// The error for a server that is there and closes the connection.
    pub(super) fn turned_away(&self, owner: &str) -> Failure {
        let text = format!("the server of `{owner}` on {} takes no more connections just now", self.home.display());
        Failure::new(Code::Unreachable, text)
            .hint("end some of your own commands that follow jobs, or try again in a moment")
    }

    /// The error where no server answers and this user could not start one.
    pub fn cannot_start(&self) -> Option<Failure> {
        self.owner_elsewhere().map(|owner| self.not_started(&owner))
    }

    /// The error for a directory where only somebody else can start a server.
    fn not_started(&self, owner: &str) -> Failure {
        let text = format!("no server answers on {}, which belongs to `{owner}`", self.home.display());
        Failure::new(Code::Unreachable, text).hint(format!(
            "`{owner}` starts it: windfall up; for one of your own, choose another directory with --home or WINDFALL_HOME"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A directory of somebody else: only root can make one.
    fn of_somebody_else() -> (tempfile::TempDir, Option<PathBuf>) {
        let folder = tempfile::tempdir().expect("it works");
        let given = std::os::unix::fs::chown(folder.path(), Some(65_534), None);
        let path = given.is_ok().then(|| folder.path().to_owned());
        (folder, path)
    }

    #[tokio::test]
    async fn where_nobody_answers_the_owner_of_the_directory_is_named() {
        let (_folder, Some(path)) = of_somebody_else() else { return };
        let failure = Client::new(&path, Vec::new()).ensure().await.expect_err("no server there");
        assert!(failure.message.starts_with("no server answers on "), "{failure}");
        assert!(failure.hint.is_some_and(|hint| hint.contains("windfall up")));
    }

    #[tokio::test]
    async fn a_server_of_somebody_else_that_is_full_is_not_taken_for_none() {
        let (_folder, Some(path)) = of_somebody_else() else { return };
        let full = tokio::net::UnixListener::bind(path.join("server.sock")).expect("it works");
        let turning_away = tokio::spawn(async move {
            while let Ok((connection, _)) = full.accept().await {
                drop(connection);
            }
        });
        let client = Client::new(&path, Vec::new());
        for failure in [client.ensure().await.err(), client.greet().await.err()] {
            let failure = failure.expect("turned away");
            assert!(failure.message.contains("takes no more connections"), "{failure}");
        }
        turning_away.abort();
    }
}
