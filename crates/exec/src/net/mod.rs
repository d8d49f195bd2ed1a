//! What servers and nodes speak over the network: keys, TLS, messages, tokens.

mod keys;
mod tls;
mod token;
mod wire;

pub use keys::{Fingerprint, Identity};
pub use token::JoinToken;

pub(crate) use keys::{hex, write_private};
pub(crate) use tls::{acceptor, connector, dial, node_key};
pub(crate) use wire::{Message, Peer, receive, send};
