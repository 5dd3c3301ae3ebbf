mod emulator;

use super::*;
use emulator::Emulator;
use simulator::redfish::ResetType;

/// The controllers of a file, and their clients.
fn of(text: &str) -> (Controllers, Clients) {
    let controllers = Controllers::parse(text).unwrap();
    let clients = controllers.clients(None).unwrap();
    (controllers, clients)
}

fn one(entry: &str) -> (Controllers, Clients) {
    of(&format!("nodes: {{n1: {{{entry}}}}}"))
}

#[tokio::test]
async fn a_system_is_read_and_switched_by_redfish() {
    let bmc = Emulator::start(&["1"]).await;
    let (all, clients) = one(&format!("redfish: '{}'", bmc.system("1")));
    let n1 = all.get("n1").unwrap();
    assert_eq!(n1.state(&clients).await, Ok(PowerState::On));
    n1.switch(&clients, false).await.unwrap();
    assert_eq!(n1.state(&clients).await, Ok(PowerState::Off));
    n1.switch(&clients, true).await.unwrap();
    assert_eq!(n1.state(&clients).await, Ok(PowerState::On));
    assert_eq!(bmc.state().orders, ["1 GracefulShutdown", "1 On"]);
    // The types that it allows may be in a document of their own.
    bmc.state().allowed = None;
    n1.switch(&clients, true).await.unwrap();
    assert_eq!(bmc.state().orders.last().map(String::as_str), Some("1 ForceOn"));
    bmc.state().power.insert("1".to_owned(), "PoweringOff".to_owned());
    assert_eq!(n1.state(&clients).await, Ok(PowerState::Changing));
}

#[tokio::test]
async fn the_one_system_of_a_service_needs_no_name() {
    let bmc = Emulator::start(&["437XR"]).await;
    let (all, clients) = one(&format!("redfish: '{}'", bmc.url("/redfish/v1/")));
    let n1 = all.get("n1").unwrap();
    n1.switch(&clients, false).await.unwrap();
    assert_eq!(n1.state(&clients).await, Ok(PowerState::Off));
    bmc.state().power.insert("another".to_owned(), "On".to_owned());
    assert!(n1.state(&clients).await.unwrap_err().contains("2 systems"));
}

#[tokio::test]
async fn what_cannot_be_believed_is_no_state() {
    let bmc = Emulator::start(&["1"]).await;
    let (all, clients) = one(&format!("redfish: '{}'", bmc.system("1")));
    let n1 = all.get("n1").unwrap();
    let large = format!("{{\"PowerState\": \"Off\", \"x\": \"{}\"}}", "x".repeat(2 << 20));
    for (status, body, said) in [
        (404, "{}", "404"),
        (401, "{}", "401"),
        (503, "{}", "503"),
        // A redirect is not followed.
        (302, "{}", "302"),
        (200, "Off", "no JSON"),
        (200, "[]", "no PowerState"),
        (200, r#"{"PowerState": 0}"#, "no PowerState"),
        (200, r#"{"PowerState": "off"}"#, "not known"),
        (200, large.as_str(), "its answer"),
    ] {
        bmc.state().answer = Some((status, body.to_owned()));
        let why = n1.state(&clients).await.unwrap_err();
        assert!(why.contains(said), "{said}: {why}");
        assert!(n1.switch(&clients, true).await.is_err());
    }
    bmc.state().answer = Some((
        200,
        r##"{"Actions": {"#ComputerSystem.Reset": {"target": "http://elsewhere/x"}}}"##.to_owned(),
    ));
    assert!(n1.switch(&clients, true).await.unwrap_err().contains("no path of this service"));
    assert_eq!(bmc.state().orders, [""; 0]);
}

#[tokio::test]
async fn a_system_that_can_only_be_cut_off_is_left_on_unless_the_file_allows_it() {
    let bmc = Emulator::start(&["1", "2"]).await;
    bmc.state().allowed = Some(vec![ResetType::On, ResetType::ForceOff]);
    let text = format!(
        "nodes: {{n1: {{redfish: '{}'}}, n2: {{redfish: '{}', forceOff: true}}}}",
        bmc.system("1"),
        bmc.system("2")
    );
    let (all, clients) = of(&text);
    let why = all.get("n1").unwrap().switch(&clients, false).await.unwrap_err();
    assert!(why.contains("none of GracefulShutdown"), "{why}");
    all.get("n2").unwrap().switch(&clients, false).await.unwrap();
    assert_eq!(bmc.state().orders, ["2 ForceOff"]);
}

#[tokio::test]
async fn a_server_of_the_site_is_asked_in_its_words() {
    let bmc = Emulator::start(&["n1"]).await;
    let (all, clients) = one(&format!("webhook: '{}'", bmc.url("/hook/n1")));
    let n1 = all.get("n1").unwrap();
    n1.switch(&clients, false).await.unwrap();
    assert_eq!(n1.state(&clients).await, Ok(PowerState::Off));
    n1.switch(&clients, true).await.unwrap();
    assert_eq!(n1.state(&clients).await, Ok(PowerState::On));
    bmc.state().answer = Some((200, r#"{"power": "maybe"}"#.to_owned()));
    assert!(n1.state(&clients).await.is_err());
    assert!(!bmc.state().head.to_ascii_lowercase().contains("authorization"), "nobody was to log in");
}

#[tokio::test]
async fn a_node_with_an_address_of_its_card_is_woken_by_a_packet_and_read_by_redfish() {
    let bmc = Emulator::start(&["1"]).await;
    let lan = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let entry = format!(
        "redfish: '{}', wakeOnLan: {{mac: '0c:c4:7a:12:34:56', broadcast: '{}'}}",
        bmc.system("1"),
        lan.local_addr().unwrap()
    );
    let (all, clients) = one(&entry);
    let n1 = all.get("n1").unwrap();
    n1.switch(&clients, true).await.unwrap();
    let mut heard = [0; 200];
    assert_eq!(lan.recv(&mut heard).await.unwrap(), 102);
    assert_eq!(bmc.state().orders, [""; 0]);
    n1.switch(&clients, false).await.unwrap();
    assert_eq!(bmc.state().orders, ["1 GracefulShutdown"]);
}

#[test]
fn an_answer_stands_only_while_it_is_fresh() {
    let board = PowerBoard::default();
    let at = |seconds| Mono::at(Duration::from_secs(seconds));
    board.follow(BTreeMap::from([("n1".into(), true), ("n2".into(), false)]));
    board.put("n1", PowerState::Off, at(28));
    board.put("n2", PowerState::On, at(128));
    assert_eq!(board.state("n1", at(27)), Some(PowerState::Off));
    assert_eq!(board.state("n1", at(28)), None);
    // Only what counts because of it is looked at again for its end.
    assert_eq!((board.ends(at(0)), board.ends(at(28))), (Some(at(28)), None));
    let rounds =
        |node: &str| (0..6).filter(|round| board.due(*round).iter().any(|(one, _)| **one == *node)).count();
    assert_eq!((rounds("n1"), rounds("n2")), (6, 1), "a node without a mark is asked less often");
    // They are not all asked in one round: in round 2 the sum for "n2" is 2 + 110 + 50, which is 27 times 6.
    assert_eq!((board.due(1).len(), board.due(2).len()), (1, 2));
    // What nobody follows any more says nothing.
    board.follow(BTreeMap::from([("n2".into(), false)]));
    assert_eq!(board.state("n1", at(0)), None);
    // They are spread over the rounds.
    board.follow((0..60).map(|number| (format!("node-{number:02}").into(), false)).collect());
    assert_eq!([0, 1, 2, 3, 4, 5].map(|round| board.due(round).len()), [10; 6]);
}
