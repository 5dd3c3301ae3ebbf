//! The commands of `joulie` and their flags, from its parser.

use super::markdown::{Page, code};
use super::statuses;
use crate::args::Cli;
use crate::node::Ending;
use clap::{Arg, Command, CommandFactory};

pub(super) fn write(page: &mut Page) {
    let mut cli = Cli::command();
    cli.build();
    page.head(2, "joulie");
    page.say(
        "`joulie` without a command is `joulie demo`. `joulie --version` prints the version and the commit.",
    );
    page.head(3, "Exit statuses");
    statuses(page, &Ending::ALL.map(Ending::status));
    for command in cli.get_subcommands().filter(|one| one.get_name() != "help") {
        one(page, command, &format!("joulie {}", command.get_name()));
    }
}

fn one(page: &mut Page, command: &Command, name: &str) {
    page.head(3, name);
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    page.say(&format!("{}.", about.trim_end_matches('.')));
    let is_of_all = name.matches(' ').count() == 1;
    let shown = |arg: &&Arg| !arg.is_global_set() || is_of_all;
    let rows: Vec<Vec<String>> =
        command.get_arguments().filter(shown).filter(|arg| arg.get_id() != "help").map(row).collect();
    if !rows.is_empty() {
        page.table(&["flag", "default", "what it does"], rows);
    }
    for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
        one(page, verb, &format!("{name} {}", verb.get_name()));
    }
}

fn row(arg: &Arg) -> Vec<String> {
    let values: Vec<String> =
        arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
    let takes_value = arg.get_action().takes_values();
    let value = if takes_value { values.join(" ") } else { String::new() };
    let name =
        arg.get_long().map_or_else(|| value.clone(), |long| format!("--{long} {value}").trim().to_owned());
    let defaults = arg.get_default_values().iter().filter(|_| takes_value);
    let defaults: Vec<String> = defaults.map(|text| code(&text.to_string_lossy())).collect();
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let default = if defaults.is_empty() { "none".to_owned() } else { defaults.join(", ") };
    vec![code(&name), default, help]
}
