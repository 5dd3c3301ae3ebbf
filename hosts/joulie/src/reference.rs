//! Generates `docs/REFERENCE.md` from the tables that the programs themselves use: settings, metrics, exit statuses,
//! conditions, Events and flags. This test compares the file; `cargo xtask codegen` writes it.

mod flags;
mod markdown;

use host_kit::config::{AnySetting, FILE_VARIABLE, SettingDefault, SettingsTable};
use host_kit::events::EventReason;
use host_kit::metrics::MetricDescription;
use host_kit::shutdown::status::{EndStatus, OF_PROGRAMS};
use joulie_api::condition::{ConditionReason, ConditionType};
use joulie_api::word::Vocabulary;
use markdown::{Page, code};
use std::collections::BTreeSet;
use std::path::Path;

/// If it is set, which `cargo xtask codegen` does, the file is written instead of compared.
const WRITE: &str = "JOULIE_WRITE_REFERENCE";

/// A program with its settings and metrics.
pub(crate) struct Program {
    table: &'static SettingsTable,
    pub(crate) metrics: Vec<MetricDescription>,
}

pub(crate) fn programs() -> [Program; 4] {
    [
        Program { table: &agent::settings::TABLE, metrics: agent::described_metrics() },
        Program { table: &operator::settings::TABLE, metrics: operator::described_metrics() },
        Program { table: &extender::settings::TABLE, metrics: extender::described_metrics() },
        Program { table: &simulator::TABLE, metrics: simulator::described_metrics() },
    ]
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the one switch between writing and comparing")]
fn the_reference_is_what_the_programs_define() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/REFERENCE.md");
    let text = reference();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = found.lines().zip(text.lines()).find(|(found, made)| found != made);
    assert!(
        found == text,
        "docs/REFERENCE.md is old: run `cargo xtask codegen`; first difference: {differs:?}"
    );
}

#[test]
fn every_setting_and_metric_says_what_it_is() {
    for Program { table, metrics } in programs() {
        for setting in table.settings {
            let said = !setting.help().is_empty() && !setting.accepts().is_empty();
            assert!(said, "{} of {}", setting.name(), table.program);
        }
        let mut names = BTreeSet::new();
        for metric in metrics {
            assert!(metric.help.len() > 5, "{} of {}", metric.name, table.program);
            assert!(names.insert(metric.name), "{} is registered twice in {}", metric.name, table.program);
        }
    }
}

fn reference() -> String {
    let mut page = Page::new("Reference");
    page.say(
        "<!-- Generated from the tables of the programs by `cargo xtask codegen`; changes here are lost. -->\n\n\
         Every setting, metric, exit status, condition and Event of each program, as the programs define them. What to do about\n\
         what you see is in [OPERATE](OPERATE.md), how to build and start the programs in [INSTALL](INSTALL.md).",
    );
    let programs = programs();
    of_all(&mut page, &programs);
    for program in &programs {
        of_one(&mut page, program, &programs);
    }
    flags::write(&mut page);
    conditions(&mut page);
    events(&mut page);
    page.text()
}

/// The part about all programs of a cluster.
fn of_all(page: &mut Page, programs: &[Program]) {
    page.head(2, "Every program in a cluster");
    page.say(
        "A setting is a flag (`--reconcile-interval 1s`), a variable of the environment (`RECONCILE_INTERVAL=1s`) or a line\n\
         `NAME=VALUE` of a file. A flag wins over a variable, a variable over the file. A value that cannot be used, a name\n\
         that does not exist and a name that is nearly one end the start with status 2 and a list of every mistake. The file is\n\
         followed while the program runs: what is marked as live takes effect within ten seconds, everything else in it waits for a\n\
         restart, and a file with a mistake is refused as a whole. An empty value means that the setting is not set. `--help`\n\
         prints the same lists as this page, `--version` the version and the commit. A duration is numbers with their units, the largest first: `1h30m`, `90s`, `250ms`, `1.5h`, `2d`.",
    );
    let mut rows = vec![setting_row_of_file()];
    rows.extend(
        programs[0].table.settings.iter().filter(|one| is_common(**one, programs)).map(|one| row_of(*one)),
    );
    page.table(&SETTING_HEAD, rows);
    page.head(3, "Exit statuses");
    statuses(page, &OF_PROGRAMS);
    page.head(3, "Metrics");
    page.say(
        "`METRICS_ADDR` (of the simulator: `SIM_ADDR`) serves `/metrics`, `/livez`, `/readyz`\n\
         (`/readyz?verbose` gives a reason for each check), `/debug/config` and `/debug/log`. `/metrics` is OpenMetrics with units for a\n\
         client that asks for it (`Accept`), else the classic text, and packed with gzip for one that takes that. A series of what is not\n\
         known is not there: there is no zero for it.",
    );
    let common: Vec<_> =
        programs[0].metrics.iter().filter(|one| is_everywhere(one, programs)).copied().collect();
    metrics(page, &common);
}

fn of_one(page: &mut Page, program: &Program, programs: &[Program]) {
    let table = program.table;
    page.head(2, table.program);
    page.say(&format!("`{}`: {}.", table.program, table.about.trim_end_matches('.')));
    page.head(3, "Settings");
    let own = table.settings.iter().filter(|one| !is_common(**one, programs));
    page.table(&SETTING_HEAD, own.map(|one| row_of(*one)).collect());
    if !table.retired.is_empty() {
        page.say("These names are accepted, do nothing, and are named in a warning at the start:");
        let rows = table.retired.iter().map(|one| vec![code(one.name), one.note.to_owned()]);
        page.table(&["name", "why"], rows.collect());
    }
    page.head(3, "Metrics");
    let own: Vec<_> = program.metrics.iter().filter(|one| !is_everywhere(one, programs)).copied().collect();
    metrics(page, &own);
    if table.program == agent::settings::TABLE.program {
        page.head(3, "Exit statuses of `joulie-agent restore`");
        statuses(page, &agent::RESTORE_STATUSES);
        let alone = &agent::settings::STANDALONE_TABLE;
        page.head(3, &format!("`{}`", alone.program));
        page.say(&format!("It {}. It has these settings and no others:", alone.about));
        page.table(&SETTING_HEAD, alone.settings.iter().map(|one| row_of(*one)).collect());
    }
    if table.program == operator::settings::TABLE.program {
        let uninstall = (&operator::UNINSTALL_TABLE, operator::UNINSTALL_STATUSES);
        for (command, ends) in [uninstall, (&operator::CHECK_TABLE, operator::CHECK_STATUSES)] {
            page.head(3, &format!("`{}`", command.program));
            page.say(&format!("It {}. It has these settings and no others:", command.about));
            page.table(&SETTING_HEAD, command.settings.iter().map(|one| row_of(*one)).collect());
            statuses(page, &ends);
        }
    }
}

const SETTING_HEAD: [&str; 5] = ["setting", "default", "at run time", "accepted", "what it does"];

fn row_of(setting: &dyn AnySetting) -> Vec<String> {
    let names: Vec<String> = setting.names().into_iter().map(code).collect();
    let default = match setting.default() {
        SettingDefault::Required => "required".to_owned(),
        SettingDefault::None | SettingDefault::Text("") => "none".to_owned(),
        SettingDefault::Text(text) => code(text),
    };
    let live = if setting.live() { "live" } else { "" };
    vec![
        names.join(" or "),
        default,
        live.to_owned(),
        setting.accepts().to_owned(),
        setting.help().to_owned(),
    ]
}

fn setting_row_of_file() -> Vec<String> {
    let name = format!("{} or {}", code(FILE_VARIABLE), code("--config"));
    let help = "The file of settings, which is followed while the program runs";
    [&*name, "none", "", "the path of a file", help].map(str::to_owned).to_vec()
}

/// Whether every program has exactly this setting.
fn is_common(setting: &dyn AnySetting, programs: &[Program]) -> bool {
    let has =
        |program: &Program| program.table.settings.iter().any(|one| one.describe() == setting.describe());
    programs.iter().all(has)
}

fn is_everywhere(metric: &MetricDescription, programs: &[Program]) -> bool {
    programs.iter().all(|program| program.metrics.contains(metric))
}

fn metrics(page: &mut Page, all: &[MetricDescription]) {
    let rows = all.iter().map(|metric| {
        let labels: Vec<String> = metric.labels.iter().map(|label| code(label.name)).collect();
        let kind = format!("{:?}", metric.kind).to_lowercase();
        vec![code(&metric.series()), kind, labels.join(", "), metric.help.to_owned()]
    });
    page.table(&["metric", "kind", "labels", "what it tells"], rows.collect());
    let mut values = Vec::new();
    for metric in all {
        for label in metric.labels.iter().filter(|label| !label.values.is_empty()) {
            let words = label.values.iter().map(|value| match value.meaning.trim().trim_end_matches('.') {
                "" => code(value.word),
                meaning => format!("{}: {meaning}", code(value.word)),
            });
            let row = vec![code(&metric.series()), code(label.name), words.collect::<Vec<_>>().join("; ")];
            values.push(row);
        }
    }
    if !values.is_empty() {
        page.say("The values of labels that are closed lists:");
        page.table(&["metric", "label", "values"], values);
    }
}

fn statuses(page: &mut Page, all: &[EndStatus]) {
    let row = |status: &EndStatus| vec![status.code.to_string(), status.meaning.to_owned()];
    page.table(&["status", "meaning"], all.iter().map(row).collect());
}

fn conditions(page: &mut Page) {
    page.head(2, "Conditions");
    page.say(
        "The agent writes `CapEnforced` on the NodePowerProfile (with `DESIRED_SOURCE=twin` on the NodeTwin) and `Accepted` on the\n\
         TelemetryProfile of its node, the operator the\n\
         others on the NodeTwin, `Overridden` on the NodePowerProfile too, and `TelemetryFresh` and `Overridden` on the\n\
         WorkloadProfile. A condition that is not there says nothing.",
    );
    let mut reasons: Vec<ConditionReason> = agent::cap_reasons();
    reasons.extend(agent::route_reasons());
    reasons.extend(operator::reasons::CONDITION_REASONS);
    for about in ConditionType::ALL {
        page.head(3, about.as_str());
        let of_it = reasons.iter().filter(|reason| reason.about == *about);
        let rows = of_it.map(|reason| {
            vec![reason.status.as_str().to_owned(), code(reason.word), reason.meaning.to_owned()]
        });
        page.table(&["status", "reason", "what it means, and what to do"], rows.collect());
    }
}

fn events(page: &mut Page) {
    page.head(2, "Events");
    page.say(
        "The operator and the agents post Events; those about the Lease `joulie-plan` are in the namespace `JOULIE_NAMESPACE`, those\n\
         about objects without a namespace in `default`. The extender posts none.",
    );
    let row = |by: &str, event: &EventReason| {
        let severity = format!("{:?}", event.severity);
        vec![code(event.word), severity, by.to_owned(), event.about.to_owned(), event.meaning.to_owned()]
    };
    let of_operator = operator::reasons::EVENT_REASONS.iter().map(|event| row("operator", event));
    let of_agent = agent::EVENT_REASONS.iter().map(|event| row("agent", event));
    page.table(&["reason", "type", "by", "about", "what it means"], of_operator.chain(of_agent).collect());
}
