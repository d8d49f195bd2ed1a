//! Machines for tests that join a server and say what they are told to: the real wire, and no agent behind it.

use super::hub::Hub;
use super::protocol::{Beat, Hello, Joins, MOST_HELLO, OnNode, PROTOCOL, Purpose, ToServer};
use crate::machines::{Inventory, Stated};
use crate::net::{Identity, JoinToken, Message, connector, dial, receive, send};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use windfall_core::{DecisionId, Installation, LeaseId, NanoUsd};

pub(crate) const LEASE: LeaseId = LeaseId { group: DecisionId { installation: Installation(1), seq: 1 }, slot: 0 };

/// A server, and who knows how to come as its nodes.
pub(crate) struct Puppets {
    pub hub: Arc<Hub>,
    address: SocketAddr,
    /// Where its nodes have their keys.
    root: PathBuf,
    pub accelerators: Vec<Stated>,
}

impl Puppets {
    pub async fn start(root: &Path) -> Puppets {
        let hub = Hub::open(root, Duration::from_secs(60), true).expect("opened");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(Arc::clone(&hub).listen(listener));
        Puppets { hub, address, root: root.to_owned(), accelerators: Vec::new() }
    }

    /// A machine comes as a node, which it joins as where there is none, and says what it holds. It is gone when what this
    /// returns is dropped, and answers nothing.
    pub async fn comes(&self, node: &str, machine: &str, leases: Vec<OnNode>) -> TlsStream<TcpStream> {
        let token = match self.hub.registry.node(node) {
            None => self.hub.new_token(node, NanoUsd(0)).expect("a token"),
            Some(_) => self.hub.new_token("spare", NanoUsd(0)).expect("a token"),
        };
        let joins = self.hub.registry.node(node).is_none();
        let joins = joins.then(|| Joins { token: JoinToken::to_string(&token), name: None });
        let key = Identity::open(&self.root.join(format!("{node}.key"))).expect("a key");
        let stream = TcpStream::connect(self.address).await.expect("connected");
        let connector = connector(&key, token.server).expect("a connector");
        let mut stream = dial(&connector, stream).await.expect("it speaks TLS");
        let hello = Hello {
            protocol: PROTOCOL,
            build: "0".to_owned(),
            instance: format!("{machine}-{leases:?}"),
            machine: Some(machine.to_owned()),
            purpose: Purpose::Serve {
                joins,
                inventory: Inventory::with(&self.accelerators, None),
                labels: Default::default(),
                programs: None,
            },
        };
        send(&mut stream, &Message::of(&hello)).await.expect("sent");
        let welcome = receive(&mut stream, MOST_HELLO).await.expect("answered").head;
        assert!(welcome.get("welcome").is_some(), "{welcome}");
        let beat = ToServer::Beat(Beat { number: 1, leases, health: None });
        let ask = serde_json::json!({ "ask": { "number": 1, "head": Message::of(&beat).head } });
        send(&mut stream, &Message::of(&ask)).await.expect("sent");
        receive(&mut stream, 1 << 20).await.expect("answered");
        stream
    }

    pub async fn until_gone(&self, node: &str) {
        for _ in 0..1_000 {
            if !self.hub.is_there(node) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the connection does not end");
    }
}
