//! Adds the programs' log to the story, to show what each program knew and when. It is not hashed, because a log
//! contains port numbers.

use crate::scene::Scene;
use std::fmt::{Debug, Write};
use std::sync::Arc;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{Layer, Registry};

/// Captures the log lines of the thread.
pub(crate) struct LogCapture(Arc<Scene>);

impl LogCapture {
    pub(crate) fn subscriber(scene: &Arc<Scene>) -> impl Subscriber + Send + Sync + 'static {
        Registry::default().with(Self(scene.clone()))
    }
}

impl<S: Subscriber> Layer<S> for LogCapture {
    fn enabled(&self, metadata: &tracing::Metadata<'_>, _: Context<'_, S>) -> bool {
        let ours = ["operator", "agent", "extender", "host_kit", "embedded_api"];
        let from = metadata.target().split("::").next().unwrap_or_default();
        *metadata.level() <= Level::INFO && ours.contains(&from)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line(format!("      {} {}:", event.metadata().level(), event.metadata().target()));
        event.record(&mut line);
        self.0.remark(line.0);
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing into a String does not fail.
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
