use super::*;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

fn ended(log: &str) -> ClusterError {
    ClusterError::Ended { component: Component::Etcd, status: ExitStatus::from_raw(256), log: log.to_owned() }
}

const LOST: &str = "listen tcp 127.0.0.1:2379: bind: address already in use";

#[test]
fn a_port_that_somebody_took_is_answered_with_other_ports() {
    let mut picked = Vec::new();
    let outcome = with_free_ports(Ports::pick, |ports| {
        picked.push(ports);
        if picked.len() == 1 { Err(ended(LOST)) } else { Ok(ports) }
    });
    assert_eq!(outcome.unwrap(), picked[1]);
    assert_ne!(picked[0], picked[1]);
}

#[test]
fn a_machine_without_free_ports_is_told_after_three_attempts() {
    let mut attempts = 0;
    let outcome: Result<(), ClusterError> = with_free_ports(Ports::pick, |_| {
        attempts += 1;
        Err(ended(LOST))
    });
    assert!(outcome.unwrap_err().to_string().contains("address already in use"));
    assert_eq!(attempts, 3);
}

#[test]
fn what_ended_for_another_reason_is_not_tried_again() {
    let mut attempts = 0;
    let outcome: Result<(), ClusterError> = with_free_ports(Ports::pick, |_| {
        attempts += 1;
        Err(ended("unknown flag: --nonsense"))
    });
    assert!(outcome.unwrap_err().to_string().contains("unknown flag"));
    assert_eq!(attempts, 1);
}
