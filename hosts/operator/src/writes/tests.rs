use super::*;
use embedded_api::{ApiOptions, EmbeddedApi};

const PATH: &str = "/apis/joulie.io/v1alpha1/nodepowerprofiles/a";

struct Rig {
    client: Client,
    _api: EmbeddedApi,
}

impl Rig {
    async fn new() -> Self {
        let api = EmbeddedApi::new(&ApiOptions::with(joulie_api::crd::all())).unwrap();
        Self { client: api.client_as("test"), _api: api }
    }

    async fn apply(&self, manager: &str, status: &str, part: Value) -> Value {
        let mut body = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodePowerProfile", "metadata": {"name": "a"}});
        body.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        let request = http::Request::patch(format!("{PATH}{status}?fieldManager={manager}"))
            .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(body.to_string().into_bytes());
        self.client.request(request.unwrap()).await.unwrap()
    }

    async fn write(&self, target: Target, how: How) -> Result<Landed, Trouble> {
        one(&self.client, Write { target, name: "a".to_owned(), how }, Duration::from_secs(5)).await
    }

    async fn grant(&self) -> crate::rows::GrantSeen {
        let path = "/apis/joulie.io/v1alpha1/nodepowergrants/a";
        let object = self.client.request(http::Request::get(path).body(Vec::new()).unwrap()).await.unwrap();
        host_kit::reflect::Row::read(&object).unwrap()
    }
}

fn grant(serial: u64, watts: i32) -> joulie_core::budget::Grant {
    let watts = power_units::Watts::from_int(watts);
    joulie_core::budget::Grant { serial, watts, ceiling: watts }
}

#[tokio::test]
async fn of_several_grants_over_one_serial_one_lands() {
    use crate::publish::{grant_document, grant_patch};
    let rig = Rig::new().await;
    let create =
        || How::Create { document: grant_document("a", "a", (grant(1, 400), false), Some("r1"), "1.1") };
    rig.write(Target::Grant, create()).await.unwrap();
    assert!(matches!(rig.write(Target::Grant, create()).await, Err(Trouble::Stale(_))), "there is one");
    let seen = rig.grant().await;
    let over = |watts| How::Replace { patch: grant_patch(&seen, (grant(2, watts), true), false, "1.2") };
    rig.write(Target::Grant, over(300)).await.unwrap();
    // A write of another leader, or an old one of ours that was delayed: both were made over serial 1.
    let late = rig.write(Target::Grant, over(500)).await;
    assert!(matches!(late, Err(Trouble::Refused(_) | Trouble::Stale(_))), "{late:?}");
    assert_eq!(rig.grant().await.granted.grant, Some(grant(2, 300)));
    let freed = How::Replace { patch: grant_patch(&rig.grant().await, (grant(3, 720), false), true, "1.3") };
    rig.write(Target::Grant, freed).await.unwrap();
    assert!(rig.grant().await.granted.released);
    let again = How::Replace { patch: grant_patch(&rig.grant().await, (grant(4, 300), false), false, "2.1") };
    rig.write(Target::Grant, again).await.unwrap();
    assert!(!rig.grant().await.granted.released);
}

#[tokio::test]
async fn a_field_that_a_person_owns_is_not_written_over() {
    let rig = Rig::new().await;
    let spec = json!({"spec": {"nodeName": "a", "profile": "eco", "cpu": {"packagePowerCapWatts": 200}}});
    rig.apply("kubectl", "", spec).await;
    let report = json!({"status": {"control": {"cpu": {"backend": "rapl", "result": "applied"}}}});
    rig.apply("joulie-agent", "/status", report).await;
    let document = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodePowerProfile", "metadata": {"name": "a"},
        "spec": {"nodeName": "a", "profile": "eco", "cpu": {"packagePowerCapWatts": 250}}});
    let refused = rig.write(Target::Profile, How::Apply { document, force: false }).await.unwrap_err();
    assert!(matches!(&refused, Trouble::Owned(why) if why.contains("kubectl")), "{refused:?}");
}
