//! What `kubectl joulie explain` says of a node or a pod, by its own code, so that the page says the same.
//!
//! To judge a pod it runs the extender's code for a moment, and that may not move between threads; so one thread answers, one
//! question after the other.

use host_kit::clock::HostClock;
use kube::Client;
use kubectl_joulie::args::{Common, Explained, PluginCommand};
use kubectl_joulie::{PluginSession, Reply, run};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// The questions that wait at the same time; more are refused.
const WAITING_MAX: usize = 4;
/// For one answer: the objects of a large cluster are listed in some seconds.
const PATIENCE: Duration = Duration::from_secs(20);

struct Question {
    what: Explained,
    answer: oneshot::Sender<Reply>,
}

/// The thread that explains.
#[derive(Clone)]
pub struct UiExplainer {
    questions: mpsc::Sender<Question>,
}

impl UiExplainer {
    /// Starts it; `client` makes the client that it asks through. It ends when this is dropped.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(
        client: impl FnOnce() -> Client + Send + 'static,
        clock: Arc<dyn HostClock>,
        joulie_namespace: String,
    ) -> io::Result<Self> {
        let (questions, asked) = mpsc::channel(WAITING_MAX);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let common = Common {
            kubeconfig: None,
            context: None,
            namespace: None,
            joulie_namespace,
            output: None,
            debug_token_file: None,
        };
        std::thread::Builder::new().name("explain".to_owned()).spawn(move || {
            runtime.block_on(async move {
                match PluginSession::through(client(), clock, common) {
                    Ok(session) => answer(&session, asked).await,
                    Err(why) => tracing::error!("the page can explain nothing: {why}"),
                }
            });
        })?;
        Ok(Self { questions })
    }

    /// What is said of it.
    ///
    /// # Errors
    /// If nothing can be said, with the reason in words.
    pub async fn explain(&self, what: Explained) -> Result<Reply, String> {
        let (answer, answered) = oneshot::channel();
        let question = Question { what, answer };
        self.questions.try_send(question).map_err(|_| "others ask at the same time: ask again".to_owned())?;
        answered.await.map_err(|_| format!("there is no answer within {} s", PATIENCE.as_secs()))
    }
}

async fn answer(session: &PluginSession, mut asked: mpsc::Receiver<Question>) {
    while let Some(Question { what, mut answer }) = asked.recv().await {
        let command = PluginCommand::Explain { what };
        // Whoever has closed the page needs no answer.
        let said = tokio::select! {
            said = tokio::time::timeout(PATIENCE, run(session, &command)) => said,
            () = answer.closed() => continue,
        };
        if let Ok(reply) = said {
            let _gone = answer.send(reply);
        }
    }
}
