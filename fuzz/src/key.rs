//! Property: a key that parses is written as one name, which parses to the same key; case and prefixes of a GPU do
//! not change the key; and an index in a list is never a key.

use power_hal::{DomainKind, Key};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(key) = Key::parse(text) {
        assert_eq!(Key::parse(key.as_str()), Ok(key));
        assert_eq!(key.to_string(), key.as_str());
        let prefix = match key.kind() {
            DomainKind::Package => "package-",
            DomainKind::Policy => "cpu-",
            DomainKind::Gpu => "gpu-",
            DomainKind::Socket => "socket-",
        };
        assert!(key.as_str().starts_with(prefix) && text.starts_with(prefix));
        if key.kind() != DomainKind::Gpu {
            assert_eq!(key.as_str(), text, "numbers have one spelling");
        }
    }
    if let Ok(gpu) = Key::gpu(text) {
        assert_eq!(gpu.kind(), DomainKind::Gpu);
        assert_eq!(Key::parse(gpu.as_str()), Ok(gpu));
        assert_eq!(gpu.as_str(), gpu.as_str().to_ascii_lowercase());
        let bare = text.strip_prefix("GPU-").unwrap_or(text);
        for other in [
            bare.to_ascii_lowercase(),
            bare.to_ascii_uppercase(),
            format!("gpu-{}", bare.to_ascii_uppercase()),
        ] {
            let again = other.strip_prefix("gpu-").unwrap_or(&other);
            assert_eq!(Key::gpu(again), Ok(gpu), "{other}");
        }
        assert!(bare.len() >= 12, "a key of {bare} is a number in a list");
    }
}
