use super::*;
use hal_plug::PlugReading;
use host_kit::config::parse;
use host_kit::metrics::MetricsBuilder;
use power_units::MicroWatts;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::mpsc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn at(second: u64) -> Mono {
    Mono::at(Duration::from_secs(second))
}

fn reading(watts: u64) -> PlugReading {
    PlugReading::new(MicroWatts::new(watts * 1_000_000), None).unwrap()
}

#[test]
fn a_sample_counts_until_it_is_too_old_and_then_it_is_none() {
    let plug = Plug::new(Duration::from_secs(10));
    assert_eq!(plug.look(Some(Watts::from_int(300)), at(0)), None, "no meter has answered");
    let sample = PlugSample { source: PlugSource::Dcmi, watts: Watts::from_int(430), at: at(1) };
    plug.record(sample, None);
    let watts = |second| plug.look(None, at(second)).unwrap().watts;
    // 3 × 10 s and 10 s.
    assert_eq!((watts(1), watts(41)), (Some(Watts::from_int(430)), Some(Watts::from_int(430))));
    assert_eq!(watts(42), None);
    let view = plug.look(None, at(42)).unwrap();
    assert_eq!((view.source, view.at, view.rest), (PlugSource::Dcmi, at(1), None));
}

#[test]
fn a_meter_that_says_less_than_the_devices_draw_is_not_believed() {
    let plug = Plug::new(Duration::from_secs(1));
    let tell = |second, watts| {
        let devices = Some(Watts::from_int(500));
        plug.look(devices, at(second));
        let watts = Watts::from_int(watts);
        plug.record(PlugSample { source: PlugSource::Acpi, watts, at: at(second) }, None);
        let view = plug.look(devices, at(second)).unwrap();
        (view.watts.is_some(), view.rest)
    };
    for second in [10, 20] {
        assert_eq!(tell(second, 620), (true, None));
    }
    assert_eq!(tell(30, 620), (true, Some(Watts::from_int(120))));
    for second in [40, 50] {
        assert_eq!(tell(second, 300), (true, Some(Watts::from_int(120))), "the middle of five");
    }
    // 620 W twice at most among the last five from here on.
    assert_eq!(tell(60, 300), (false, None));
}

#[tokio::test]
async fn a_meter_that_hangs_costs_its_thread_and_nothing_else() {
    let (free, held) = mpsc::channel::<()>();
    let mut worker = Worker::start("hangs", move || {
        // An answer comes each time that the test says so.
        let _freed = held.recv();
        Ok(reading(430))
    })
    .unwrap();
    let soon = Duration::from_millis(1);
    assert_eq!(worker.read(soon).await.unwrap_err().look(), PlugLook::Late);
    for _ in 0..3 {
        let trouble = worker.read(soon).await.unwrap_err();
        assert_eq!(trouble.look(), PlugLook::Busy, "no second question is put to it");
    }
    // The answer that comes late is thrown away; the next one counts.
    free.send(()).unwrap();
    free.send(()).unwrap();
    let mut last = worker.read(Duration::from_secs(60)).await;
    while last.as_ref().is_err_and(|trouble| trouble.look() == PlugLook::Busy) {
        tokio::task::yield_now().await;
        last = worker.read(Duration::from_secs(60)).await;
    }
    assert_eq!(last, Ok(reading(430)));
}

#[tokio::test]
async fn a_thread_that_has_ended_is_told() {
    let mut worker = Worker::start("ends", || panic!("on purpose")).unwrap();
    for _ in 0..2 {
        let trouble = worker.read(Duration::from_secs(60)).await.unwrap_err();
        assert_eq!(trouble.look(), PlugLook::Failed);
    }
}

/// The meters in this order, as their questions are answered.
fn asked(source: PlugSource, mut answers: Vec<Result<PlugReading, PlugError>>) -> Asked {
    answers.reverse();
    let mut last = Err(PlugError::Absent);
    let worker = Worker::start("answers", move || {
        if let Some(next) = answers.pop() {
            last = next;
        }
        last.clone()
    });
    Asked { source, meter: Meter::Apart(worker.unwrap()), not_before: Mono::START, failing: None }
}

#[tokio::test]
async fn the_first_meter_that_answers_counts_and_an_absent_one_is_not_asked_all_the_time() {
    let clock = host_kit::clock::SystemClock::new();
    let mut page = MetricsBuilder::of(&crate::start::BUILD);
    let metrics = PlugMetrics::register(page.registry(), "a", PowerDetail::Exact);
    let plug = Plug::new(Duration::from_secs(10));
    let mut meters = vec![
        asked(PlugSource::Acpi, vec![Err(PlugError::Absent)]),
        asked(PlugSource::Dcmi, vec![Ok(reading(430)), Err(PlugError::NotMeasuring), Ok(reading(431))]),
    ];
    let watts = |plug: &Plug| plug.look(None, clock.mono()).and_then(|view| view.watts);
    assert_eq!(ask(&mut meters, &plug, &metrics, &clock).await, Some(PlugSource::Dcmi));
    assert_eq!(watts(&plug), Some(Watts::from_int(430)));
    // Nothing answers: what was read stays, with its age.
    assert_eq!(ask(&mut meters, &plug, &metrics, &clock).await, None);
    assert_eq!(watts(&plug), Some(Watts::from_int(430)));
    assert_eq!(ask(&mut meters, &plug, &metrics, &clock).await, Some(PlugSource::Dcmi));
    assert_eq!(watts(&plug), Some(Watts::from_int(431)));
    let now = clock.mono();
    metrics.show(plug.view(now), now);
    let text = page.page().render().unwrap();
    for line in [
        "joulie_node_plug_power_watts{node=\"a\",source=\"dcmi\"} 431",
        "joulie_node_meter_reads_total{source=\"acpi\",outcome=\"absent\"} 1",
        "joulie_node_meter_reads_total{source=\"dcmi\",outcome=\"read\"} 2",
        "joulie_node_meter_reads_total{source=\"dcmi\",outcome=\"busy\"} 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

/// A management controller that has these documents, for whoever shows this login.
async fn controller(documents: &[(&str, Value)], login: Option<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let documents: BTreeMap<String, String> =
        documents.iter().map(|(path, document)| ((*path).to_owned(), document.to_string())).collect();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (mut request, mut buffer) = (String::new(), [0; 1024]);
            while !request.contains("\r\n\r\n") {
                match stream.read(&mut buffer).await {
                    Ok(length) if length > 0 => request.push_str(&String::from_utf8_lossy(&buffer[..length])),
                    _ => break,
                }
            }
            let path = request.split(' ').nth(1).unwrap_or_default();
            let shown = request.lines().find_map(|line| line.strip_prefix("authorization: "));
            let (status, body) = match documents.get(path) {
                _ if shown != login => ("401 Unauthorized", ""),
                Some(document) => ("200 OK", document.as_str()),
                None => ("404 Not Found", ""),
            };
            let head =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _sent = stream.write_all(format!("{head}{body}").as_bytes()).await;
        }
    });
    format!("http://{address}")
}

fn redfish(url: &str, login: Login) -> Redfish {
    let settings = RedfishSettings { url: parse::url_template(url).unwrap(), authorities: None, login };
    Redfish::new(&settings.url.for_node("node").unwrap(), &settings).unwrap()
}

fn links(paths: &[&str]) -> Value {
    let members: Vec<Value> = paths.iter().map(|path| json!({"@odata.id": path})).collect();
    json!({"Members@odata.count": members.len(), "Members": members})
}

fn control(watts: i32) -> Value {
    json!({"PowerControl": [{"Name": "System Power Control", "PowerConsumedWatts": watts}]})
}

#[tokio::test]
async fn the_chassis_with_the_power_of_the_node_is_found_by_redfish() {
    let (blade, gpu) = ("/redfish/v1/Chassis/Self", "/redfish/v1/Chassis/GPU1");
    let enclosure = "/redfish/v1/Chassis/Enclosure";
    let link = |path: &str| json!({"@odata.id": path});
    let url = controller(
        &[
            ("/redfish/v1/Chassis", links(&[enclosure, blade, gpu])),
            // It feeds other machines too.
            (
                enclosure,
                json!({"ChassisType": "Enclosure", "Power": link("/redfish/v1/Chassis/Enclosure/Power")}),
            ),
            ("/redfish/v1/Chassis/Enclosure/Power", control(4_000)),
            (
                blade,
                json!({
                    "ChassisType": "Blade",
                    "EnvironmentMetrics": link("/redfish/v1/Chassis/Self/EnvironmentMetrics"),
                    "Power": link("/redfish/v1/Chassis/Self/Power"),
                    "Links": {"ContainedBy": link(enclosure)},
                }),
            ),
            ("/redfish/v1/Chassis/Self/EnvironmentMetrics", json!({"PowerWatts": {"Reading": null}})),
            ("/redfish/v1/Chassis/Self/Power", control(812)),
            (
                gpu,
                json!({
                    "ChassisType": "Module",
                    "EnvironmentMetrics": link("/redfish/v1/Chassis/GPU1/EnvironmentMetrics"),
                    "Links": {"ContainedBy": link(blade)},
                }),
            ),
            ("/redfish/v1/Chassis/GPU1/EnvironmentMetrics", json!({"PowerWatts": {"Reading": 300}})),
        ],
        None,
    )
    .await;
    let mut meter = redfish(&url, Login::None);
    assert_eq!(meter.read().await, Ok(reading(812)));
    assert_eq!(meter.read().await, Ok(reading(812)), "the document is asked for directly");
    let mut named = redfish(&format!("{url}/redfish/v1/Chassis/GPU1/EnvironmentMetrics"), Login::None);
    assert_eq!(named.read().await, Ok(reading(300)));
}

#[tokio::test]
async fn a_controller_that_refuses_or_misleads_is_told_and_says_nothing() {
    let chassis = |power: &str| json!({"ChassisType": "RackMount", "Power": {"@odata.id": power}});
    let path = "/redfish/v1/Chassis/1";
    let power = "/redfish/v1/Chassis/1/Power";
    for (documents, look) in [
        (vec![], PlugLook::Failed),
        (vec![("/redfish/v1/Chassis", json!({"Members": []}))], PlugLook::Malformed),
        (
            vec![("/redfish/v1/Chassis", links(&["http://elsewhere/redfish/v1/Chassis/1"]))],
            PlugLook::Malformed,
        ),
        (vec![("/redfish/v1/Chassis", links(&[path])), (path, chassis("//elsewhere"))], PlugLook::Malformed),
        (
            vec![("/redfish/v1/Chassis", links(&[path])), (path, chassis(power)), (power, control(0))],
            PlugLook::Malformed,
        ),
        (
            vec![
                ("/redfish/v1/Chassis", links(&[path])),
                (path, chassis(power)),
                (power, control(2_000_000)),
            ],
            PlugLook::Malformed,
        ),
        (vec![("/redfish/v1/Chassis", json!("x".repeat(2 << 20)))], PlugLook::Malformed),
    ] {
        let url = controller(&documents, None).await;
        let trouble = redfish(&url, Login::None).read().await.unwrap_err();
        assert_eq!(trouble.look(), look, "{trouble}");
        assert!(trouble.text.len() < 500, "{trouble}");
    }
}

#[tokio::test]
async fn the_login_is_shown_and_a_wrong_one_is_told() {
    let folder = rig::test_machine::Folder::new();
    folder.put("password", "open sesame\n");
    let power = "/redfish/v1/Chassis/1/Power";
    // printf 'me:open sesame' | base64
    let url = controller(&[(power, control(344))], Some("Basic bWU6b3BlbiBzZXNhbWU=")).await;
    let basic = |user: &str| Login::Basic { user: user.to_owned(), password: folder.0.join("password") };
    let url = format!("{url}{power}");
    assert_eq!(redfish(&url, basic("me")).read().await, Ok(reading(344)));
    for login in [basic("you"), Login::None] {
        assert_eq!(redfish(&url, login).read().await.unwrap_err().look(), PlugLook::Denied);
    }
}
