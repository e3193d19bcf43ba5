//! quinn, QUIC with TLS 1.3: unreliable messages as datagrams, reliable ones on one stream of each connection with their lengths
//! before them. Settings: a current-thread runtime on the server's one core, one suite (AES-128-GCM or ChaCha20-Poly1305, from
//! ring), segmentation offload left on, buffers of 1 MiB for datagrams, answers to all that one read brought in one write, and
//! keep-alives of the client, which are off by default. The client takes any certificate: whom it talks to is not what is
//! measured.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use drumfire_benches::Counts;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{Connection, Endpoint, EndpointConfig, SendDatagramError, TokioRuntime, TransportConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{cipher_suite, default_provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::frames::{self, Frames};
use super::tasks::{Crew, Ear, Tally, runtime, serve_until};
use super::{Rival, Serve, version_of};
use crate::face::{
    Answers, Client, Ending, KEEP_ALIVE, RECEIVE_BUFFER_BYTES, Server, Setup, Variant, line, serve,
};

/// Connections of a client that share an endpoint.
const PER_SOCKET: usize = 64;

const DATAGRAM_BUFFER_BYTES: usize = 1 << 20;

const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes read from a stream in one go.
const READ_BYTES: usize = 64 * 1_024;

pub(super) fn rivals() -> Vec<Rival> {
    let quinn = |name, encrypted, is_chacha| Rival {
        version: version_of("quinn"),
        encrypted,
        variant: Variant { gather_us: 0, is_chacha },
        gro: Some("on"),
        per_socket: PER_SOCKET,
        ..Rival::new(name, "quinn", Serve::Here(serve::<Tasks>), connect)
    };
    vec![quinn("quinn, AES-128", "AES-128", false), quinn("quinn, ChaCha20", "ChaCha20", true)]
}

/// The one suite, and the one that QUIC's first packets always have.
fn provider(setup: &Setup) -> Result<(Arc<CryptoProvider>, rustls::quic::Suite), String> {
    let first = cipher_suite::TLS13_AES_128_GCM_SHA256;
    let suite = if setup.variant.is_chacha { cipher_suite::TLS13_CHACHA20_POLY1305_SHA256 } else { first };
    let provider = CryptoProvider { cipher_suites: vec![suite], ..default_provider() };
    let initial =
        first.tls13().and_then(rustls::Tls13CipherSuite::quic_suite).ok_or("no suite for first packets")?;
    Ok((Arc::new(provider), initial))
}

fn transport(keep_alive: Option<Duration>) -> Result<Arc<TransportConfig>, String> {
    let mut transport = TransportConfig::default();
    transport
        .max_idle_timeout(Some(IDLE_TIMEOUT.try_into().map_err(line)?))
        .keep_alive_interval(keep_alive)
        .datagram_receive_buffer_size(Some(DATAGRAM_BUFFER_BYTES))
        .datagram_send_buffer_size(DATAGRAM_BUFFER_BYTES);
    Ok(Arc::new(transport))
}

fn server_config(setup: &Setup) -> Result<quinn::ServerConfig, String> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).map_err(line)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let (provider, initial) = provider(setup)?;
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(line)?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .map_err(line)?;
    let quic = QuicServerConfig::with_initial(Arc::new(tls), initial).map_err(line)?;
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(quic));
    config.transport_config(transport(None)?);
    Ok(config)
}

fn client_config(setup: &Setup) -> Result<quinn::ClientConfig, String> {
    let (provider, initial) = provider(setup)?;
    let tls = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(line)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer(provider)))
        .with_no_client_auth();
    let quic = QuicClientConfig::with_initial(Arc::new(tls), initial).map_err(line)?;
    let mut config = quinn::ClientConfig::new(Arc::new(quic));
    config.transport_config(transport(Some(KEEP_ALIVE))?);
    Ok(config)
}

/// Takes every certificate.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
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
        Err(rustls::Error::General("QUIC has no TLS 1.2".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn endpoint(runtime: &Runtime, config: Option<quinn::ServerConfig>) -> Result<Endpoint, String> {
    let _guard = runtime.enter();
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(line)?;
    socket2::SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER_BYTES).map_err(line)?;
    Endpoint::new(EndpointConfig::default(), config, socket, Arc::new(TokioRuntime)).map_err(line)
}

/// The server: a task for each connection.
struct Tasks {
    runtime: Runtime,
    endpoint: Endpoint,
    setup: Setup,
}

impl Server for Tasks {
    fn bind(setup: &Setup) -> Result<Self, String> {
        let runtime = runtime()?;
        let endpoint = endpoint(&runtime, Some(server_config(setup)?))?;
        Ok(Self { runtime, endpoint, setup: *setup })
    }

    fn address(&self) -> Result<SocketAddr, String> {
        self.endpoint.local_addr().map_err(line)
    }

    fn echo(self, ending: &Ending) -> Result<Counts, String> {
        let Self { runtime, endpoint, setup } = self;
        Ok(serve_until(ending, &runtime, |tally| async move {
            while let Some(incoming) = endpoint.accept().await {
                let tally = tally.clone();
                tokio::task::spawn_local(async move {
                    // A connection that is not made, or ends, is the client's to tell.
                    let Ok(connection) = incoming.await else { return };
                    if setup.is_reliable {
                        stream(&connection, &setup, &tally).await;
                    } else {
                        datagrams(&connection, &setup, &tally).await;
                    }
                });
            }
        }))
    }
}

async fn datagrams(connection: &Connection, setup: &Setup, tally: &Tally) {
    let mut answers = Answers::new(setup);
    while let Ok(message) = connection.read_datagram().await {
        let answer = if setup.answer_bytes == 0 { message } else { quinn_bytes(answers.to(&message)) };
        tally.on_answer(connection.send_datagram(answer).is_ok());
    }
}

fn quinn_bytes(bytes: &[u8]) -> drumfire::Bytes {
    drumfire::Bytes::copy_from_slice(bytes)
}

async fn stream(connection: &Connection, setup: &Setup, tally: &Tally) {
    let Ok((mut send, mut receive)) = connection.accept_bi().await else { return };
    let (mut answers, mut frames) = (Answers::new(setup), Frames::default());
    let mut outgoing = Vec::new();
    while let Ok(Some(chunk)) = receive.read_chunk(READ_BYTES, true).await {
        outgoing.clear();
        let mut came = 0;
        frames.take(&chunk.bytes, |message| {
            came += 1;
            // The first message only opens the stream.
            if !message.is_empty() {
                tally.on_answer(true);
            }
            frames::push(&mut outgoing, answers.to(message));
        });
        if came > 0 && send.write_all(&outgoing).await.is_err() {
            return;
        }
    }
}

/// The connections of one endpoint.
struct Connections {
    crew: Crew,
    /// Kept so that its connections are.
    _endpoint: Endpoint,
    /// By place, those that are made.
    made: Vec<Arc<OnceLock<Connection>>>,
    is_reliable: bool,
}

fn connect(server: SocketAddr, count: usize, setup: &Setup) -> Result<Box<dyn Client>, String> {
    let runtime = runtime()?;
    let mut endpoint = endpoint(&runtime, None)?;
    endpoint.set_default_client_config(client_config(setup)?);
    let begin = |_| endpoint.connect(server, "localhost").map_err(line);
    let guard = runtime.enter();
    let attempts = (0..count).map(begin).collect::<Result<Vec<_>, _>>()?;
    drop(guard);
    let (mut crew, mut made) = (Crew::new(runtime), Vec::with_capacity(count));
    let is_reliable = setup.is_reliable;
    for connecting in attempts {
        let place = Arc::<OnceLock<Connection>>::default();
        made.push(Arc::clone(&place));
        crew.spawn(|ear, waiting| async move {
            match connecting.await {
                Ok(connection) => {
                    let connection = place.get_or_init(|| connection);
                    listen(connection, &ear, is_reliable.then_some(waiting)).await
                }
                Err(error) => line(error),
            }
        });
    }
    Ok(Box::new(Connections { crew, _endpoint: endpoint, made, is_reliable }))
}

/// Hears what comes until the connection ends, and answers why it did.
async fn listen(connection: &Connection, ear: &Ear, waiting: Option<mpsc::Receiver<Vec<u8>>>) -> String {
    let Some(mut waiting) = waiting else {
        ear.on_ready();
        loop {
            match connection.read_datagram().await {
                Ok(message) => ear.on_message(&message),
                Err(error) => return line(error),
            }
        }
    };
    let (mut send, mut receive) = match connection.open_bi().await {
        Ok(streams) => streams,
        Err(error) => return line(error),
    };
    tokio::spawn(async move {
        let mut outgoing = Vec::new();
        // A stream is there for the server when something was said on it.
        frames::push(&mut outgoing, &[]);
        loop {
            // A connection that ended is told by the one who listens.
            if send.write_all(&outgoing).await.is_err() {
                return;
            }
            outgoing.clear();
            let Some(message) = waiting.recv().await else { return };
            frames::push(&mut outgoing, &message);
            while let Ok(message) = waiting.try_recv() {
                frames::push(&mut outgoing, &message);
            }
        }
    });
    let mut frames = Frames::default();
    loop {
        match receive.read_chunk(READ_BYTES, true).await {
            Ok(Some(chunk)) => frames.take(&chunk.bytes, |message| {
                if message.is_empty() {
                    ear.on_ready();
                } else {
                    ear.on_message(message);
                }
            }),
            Ok(None) => return "the server ended a stream".to_owned(),
            Err(error) => return line(error),
        }
    }
}

impl Client for Connections {
    fn is_ready(&self) -> bool {
        self.crew.is_ready()
    }

    fn receive(&mut self, now: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        self.crew.receive(now, take)
    }

    fn send(&mut self, now: u64, place: usize, channel: u8, message: &[u8]) -> Result<bool, String> {
        if self.is_reliable {
            return self.crew.send(now, place, channel, message);
        }
        match self.made[place].get().ok_or("not connected")?.send_datagram(quinn_bytes(message)) {
            Ok(()) => Ok(true),
            Err(SendDatagramError::ConnectionLost(error)) => Err(line(error)),
            Err(_) => Ok(false),
        }
    }

    fn flush(&mut self, now: u64) -> Result<(), String> {
        self.crew.flush(now)
    }
}
