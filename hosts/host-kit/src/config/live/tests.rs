use super::*;
use crate::config::{ConfigSetting, Invocation, parse};
use crate::metrics::{BuildInfo, MetricsBuilder, Page};
use std::ffi::OsString;
use std::path::Path;

static LOW: ConfigSetting<u32> =
    ConfigSetting::with_default("LOW", "1", |text| parse::whole(text, 0..=100), "0 to 100", "The least.")
        .live();
static HIGH: ConfigSetting<u32> =
    ConfigSetting::with_default("HIGH", "9", |text| parse::whole(text, 0..=100), "0 to 100", "The most.")
        .live();
static PORT: ConfigSetting<u32> = ConfigSetting::with_default(
    "PORT",
    "80",
    |text| parse::whole(text, 1..=99_999),
    "1 to 99999",
    "The port.",
);
static TOKEN: ConfigSetting<Option<String>> =
    ConfigSetting::optional("TOKEN", |text| parse::text(text).map(Some), "any text", "Opens it.").secret();

static TABLE: SettingsTable = SettingsTable {
    program: "test",
    about: "is tested",
    settings: &[&LOW, &HIGH, &PORT, &TOKEN],
    retired: &[],
    families: &[],
};

#[derive(Clone, Debug, PartialEq)]
struct Read {
    low: u32,
    high: u32,
    port: u32,
}

fn read(values: &Values) -> Result<Read, Refusals> {
    let read = Read { low: values.get(&LOW)?, high: values.get(&HIGH)?, port: values.get(&PORT)? };
    if read.low > read.high || read.port < read.low {
        return Err(values.conflict(&["LOW", "HIGH"], "the least is above the most"));
    }
    Ok(read)
}

/// A file of settings, and a program that follows it.
struct Room {
    path: PathBuf,
    config: LiveConfig,
    live: Live<Read>,
    metrics: ConfigMetrics,
    page: Page,
    seconds: i64,
}

impl Room {
    fn new(name: &str, text: &str, environment: &[(&str, &str)]) -> Self {
        let path = std::env::temp_dir().join(format!("host-kit-live-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self::at(path, environment)
    }

    fn at(path: PathBuf, environment: &[(&str, &str)]) -> Self {
        let file = [("JOULIE_CONFIG", path.to_str().unwrap())];
        let environment = environment.iter().chain(&file);
        let environment = environment.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let Invocation::Run(sources) = Invocation::read([], environment) else { panic!("a run") };
        let values = load(&TABLE, &sources).unwrap();
        let at_start = read(&values).unwrap();
        let config = LiveConfig::new(&TABLE, sources, values, read, Timestamp::UNIX_EPOCH);
        let mut builder = MetricsBuilder::of(&BuildInfo::of("test", "0"));
        let metrics = ConfigMetrics::register(builder.registry());
        Self { path, live: config.settings(at_start), config, metrics, page: builder.page(), seconds: 0 }
    }

    fn look(&mut self) -> Option<ConfigChange> {
        self.seconds += 5;
        self.config.look(&self.metrics, Timestamp::from_second(self.seconds).unwrap())
    }

    /// Writes the file, and looks until it is judged.
    fn write(&mut self, text: &str) -> ConfigChange {
        std::fs::write(&self.path, text).unwrap();
        assert_eq!(self.look(), None, "it may be half written");
        self.look().expect("the same text twice is judged")
    }

    fn in_force(&mut self) -> (u32, u32, u32) {
        let Read { low, high, port } = **self.live.refresh();
        (low, high, port)
    }

    fn has_metric(&self, line: &str) -> bool {
        self.page.render().unwrap().lines().any(|one| one == line)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[test]
fn a_valid_change_is_in_force_once_two_looks_find_the_same() {
    let mut room = Room::new("valid", "LOW=2\n", &[]);
    assert_eq!((room.look(), room.in_force()), (None, (2, 9, 80)));
    let change = room.write("# ours\nLOW=3\n");
    let text = "LOW was 2 and is 3".to_owned();
    assert_eq!(change.news, ConfigNews { outcome: ConfigOutcome::Applied, text });
    assert_eq!((change.settings, room.in_force()), (vec!["LOW"], (3, 9, 80)));
    assert_eq!(room.look(), None, "it is told once");
    let page = room.config.page();
    let path = room.path.display().to_string();
    for line in [
        format!("# {path}: taken at 1970-01-01T00:00:15Z"),
        "HIGH=9 (default, since 1970-01-01T00:00:00Z)".to_owned(),
        format!("LOW=3 ({path}:2, since 1970-01-01T00:00:15Z)"),
    ] {
        assert!(page.lines().any(|one| one == line), "{line} is not in\n{page}");
    }
    assert!(room.has_metric("joulie_config_changes_total{outcome=\"applied\"} 1"));
    // Without its line it is the default again.
    assert_eq!((room.write("").settings, room.in_force()), (vec!["LOW"], (1, 9, 80)));
}

#[test]
fn a_file_that_changes_between_two_looks_is_not_judged() {
    let mut room = Room::new("growing", "LOW=2\n", &[]);
    for text in ["", "LO", "LOW=5\nHI", "LOW=2\n", "LOW=7\n"] {
        std::fs::write(&room.path, text).unwrap();
        assert_eq!(room.look(), None, "{text}");
    }
    assert_eq!(room.in_force(), (2, 9, 80));
    assert_eq!(room.look().unwrap().news.outcome, ConfigOutcome::Applied);
    assert_eq!(room.in_force(), (7, 9, 80));
}

#[test]
fn a_mistake_refuses_the_whole_file_and_every_mistake_is_told() {
    let mut room = Room::new("wrong", "LOW=2\n", &[]);
    let change = room.write("LOW=3\nHIGH=101\nLOV=1\nTOKEN=s3cret\nnonsense\nPORT=NaN\n");
    assert_eq!((change.news.outcome, change.settings), (ConfigOutcome::Refused, vec![]));
    for part in ["HIGH=\"101\"", "did you mean LOW?", "a line is NAME=VALUE", "PORT=\"NaN\""] {
        assert!(change.news.text.contains(part), "{part}: {}", change.news.text);
    }
    assert!(!room.config.page().contains("s3cret"));
    assert_eq!(room.in_force(), (2, 9, 80), "the last good one stays");
    let page = room.config.page();
    assert!(
        page.contains("refused as a whole at 1970-01-01T00:00:10Z; what is below stays in force\n#   "),
        "{page}"
    );
    assert!(page.contains("LOW=2 ("), "{page}");
    assert!(room.has_metric("joulie_config_refused 1"));
    // Valid one by one, and not together.
    let change = room.write("LOW=60\nHIGH=50\n");
    assert!(change.news.text.contains("the least is above the most"), "{}", change.news.text);
    assert_eq!(room.in_force(), (2, 9, 80));
    let change = room.write("LOW=2\n");
    assert_eq!(change.news.text, "every setting stays as it is");
    assert!(room.has_metric("joulie_config_refused 0"));
    assert!(room.has_metric("joulie_config_changes_total{outcome=\"refused\"} 2"));
}

#[test]
fn a_setting_that_is_not_live_waits_for_a_restart() {
    let mut room = Room::new("waits", "LOW=2\n", &[]);
    let change = room.write("LOW=3\nPORT=90\nTOKEN=s3cret\n");
    assert_eq!(
        change.news.text,
        "LOW was 2 and is 3; PORT stays 80, since 90 waits for a restart; \
         TOKEN stays (none), since (secret, 6 characters) waits for a restart"
    );
    assert_eq!((change.settings, room.in_force()), (vec!["LOW"], (3, 9, 80)));
    assert!(room.has_metric("joulie_config_waiting 2"));
    let page = room.config.page();
    let waits = "PORT=80 (default, since 1970-01-01T00:00:00Z); the file says 90, which waits for a restart";
    assert!(page.lines().any(|line| line == waits), "{page}");
    assert_eq!(
        room.write("LOW=4\nPORT=90\nTOKEN=s3cret\n").news.text,
        "LOW was 3 and is 4",
        "it is told once"
    );
    room.write("LOW=4\n");
    assert!(room.has_metric("joulie_config_waiting 0") && !room.config.page().contains("waits for"));
    // It is valid for a restart, and not beside the port that is in force.
    let change = room.write("LOW=85\nHIGH=99\nPORT=90\n");
    assert!(change.news.text.ends_with("a restart takes the whole file"), "{}", change.news.text);
    assert_eq!(room.in_force(), (4, 9, 80));
}

#[test]
fn a_file_that_is_away_for_a_moment_changes_nothing_and_one_that_stays_away_is_refused() {
    let mut room = Room::new("away", "LOW=2\n", &[]);
    std::fs::remove_file(&room.path).unwrap();
    assert_eq!(room.look(), None);
    std::fs::write(&room.path, "LOW=2\n").unwrap();
    assert_eq!((room.look(), room.look()), (None, None));
    std::fs::remove_file(&room.path).unwrap();
    assert_eq!(room.look(), None);
    let change = room.look().unwrap();
    assert!(change.news.text.contains("cannot be read"), "{}", change.news.text);
    assert_eq!((change.news.outcome, room.in_force()), (ConfigOutcome::Refused, (2, 9, 80)));
    assert_eq!(room.write("LOW=2\n").news.outcome, ConfigOutcome::Applied);
}

#[test]
fn a_flag_or_a_variable_stays_above_the_file_and_that_is_told() {
    let mut room = Room::new("above", "", &[("LOW", "5")]);
    let change = room.write("LOW=6\n");
    let path = room.path.display();
    assert_eq!(change.news.text, format!("LOW ({path}:1) has no effect: the environment says it"));
    assert_eq!(room.in_force(), (5, 9, 80));
}

#[test]
fn what_is_told_of_a_file_of_nothing_but_mistakes_is_bounded() {
    let mut room = Room::new("many", "", &[]);
    let change = room.write(&"x\n".repeat(5_000));
    assert!(change.news.text.ends_with("; and 4950 more"), "{}", change.news.text.len());
    let change = room.write(&"#".repeat((1 << 20) + 1));
    assert!(change.news.text.contains("has at most 1048576"), "{}", change.news.text);
    assert_eq!(room.in_force(), (1, 9, 80));
}

/// As the kubelet replaces the files of a ConfigMap: a new folder, then one rename of a link.
fn swap(folder: &Path, version: &str, text: &str) {
    std::fs::create_dir_all(folder.join(version)).unwrap();
    std::fs::write(folder.join(version).join("operator.conf"), text).unwrap();
    std::os::unix::fs::symlink(version, folder.join("..data_tmp")).unwrap();
    std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
}

#[test]
fn a_mounted_configmap_is_followed_through_its_links() {
    let folder = std::env::temp_dir().join(format!("host-kit-live-{}-mounted", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    swap(&folder, "..1", "LOW=2\n");
    std::os::unix::fs::symlink("..data/operator.conf", folder.join("operator.conf")).unwrap();
    let mut room = Room::at(folder.join("operator.conf"), &[]);
    swap(&folder, "..2", "LOW=8\n");
    std::fs::remove_dir_all(folder.join("..1")).unwrap();
    assert_eq!(room.look(), None);
    assert_eq!(room.look().unwrap().news.text, "LOW was 2 and is 8");
    assert_eq!(room.in_force(), (8, 9, 80));
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn who_waits_hears_of_a_change_and_of_a_refusal() {
    let mut room = Room::new("waiting", "LOW=2\n", &[]);
    room.write("LOW=3\n");
    let news = room.live.changed().await;
    assert_eq!((news.outcome, room.live.in_force().low), (ConfigOutcome::Applied, 3));
    room.write("LOW=x\n");
    let news = room.live.changed().await;
    assert_eq!((news.outcome, room.live.in_force().low), (ConfigOutcome::Refused, 3));
    let mut fixed = LiveConfig::fixed(String::new()).settings(7_u8);
    assert!(futures::FutureExt::now_or_never(fixed.changed()).is_none());
    assert_eq!(**fixed.refresh(), 7);
}
