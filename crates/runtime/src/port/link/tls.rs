//! A TCP connection inside TLS 1.3.
//!
//! TLS keeps what goes over it secret and whole; who is at the other end it does not say here. Every process
//! draws a key for the life of its node, a raw public key (RFC 7250) that the dialling side does not know
//! and takes from anyone. The handshake that follows proves the job's secret on both sides over bytes that
//! this very session has given ([`binding`](Tls::binding), RFC 9266): someone in between has a session with
//! each side, and two bindings.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::IpAddr;
use std::sync::Arc;

use rustix::event::epoll::EventFlags;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, ClientConnection, Resumption};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, ServerConfig, ServerConnection};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{Connection, DigitallySignedStruct, PeerIncompatible, SignatureScheme};
use socket2::Socket;

use super::Link;
use super::tcp::set_ahead;
use crate::{RuntimeError, Settings, auth};

/// What RFC 9266 calls the bytes that a session gives.
const LABEL: &[u8] = b"EXPORTER-Channel-Binding";
/// How a key for Ed25519 of 32 bytes begins (PKCS #8, RFC 8410).
const ED25519: [u8; 16] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// Takes any key: who is there is proved over the binding.
#[derive(Debug)]
struct AnyKey(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// What a node makes its sessions with.
#[derive(Clone)]
pub(crate) struct Identity {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Identity {
    /// With a key of its own.
    pub(crate) fn new() -> Result<Self, RuntimeError> {
        let failed = |error: rustls::Error| RuntimeError::System {
            what: "TLS".to_owned(),
            why: error.to_string(),
            hint: None,
        };
        let mut key = ED25519.to_vec();
        key.extend(auth::nonce()?);
        let key = ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(key)).map_err(failed)?;
        let public = key.public_key().ok_or(rustls::Error::HandshakeNotComplete).map_err(failed)?;
        let public = CertificateDer::from(public.as_ref().to_vec());
        let mine =
            AlwaysResolvesServerRawPublicKeys::new(Arc::new(CertifiedKey::new(vec![public], key)));
        let provider = Arc::new(ring::default_provider());
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(failed)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyKey(Arc::clone(&provider))))
            .with_no_client_auth();
        // Each connection is made once in the life of a node.
        client.resumption = Resumption::disabled();
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(failed)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(mine));
        server.send_tls13_tickets = 0;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }

    /// A session of the side that dials, where an address is given, or of the side that answers.
    pub(crate) fn over(&self, socket: Socket, dials: Option<IpAddr>) -> io::Result<Tls> {
        let session: Result<Connection, rustls::Error> = match dials {
            Some(to) => {
                ClientConnection::new(Arc::clone(&self.client), ServerName::IpAddress(to.into()))
                    .map(Into::into)
            }
            None => ServerConnection::new(Arc::clone(&self.server)).map(Into::into),
        };
        Ok(Tls { socket, session: session.map_err(io::Error::other)? })
    }
}

/// See the module.
pub(crate) struct Tls {
    socket: Socket,
    session: Connection,
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

/// Whose bytes a session has found not to be what was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// Those that came: this side ends the session with an alert.
    Came,
    /// Those that this side has sent: the peer says so by its alert.
    Sent,
}

/// What an error of a link says of damage, if it does.
pub(crate) fn damage_of(error: &io::Error) -> Option<Damage> {
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::AlertReceived(_) => Some(Damage::Sent),
        _ => Some(Damage::Came),
    }
}

impl Tls {
    /// Before it carries frames: as much as `send_ahead` waits in the session, and in the socket.
    pub(crate) fn set(&mut self, settings: &Settings, dimension: Option<u32>) -> io::Result<()> {
        let ahead = usize::try_from(settings.send_ahead.count()).unwrap_or(usize::MAX);
        self.session.set_buffer_limit(Some(ahead));
        set_ahead(&self.socket, settings, dimension)
    }

    /// Bytes that both sides of this session have, and of no other.
    pub(crate) fn binding(&self) -> io::Result<[u8; auth::LENGTH]> {
        self.session
            .export_keying_material([0; auth::LENGTH], LABEL, Some(&[]))
            .map_err(io::Error::other)
    }

    /// Whether the session is not there yet, and has no binding.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// Whether something is to be sent that the socket has not taken.
    pub(crate) fn has_unsent(&self) -> bool {
        self.session.wants_write()
    }

    /// Sends what was written before; `WouldBlock` where the socket takes no more.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut &self.socket) {
                Ok(0) => return Err(ErrorKind::BrokenPipe.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Link for Tls {
    fn socket(&self) -> &Socket {
        &self.socket
    }

    fn woken(&mut self, _: EventFlags) {
        // What is wrong is seen when it is read.
        let _ = self.flush();
    }

    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let Some(into) = into.iter_mut().find(|one| !one.is_empty()) else { return Ok(0) };
        loop {
            match self.session.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // A connection that ends without a last word of TLS; frames tell where they end.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            self.session.read_tls(&mut &self.socket)?;
            let state = self.session.process_new_packets().map_err(invalid);
            // Its part of the handshake, or why there is none.
            match self.flush() {
                Err(error) if error.kind() != ErrorKind::WouldBlock && state.is_ok() => {
                    return Err(error);
                }
                Ok(()) | Err(_) => state?,
            };
        }
    }

    /// Every record is authenticated.
    fn protects(&self) -> bool {
        true
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush()?;
        let written = self.session.writer().write_vectored(pieces)?;
        match self.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            // The rest goes once the socket takes more: it wakes this link.
            Ok(()) | Err(_) => Ok(written),
        }
    }
}
