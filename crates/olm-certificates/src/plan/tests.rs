//! The state machine row by row, and whole rotations with handshakes all the time.

use std::io;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

use super::*;
use crate::material::PrivateKey;
use crate::testing::{NOW, at, generation, names};

const TIMING: Timing = Timing {
    validity: SignedDuration::from_hours(1000),
    renew_before: SignedDuration::from_hours(100),
    settle: SignedDuration::from_mins(5),
};
const HOUR: i64 = 3600;

fn issued(seconds: i64) -> Generation {
    generation(at(NOW, seconds), TIMING.validity)
}

fn state(current: &Generation, next: Option<&Generation>, previous: &[&Generation]) -> CertificateState {
    CertificateState {
        current: current.clone(),
        next: next.cloned(),
        previous: bundle(previous.iter().map(|one| one.authority.as_str())),
    }
}

fn word(step: &Step) -> &'static str {
    match step {
        Step::Nothing => "nothing",
        Step::Issue { fault: CertificateError::Missing, .. } => "issue, missing",
        Step::Issue { fault: CertificateError::Expired(_), .. } => "issue, expired",
        Step::Issue { .. } => "issue, unusable",
        Step::Stage(Due::Ends(_)) => "stage, ends",
        Step::Stage(Due::Begins(_)) => "stage, begins",
        Step::Stage(Due::Names(_)) => "stage, names",
        Step::Stage(Due::Next(_)) => "stage, next is bad",
        Step::Switch => "switch",
        Step::Drop => "drop",
    }
}

#[test]
#[rustfmt::skip]
fn plan_table() {
    let (old, new) = (issued(0), issued(950 * HOUR));
    let (bare, both) = (bundle([old.authority.as_str()]), bundle([old.authority.as_str(), &new.authority]));
    let broken = Generation { key: PrivateKey::new(String::new()), ..old.clone() };
    let broken_next = Generation { certificate: old.certificate.clone(), ..new.clone() };
    let only = |current: &Generation| Some(state(current, None, &[]));
    let staged = Some(state(&old, Some(&new), &[]));
    let switched = Some(state(&new, None, &[&old]));
    let rubbish = Some(CertificateState { previous: "x".to_owned(), ..state(&new, None, &[]) });
    for (case, state, trusted, hours, want, again) in [
        ("nothing there", None, vec![], 0, "issue, missing", None),
        ("fresh", only(&old), vec![bare.as_str()], 0, "nothing", Some(900 * HOUR)),
        ("callers do not count while nothing moves", only(&old), vec!["", "x"], 0, "nothing", Some(900 * HOUR)),
        ("just before renewal", only(&old), vec![&bare], 899, "nothing", Some(900 * HOUR)),
        ("renewal", only(&old), vec![&bare], 900, "stage, ends", None),
        ("expired", only(&old), vec![&bare], 1001, "issue, expired", None),
        ("broken", only(&broken), vec![&bare], 0, "issue, unusable", None),
        ("issued by a clock far ahead", only(&old), vec![&bare], -2, "stage, begins", None),
        ("a clock that is a little late", only(&old), vec![&bare], -1, "nothing", Some(900 * HOUR)),
        ("staged, callers not updated", staged.clone(), vec![&bare], 951, "nothing", Some(1000 * HOUR)),
        ("staged, one of two callers updated", staged.clone(), vec![&both, &bare], 951, "nothing", Some(1000 * HOUR)),
        ("staged, callers updated", staged.clone(), vec![&both], 951, "switch", None),
        ("staged, no callers yet", staged.clone(), vec![], 951, "switch", None),
        ("staged, callers updated, too early", staged.clone(), vec![&both], 950, "nothing", Some(950 * HOUR + 300)),
        ("staged, callers never updated, expired", staged, vec![&bare], 1001, "switch", None),
        ("unusable, but one is staged", Some(self::state(&broken, Some(&new), &[])), vec![&both], 950, "switch", None),
        ("staged is bad", Some(self::state(&old, Some(&broken_next), &[])), vec![&bare], 950, "stage, next is bad", None),
        ("switched", switched.clone(), vec![&both], 951, "nothing", Some(1000 * HOUR)),
        ("the old one expired", switched, vec![&both], 1000, "drop", None),
        ("what is kept cannot be read", rubbish, vec![], 951, "drop", None),
    ] {
        let got = plan(state.as_ref(), &names(), &trusted, at(NOW, hours * HOUR), &TIMING);
        assert_eq!(word(&got.step), want, "{case}");
        assert_eq!(got.recheck_at, again.map(|seconds| at(NOW, seconds)), "{case}");
    }
}

#[test]
fn plan_stages_another_name() {
    let old = state(&issued(0), None, &[]);
    let names = vec!["hook-service.demo.svc".to_owned(), "hook-service.demo.svc.elsewhere".to_owned()];
    let got = plan(Some(&old), &names, &[], NOW, &TIMING);
    assert_eq!(got.step, Step::Stage(Due::Names("hook-service.demo.svc.elsewhere".to_owned())));
}

#[test]
fn plan_waits_less_for_short_lives() {
    let old = generation(NOW, SignedDuration::from_secs(40));
    let new = issued(0);
    let trust = state(&old, Some(&new), &[]).trust();
    let step = |state: &CertificateState, seconds: i64| {
        word(&plan(Some(state), &names(), &[&trust], at(NOW, seconds), &TIMING).step)
    };
    assert_eq!(step(&state(&old, None, &[]), 0), "stage, ends");
    let staged = state(&old, Some(&new), &[]);
    assert_eq!((step(&staged, 19), step(&staged, 20)), ("nothing", "switch"), "half of what is left");
    let switched = state(&new, None, &[&old]);
    assert_eq!((step(&switched, 39), step(&switched, 40)), ("nothing", "drop"));
}

#[test]
fn schedule_is_that_of_the_certificate() {
    let broken = Generation { key: PrivateKey::new(String::new()), ..issued(0) };
    for (case, certificate, want) in [
        ("long", issued(HOUR), Some((HOUR, 901 * HOUR))),
        ("a third of a short life", generation(NOW, SignedDuration::from_secs(40)), Some((0, -1174))),
        ("cannot be served with", broken, None),
    ] {
        let got = schedule(&certificate, &TIMING);
        let want = want
            .map(|(issued, rotate_at)| Schedule { issued: at(NOW, issued), rotate_at: at(NOW, rotate_at) });
        assert_eq!(got, want, "{case}");
    }
}

#[test]
fn plan_lost_secret_keeps_the_trust_of_callers() {
    let (old, expired) = (issued(0), generation(NOW, SignedDuration::from_secs(10)));
    let trusted = bundle([old.authority.as_str(), &expired.authority]);
    let now = at(NOW, 60);
    let first = plan(None, &names(), &[&trusted, &trusted], now, &TIMING);
    let made = after(&first.step, None, Some(issued(60)), now, &TIMING).unwrap();
    assert_eq!(made.previous, bundle([old.authority.as_str()]));
    // 100 hours and five minutes: by then no pod serves with what was lost
    let later = |seconds| word(&plan(Some(&made), &names(), &[], at(now, seconds), &TIMING).step);
    assert_eq!((later(100 * HOUR), later(100 * HOUR + 300)), ("nothing", "drop"));
    let many = bundle((0..12).map(|_| issued(0).authority).collect::<Vec<_>>().iter().map(String::as_str));
    let Step::Issue { keep, .. } = plan(None, &names(), &[&many], now, &TIMING).step else { unreachable!() };
    assert_eq!(authorities(&keep).len(), MAX_PREVIOUS);
}

/// A cluster in small: a Secret, a caller's bundle, and a pod that reads the Secret late or only when it restarts.
struct Small {
    secret: Option<CertificateState>,
    trusted: String,
    pod: Option<Generation>,
    writes: Vec<&'static str>,
}

impl Small {
    /// One pass of the controller that is killed after `writes` writes.
    fn pass(&mut self, now: Timestamp, mut writes: usize) {
        loop {
            let trusted: Vec<&str> =
                self.trusted.lines().next().map(|_| self.trusted.as_str()).into_iter().collect();
            let step = plan(self.secret.as_ref(), &names(), &trusted, now, &TIMING).step;
            if step == Step::Nothing {
                break;
            }
            if writes == 0 {
                return;
            }
            writes -= 1;
            self.writes.push(word(&step));
            self.secret =
                after(&step, self.secret.take(), Some(generation(now, TIMING.validity)), now, &TIMING);
        }
        let trust = self.secret.as_ref().unwrap().trust();
        if trust != self.trusted && writes > 0 {
            self.writes.push("publish");
            self.trusted = trust;
        }
    }

    fn pod_reads(&mut self) {
        self.pod = self.secret.as_ref().map(|state| state.current.clone());
    }
}

#[test]
fn plan_rotation_breaks_no_handshake() {
    // pods that read every change, and pods that read ten hours before their certificate ends, when they restart at last
    let slow: fn(i64) -> bool = |hour| hour == 0 || hour % 900 == 90;
    for (case, reads, kill_after) in [
        ("quick pod", (|_| true) as fn(i64) -> bool, 9),
        ("slow pod", slow, 9),
        ("killed at every write", |_| true, 1),
    ] {
        let mut small = Small { secret: None, trusted: String::new(), pod: None, writes: Vec::new() };
        for hour in (0..3000_i64).filter(|hour| hour % 10 == 0 || hour % 900 < 3) {
            for minute in [0, 6, 12, 18] {
                let now = at(NOW, hour * HOUR + minute * 60);
                small.pass(now, kill_after);
                if reads(hour) {
                    small.pod_reads();
                }
            }
            if hour % 20 == 0 || hour % 900 < 3 {
                let now = at(NOW, hour * HOUR + 19 * 60);
                let shaken = handshake(small.pod.as_ref().unwrap(), &small.trusted, now);
                assert!(shaken.is_ok(), "{case}, hour {hour}: {shaken:?}");
            }
        }
        // the switch itself needs no other trust
        let rotation = ["stage, ends", "publish", "switch", "drop", "publish"];
        let expected: Vec<_> =
            ["issue, missing", "publish"].into_iter().chain([rotation; 3].concat()).collect();
        assert_eq!(small.writes, expected, "{case}");
    }
}

#[test]
fn plan_trust_during_a_rotation() {
    let (old, new, foreign) = (issued(0), issued(950 * HOUR), issued(950 * HOUR));
    let before = state(&old, None, &[]).trust();
    let during = state(&old, Some(&new), &[]).trust();
    let switched = state(&new, None, &[&old]).trust();
    let settled = state(&new, None, &[]).trust();
    let now = at(NOW, 960 * HOUR);
    for (case, server, bundle, want) in [
        ("before", &old, &before, true),
        ("staged, old server", &old, &during, true),
        ("staged, new server already", &new, &during, true),
        ("switched, old server still", &old, &switched, true),
        ("switched, new server", &new, &switched, true),
        ("settled, new server", &new, &settled, true),
        ("settled, old server", &old, &settled, false),
        ("before, new server", &new, &before, false),
        ("a foreign one", &foreign, &switched, false),
    ] {
        assert_eq!(handshake(server, bundle, now).is_ok(), want, "{case}");
    }
    assert!(handshake(&old, &before, at(NOW, 1001 * HOUR)).is_err(), "expired");
    assert!(handshake(&old, &before, at(NOW, -HOUR + 1)).is_ok(), "a late clock");
    assert!(handshake(&old, &before, at(NOW, -HOUR - 1)).is_err(), "a clock that is too late");
}

#[derive(Debug)]
struct Clock(Timestamp);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.as_second()).ok()?;
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)))
    }
}

/// A TLS handshake in memory, as an apiserver does it with a webhook: every name of the Service, one record of data.
fn handshake(server: &Generation, trusted: &str, now: Timestamp) -> Result<(), rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
        roots.add(authority.unwrap())?;
    }
    let client = ClientConfig::builder_with_details(Arc::clone(&provider), Arc::new(Clock(now)))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let chain = CertificateDer::pem_slice_iter(server.certificate.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(server.key.pem().as_bytes()).unwrap();
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    let (client, server) = (Arc::new(client), Arc::new(server));
    for name in names() {
        let mut client = ClientConnection::new(Arc::clone(&client), ServerName::try_from(name).unwrap())?;
        let mut server = ServerConnection::new(Arc::clone(&server))?;
        while client.is_handshaking() || server.is_handshaking() {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut bytes.as_slice()).unwrap();
            server.process_new_packets()?;
            bytes.clear();
            server.write_tls(&mut bytes).unwrap();
            client.read_tls(&mut bytes.as_slice()).unwrap();
            client.process_new_packets()?;
        }
        io::Write::write_all(&mut client.writer(), b"review").unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut bytes.as_slice()).unwrap();
        server.process_new_packets()?;
        let mut read = [0; 6];
        io::Read::read_exact(&mut server.reader(), &mut read).unwrap();
        assert_eq!(&read, b"review");
    }
    Ok(())
}
