//! One question for many who ask at the same time. Whoever asks while an answer is on its way waits for the next one: what it is
//! told was looked up after it asked.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Names that are looked up together. `A` is what is answered to all who asked for any of them.
pub(super) struct Shared<A> {
    /// The round that has not begun: whoever asks now joins it.
    open: Mutex<Arc<Round<A>>>,
    /// Held during a round; when the last one began.
    turn: tokio::sync::Mutex<Option<Instant>>,
    /// Rounds begin no closer to each other.
    apart: Duration,
}

struct Round<A> {
    names: Mutex<BTreeSet<String>>,
    answer: OnceLock<A>,
}

impl<A> Round<A> {
    fn new() -> Arc<Round<A>> {
        Arc::new(Round { names: Mutex::default(), answer: OnceLock::new() })
    }
}

impl<A: Clone> Shared<A> {
    pub fn new(apart: Duration) -> Shared<A> {
        Shared { open: Mutex::new(Round::new()), turn: tokio::sync::Mutex::default(), apart }
    }

    /// What `look` says of these names, and of those that others ask for at the same time. It is called by one of all who wait.
    pub async fn ask<F: Future<Output = A>>(&self, names: &[String], look: impl FnOnce(Vec<String>) -> F) -> A {
        let round = {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.names.lock().unwrap_or_else(PoisonError::into_inner).extend(names.iter().cloned());
            Arc::clone(&open)
        };
        let mut last = self.turn.lock().await;
        if let Some(answer) = round.answer.get() {
            return answer.clone();
        }
        let early = last.map(|last| (last + self.apart).saturating_duration_since(Instant::now()));
        if let Some(early) = early.filter(|early| !early.is_zero()) {
            tokio::time::sleep(early).await;
        }
        // From here on nobody joins it. One whose first asker went away in the middle is closed already.
        let names: Vec<String> = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            if Arc::ptr_eq(&open, &round) {
                *open = Round::new();
            }
            round.names.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
        };
        *last = Some(Instant::now());
        let answer = look(names).await;
        round.answer.get_or_init(|| answer).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::sync::Semaphore;

    /// Something that is looked at: each look waits until it may answer, and answers with its number and what it was asked for.
    struct Source {
        shared: Shared<(u32, Vec<String>)>,
        begun: AtomicU32,
        may_answer: Semaphore,
    }

    impl Source {
        fn new() -> Arc<Source> {
            let shared = Shared::new(Duration::ZERO);
            Arc::new(Source { shared, begun: AtomicU32::new(0), may_answer: Semaphore::new(0) })
        }

        fn ask(self: &Arc<Self>, name: &str) -> tokio::task::JoinHandle<(u32, Vec<String>)> {
            let (source, name) = (Arc::clone(self), name.to_owned());
            tokio::spawn(async move {
                let look = |names| async {
                    let number = source.begun.fetch_add(1, Ordering::SeqCst) + 1;
                    source.may_answer.acquire().await.expect("it is never closed").forget();
                    (number, names)
                };
                source.shared.ask(&[name], look).await
            })
        }

        /// Lets all that can go on go on.
        async fn settles(&self) {
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
        }
    }

    fn asked(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[tokio::test]
    async fn who_asks_at_the_same_time_shares_one_look() {
        let source = Source::new();
        let first = source.ask("a");
        source.settles().await;
        let others: Vec<_> = ["c", "b", "c", "d"].into_iter().map(|name| source.ask(name)).collect();
        source.settles().await;
        source.may_answer.add_permits(9);
        assert_eq!(first.await.expect("answered"), (1, asked(&["a"])));
        for other in others {
            assert_eq!(other.await.expect("answered"), (2, asked(&["b", "c", "d"])));
        }
        assert_eq!(source.begun.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn nobody_gets_an_answer_that_is_older_than_the_question() {
        let source = Source::new();
        let first = source.ask("a");
        source.settles().await;
        assert_eq!(source.begun.load(Ordering::SeqCst), 1, "a look is on its way");
        // The same name: what is on its way may have been said before this was asked.
        let second = source.ask("a");
        source.settles().await;
        source.may_answer.add_permits(1);
        assert_eq!(first.await.expect("answered").0, 1);
        source.settles().await;
        assert!(!second.is_finished(), "it waits for a look of its own");
        source.may_answer.add_permits(1);
        assert_eq!(second.await.expect("answered"), (2, asked(&["a"])));
        source.may_answer.add_permits(1);
        assert_eq!(source.ask("a").await.expect("answered").0, 3, "nor is an old one kept");
    }

    #[tokio::test]
    async fn a_round_whose_first_asker_went_away_is_looked_up_by_the_next() {
        let source = Source::new();
        let before = source.ask("z");
        source.settles().await;
        let (first, second) = (source.ask("a"), source.ask("b"));
        source.settles().await;
        source.may_answer.add_permits(1);
        before.await.expect("answered");
        source.settles().await;
        assert_eq!(source.begun.load(Ordering::SeqCst), 2, "the first of both looks for both");
        first.abort();
        source.settles().await;
        source.may_answer.add_permits(1);
        assert_eq!(second.await.expect("answered"), (3, asked(&["a", "b"])));
    }
}
