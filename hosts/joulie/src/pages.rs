//! Completions and man pages of the programs of a cluster. They have no parser of clap: the commands here are made of their tables
//! of settings, so that both list what the programs accept.

use clap::{Arg, Command, ValueEnum};
use host_kit::config::{AnySetting, SettingDefault, SettingsTable};

/// A program of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClusterProgram {
    /// The agent
    #[value(name = "joulie-agent")]
    Agent,
    /// The operator
    #[value(name = "joulie-operator")]
    Operator,
    /// The extender
    #[value(name = "joulie-extender")]
    Extender,
    /// The simulator
    #[value(name = "joulie-simulator")]
    Simulator,
}

impl ClusterProgram {
    /// Its command line.
    pub(crate) fn command(self) -> Command {
        match self {
            Self::Agent => of_table(&agent::settings::TABLE)
                .arg(
                    Arg::new("standalone")
                        .long("standalone")
                        .value_name("FILE")
                        .help("Work without a cluster, as FILE says; it has settings of its own"),
                )
                .subcommand(
                    Command::new("restore").about("Puts the originals of this machine back, and ends"),
                ),
            Self::Operator => of_table(&operator::settings::TABLE)
                .subcommand(of_table(&operator::UNINSTALL_TABLE))
                .subcommand(of_table(&operator::CHECK_TABLE)),
            Self::Extender => of_table(&extender::settings::TABLE)
                .arg(saved("Answer from a saved cluster; behind FILE come filter, prioritize or explain, POD and nodes"))
                .subcommand(
                    Command::new("replay")
                        .about("Answers recorded requests from a saved cluster")
                        .arg(Arg::new("log").value_name("LOG").help("What REQUEST_LOG has written"))
                        .arg(saved("The saved cluster")),
                ),
            Self::Simulator => of_table(&simulator::TABLE),
        }
    }
}

/// A command of a table: each setting is a flag.
fn of_table(table: &'static SettingsTable) -> Command {
    // A table of a command has the program's name in front of its own.
    let name = table.program.rsplit(' ').next().unwrap_or(table.program);
    let file = Arg::new("config").long("config").value_name("FILE").help("The file of settings");
    let flags = table.settings.iter().map(|setting| flag(*setting));
    Command::new(name).about(table.about).version(env!("CARGO_PKG_VERSION")).arg(file).args(flags)
}

/// The file of a saved cluster.
fn saved(help: &'static str) -> Arg {
    Arg::new("snapshot").long("snapshot").value_name("FILE").help(help)
}

fn flag(setting: &dyn AnySetting) -> Arg {
    // The parser keeps the names for as long as the program runs, which is once.
    let long: &'static str = setting.name().to_ascii_lowercase().replace('_', "-").leak();
    let default = match setting.default() {
        SettingDefault::Required => "required; ".to_owned(),
        SettingDefault::None | SettingDefault::Text("") => String::new(),
        SettingDefault::Text(text) => format!("default {text}; "),
    };
    let help = format!("{} ({default}accepted: {})", setting.help(), setting.accepts());
    Arg::new(setting.name()).long(long).value_name("VALUE").help(help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap_complete::Shell;
    use kubectl_joulie::{completion_of, write_man};

    #[test]
    fn every_program_has_completions_and_a_man_page_with_each_setting() {
        let folder = std::env::temp_dir().join(format!("joulie-man-{}", std::process::id()));
        for program in ClusterProgram::value_variants() {
            let command = program.command();
            command.clone().debug_assert();
            let name = command.get_name().to_owned();
            assert_eq!(program.to_possible_value().unwrap().get_name(), name);
            write_man(command.clone(), &folder).unwrap();
            let page = std::fs::read_to_string(folder.join(format!("{name}.1"))).unwrap();
            let page = page.replace("\\-", "-");
            for shell in Shell::value_variants() {
                let text = completion_of(program.command(), &name, *shell);
                for flag in command.get_arguments().filter_map(Arg::get_long) {
                    assert!(text.contains(flag), "{name}, {shell}: {flag}");
                    assert!(page.contains(&format!("--{flag}")), "{name}: {flag}");
                }
            }
        }
        for page in ["joulie-operator-check.1", "joulie-operator-uninstall.1", "joulie-agent-restore.1"] {
            assert!(folder.join(page).is_file(), "{page}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_flag_is_what_the_program_reads() {
        let command = ClusterProgram::Operator.command();
        let interval = command.get_arguments().find(|arg| arg.get_long() == Some("reconcile-interval"));
        let help = interval.unwrap().get_help().unwrap().to_string();
        assert!(help.contains("accepted: ") && help.contains("default "), "{help}");
        assert!(command.get_arguments().any(|arg| arg.get_long() == Some("config")));
        // What a program takes beside its settings.
        let first = [(ClusterProgram::Agent, "standalone"), (ClusterProgram::Extender, "snapshot")];
        for (program, flag) in first {
            let command = program.command();
            assert!(command.get_arguments().any(|arg| arg.get_long() == Some(flag)), "{program:?}: {flag}");
        }
    }
}
