//! Completions of shells and man pages, from the parser.

use crate::args::PluginCli;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use std::io;
use std::path::Path;

/// The completions of a shell for this program.
pub(crate) fn completion(shell: Shell) -> String {
    completion_of(PluginCli::command(), "kubectl-joulie", shell)
}

/// The completions of a shell for a program, from its parser.
#[must_use]
pub fn completion_of(mut command: Command, name: &str, shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// The man pages of this program, into a folder.
pub(crate) fn write(folder: &Path) -> io::Result<String> {
    write_man(PluginCli::command(), folder)
}

/// Writes the man pages of a program and of each of its commands into a folder, and says so.
///
/// # Errors
/// If the folder or a page cannot be written.
pub fn write_man(command: Command, folder: &Path) -> io::Result<String> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(command, folder)?;
    Ok(format!("the pages are in {}\n", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_shell_and_every_command_has_its_pages() {
        for shell in Shell::value_variants() {
            assert!(completion(*shell).contains("explain"), "{shell}");
        }
        let folder = std::env::temp_dir().join(format!("kubectl-joulie-man-{}", std::process::id()));
        write(&folder).unwrap();
        for name in ["kubectl-joulie.1", "kubectl-joulie-explain-pod.1", "kubectl-joulie-doctor.1"] {
            let page = std::fs::read_to_string(folder.join(name)).unwrap();
            assert!(page.contains("kubeconfig"), "{name}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
