//! An API server outside the machine, for the scenarios in which the agent runs as it does in a cluster: the guest reaches
//! it by a network card, and loses it when the link is down.

use anyhow::{Context, Result, anyhow};
use embedded_api::{ApiOptions, EmbeddedApi, Serving, Tls};
use tokio::runtime::Runtime;

/// A server that runs as long as this lives.
pub(crate) struct Outside {
    /// The threads that serve.
    _runtime: Runtime,
    /// For the agent, as a cluster serves it.
    secure: Serving,
    /// The same for the scenario, which has no TLS.
    plain: Serving,
}

/// What QEMU calls this machine in the guest's network.
const HOST: &str = "10.0.2.2";
/// What a drive is made of.
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

    /// Where the guest finds it without TLS.
    pub(crate) fn address(&self) -> String {
        format!("{HOST}:{}", self.plain.address().port())
    }

    /// The guest's kubeconfig, which it reads from a drive: as long as whole sectors are.
    pub(crate) fn kubeconfig(&self) -> String {
        let here = format!("https://{}\"", self.secure.address());
        let there =
            format!("https://{HOST}:{}\", \"tls-server-name\": \"localhost\"", self.secure.address().port());
        let text = self.secure.kubeconfig().replace(&here, &there);
        let blanks = " ".repeat(text.len().next_multiple_of(SECTOR) - text.len());
        format!("{text}{blanks}")
    }
}
