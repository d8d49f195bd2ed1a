//! Questions and answers over one stream, both ways at once. A message is two lengths, a head of JSON and a body of bytes;
//! answers carry the number of their question and come in any order. What is too long to be sent fails by itself, before it is
//! queued: the stream and everything else on it go on.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc, oneshot};

/// The longest head. Nobody sends longer ones, so one that is longer is not ours.
const MOST_HEAD: usize = 4 << 20;
/// The longest body.
pub(crate) const MOST_BODY: usize = 1 << 20;
/// Messages that wait to be sent; whoever has more to say waits.
const WAITING: usize = 64;

/// One message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    pub head: Value,
    pub body: Vec<u8>,
}

impl Message {
    pub fn of(head: &impl Serialize) -> Message {
        Message { head: serde_json::to_value(head).expect("a message has string keys"), body: Vec::new() }
    }

    /// What the head says, in the words that are expected.
    pub fn read<T: DeserializeOwned>(&self) -> io::Result<T> {
        Ok(T::deserialize(&self.head)?)
    }
}

/// Reads one message whose head is no longer than `most_head`.
pub(crate) async fn receive(from: &mut (impl AsyncRead + Unpin), most_head: usize) -> io::Result<Message> {
    let not_ours = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
    let [head, body] = [from.read_u32().await? as usize, from.read_u32().await? as usize];
    if head > most_head.min(MOST_HEAD) || body > MOST_BODY {
        return Err(not_ours("a message that is longer than any"));
    }
    let mut bytes = vec![0; head];
    from.read_exact(&mut bytes).await?;
    let head = windfall_core::codec::from_json(&bytes).map_err(|_| not_ours("a message that is not JSON"))?;
    let mut content = vec![0; body];
    from.read_exact(&mut content).await?;
    Ok(Message { head, body: content })
}

/// A message as it goes over the stream; fails where the other side would refuse it for its length.
fn framed(head: &impl Serialize, body: &[u8]) -> io::Result<Vec<u8>> {
    let head = serde_json::to_vec(head)?;
    let too_long = |what: &str, bytes: usize, most: usize| {
        let text =
            format!("a message that is too long to send: a {what} of {bytes} bytes, and at most {most} are sent");
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    };
    if head.len() > MOST_HEAD {
        return too_long("head", head.len(), MOST_HEAD);
    }
    if body.len() > MOST_BODY {
        return too_long("body", body.len(), MOST_BODY);
    }
    let mut bytes = Vec::with_capacity(8 + head.len() + body.len());
    bytes.extend_from_slice(&(head.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&(body.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(body);
    Ok(bytes)
}

/// Sends one message.
pub(crate) async fn send(to: &mut (impl AsyncWrite + Unpin), message: &Message) -> io::Result<()> {
    write_out(to, &framed(&message.head, &message.body)?).await
}

async fn write_out(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}

/// What stands around a question or an answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Envelope {
    Ask { number: u64, head: Value },
    Answer { number: u64, answer: Result<Value, String> },
}

/// An answer as it goes over the stream. One that is too long becomes a refusal in words: whoever asked waits for it.
fn framed_answer(number: u64, said: Result<Message, String>) -> io::Result<Vec<u8>> {
    let (answer, body) = match said {
        Ok(said) => (Ok(said.head), said.body),
        Err(why) => (Err(why), Vec::new()),
    };
    framed(&Envelope::Answer { number, answer }, &body).or_else(|error| {
        let answer = Err(format!("the answer cannot be sent: {error}"));
        framed(&Envelope::Answer { number, answer }, &[])
    })
}

type Pending = Mutex<BTreeMap<u64, oneshot::Sender<Result<Message, String>>>>;

/// The other side of a stream. Clones speak to the same one.
#[derive(Clone)]
pub(crate) struct Peer {
    /// Takes messages that are short enough, each as it goes over the stream.
    out: mpsc::Sender<Vec<u8>>,
    pending: Arc<Pending>,
    numbers: Arc<AtomicU64>,
}

impl Peer {
    /// Speaks over a stream: each question of the other side is handed to `answer`. The future that comes with it does the
    /// work, and ends when the stream does.
    /// At most `at_once` of them are worked on; more are not read until one is answered.
    pub fn over<S, A, F>(stream: S, at_once: usize, answer: A) -> (Peer, impl Future<Output = io::Error> + Send)
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
        A: Fn(Message) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Message, String>> + Send + 'static,
    {
        let (out, outgoing) = mpsc::channel(WAITING);
        let (pending, numbers) = (Arc::default(), Arc::default());
        let peer = Peer { out, pending, numbers };
        let work = peer.clone().work(stream, outgoing, Arc::new(Semaphore::new(at_once)), Arc::new(answer));
        (peer, work)
    }

    async fn work<S, A, F>(
        self,
        stream: S,
        mut outgoing: mpsc::Receiver<Vec<u8>>,
        at_once: Arc<Semaphore>,
        answer: Arc<A>,
    ) -> io::Error
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
        A: Fn(Message) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Message, String>> + Send + 'static,
    {
        let (mut read, mut write) = tokio::io::split(stream);
        let sending = async {
            while let Some(message) = outgoing.recv().await {
                if let Err(error) = write_out(&mut write, &message).await {
                    return error;
                }
            }
            io::ErrorKind::BrokenPipe.into()
        };
        let receiving = async {
            loop {
                let message = match receive(&mut read, MOST_HEAD).await {
                    Ok(message) => message,
                    Err(error) => return error,
                };
                let Ok(envelope) = Envelope::deserialize(&message.head) else {
                    return io::Error::new(io::ErrorKind::InvalidData, "neither a question nor an answer");
                };
                match envelope {
                    Envelope::Ask { number, head } => {
                        let (out, answer) = (self.out.clone(), Arc::clone(&answer));
                        let Ok(permit) = Arc::clone(&at_once).acquire_owned().await else {
                            return io::ErrorKind::BrokenPipe.into();
                        };
                        tokio::spawn(async move {
                            let _permit = permit;
                            let said = answer(Message { head, body: message.body }).await;
                            // Whoever asked may be gone.
                            if let Ok(answer) = framed_answer(number, said) {
                                let _ = out.send(answer).await;
                            }
                        });
                    }
                    Envelope::Answer { number, answer } => {
                        let waiting = self.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
                        let said = answer.map(|head| Message { head, body: message.body });
                        // Whoever asked no longer waits.
                        waiting.into_iter().for_each(|waiting| drop(waiting.send(said.clone())));
                    }
                }
            }
        };
        let error = tokio::select! { error = sending => error, error = receiving => error };
        // Nobody answers any more.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).clear();
        error
    }

    /// Asks, and waits for the answer; fails when the stream ends before it comes, or at once where the question is too long
    /// (`InvalidInput`). An answer may be a refusal in words.
    pub async fn ask(&self, question: Message) -> io::Result<Result<Message, String>> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let asked = framed(&Envelope::Ask { number, head: question.head }, &question.body)?;
        let (answer, answered) = oneshot::channel();
        let waits = Waits { peer: self, number };
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).insert(number, answer);
        let gone = |_| io::Error::from(io::ErrorKind::NotConnected);
        self.out.send(asked).await.map_err(gone)?;
        let said = answered.await.map_err(|_| io::Error::from(io::ErrorKind::NotConnected));
        drop(waits);
        said
    }

    /// Whether the stream has ended.
    pub fn is_gone(&self) -> bool {
        self.out.is_closed()
    }
}

/// A question that waits for its answer; one that is given up is forgotten.
struct Waits<'a> {
    peer: &'a Peer,
    number: u64,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.peer.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    async fn echo(message: Message) -> Result<Message, String> {
        let pause: u64 = message.read().map_err(|error| error.to_string())?;
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if pause == 7 { Err("not seven".to_owned()) } else { Ok(message) }
    }

    #[tokio::test]
    async fn both_sides_ask_at_once_and_answers_come_in_any_order() {
        let (one, two) = tokio::io::duplex(64);
        let (here, working) = Peer::over(one, 8, echo);
        let (there, working_there) = Peer::over(two, 8, echo);
        let workers = [tokio::spawn(working), tokio::spawn(working_there)];
        let ask = |peer: &Peer, pause: u64| {
            let (peer, body) = (peer.clone(), vec![pause as u8; 300_000]);
            async move { peer.ask(Message { body, ..Message::of(&pause) }).await.expect("answered") }
        };
        let (slow, quick, back, refused) = tokio::join!(ask(&here, 50), ask(&here, 0), ask(&there, 20), ask(&here, 7));
        for (answer, pause) in [(slow, 50), (quick, 0), (back, 20)] {
            assert_eq!(answer, Ok(Message { body: vec![pause as u8; 300_000], ..Message::of(&pause) }));
        }
        assert_eq!(refused, Err("not seven".to_owned()));
        // Given up: its answer comes to nobody, and nothing of it is kept.
        assert!(tokio::time::timeout(Duration::from_millis(5), ask(&here, 60)).await.is_err());
        assert!(here.pending.lock().expect("free").is_empty());
        workers[1].abort();
        let waiting = here.clone();
        let lost = tokio::time::timeout(Duration::from_secs(5), waiting.ask(Message::of(&9_000_u64))).await;
        assert!(lost.expect("it does not wait for ever").is_err() && here.is_gone());
    }

    #[tokio::test]
    async fn what_is_too_long_fails_alone_whether_it_is_asked_or_answered() {
        let (one, two) = tokio::io::duplex(1 << 16);
        let long = || "x".repeat(MOST_HEAD);
        let answer = move |message: Message| async move {
            match message.read::<String>().unwrap_or_default().as_str() {
                "long head" => Ok(Message::of(&long())),
                "long body" => Ok(Message { body: vec![0; MOST_BODY + 1], ..Message::default() }),
                "long refusal" => Err(long()),
                _ => Ok(message),
            }
        };
        let (here, working) = Peer::over(one, 8, echo);
        let (_there, serving) = Peer::over(two, 8, answer);
        let workers = [tokio::spawn(working), tokio::spawn(serving)];
        for question in [Message::of(&long()), Message { body: vec![0; MOST_BODY + 1], ..Message::default() }] {
            let error = here.ask(question).await.expect_err("too long");
            assert!(error.kind() == io::ErrorKind::InvalidInput && error.to_string().contains("too long"), "{error}");
        }
        for question in ["long head", "long body", "long refusal"] {
            let asked = tokio::time::timeout(Duration::from_secs(5), here.ask(Message::of(&question))).await;
            let why = asked.expect("in time").expect("the stream goes on").expect_err("it cannot be sent");
            assert!(why.contains("too long") && why.len() < 1_000, "{question}: {why}");
        }
        let short = Message::of(&"short");
        assert_eq!(here.ask(short.clone()).await.expect("the stream goes on"), Ok(short));
        assert!(here.pending.lock().expect("free").is_empty());
        workers.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test]
    async fn what_is_not_a_message_ends_the_stream() {
        let long = [u32::MAX.to_be_bytes(), [0; 4]].concat();
        let not_json = [3_u32.to_be_bytes().as_slice(), &[0; 4], b"abc"].concat();
        let no_envelope = [2_u32.to_be_bytes().as_slice(), &[0; 4], b"{}"].concat();
        for bytes in [long, not_json, no_envelope, b"GET / HTTP/1.1\r\n\r\n".to_vec()] {
            let (one, mut two) = tokio::io::duplex(1 << 16);
            let (_, working) = Peer::over(one, 8, echo);
            two.write_all(&bytes).await.expect("written");
            let ended = tokio::time::timeout(Duration::from_secs(5), working).await.expect("it ends");
            assert_eq!(ended.kind(), io::ErrorKind::InvalidData, "{bytes:?}");
        }
    }
}
