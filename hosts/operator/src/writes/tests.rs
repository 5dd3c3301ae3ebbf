use super::*;
use embedded_api::{EmbeddedApi, Options};

const PATH: &str = "/apis/joulie.io/v1alpha1/nodepowerprofiles/a";

struct Rig {
    client: Client,
    _api: EmbeddedApi,
}

impl Rig {
    async fn new() -> Self {
        let api = EmbeddedApi::new(&Options::with(joulie_api::crd::all())).unwrap();
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

    /// The operator writes eco with a cap over the object as it was then.
    async fn write(&self, seen: &Value, watts: u32) -> Result<Landed, Trouble> {
        let meta = &seen["metadata"];
        let document = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodePowerProfile",
            "metadata": {"name": "a", "uid": meta["uid"], "resourceVersion": meta["resourceVersion"]},
            "spec": {"nodeName": "a", "profile": "eco", "cpu": {"packagePowerCapWatts": watts}}});
        let how = How::Apply { document, force: false, over: meta["generation"].as_i64() };
        let write = Write { target: Target::Profile, name: "a".to_owned(), how };
        one(&self.client, write, Duration::from_secs(5)).await
    }
}

#[tokio::test]
async fn an_agents_report_does_not_hold_up_a_cap_and_another_spec_does() {
    let rig = Rig::new().await;
    let spec = |watts: u32| json!({"spec": {"nodeName": "a", "profile": "eco", "cpu": {"packagePowerCapWatts": watts}}});
    let seen = rig.apply(MANAGER, "", spec(300)).await;
    let report =
        json!({"status": {"control": {"cpu": {"backend": "rapl", "result": "applied", "capWatts": 300}}}});
    rig.apply("joulie-agent", "/status", report).await;
    let landed = rig.write(&seen, 250).await.unwrap();
    assert_eq!(landed.generation, Some(2));
    // A leader after us has written another cap: ours comes late, and must not undo it.
    let late = rig.write(&seen, 350).await;
    assert_eq!(late, Err(Trouble::Stale("its spec has changed meanwhile".to_owned())));
}

#[tokio::test]
async fn a_field_that_a_person_owns_is_told_from_a_change_that_came_between() {
    let rig = Rig::new().await;
    let spec = json!({"spec": {"nodeName": "a", "profile": "eco", "cpu": {"packagePowerCapWatts": 200}}});
    let seen = rig.apply("kubectl", "", spec).await;
    let report = json!({"status": {"control": {"cpu": {"backend": "rapl", "result": "applied"}}}});
    rig.apply("joulie-agent", "/status", report).await;
    let refused = rig.write(&seen, 250).await.unwrap_err();
    assert!(matches!(&refused, Trouble::Owned(why) if why.contains("kubectl")), "{refused:?}");
}
