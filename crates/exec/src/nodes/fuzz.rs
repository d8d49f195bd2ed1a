//! Strangers and nodes that say anything at all: nothing panics, nothing is kept, and whoever is welcome is served
//! meanwhile. What is said is made from seeds that are printed, so that the same is said again.

use super::hub::{Hub, JobsOfNodes, NodeStream};
use super::protocol::{Hello, InStore, Joins, MOST_HELLO, NotWelcome, PROTOCOL, Purpose, StorePart, ToServer, Welcome};
use crate::machines::Inventory;
use crate::net::{Identity, JoinToken, Message, connector, dial, receive, send};
use async_trait::async_trait;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use windfall_core::{NanoUsd, StintId, WorkloadId};

/// A generator whose next number follows from its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, most: usize) -> usize {
        (self.next() % most.max(1) as u64) as usize
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most)).map(|_| self.next() as u8).collect()
    }
}

/// A message as it goes over the wire.
fn framed(head: &[u8], body: &[u8]) -> Vec<u8> {
    let lengths = [(head.len() as u32).to_be_bytes(), (body.len() as u32).to_be_bytes()].concat();
    [&lengths[..], head, body].concat()
}

/// One of the things that nobody should say: noise, or a message of the protocol that is cut, swollen or changed.
fn nonsense(random: &mut Random, known: &[Message]) -> Vec<u8> {
    let message = &known[random.below(known.len())];
    let mut bytes = framed(&serde_json::to_vec(&message.head).expect("it is JSON"), &message.body);
    match random.below(6) {
        0 => return random.bytes(4_096),
        1 => bytes.truncate(random.below(bytes.len())),
        2 => bytes[..4].copy_from_slice(&(random.next() as u32).to_be_bytes()),
        3 => bytes[4..8].copy_from_slice(&u32::MAX.to_be_bytes()),
        4 => {
            for _ in 0..=random.below(8) {
                let at = random.below(bytes.len());
                bytes[at] = random.next() as u8;
            }
        }
        _ => {
            // As deep as it gets: whoever reads it must not run out of stack.
            let depth = 1 + random.below(50_000);
            bytes = framed("[".repeat(depth).as_bytes(), &[]);
        }
    }
    bytes
}

fn hello(purpose: Purpose) -> Hello {
    Hello { protocol: PROTOCOL, build: "0".to_owned(), instance: "one".to_owned(), machine: None, purpose }
}

fn messages() -> Vec<Message> {
    let stint = StintId::of_job(WorkloadId(7), 1);
    let store = InStore { workload: WorkloadId(7), part: StorePart::Folder };
    let joins = Some(Joins { token: "windfall-join-x".to_owned(), name: None });
    let inventory = Inventory::with(&[], None);
    let output = Message::of(&ToServer::Output { stint, rank: 0, offset: 5 });
    vec![
        Message::of(&hello(Purpose::Serve {
            joins: None,
            inventory: inventory.clone(),
            labels: Default::default(),
            programs: None,
        })),
        Message::of(&hello(Purpose::Serve { joins, inventory, labels: Default::default(), programs: None })),
        Message::of(&hello(Purpose::Store(store))),
        Message {
            body: vec![7; 100],
            ..Message::of(&serde_json::json!({ "ask": { "number": 1, "head": output.head } }))
        },
        Message::of(&serde_json::json!({ "answer": { "number": 3, "answer": { "Ok": null } } })),
    ]
}

/// Job 7 is on the node `mine`, and on no other.
struct SevenIsMine(PathBuf);

#[async_trait]
impl JobsOfNodes for SevenIsMine {
    fn output_of(&self, node: &str, stint: StintId, _: u32) -> Option<PathBuf> {
        (node == "mine" && stint.workload == WorkloadId(7)).then(|| self.0.clone())
    }

    fn has_store_of(&self, node: &str, job: WorkloadId) -> bool {
        node == "mine" && job == WorkloadId(7)
    }

    async fn serve_store(&self, _: &str, _: InStore, mut stream: NodeStream) {
        let _ = stream.write_all(b"the store").await;
    }
}

struct Server {
    hub: Arc<Hub>,
    address: std::net::SocketAddr,
}

impl Server {
    async fn start(root: &Path) -> Server {
        let hub = Hub::open(root, Duration::from_secs(60), true).expect("opened");
        hub.set_jobs(Arc::new(SevenIsMine(root.join("output"))));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(Arc::clone(&hub).listen(listener));
        Server { hub, address }
    }

    fn token(&self, name: &str) -> JoinToken {
        self.hub.new_token(name, NanoUsd(0)).expect("a token")
    }

    async fn dial(&self, key: &Identity, server: &JoinToken) -> tokio_rustls::client::TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.expect("connected");
        dial(&connector(key, server.server).expect("a connector"), stream).await.expect("it speaks TLS")
    }

    /// What is answered to a first message.
    async fn says(&self, key: &Identity, server: &JoinToken, purpose: Purpose) -> Welcome {
        let mut stream = self.dial(key, server).await;
        send(&mut stream, &Message::of(&hello(purpose))).await.expect("sent");
        receive(&mut stream, MOST_HELLO).await.expect("answered").read().expect("a welcome")
    }

    async fn join(&self, key: &Identity, token: &JoinToken, name: Option<&str>) -> Welcome {
        let joins = Some(Joins { token: token.to_string(), name: name.map(str::to_owned) });
        self.says(
            key,
            token,
            Purpose::Serve { joins, inventory: Inventory::with(&[], None), labels: Default::default(), programs: None },
        )
        .await
    }
}

fn key(root: &Path, name: &str) -> Identity {
    Identity::open(&root.join(name)).expect("a key")
}

fn refused(welcome: Welcome) -> Option<NotWelcome> {
    match welcome {
        Welcome::Welcome { .. } => None,
        Welcome::Refused(why) => Some(why),
    }
}

#[tokio::test]
async fn a_decoder_takes_anything_and_what_it_takes_is_a_message() {
    let known = messages();
    for seed in 1..=4_000_u64 {
        let bytes = nonsense(&mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)), &known);
        let mut from = bytes.as_slice();
        if let Ok(message) = receive(&mut from, MOST_HELLO).await {
            // Whatever it is, it is read as one of ours, or it is not: neither panics.
            let _ = (message.read::<Hello>().is_ok(), message.read::<ToServer>().is_ok());
            assert!(message.body.len() <= bytes.len(), "seed {seed}");
        }
    }
}

#[tokio::test]
async fn a_server_that_is_told_nonsense_over_tls_and_over_nothing_goes_on_serving() {
    let root = tempfile::tempdir().expect("a folder");
    let server = Server::start(root.path()).await;
    let (token, known) = (server.token("mine"), messages());
    let mine = key(root.path(), "mine.key");
    assert_eq!(refused(server.join(&mine, &token, None).await), None);
    let stranger = key(root.path(), "stranger.key");
    for seed in 1..=120_u64 {
        let random = &mut Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        // A stranger, and a node that has joined, which says more once it is welcome.
        let who = if random.below(2) == 0 { &stranger } else { &mine };
        let mut stream = server.dial(who, &token).await;
        for _ in 0..=random.below(4) {
            let bytes = nonsense(random, &known);
            if stream.write_all(&bytes).await.is_err() {
                break;
            }
        }
        println!("seed {seed}");
        drop(stream);
        // And bytes that are not TLS at all.
        let mut raw = TcpStream::connect(server.address).await.expect("connected");
        let _ = raw.write_all(&random.bytes(2_048)).await;
    }
    let one_more = server.token("one-more");
    assert_eq!(refused(server.join(&key(root.path(), "more.key"), &one_more, None).await), None);
}

#[tokio::test]
async fn plain_http_gets_no_answer_and_very_many_who_say_nothing_leave_nothing_behind() {
    let root = tempfile::tempdir().expect("a folder");
    let server = Server::start(root.path()).await;
    let mut plain = TcpStream::connect(server.address).await.expect("connected");
    plain.write_all(b"GET /v1/jobs HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
    let mut said = Vec::new();
    let _ = plain.read_to_end(&mut said).await;
    assert!(!said.starts_with(b"HTTP") && said.len() < 64, "{said:?}");

    let memory = || {
        let text = std::fs::read_to_string("/proc/self/statm").expect("linux");
        text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4_096
    };
    let before = memory();
    let mut idle = Vec::new();
    for _ in 0..400 {
        idle.push(TcpStream::connect(server.address).await.expect("connected"));
    }
    // Other tests of this process take memory for moments, too.
    let mut grown = u64::MAX;
    for _ in 0..100 {
        grown = grown.min(memory().saturating_sub(before));
        if grown < 64 << 20 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(grown < 256 << 20, "{grown} bytes for {} who say nothing", idle.len());
    drop(idle);
    let token = server.token("mine");
    assert_eq!(refused(server.join(&key(root.path(), "mine.key"), &token, None).await), None);
}

#[tokio::test]
async fn a_token_is_good_once_for_one_name_and_a_node_s_key_for_that_node_s_jobs() {
    let root = tempfile::tempdir().expect("a folder");
    let server = Server::start(root.path()).await;
    let [mine, other, stranger] = ["mine.key", "other.key", "stranger.key"].map(|name| key(root.path(), name));
    let (token, of_other) = (server.token("mine"), server.token("other"));
    let other_name = server.join(&mine, &token, Some("other")).await;
    assert!(matches!(refused(other_name), Some(NotWelcome::OtherName { .. })));
    assert_eq!(refused(server.join(&mine, &token, Some("mine")).await), None);
    assert_eq!(refused(server.join(&stranger, &token, None).await), Some(NotWelcome::Token), "used before");
    assert_eq!(refused(server.join(&other, &of_other, None).await), None);

    let store = |job| Purpose::Store(InStore { workload: WorkloadId(job), part: StorePart::Checkpoints });
    assert_eq!(refused(server.says(&mine, &token, store(7)).await), None, "its own job");
    for job in [7, 8] {
        let stolen = server.says(&other, &token, store(job)).await;
        assert_eq!(refused(stolen), Some(NotWelcome::NotItsJob { job }), "another node's key");
        assert_eq!(refused(server.says(&stranger, &token, store(job)).await), Some(NotWelcome::Unknown));
    }
    assert_eq!(refused(server.says(&mine, &token, store(8)).await), Some(NotWelcome::NotItsJob { job: 8 }));

    // What it sends as output is of its own jobs, or of none.
    for (who, job, is_kept) in [(&mine, 7, true), (&mine, 8, false), (&other, 7, false)] {
        let mut stream = server.dial(who, &token).await;
        let inventory = Inventory::with(&[], None);
        send(
            &mut stream,
            &Message::of(&hello(Purpose::Serve { joins: None, inventory, labels: Default::default(), programs: None })),
        )
        .await
        .expect("sent");
        receive(&mut stream, MOST_HELLO).await.expect("welcome");
        let output = ToServer::Output { stint: StintId::of_job(WorkloadId(job), 1), rank: 0, offset: 0 };
        let ask = serde_json::json!({ "ask": { "number": 1, "head": Message::of(&output).head } });
        send(&mut stream, &Message { body: b"printed".to_vec(), ..Message::of(&ask) }).await.expect("sent");
        let answer = receive(&mut stream, 1 << 20).await.expect("answered").head;
        assert_eq!(answer["answer"]["answer"]["Ok"].is_u64(), is_kept, "{answer}");
    }
    assert_eq!(std::fs::read_to_string(root.path().join("output")).expect("kept"), "printed");

    // A token whose time is over is worth nothing. Its record is the server's: the clock is moved there.
    let late = server.token("late");
    for entry in std::fs::read_dir(root.path().join("tokens")).expect("listed").flatten() {
        let text = std::fs::read_to_string(entry.path()).expect("read");
        let mut record: serde_json::Value = serde_json::from_str(&text).expect("a record");
        record["expires_ms"] = 1.into();
        std::fs::write(entry.path(), record.to_string()).expect("written");
    }
    assert_eq!(refused(server.join(&stranger, &late, None).await), Some(NotWelcome::Token), "too late");
}
