//! Each HAL of node-kit's table, with everything that a generic operation on it needs.

use crate::args::Args;
use hal_files::Root;
use node_kit::{BackendKind, HalRow, HardwareSources, JournalShare, NodeAccess, Time, Visit};
use power_hal::contract::RefusableOriginals;
use power_hal::{Control, ErrorKind, Key, Original, Originals, PowerHal};
use std::fmt::Display;

/// The journal that a HAL is opened with.
#[derive(Clone, Debug)]
pub(crate) enum JournalAccess {
    /// It accepts no originals, so that the port writes nothing.
    Closed,
    /// The journal of the node.
    Of(JournalShare),
}

impl Originals for JournalAccess {
    fn keep(&mut self, domain: &Key, control: Control, original: &Original) -> Result<(), ErrorKind> {
        match self {
            Self::Closed => Err(ErrorKind::PermissionDenied),
            Self::Of(share) => share.keep(domain, control, original),
        }
    }

    fn kept(&self, domain: &Key, control: Control) -> Option<Original> {
        match self {
            Self::Closed => None,
            Self::Of(share) => share.kept(domain, control),
        }
    }

    fn forget(&mut self, domain: &Key, control: Control) -> Result<(), ErrorKind> {
        match self {
            Self::Closed => Ok(()),
            Self::Of(share) => share.forget(domain, control),
        }
    }
}

/// A backend.
pub(crate) struct Kit<'a, H: PowerHal> {
    /// Its kind.
    pub(crate) kind: BackendKind,
    /// Opens it.
    pub(crate) open: &'a dyn Fn(JournalAccess) -> Result<H, H::Error>,
    /// What it could not interpret.
    pub(crate) said: fn(&H) -> Vec<String>,
    /// What it has not found.
    pub(crate) absent: &'a dyn Fn(&H) -> String,
}

/// An operation on each backend.
pub(crate) trait HalVisitor {
    /// Runs the operation on one backend.
    fn on<H>(&mut self, kit: &Kit<'_, H>)
    where
        H: PowerHal<Originals = RefusableOriginals<JournalAccess>, Error: Display>;

    /// Skips a backend, with the reason.
    fn leave(&mut self, _kind: BackendKind, _why: &str) {}
}

/// Runs the operation on each backend.
pub(crate) fn each(args: &Args, deed: &mut impl HalVisitor) {
    for kind in BackendKind::ALL {
        let facts = kind.facts();
        match facts.opt_in {
            Some(why) if args.write && !args.requires(facts.hardware) => {
                deed.leave(kind, &format!("{why}; --require {} does it", facts.hardware));
            }
            Some(_) | None => one(args, kind, deed),
        }
    }
}

/// The location of the hardware.
pub(crate) fn sources(args: &Args) -> HardwareSources {
    let sources = args.root.as_deref().map_or_else(HardwareSources::machine, HardwareSources::below);
    let nvml = args.nvml.clone().or(sources.nvml);
    HardwareSources { nvml, ..sources }
}

/// Runs the operation on one backend.
pub(crate) fn one(args: &Args, kind: BackendKind, deed: &mut impl HalVisitor) {
    kind.visit(Doing { sources: &sources(args), deed });
}

struct Doing<'a, D> {
    sources: &'a HardwareSources,
    deed: &'a mut D,
}

impl<D: HalVisitor> Visit for Doing<'_, D> {
    type Out = ();

    fn row<R: HalRow>(self, kind: BackendKind) {
        let Self { sources, deed } = self;
        let open = |book: JournalAccess| {
            let access = match book {
                JournalAccess::Closed => NodeAccess::Look,
                JournalAccess::Of(_) => NodeAccess::Control,
            };
            R::open(sources, access, Time::real(), RefusableOriginals::new(book))
        };
        let absent = |hal: &_| R::absent(sources, hal);
        deed.on(&Kit { kind, open: &open, said: R::complaints, absent: &absent });
    }
}

/// The root folder from the command line.
pub(crate) fn root(args: &Args) -> Root {
    sources(args).root
}
