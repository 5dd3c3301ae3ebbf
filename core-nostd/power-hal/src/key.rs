//! The identity of a domain: a key that names the hardware, and so is stable over a restart, a driver reload or a
//! renumbering. It is never an index in a list and never a number that the kernel assigns in order of appearance
//! (`hwmonN`, `cardN`, `intel-rapl:N`); such texts do not parse.

use core::fmt;

/// The kind of hardware of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DomainKind {
    /// A CPU package, or one die of it.
    Package,
    /// A frequency policy: CPUs that share one frequency request.
    Policy,
    /// A whole GPU: a cap is never per partition.
    Gpu,
    /// A CPU socket as its own firmware caps it (HSMP).
    Socket,
}

/// Separators are arrays: the search for a single `char` has a panic path in `core`.
const DASH: [char; 1] = ['-'];

/// The longest key: a GPU's UUID with its prefix takes 40 bytes.
const CAPACITY: usize = 46;

/// The stable name of a domain.
///
/// ```
/// use power_hal::{DomainKind, Key};
/// assert_eq!(Key::package(1, Some(0)).as_str(), "package-1-die-0");
/// // Two libraries that write one address differently mean the same device.
/// assert_eq!(Key::gpu("00000000:C1:00.0")?, Key::gpu("0000:c1:00.0")?);
/// assert_eq!(Key::parse("gpu-0000:c1:00.0")?.kind(), DomainKind::Gpu);
/// assert!(Key::parse("gpu-0").is_err(), "an index is not an identity");
/// # Ok::<(), power_hal::KeyError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    kind: DomainKind,
    len: u8,
    // Only ASCII is ever pushed; bytes beyond `len` are zero, so that the derived order and hash are correct.
    text: [u8; CAPACITY],
}

/// Why a text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// It does not begin with a kind of hardware.
    UnknownKind,
    /// What follows is not a stable name of that kind.
    NotStable,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownKind => {
                "expected package-N, package-N-die-M, cpu-N, socket-N or gpu- and an identity"
            }
            Self::NotStable => {
                "expected numbers, or for a GPU its UUID or its PCI address such as 0000:c1:00.0"
            }
        })
    }
}

impl core::error::Error for KeyError {}

impl Key {
    /// The package with this physical number, or one die of it.
    #[must_use]
    pub fn package(package: u16, die: Option<u16>) -> Self {
        let mut key = Self::empty(DomainKind::Package);
        key.push_text("package-");
        key.push_number(package);
        if let Some(die) = die {
            key.push_text("-die-");
            key.push_number(die);
        }
        key
    }

    /// The frequency policy with this lowest CPU, online or not. Policies share no CPU, so this is unique.
    #[must_use]
    pub fn policy(lowest_cpu: u16) -> Self {
        let mut key = Self::empty(DomainKind::Policy);
        key.push_text("cpu-");
        key.push_number(lowest_cpu);
        key
    }

    /// The socket with this physical number, as its firmware caps it.
    #[must_use]
    pub fn socket(socket: u16) -> Self {
        let mut key = Self::empty(DomainKind::Socket);
        key.push_text("socket-");
        key.push_number(socket);
        key
    }

    /// A GPU by its UUID (`GPU-8f1e…`, with or without the prefix) or its PCI address, in upper or lower case.
    ///
    /// # Errors
    /// When the text is neither.
    pub fn gpu(identity: &str) -> Result<Self, KeyError> {
        let mut key = Self::empty(DomainKind::Gpu);
        key.push_text("gpu-");
        let uuid = identity.strip_prefix("GPU-").unwrap_or(identity);
        if is_uuid(uuid) {
            key.push_text(uuid);
            return Ok(key);
        }
        let (domain, rest) = pci_parts(identity).ok_or(KeyError::NotStable)?;
        // At least four digits, as the kernel writes it; NVML writes eight.
        let zeros = domain.len().saturating_sub(domain.trim_start_matches(['0']).len());
        let cut = zeros.min(domain.len().saturating_sub(4));
        key.push_text(domain.get(cut..).unwrap_or(domain));
        key.push_text(":");
        key.push_text(rest);
        Ok(key)
    }

    /// Parses a text that [`Key::as_str`] wrote.
    ///
    /// # Errors
    /// When the text is not the stable name of a domain.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let key = if let Some(rest) = text.strip_prefix("package-") {
            match rest.split_once(DASH) {
                Some((package, rest)) => {
                    let die = rest.strip_prefix("die-").ok_or(KeyError::NotStable)?;
                    Self::package(number(package)?, Some(number(die)?))
                }
                None => Self::package(number(rest)?, None),
            }
        } else if let Some(rest) = text.strip_prefix("cpu-") {
            Self::policy(number(rest)?)
        } else if let Some(rest) = text.strip_prefix("socket-") {
            Self::socket(number(rest)?)
        } else if let Some(rest) = text.strip_prefix("gpu-") {
            Self::gpu(rest)?
        } else {
            return Err(KeyError::UnknownKind);
        };
        Ok(key)
    }

    /// The kind of hardware that it names.
    #[must_use]
    pub const fn kind(&self) -> DomainKind {
        self.kind
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let text = self.text.get(..usize::from(self.len)).unwrap_or(&[]);
        core::str::from_utf8(text).unwrap_or("")
    }

    const fn empty(kind: DomainKind) -> Self {
        Self { kind, len: 0, text: [0; CAPACITY] }
    }

    /// Appends in lower case. The grammars of the callers bound the length below the capacity.
    fn push_text(&mut self, text: &str) {
        for byte in text.bytes() {
            if let Some(slot) = self.text.get_mut(usize::from(self.len)) {
                *slot = byte.to_ascii_lowercase();
                self.len = self.len.saturating_add(1);
            }
        }
    }

    fn push_number(&mut self, number: u16) {
        let mut digits = [b'0'; 5];
        let mut left = number;
        for slot in digits.iter_mut().rev() {
            *slot = b'0'.saturating_add(u8::try_from(left % 10).unwrap_or(0));
            left /= 10;
        }
        let text = core::str::from_utf8(&digits).unwrap_or("0");
        let significant = text.trim_start_matches(['0']);
        self.push_text(if significant.is_empty() { "0" } else { significant });
    }
}

/// A decimal number without sign, space or leading zeros, so that each domain has exactly one key.
fn number(text: &str) -> Result<u16, KeyError> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    if !plain {
        return Err(KeyError::NotStable);
    }
    text.parse().map_err(|_| KeyError::NotStable)
}

/// Hexadecimal digits in groups of 8, 4, 4, 4 and 12.
fn is_uuid(text: &str) -> bool {
    let mut groups = text.split(DASH);
    let shaped =
        [8, 4, 4, 4, 12].iter().all(|&len| groups.next().is_some_and(|group| is_hex(group, len, len)));
    shaped && groups.next().is_none()
}

/// The PCI domain, and `bus:device.function`.
fn pci_parts(text: &str) -> Option<(&str, &str)> {
    let (domain, rest) = text.split_once([':'])?;
    let (bus, slot) = rest.split_once([':'])?;
    let (device, function) = slot.split_once(['.'])?;
    let stable = is_hex(domain, 4, 8) && is_hex(bus, 2, 2) && is_hex(device, 2, 2) && is_hex(function, 1, 1);
    stable.then_some((domain, rest))
}

fn is_hex(text: &str, len_min: usize, len_max: usize) -> bool {
    (len_min..=len_max).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    const UUID: &str = "8f1e5a30-0b1c-4d7e-9a55-0123456789ab";

    #[test]
    fn a_key_is_the_hardwares_own_name() {
        assert_eq!(Key::package(0, None).as_str(), "package-0");
        assert_eq!(Key::package(65_535, Some(10)).as_str(), "package-65535-die-10");
        assert_eq!(Key::policy(255).as_str(), "cpu-255");
        assert_eq!(Key::socket(1).as_str(), "socket-1");
        let gpu = Key::gpu(&std::format!("GPU-{}", UUID.to_uppercase())).unwrap();
        assert_eq!(gpu.as_str(), std::format!("gpu-{UUID}"));
        assert_eq!(gpu, Key::gpu(UUID).unwrap());
        assert_eq!(Key::gpu("00000000:41:00.0").unwrap().as_str(), "gpu-0000:41:00.0");
        assert_eq!(Key::gpu("00010000:41:00.0").unwrap().as_str(), "gpu-10000:41:00.0");
        assert_eq!(Key::gpu("ABCDEF01:41:1f.7").unwrap().as_str(), "gpu-abcdef01:41:1f.7");
    }

    #[test]
    fn what_is_handed_out_in_order_of_appearance_is_no_key() {
        for text in [
            "gpu-0",
            "gpu-hwmon3",
            "gpu-card1",
            "gpu-GPU-0",
            "gpu-",
            "gpu-nvidia0",
            "gpu-0000:c1:00",
            "gpu-c1:00.0",
            "gpu-0000:c1:00.g",
            "gpu-000000000:c1:00.0",
            "gpu-MIG-8f1e5a30-0b1c-4d7e-9a55-0123456789ab",
            "gpu-8f1e5a30-0b1c-4d7e-9a55-0123456789ab-0",
            "gpu-8f1e5a30-0b1c-4d7e-9a55-0123456789a",
            "package-",
            "package-x",
            "package-00",
            "package--1",
            "package-65536",
            "package-0-die-",
            "package-0-die",
            "package-0-die-1-die-2",
            "cpu-",
            "cpu-+1",
            "cpu- 1",
            "cpu-1 ",
            "cpu-१",
            "socket-01",
        ] {
            assert_eq!(Key::parse(text), Err(KeyError::NotStable), "{text}");
        }
        for text in
            ["", "intel-rapl:0", "hwmon3", "policy0", "psys", "core", "Package-0", "/sys/class/powercap"]
        {
            assert_eq!(Key::parse(text), Err(KeyError::UnknownKind), "{text}");
        }
    }

    #[test]
    fn the_longest_keys_fit() {
        for key in [Key::package(u16::MAX, Some(u16::MAX)), Key::gpu(UUID).unwrap()] {
            assert!(usize::from(key.len) < CAPACITY);
            assert_eq!(Key::parse(&key.to_string()), Ok(key));
        }
        assert_eq!(size_of::<Key>(), 48);
    }

    proptest! {
        #[test]
        fn any_text_is_answered_and_what_parses_is_written_back(text in "\\PC{0,60}|(gpu|cpu|package|socket)-[0-9a-fA-F:.-]{0,50}") {
            if let Ok(key) = Key::parse(&text) {
                prop_assert_eq!(Key::parse(key.as_str()), Ok(key));
            }
        }

        #[test]
        fn different_hardware_has_different_keys(a in any::<(u16, Option<u16>)>(), b in any::<(u16, Option<u16>)>()) {
            prop_assert_eq!(a == b, Key::package(a.0, a.1) == Key::package(b.0, b.1));
            prop_assert_ne!(Key::package(a.0, None), Key::socket(a.0));
            prop_assert_eq!(Key::parse(Key::package(a.0, a.1).as_str()), Ok(Key::package(a.0, a.1)));
            prop_assert_eq!(Key::parse(Key::policy(a.0).as_str()), Ok(Key::policy(a.0)));
            prop_assert_eq!(Key::parse(Key::socket(a.0).as_str()), Ok(Key::socket(a.0)));
        }
    }
}
