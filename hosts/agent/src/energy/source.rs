//! By what drawn energy is divided among accounts.

use host_kit::closed_label;

closed_label! {
    /// By what energy was divided among accounts.
    pub(crate) enum EnergySource {
        /// The processor time of control groups.
        Cgroups = "cgroups",
        /// What Kepler says that pods used.
        Kepler = "kepler",
        /// Who holds the card: one holder pays for all of it, several alike.
        Holders = "holders",
        /// How much the processes of each pod used the card.
        Processes = "processes",
        /// The sizes of the MIG instances that pods hold.
        Instances = "instances",
        /// Nothing: a gap of meters, or no source that answers.
        Nothing = "none",
    }
}
