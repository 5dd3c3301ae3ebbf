//! The ways of breaking the contract, each with the rule that must detect it.

use super::run;
use crate::contract::{ContractMode, RefusableOriginals, Rule, check};
use crate::{Control, Key, OriginalsInMemory, PowerHal, Setting};
use power_units::MicroWatts;
use std::string::ToString;

macro_rules! faults {
    ($($test:ident: $fault:ident => $rule:ident,)*) => {
        /// One way of breaking the contract.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Fault {
            /// No fault: the plain mock.
            None,
            $($fault,)*
        }

        const FOUND_OUT: &[Rule] = &[$(Rule::$rule),*];

        mod a_hal_that {
            use super::*;

            $(#[test]
            fn $test() {
                let breach = run(Fault::$fault).map_err(|breach| (breach.rule, breach.to_string())).err();
                assert_eq!(breach.as_ref().map(|found| found.0), Some(Rule::$rule), "{breach:?}");
            })*
        }
    };
}

faults! {
    listing_fails: ListingFails => Describes,
    two_with_one_key: TwoWithOneKey => KeysUnique,
    new_list_each_time: NewListEachTime => DescribeStable,
    calls_what_it_lacks_zero: CallsWhatItLacksZero => SampleComplete,
    leaves_out_its_meter: LeavesOutItsMeter => SampleComplete,
    says_power_for_energy: SaysPowerForEnergy => SampleComplete,
    forgets_the_time: ForgetsTheTime => SampleStamped,
    time_goes_back: TimeGoesBack => SampleStamped,
    counter_jumps_back: CounterJumpsBack => MeterForward,
    counter_beyond_its_modulus: CounterBeyondItsModulus => MeterForward,
    calls_an_unknown_temperature_zero: CallsAnUnknownTemperatureZero => SampleComplete,
    leaves_out_its_dram: LeavesOutItsDram => SampleComplete,
    leaves_out_whether_it_is_throttled: LeavesOutWhetherItIsThrottled => SampleComplete,
    dram_jumps_back: DramJumpsBack => MeterForward,
    throttled_time_runs_back: ThrottledTimeRunsBack => StatePossible,
    counts_instants_as_time: CountsInstantsAsTime => StatePossible,
    says_all_ones_for_a_temperature: SaysAllOnesForATemperature => StatePossible,
    is_busier_than_the_whole: IsBusierThanTheWhole => StatePossible,
    fails_the_whole_batch: FailsTheWholeBatch => BatchSurvives,
    says_what_it_wrote_last: SaysWhatItWroteLast => SampleSeesOthers,
    grants_what_it_lacks: GrantsWhatItLacks => LackingRefused,
    lacking_is_an_io_error: LackingIsAnIoError => LackingRefused,
    accepts_zero: AcceptsZero => ZeroRefused,
    zero_is_the_minimum: ZeroIsTheMinimum => ZeroRefused,
    release_writes_the_default: ReleaseWritesTheDefault => UntouchedRelease,
    never_saves: NeverSaves => SavedFirst,
    saves_too_late: SavesTooLate => SavedFirst,
    saves_too_late_and_takes_it_back: SavesTooLateAndTakesItBack => SavedFirst,
    saves_the_cap: SavesTheCap => SavedOnce,
    saves_at_every_touch: SavesAtEveryTouch => SavedOnce,
    refuses_good_wishes: RefusesGoodWishes => Applies,
    // Fix list agent S16.
    does_not_clamp: DoesNotClamp => Clamped,
    clamps_to_half: ClampsToHalf => Clamped,
    // Fix list agent S14, S17: the read-back counts.
    answers_the_wish: AnswersTheWish => ReadBack,
    answers_another_wish: AnswersAnotherWish => Reported,
    lowers_a_little_more_each_time: LowersALittleMoreEachTime => Repeatable,
    touches_the_next_domain: TouchesTheNextDomain => OthersUntouched,
    raises_first: RaisesFirst => Ordered,
    restores_raising_first: RestoresRaisingFirst => Ordered,
    forgets_to_restore: ForgetsToRestore => Restored,
    // Fix list agent S10: the limit that an administrator had set is the original, not the
    // hardware's maximum.
    restores_the_maximum: RestoresTheMaximum => Restored,
    restores_one_of_two_limits: RestoresOneOfTwoLimits => Restored,
    keeps_what_is_restored: KeepsWhatIsRestored => Restored,
    second_release_fails: SecondReleaseFails => ReleasedTwice,
    second_release_writes: SecondReleaseWrites => ReleasedTwice,
    // Fix list agent S5: a crash does not lose the original.
    only_remembers_its_own_touch: OnlyRemembersItsOwnTouch => RestartRestores,
    saves_again_after_a_restart: SavesAgainAfterARestart => RestartRestores,
    clears_limits_at_start: ClearsLimitsAtStart => RestartRestores,
    // Fix list agent S8, S17: a lock is reported, and the other domains continue.
    locked_is_success: LockedIsSuccess => LockedSaid,
    locked_is_io: LockedIsIo => LockedSaid,
    locked_loses_sight: LockedLosesSight => LockedSaid,
    gone_is_io: GoneIsIo => GoneSaid,
    drops_the_original_of_what_is_gone: DropsTheOriginalOfWhatIsGone => GoneSaid,
    lists_what_is_gone: ListsWhatIsGone => GoneSaid,
    handles_never_age: HandlesNeverAge => StaleRefused,
    keys_by_position: KeysByPosition => KeyFollowsHardware,
}

#[test]
fn a_hal_without_a_fault_keeps_the_contract() {
    let report = run(Fault::None).unwrap();
    assert_eq!((report.domains, report.controls, report.blocked), (4, 3, 0));
    assert_eq!(report.unseen().count(), 0);
}

#[test]
fn every_rule_is_one_that_a_fault_breaks() {
    for rule in Rule::ALL {
        assert!(FOUND_OUT.contains(&rule), "{rule:?}");
    }
}

#[test]
fn a_breach_names_the_domain() {
    for fault in
        [Fault::DoesNotClamp, Fault::LockedIsSuccess, Fault::AnswersTheWish, Fault::RestoresTheMaximum]
    {
        let breach = run(fault).unwrap_err();
        assert!(breach.domain.is_some() && breach.asked.is_some(), "{breach}");
    }
}

#[test]
fn after_a_breach_every_domain_is_released() {
    let machine = super::machine();
    let mut mutant = super::Mutant::open(
        &machine,
        RefusableOriginals::new(OriginalsInMemory::new()),
        Fault::AnswersTheWish,
    );
    let breach =
        check(&mut mutant, &mut super::Behind { machine: &machine, losses: true }, ContractMode::Full)
            .unwrap_err();
    assert_eq!(breach.rule, Rule::ReadBack);
    let found = machine.in_force(&Key::package(0, None), Control::Power);
    assert_eq!(found, Some(Setting::Power(MicroWatts::new(100_000_000))));
    assert!(mutant.originals().inner().is_empty());
}
