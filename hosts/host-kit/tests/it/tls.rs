//! Certificates: expired, missing, of an unknown issuer, renewed, and replaced by one that cannot be used.

use super::files::Folder;
use super::lines::Lines;
use super::wire::{Running, ask, at_once, closed, limits, post, serve_with, times, within};
use host_kit::clock::{HostClock, ManualClock, SystemClock};
use host_kit::health::CheckResult;
use host_kit::metrics::{BuildInfo, MetricsBuilder};
use host_kit::server::{Certificates, Port, ServerMetrics, ServerTlsError, Times, TlsFiles};
use host_kit::shutdown;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Issuer {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate for localhost and its key, in PEM, valid in the years from `from` up to `to`.
fn issue(by: &Issuer, from: i32, to: i32) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
    (params.signed_by(&key, by).unwrap().pem(), key.serialize_pem())
}

struct House {
    folder: Folder,
    servers_ca: Issuer,
    clients_ca: Issuer,
}

impl House {
    fn new() -> Self {
        Self { folder: Folder::new(), servers_ca: authority("servers"), clients_ca: authority("clients") }
    }

    fn files(&self, client_ca: bool) -> TlsFiles {
        TlsFiles {
            certificate: self.folder.path().join("tls.crt"),
            key: self.folder.path().join("tls.key"),
            client_ca: client_ca.then(|| self.folder.write("ca.crt", &self.clients_ca.pem())),
        }
    }

    fn install(&self, (certificate, key): &(String, String)) {
        self.folder.write("tls.crt", certificate);
        self.folder.write("tls.key", key);
    }

    /// A client that trusts our servers, with a certificate or without.
    fn client(&self, own: Option<&(String, String)>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.servers_ca.pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                    PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
                )
                .unwrap(),
        }
    }
}

async fn serve(files: TlsFiles, limits_times: Times, clock: Arc<dyn HostClock>) -> (Running, Certificates) {
    let mut metrics = MetricsBuilder::of(&BuildInfo { component: "test", version: "0", revision: "0" });
    let servers = ServerMetrics::register(metrics.registry());
    let certificates = Certificates::load(Port::Work, files, &servers, clock).unwrap();
    let tls = Some(certificates.clone());
    (serve_with(limits(limits_times), at_once(), metrics, &servers, tls).await, certificates)
}

async fn dial(server: &Running, config: ClientConfig) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, server.dial().await).await
}

/// Whether a request is answered; with TLS 1.3 a client learns only then that its certificate is refused.
async fn speaks(server: &Running, config: ClientConfig) -> bool {
    let Ok(mut stream) = dial(server, config).await else { return false };
    if stream.write_all(post("/echo", "x").as_bytes()).await.is_err() {
        return false;
    }
    let mut one = [0];
    within(tokio::io::AsyncReadExt::read(&mut stream, &mut one)).await.is_ok_and(|count| count == 1)
}

fn system() -> Arc<dyn HostClock> {
    Arc::new(SystemClock::new())
}

#[tokio::test]
async fn only_a_client_with_a_good_certificate_of_the_right_authority_is_served_and_each_other_is_named() {
    let (lines, _guard) = Lines::catch();
    let house = House::new();
    house.install(&issue(&house.servers_ca, 2020, 2090));
    let (server, _) = serve(house.files(true), times(), system()).await;

    assert!(speaks(&server, house.client(Some(&issue(&house.clients_ca, 2020, 2090)))).await);
    assert_eq!(lines.with(&["WARN"]), [""; 0]);

    assert!(!speaks(&server, house.client(None)).await);
    let line = lines
        .wait_for(&["127.0.0.1 presented no certificate and was turned away; give it one that is signed by"])
        .await;
    assert!(line.contains("ca.crt") && line.contains("reason=\"no_client_certificate\""), "{line}");
    assert_eq!(server.refused("no_client_certificate"), 1.0);

    assert!(!speaks(&server, house.client(Some(&issue(&house.clients_ca, 2020, 2021)))).await);
    lines.wait_for(&["the certificate of 127.0.0.1 has expired and it was turned away; renew it"]).await;
    assert_eq!(server.refused("client_certificate_expired"), 1.0);

    assert!(!speaks(&server, house.client(Some(&issue(&authority("stranger"), 2020, 2090)))).await);
    lines.wait_for(&["the certificate of 127.0.0.1 is not signed by", "ca.crt and it was turned away"]).await;
    assert_eq!(server.refused("client_certificate_unknown_issuer"), 1.0);

    assert!(!speaks(&server, house.client(Some(&issue(&house.clients_ca, 2080, 2090)))).await);
    lines.wait_for(&["the certificate of 127.0.0.1 is not good and it was turned away"]).await;
    assert_eq!(server.refused("client_certificate_bad"), 1.0);
}

#[tokio::test]
async fn a_stranger_with_the_name_of_our_authority_is_a_stranger() {
    let house = House::new();
    house.install(&issue(&house.servers_ca, 2020, 2090));
    let (server, _) = serve(house.files(true), times(), system()).await;
    assert!(!speaks(&server, house.client(Some(&issue(&authority("clients"), 2020, 2090)))).await);
    assert_eq!(server.refused("client_certificate_unknown_issuer"), 1.0);
}

#[tokio::test]
async fn our_own_certificate_that_expires_is_warned_of_and_then_makes_us_unready() {
    let (lines, _guard) = Lines::catch();
    let house = House::new();
    house.install(&issue(&house.servers_ca, 2019, 2021));
    let clock = ManualClock::at("2020-12-20T00:00:00Z".parse().unwrap());
    let (server, certificates) = serve(house.files(false), times(), Arc::new(clock.clone())).await;
    let end = certificates.not_after();
    assert_eq!(
        server.count("joulie_tls_certificate_not_after_seconds{port=\"work\"}"),
        1_609_459_200.0,
        "2021-01-01T00:00:00Z"
    );

    let (_trigger, stop) = shutdown::pair();
    tokio::spawn(certificates.clone().keep_fresh(Duration::from_millis(5), stop));
    let check = certificates.check();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(lines.with(&["expires in"]), [""; 0], "twelve days are enough");
    clock.advance(Duration::from_secs(6 * 86_400));
    lines.wait_for(&["WARN", "tls.crt expires in 144h, at 2021-01-01T00:00:00Z"]).await;
    assert_eq!(check(clock.mono()), CheckResult::Pass);
    clock.advance(Duration::from_secs(6 * 86_400));
    lines
        .wait_for(&["ERROR", "tls.crt expired at 2021-01-01T00:00:00Z: clients refuse this server; renew it"])
        .await;
    let CheckResult::Fail(why) = check(clock.mono()) else { panic!("it has expired at {end}") };
    assert!(why.contains("tls.crt expired at 2021-01-01T00:00:00Z"), "{why}");
    assert_eq!(lines.with(&["expires in"]).len(), 1, "once a day and not once a round");

    assert!(dial(&server, house.client(None)).await.is_err());
    lines.wait_for(&["127.0.0.1 refuses our certificate", "which is good until 2021-01-01T00:00:00Z"]).await;
    assert_eq!(server.refused("our_certificate_refused"), 1.0);
}

/// The server's certificate, as a client sees it.
async fn seen(server: &Running, house: &House) -> Vec<u8> {
    let stream = dial(server, house.client(None)).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test]
async fn a_renewed_certificate_is_used_and_a_bad_one_leaves_the_old_one_in_place() {
    let (lines, _guard) = Lines::catch();
    let house = House::new();
    house.install(&issue(&house.servers_ca, 2020, 2080));
    let (server, certificates) = serve(house.files(false), times(), system()).await;
    let first = seen(&server, &house).await;
    let mut open = dial(&server, house.client(None)).await.unwrap();

    house.install(&issue(&house.servers_ca, 2020, 2090));
    certificates.look();
    let second = seen(&server, &house).await;
    assert_ne!(first, second);
    lines.wait_for(&["tls.crt was renewed; it is good until 2090-01-01T00:00:00Z"]).await;
    assert_eq!(server.count("joulie_tls_reloads_total{port=\"work\",outcome=\"applied\"}"), 1.0);
    assert_eq!(ask(&mut open, &post("/echo", "x")).await.0, 200, "an open connection is not troubled");

    let good = issue(&house.servers_ca, 2020, 2085);
    let other = issue(&house.servers_ca, 2020, 2085);
    for (n, (bad, why)) in [
        (("rubbish".to_owned(), good.1.clone()), "tls.crt cannot be used: it holds no certificate in PEM"),
        ((good.0.clone(), other.1.clone()), "tls.key cannot be used"),
        ((good.0.clone(), "rubbish".to_owned()), "tls.key cannot be used"),
        (issue(&house.servers_ca, 2020, 2021), "expired at 2021-01-01T00:00:00Z"),
    ]
    .into_iter()
    .enumerate()
    {
        house.install(&bad);
        certificates.look();
        certificates.look();
        let line = lines
            .with(&["the new TLS files are refused", why])
            .pop()
            .unwrap_or_else(|| panic!("{why}: {}", lines.text()));
        assert!(line.contains("ERROR") && line.contains("stays, good until 2090-01-01T00:00:00Z"), "{line}");
        let refused = f64::from(u32::try_from(n).unwrap() + 1);
        assert_eq!(
            server.count("joulie_tls_reloads_total{port=\"work\",outcome=\"refused\"}"),
            refused,
            "the same bad files count once"
        );
        assert_eq!(seen(&server, &house).await, second);
    }

    std::fs::remove_file(house.folder.path().join("tls.crt")).unwrap();
    certificates.look();
    assert_eq!(seen(&server, &house).await, second, "a file that is gone is not a certificate that is gone");
    house.install(&good);
    certificates.look();
    assert_ne!(seen(&server, &house).await, second, "the good one is taken in the end");
}

#[tokio::test]
async fn a_certificate_that_only_the_clock_refuses_is_taken_when_the_clock_allows_it() {
    let (lines, _guard) = Lines::catch();
    let house = House::new();
    house.install(&issue(&house.servers_ca, 2019, 2090));
    let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
    let (server, certificates) = serve(house.files(false), times(), Arc::new(clock.clone())).await;
    let first = seen(&server, &house).await;

    // The clock jumps far ahead, the files are renewed meanwhile, and the clock is corrected.
    clock.step_wall("2086-01-01T00:00:00Z".parse().unwrap());
    house.install(&issue(&house.servers_ca, 2019, 2085));
    certificates.look();
    certificates.look();
    assert_eq!(seen(&server, &house).await, first);
    assert_eq!(lines.with(&["refused", "tls.crt expired at 2085-01-01T00:00:00Z"]).len(), 1, "said once");
    clock.step_wall("2026-01-01T00:01:00Z".parse().unwrap());
    certificates.look();
    let second = seen(&server, &house).await;
    assert_ne!(second, first, "nobody touches the files again");

    // Every client would refuse a certificate that is not valid yet; the old one is still valid.
    house.install(&issue(&house.servers_ca, 2027, 2090));
    certificates.look();
    assert_eq!(seen(&server, &house).await, second);
    lines.wait_for(&["ERROR", "tls.crt is good from 2027-01-01T00:00:00Z on and is taken then"]).await;
    clock.step_wall("2027-01-01T00:00:01Z".parse().unwrap());
    certificates.look();
    assert_eq!(certificates.not_after().to_string(), "2090-01-01T00:00:00Z");
}

#[tokio::test]
async fn a_renewed_authority_of_the_clients_is_used() {
    let house = House::new();
    house.install(&issue(&house.servers_ca, 2020, 2090));
    let (server, certificates) = serve(house.files(true), times(), system()).await;
    let new = authority("clients of tomorrow");
    let client = issue(&new, 2020, 2090);
    assert!(!speaks(&server, house.client(Some(&client))).await);
    house.folder.write("ca.crt", &format!("{}{}", house.clients_ca.pem(), new.pem()));
    certificates.look();
    assert!(speaks(&server, house.client(Some(&client))).await);
    assert!(
        speaks(&server, house.client(Some(&issue(&house.clients_ca, 2020, 2090)))).await,
        "during a change both are good"
    );
}

#[tokio::test]
async fn a_client_that_stops_in_the_middle_of_the_handshake_is_cut_off_and_named() {
    let (lines, _guard) = Lines::catch();
    let house = House::new();
    house.install(&issue(&house.servers_ca, 2020, 2090));
    let short = Times { handshake: Duration::from_millis(300), ..times() };
    let (server, _) = serve(house.files(false), short, system()).await;
    let mut silent = server.dial().await;
    closed(&mut silent).await;
    lines.wait_for(&["127.0.0.1 did not finish the TLS handshake in 300ms"]).await;
    assert_eq!(server.refused("handshake_slow"), 1.0);
}

#[tokio::test]
async fn a_client_that_speaks_no_tls_is_told_apart_in_the_log() {
    let (lines, _guard) = Lines::catch();
    let house = House::new();
    house.install(&issue(&house.servers_ca, 2020, 2090));
    let (server, _) = serve(house.files(false), times(), system()).await;
    let mut plain = server.dial().await;
    plain.write_all(post("/echo", "x").as_bytes()).await.unwrap();
    closed(&mut plain).await;
    lines.wait_for(&["127.0.0.1 does not speak TLS", "does it use http:// for an https:// port?"]).await;
    assert_eq!(server.refused("not_tls"), 1.0);
}

#[tokio::test]
async fn a_drain_does_not_wait_for_somebody_who_has_not_even_said_hello() {
    let house = House::new();
    house.install(&issue(&house.servers_ca, 2020, 2090));
    let (server, _) = serve(house.files(false), times(), system()).await;
    let _silent = server.dial().await;
    assert!(speaks(&server, house.client(None)).await, "after the silent one was accepted");
    server.trigger.request("the test");
    assert_eq!(within(server.ended).await.unwrap(), 0);
}

#[test]
fn a_server_does_not_start_with_certificates_that_cannot_be_used() {
    let house = House::new();
    let load = || {
        let mut metrics = MetricsBuilder::of(&BuildInfo { component: "test", version: "0", revision: "0" });
        let servers = ServerMetrics::register(metrics.registry());
        Certificates::load(Port::Work, house.files(true), &servers, system()).map(|_| ())
    };
    assert!(matches!(load(), Err(ServerTlsError::Read { .. })));
    house.install(&issue(&house.servers_ca, 2020, 2021));
    assert!(matches!(load(), Err(ServerTlsError::Expired { .. })));
    house.install(&(String::new(), String::new()));
    assert!(matches!(load(), Err(ServerTlsError::Content { .. })));
    house.install(&issue(&house.servers_ca, 2020, 2090));
    assert!(load().is_ok());
}
