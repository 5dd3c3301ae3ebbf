//! Which process a number means: the number and when the process began are of no other one since the machine was booted. The
//! inode of its folder in `/proc` is not: the kernel drops a folder that nobody uses, and gives it another inode later.

/// The place of a process's beginning in its `stat`, behind the name (field 22 of `proc(5)`).
const BEGAN: usize = 19;

/// When a process began, in the kernel's ticks, from the text of its `stat`. Its name is in parentheses, and may contain some.
#[must_use]
pub fn began(stat: &[u8]) -> Option<u64> {
    let behind = stat.iter().rposition(|byte| *byte == b')').and_then(|at| stat.get(at + 1..))?;
    std::str::from_utf8(behind).ok()?.split_ascii_whitespace().nth(BEGAN)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_is_read_behind_a_name_with_parentheses() {
        let behind = |began: &str| format!(") S 1{} {began} 4096\n", " 0".repeat(BEGAN - 2));
        for name in ["a", "a) b", "a) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20", "(", ""] {
            assert_eq!(began(format!("7 ({name}{}", behind("100")).as_bytes()), Some(100), "{name}");
        }
        // No name is UTF-8 by law.
        let odd = [&b"7 (\xff\xfe"[..], behind("200").as_bytes()].concat();
        assert_eq!(began(&odd), Some(200));
        for text in
            ["", "7 (a) S 1", "7 (a", &format!("7 (a{}", behind("many")), &format!("7 (a{}", behind("-1"))]
        {
            assert_eq!(began(text.as_bytes()), None, "{text}");
        }
        // Without a name there is nothing to count from.
        assert_eq!(began(" 0".repeat(50).as_bytes()), None);
        // As the kernel writes it of this process.
        assert!(std::fs::read("/proc/self/stat").is_ok_and(|text| began(&text).is_some()));
    }
}
