//! Serves the API so that it can be explored with kubectl: `cargo run -p embedded-api --example serve --
//! 127.0.0.1:8001 /tmp/kubeconfig crds/*.json`.

use embedded_api::{ApiOptions, EmbeddedApi};
use std::error::Error;
use std::io::Write;
use std::path::Path;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let usage = "usage: serve ADDRESS KUBECONFIG [DEFINITION.json]...";
    let address = words.next().ok_or(usage)?.parse()?;
    let kubeconfig = words.next().ok_or(usage)?;
    let definitions = words.map(|path| Ok(serde_json::from_slice(&std::fs::read(path)?)?));
    let definitions = definitions.collect::<Result<_, Box<dyn Error>>>()?;
    let serving = EmbeddedApi::new(&ApiOptions::with(definitions))?.serve(address, None, None).await?;
    serving.write_kubeconfig(Path::new(&kubeconfig))?;
    writeln!(std::io::stdout(), "export KUBECONFIG={kubeconfig}   # {}", serving.address())?;
    tokio::signal::ctrl_c().await?;
    serving.stop().await;
    Ok(())
}
