//! Decides which grant the node is under, by a pure rule, and keeps the last grant in a file.
//!
//! ```text
//!  an object of the node ─────────────────────────────▶ Grant     its highest serial counts
//!  the object is gone, or was never read ─────────────▶ as before
//!  the node has yielded some of that serial ──────────▶ Grant     of what is left
//!  the object says `released` ────────────────────────▶ Released  and the file is deleted
//!  the file cannot be read, and there is no object ───▶ Unreadable: everything stays as it is found
//! ```
//!
//! A grant does not end when its policy or its object is deleted, when the node is deselected, or when the API is away.

use super::armed::ArmedNow;
use super::inputs::Inputs;
use super::rows::GrantRow;
use node_kit::{Desire, Kept, NodeGrant};
use power_units::Watts;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The state of the grant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stands {
    /// No grant was ever given.
    #[default]
    Nothing,
    /// This grant is in force.
    Grant(Kept),
    /// The last grant released the node.
    Released(Kept),
    /// There was a grant, but its file cannot be read.
    Unreadable(String),
}

impl Stands {
    /// Reads what the previous process kept.
    pub(crate) fn of_file(path: &Path) -> Self {
        match Kept::read(path) {
            Ok(None) => Self::Nothing,
            Ok(Some(kept)) => Self::Grant(kept),
            Err(error) => Self::Unreadable(error.to_string()),
        }
    }

    /// The grant in force.
    pub(crate) fn grant(&self) -> Option<NodeGrant> {
        self.kept().map(|kept| kept.grant)
    }

    /// The grant in force, with its object.
    pub(crate) fn kept(&self) -> Option<&Kept> {
        match self {
            Self::Grant(kept) => Some(kept),
            Self::Nothing | Self::Released(_) | Self::Unreadable(_) => None,
        }
    }

    /// The object and the serial that were followed last.
    pub(crate) fn followed(&self) -> Option<&Kept> {
        match self {
            Self::Grant(kept) | Self::Released(kept) => Some(kept),
            Self::Nothing | Self::Unreadable(_) => None,
        }
    }

    /// The same grant, of which the node keeps to so much from now on.
    pub(crate) fn left(&self, watts: Watts) -> Self {
        match self {
            Self::Grant(kept) => {
                let grant = NodeGrant { watts: watts.min(kept.grant.watts), ..kept.grant };
                Self::Grant(Kept { grant, ..kept.clone() })
            }
            Self::Nothing | Self::Released(_) | Self::Unreadable(_) => self.clone(),
        }
    }

    /// What to desire of the machine, given what the policy desires, and what armed events leave of a grant.
    pub(crate) fn over(&self, policy: Desire, armed: &ArmedNow) -> Desire {
        match self {
            Self::Nothing | Self::Released(_) => Desire { grant: None, ..policy },
            Self::Grant(_) => Desire { grant: self.grant(), armed: armed.share, ..policy },
            Self::Unreadable(_) => Desire::UNKNOWN,
        }
    }

    pub(crate) fn say(&self) -> String {
        match self {
            Self::Nothing => "no grant stands".to_owned(),
            Self::Grant(Kept { grant, .. }) => {
                format!("grant {}: packages and GPUs may have {} W together", grant.serial, grant.watts)
            }
            Self::Released(Kept { grant, .. }) => format!("grant {} lets the node go", grant.serial),
            Self::Unreadable(why) => format!(
                "{why}; the grant that stood is not known, so every limit stays as it is found until there is another \
                 one, or `joulie-agent restore` forgets it"
            ),
        }
    }
}

/// The object that counts: the one that was followed, else the first by name.
pub(crate) fn object<'a>(inputs: &'a Inputs, stands: &Stands) -> Option<(&'a str, &'a Arc<GrantRow>)> {
    let followed = stands.followed().map(|kept| kept.uid.as_str());
    let mut all = inputs.grants.iter().map(|(name, row)| (name.as_str(), row));
    all.clone().find(|(_, row)| Some(row.uid.as_str()) == followed).or_else(|| all.next())
}

/// The state that follows from these objects; `before` is the state until now.
pub(crate) fn follow(inputs: &Inputs, before: &Stands) -> Stands {
    let Some((_, row)) = object(inputs, before).filter(|_| inputs.grants_known) else {
        return before.clone();
    };
    let kept = Kept { uid: row.uid.clone(), grant: row.grant };
    // What was yielded of a grant stays so until a later one, by what is on disk and by what was told.
    let is_same = |last: &&Kept| last.uid == kept.uid && last.grant.serial == kept.grant.serial;
    let yielded = before.kept().filter(is_same).map(|last| last.grant.watts);
    let left = [yielded, row.yields].into_iter().flatten().fold(kept.grant.watts, Watts::min);
    match before.followed() {
        // The watch lags, or the API was restored from a backup.
        Some(last) if last.uid == kept.uid && kept.grant.serial < last.grant.serial => before.clone(),
        Some(_) | None if row.released => Stands::Released(kept),
        Some(_) | None => Stands::Grant(kept).left(left),
    }
}

/// Why a grant of the node is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ignored {
    /// The object has carried a later serial before.
    Older,
    /// Another object is followed.
    Other,
}

impl Ignored {
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Older => "the object said a later one before",
            Self::Other => "another object speaks for this node",
        }
    }
}

/// The grants of the node that are not followed: the object, the serial, and why.
pub(crate) fn ignored(inputs: &Inputs, stands: &Stands) -> BTreeSet<(String, u64, Ignored)> {
    let Some(last) = stands.followed() else { return BTreeSet::new() };
    let why = |row: &GrantRow| match row.uid == last.uid {
        true => (row.grant.serial < last.grant.serial).then_some(Ignored::Older),
        false => Some(Ignored::Other),
    };
    let one = |row: &GrantRow| Some((row.uid.clone(), row.grant.serial, why(row)?));
    inputs.grants.iter().filter_map(|(_, row)| one(row)).collect()
}

/// How long to wait between two attempts to write the file.
const AGAIN: Duration = Duration::from_secs(30);

/// Writes the state to disk.
pub(crate) fn write(stands: Stands, path: &Path) -> io::Result<()> {
    match stands {
        Stands::Grant(kept) => kept.write(path),
        Stands::Released(_) => Kept::forget(path),
        Stands::Nothing | Stands::Unreadable(_) => Ok(()),
    }
}

/// Writes a state to a file.
type WriteFile<T> = fn(T, &Path) -> io::Result<()>;

/// Writes each change of a state to disk until the sender is gone, and tells what is there. Files are written in a blocking
/// task, so a disk that hangs delays nothing else.
pub(crate) async fn keep<T: Clone + Send + Sync + 'static>(
    node: String,
    path: Option<PathBuf>,
    mut state: watch::Receiver<T>,
    (what, write): (&str, WriteFile<T>),
    told: impl Fn(T),
) {
    let Some(path) = path else { return std::future::pending().await };
    let mut wait = None;
    loop {
        let changed = async {
            match wait {
                Some(wait) => tokio::time::timeout(wait, state.changed()).await.unwrap_or(Ok(())),
                None => state.changed().await,
            }
        };
        if changed.await.is_err() {
            return;
        }
        let (now, file) = (state.borrow_and_update().clone(), path.clone());
        let written = now.clone();
        let why = match tokio::task::spawn_blocking(move || write(now, &file)).await {
            Ok(Ok(())) => {
                told(written);
                wait = None;
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        let path = path.display();
        tracing::error!(node, "{what} cannot be written to {path}: {why}; a restart would lose it");
        wait = Some(AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulie_core::node::cap::DesiredCap;

    fn row(uid: &str, serial: u64, watts: i32, released: bool) -> (String, Arc<GrantRow>) {
        let grant = NodeGrant { serial, watts: Watts::from_int(watts) };
        let (node, uid) = ("node-a".to_owned(), uid.to_owned());
        (
            format!("of-{uid}"),
            Arc::new(GrantRow {
                node,
                uid,
                grant,
                is_highest: false,
                lends: false,
                yields: None,
                released,
                armed: Vec::new(),
                seen: Arc::default(),
            }),
        )
    }

    fn inputs(grants: &[(String, Arc<GrantRow>)]) -> Inputs {
        Inputs { grants: grants.to_vec(), grants_known: true, ..Inputs::default() }
    }

    fn serial(stands: &Stands) -> Option<(u64, Watts)> {
        stands.grant().map(|grant| (grant.serial, grant.watts))
    }

    #[test]
    fn the_highest_serial_of_an_object_counts_and_only_released_ends_it() {
        let mut stands = Stands::Nothing;
        let mut see = |grants: &[(String, Arc<GrantRow>)]| {
            stands = follow(&inputs(grants), &stands);
            serial(&stands)
        };
        let held = |serial, watts| Some((serial, Watts::from_int(watts)));
        assert_eq!(see(&[]), None);
        assert_eq!(see(&[row("a", 3, 500, false)]), held(3, 500));
        assert_eq!(see(&[row("a", 4, 300, false)]), held(4, 300));
        assert_eq!(see(&[row("a", 3, 500, false)]), held(4, 300), "an old one that is told again");
        assert_eq!(see(&[row("a", 3, 500, true)]), held(4, 300), "nor is a release of before");
        assert_eq!(see(&[]), held(4, 300), "deleted");
        assert_eq!(see(&[row("b", 1, 400, false)]), held(1, 400), "made anew");
        assert_eq!(see(&[row("a", 9, 700, false), row("b", 1, 400, false)]), held(1, 400));
        assert_eq!(see(&[row("b", 2, 400, true)]), None);
        assert_eq!(see(&[row("b", 1, 400, false)]), None, "what was released stays so");
        assert_eq!(see(&[row("b", 3, 200, false)]), held(3, 200));
    }

    #[test]
    fn what_was_yielded_stays_so_until_a_later_grant() {
        let held = |stands: &Stands| serial(stands).unwrap();
        let w = Watts::from_int;
        let stands = follow(&inputs(&[row("a", 3, 500, false)]), &Stands::Nothing).left(w(200));
        assert_eq!(held(&stands), (3, w(200)));
        let again = follow(&inputs(&[row("a", 3, 500, false)]), &stands);
        assert_eq!(held(&again), (3, w(200)), "the same object is told again");
        assert_eq!(held(&stands.left(w(400))), (3, w(200)), "nothing is taken back");
        assert_eq!(held(&follow(&inputs(&[row("a", 4, 500, false)]), &stands)), (4, w(500)));
        assert_eq!(
            held(&follow(&inputs(&[row("b", 3, 500, false)]), &stands)),
            (3, w(500)),
            "another object"
        );
        // A process without a file finds in the object what the one before has told.
        let (name, told) = row("a", 3, 500, false);
        let told = GrantRow { yields: Some(w(150)), ..Arc::into_inner(told).unwrap() };
        assert_eq!(held(&follow(&inputs(&[(name, Arc::new(told))]), &Stands::Nothing)), (3, w(150)));
    }

    #[test]
    fn a_grant_that_is_not_followed_is_told_with_the_reason() {
        let stands = follow(&inputs(&[row("a", 3, 500, false)]), &Stands::Nothing);
        let all = [row("a", 2, 700, false), row("b", 9, 400, false)];
        let ignored = ignored(&inputs(&all), &stands);
        let expected = [("a", 2, Ignored::Older), ("b", 9, Ignored::Other)];
        assert_eq!(ignored, expected.map(|(uid, serial, why)| (uid.to_owned(), serial, why)).into());
        assert_eq!(super::ignored(&inputs(&[row("a", 3, 500, false)]), &stands), BTreeSet::new());
        assert_eq!(super::ignored(&inputs(&all), &Stands::Nothing), BTreeSet::new());
    }

    #[test]
    fn nothing_is_concluded_from_a_list_that_was_not_read() {
        let unread = Inputs { grants_known: false, ..inputs(&[row("a", 1, 300, true)]) };
        let stands = follow(&inputs(&[row("a", 1, 300, false)]), &Stands::Nothing);
        assert_eq!(follow(&unread, &stands), stands);
    }

    #[test]
    fn a_grant_that_nobody_can_read_holds_everything_until_there_is_another() {
        let lost = Stands::Unreadable("half a file".to_owned());
        let stands = follow(&inputs(&[]), &lost);
        assert_eq!(
            stands.over(Desire::GONE, &ArmedNow::default()),
            Desire::UNKNOWN,
            "the policy's release is not obeyed"
        );
        let stands = follow(&inputs(&[row("a", 1, 300, false)]), &stands);
        assert_eq!(serial(&stands), Some((1, Watts::from_int(300))));
        assert_eq!(stands.over(Desire::GONE, &ArmedNow::default()).cpu, DesiredCap::Gone);
    }
}
