//! A control plane for manual use: starts it, prints the path of the kubeconfig, and stops it when interrupted.
#![expect(clippy::print_stdout, reason = "it talks to the person who started it")]

use clap::{Parser, Subcommand};
use cluster::assets::{self, Environment};
use cluster::life::{FakeNode, Life};
use cluster::{ControlPlane, ControlPlaneOptions};
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
#[command(name = "cluster", about = "A real Kubernetes control plane on loopback, for tests and for a look")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start it and leave it running until Ctrl-C or SIGTERM
    Up {
        /// The folder for all files; it must not exist yet, and is removed at the end
        #[arg(long)]
        folder: Option<PathBuf>,
        /// Number of nodes, named node-0, node-1, ...
        #[arg(long, default_value_t = 3)]
        nodes: u32,
        /// Start only etcd and the API server
        #[arg(long)]
        api_only: bool,
    },
    /// Build the binaries, unless they exist, and print their paths
    Build,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Build => assets::build(&Environment::of_this_process())
            .map(|folder| println!("{}", folder.display()))
            .map_err(Into::into),
        Command::Up { folder, nodes, api_only } => {
            let options =
                if api_only { ControlPlaneOptions::api_only() } else { ControlPlaneOptions::whole() };
            up(&ControlPlaneOptions { folder, ..options }, nodes)
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error: Box<dyn std::error::Error> = error;
            println!("cluster: {error}");
            ExitCode::FAILURE
        }
    }
}

fn up(options: &ControlPlaneOptions, nodes: u32) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let begun = tokio::time::Instant::now();
        let control_plane = ControlPlane::start(options)?;
        let life = Life::start(control_plane.client().await?, FakeNode::many("node", nodes)).await?;
        // Before this line a signal simply ends the process, and the watchdog stops the children.
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        println!(
            "ready after {:.1} s, with {nodes} nodes, in {}\nkubeconfig: {kubeconfig}\n  \
             kubectl --kubeconfig {kubeconfig} get nodes\nCtrl-C, or SIGTERM to {}, takes it down.",
            begun.elapsed().as_secs_f32(),
            control_plane.folder().display(),
            std::process::id(),
            kubeconfig = control_plane.kubeconfig().display(),
        );
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        drop(life);
        drop(control_plane);
        Ok(())
    })
}
