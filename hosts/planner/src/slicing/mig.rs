//! The MIG profiles of the models that have MIG: the smallest slice, and the one that halves the processor.
//!
//! The names are the vendor's and depend on the memory of the model, so a model whose name does not state its memory
//! has no entry here.

/// A kind of slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) name: &'static str,
    pub(super) per_gpu: u32,
}

/// The two kinds of slice that are advised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Profiles {
    pub(super) small: Slice,
    pub(super) half: Slice,
}

const fn profiles(small: &'static str, smalls: u32, half: &'static str) -> Profiles {
    Profiles { small: Slice { name: small, per_gpu: smalls }, half: Slice { name: half, per_gpu: 2 } }
}

/// Words that a model's name must contain, words that it must not contain, and its profiles; the first matching row
/// counts.
type Row = (&'static [&'static str], &'static [&'static str], Profiles);

const HOPPER_80: Profiles = profiles("1g.10gb", 7, "3g.40gb");
const HOPPER_94: Profiles = profiles("1g.12gb", 7, "3g.47gb");
const HOPPER_96: Profiles = profiles("1g.12gb", 7, "3g.48gb");

const TABLE: &[Row] = &[
    (&["a30"], &[], profiles("1g.6gb", 4, "2g.12gb")),
    (&["a100", "40gb"], &[], profiles("1g.5gb", 7, "3g.20gb")),
    (&["a100", "80gb"], &[], HOPPER_80),
    (&["a800", "40gb"], &[], profiles("1g.5gb", 7, "3g.20gb")),
    (&["a800", "80gb"], &[], HOPPER_80),
    (&["h100", "nvl"], &[], HOPPER_94),
    (&["h100", "94gb"], &[], HOPPER_94),
    (&["h100", "96gb"], &[], HOPPER_96),
    (&["h100"], &["64gb"], HOPPER_80),
    (&["h800", "nvl"], &[], HOPPER_94),
    (&["h800"], &[], HOPPER_80),
    (&["h20"], &["3e", "141gb"], HOPPER_96),
    (&["gh200", "480gb"], &[], HOPPER_96),
    (&["h200"], &[], profiles("1g.18gb", 7, "3g.71gb")),
    (&["b200"], &[], profiles("1g.23gb", 7, "3g.90gb")),
    (&["b300"], &[], profiles("1g.34gb", 7, "3g.135gb")),
    (&["rtx", "pro", "6000", "blackwell"], &[], profiles("1g.24gb", 4, "2g.48gb")),
];

/// The profiles of a model, by the catalogue's name or the vendor's.
pub(super) fn of(model: &str) -> Option<Profiles> {
    if is_other_make(model) {
        return None;
    }
    let fits = |(all, none, _): &&Row| {
        all.iter().all(|word| has_word(model, word)) && !none.iter().any(|word| has_word(model, word))
    };
    TABLE.iter().find(fits).map(|&(_, _, profiles)| profiles)
}

/// Whether the name is of an NVIDIA model.
pub(super) fn is_nvidia(model: &str) -> bool {
    has_word(model, "nvidia") || of(model).is_some()
}

fn is_other_make(model: &str) -> bool {
    ["amd", "instinct", "radeon", "intel"].iter().any(|make| has_word(model, make))
}

fn has_word(model: &str, word: &str) -> bool {
    model.split(|letter: char| !letter.is_ascii_alphanumeric()).any(|part| part.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_has_the_profiles_of_its_own_memory() {
        let row = |model| {
            of(model).map(|Profiles { small, half }| (small.name, small.per_gpu, half.name, half.per_gpu))
        };
        let hopper_80 = Some(("1g.10gb", 7, "3g.40gb", 2));
        assert_eq!(row("NVIDIA_H100_SXM"), hopper_80);
        assert_eq!(row("NVIDIA-H100-80GB-HBM3"), hopper_80);
        assert_eq!(row("NVIDIA H100 PCIe"), hopper_80);
        assert_eq!(row("NVIDIA-A100-SXM4-80GB"), hopper_80);
        assert_eq!(row("NVIDIA A100 80GB PCIe"), hopper_80);
        assert_eq!(row("NVIDIA_H100_NVL"), Some(("1g.12gb", 7, "3g.47gb", 2)));
        assert_eq!(row("NVIDIA GH200 480GB"), Some(("1g.12gb", 7, "3g.48gb", 2)));
        assert_eq!(row("NVIDIA-H20"), Some(("1g.12gb", 7, "3g.48gb", 2)));
        assert_eq!(row("nvidia-h200"), Some(("1g.18gb", 7, "3g.71gb", 2)));
        assert_eq!(row("NVIDIA-A100-PCIE-40GB"), Some(("1g.5gb", 7, "3g.20gb", 2)));
        assert_eq!(row("NVIDIA A30"), Some(("1g.6gb", 4, "2g.12gb", 2)));
        assert_eq!(row("NVIDIA B200"), Some(("1g.23gb", 7, "3g.90gb", 2)));
        let rtx = "NVIDIA RTX PRO 6000 Blackwell Server Edition";
        assert_eq!(row(rtx), Some(("1g.24gb", 4, "2g.48gb", 2)));
    }

    #[test]
    fn a_model_whose_profiles_we_do_not_know_has_none() {
        for model in [
            "",
            "NVIDIA",
            "NVIDIA_L40S",
            "NVIDIA-L4",
            "Tesla-T4",
            "NVIDIA-A100",
            "NVIDIA A100X",
            "NVIDIA H20-3e",
            "NVIDIA H100 64GB",
            "NVIDIA RTX 6000 Ada Generation",
            "AMD_INSTINCT_MI300X",
            "AMD H100",
            "NVIDIA GB200",
        ] {
            assert_eq!(of(model), None, "{model}");
        }
    }
}
