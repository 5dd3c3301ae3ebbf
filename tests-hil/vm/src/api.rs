//! An API server outside the virtual machine, for scenarios in which the agent runs as in a cluster. The guest
//! reaches it through a network card, and loses it while the link is down.

use anyhow::{Context, Result, anyhow};
use embedded_api::{ApiOptions, EmbeddedApi, Serving, Tls};
use tokio::runtime::Runtime;

/// A server that runs until this is dropped.
pub(crate) struct Outside {
    /// The threads of the server.
    _runtime: Runtime,
    /// The port with TLS for the agent, as in a cluster.
    secure: Serving,
    /// The same API without TLS, for the scenario's scripts.
    plain: Serving,
}

/// QEMU's address of the host in the guest's network.
const HOST: &str = "10.0.2.2";
/// The size of a drive's sector.
const SECTOR: usize = 512;

impl Outside {
    /// Serves Joulie's kinds on free ports, without objects.
    pub(crate) fn start() -> Result<Self> {
        let runtime = Runtime::new().context("starting the threads of the API server")?;
        let api =
            EmbeddedApi::new(&ApiOptions::with(joulie_api::crd::all())).context("Joulie's own kinds")?;
        let tls = Tls::loopback().map_err(|why| anyhow!("making a certificate: {why}"))?;
        let serve = |tls| runtime.block_on(api.serve(([127, 0, 0, 1], 0).into(), tls, None));
        let secure = serve(Some(tls)).context("serving the API with TLS")?;
        let plain = serve(None).context("serving the API")?;
        Ok(Self { secure, plain, _runtime: runtime })
    }

    /// The address without TLS, as the guest sees it.
    pub(crate) fn address(&self) -> String {
        format!("{HOST}:{}", self.plain.address().port())
    }

    /// The guest's kubeconfig, padded to whole sectors because the guest reads it from a drive.
    pub(crate) fn kubeconfig(&self) -> String {
        let here = format!("https://{}\"", self.secure.address());
        let there =
            format!("https://{HOST}:{}\", \"tls-server-name\": \"localhost\"", self.secure.address().port());
        let text = self.secure.kubeconfig().replace(&here, &there);
        let blanks = " ".repeat(text.len().next_multiple_of(SECTOR) - text.len());
        format!("{text}{blanks}")
    }
}
