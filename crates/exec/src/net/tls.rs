//! TLS 1.3 between a server and its nodes, with raw public keys (RFC 7250): each side shows a key and proves that it has
//! the private half. A node accepts the one key that its token named; a server looks up whose key it was shown.

use super::keys::{Fingerprint, Identity};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, CommonState, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn certified(identity: &Identity) -> io::Result<Arc<CertifiedKey>> {
    let key = rustls::crypto::ring::sign::any_eddsa_type(&identity.private()).map_err(io::Error::other)?;
    Ok(Arc::new(CertifiedKey::new(vec![CertificateDer::from(identity.spki().to_vec())], key)))
}

/// The server's side.
pub(crate) fn acceptor(identity: &Identity) -> io::Result<TlsAcceptor> {
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .with_client_cert_verifier(Arc::new(AnyKey(provider())))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified(identity)?)));
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The node's side: speaks to a server with this fingerprint and to no other.
pub(crate) fn connector(identity: &Identity, server: Fingerprint) -> io::Result<TlsConnector> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(OneKey(server, provider())))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified(identity)?)));
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The key that a node showed.
pub(crate) fn node_key(stream: &server::TlsStream<TcpStream>) -> Option<Fingerprint> {
    shown(stream.get_ref().1)
}

/// Dials a server, and makes sure that it is the one that is meant.
pub(crate) async fn dial(connector: &TlsConnector, stream: TcpStream) -> io::Result<client::TlsStream<TcpStream>> {
    // The key alone says who it is; names are not looked at.
    let name = ServerName::try_from("windfall").expect("a name");
    connector.connect(name, stream).await
}

fn shown(connection: &CommonState) -> Option<Fingerprint> {
    connection.peer_certificates()?.first().map(|key| Fingerprint::of(key))
}

fn is_signed(
    provider: &CryptoProvider,
    message: &[u8],
    key: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let key = SubjectPublicKeyInfoDer::from(key.as_ref());
    verify_tls13_signature_with_raw_key(message, &key, signature, &provider.signature_verification_algorithms)
}

/// Whoever has the private half of the key that it shows; who that is says the registry.
#[derive(Debug)]
struct AnyKey(Arc<CryptoProvider>);

impl ClientCertVerifier for AnyKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _key: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken here".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        is_signed(&self.0, message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// The one key that is meant.
#[derive(Debug)]
struct OneKey(Fingerprint, Arc<CryptoProvider>);

impl ServerCertVerifier for OneKey {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if Fingerprint::of(key) == self.0 {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken here".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        is_signed(&self.1, message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
