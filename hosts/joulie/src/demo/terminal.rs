//! The terminal while it shows frames: the alternate screen without a cursor. It is restored at the end, also after a
//! panic.
//!
//! It changes no terminal mode: after SIGKILL the shell still works, at worst on the alternate screen (`reset` leaves
//! it).

use super::view::{Glyphs, Paint, Size, Style};
use crate::out::Out;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use terminal_size::{Height, Width, terminal_size};

/// Switches to the alternate screen and hides the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
/// Shows the cursor and returns to the first screen.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// The size that is assumed if the terminal does not report one.
const UNKNOWN: Size = Size { columns: 80, rows: 24 };

/// Whether the alternate screen is active, for the panic hook.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// The alternate screen. Dropping it returns to the first one.
#[derive(Debug)]
pub(super) struct Screen {
    last: Option<Size>,
}

impl Screen {
    /// Switches to the alternate screen. A panic switches back first, so that its message is visible.
    pub(super) fn enter(out: &mut Out) -> Self {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            before(panic);
        }));
        ENTERED.store(true, Ordering::SeqCst);
        out.text(ENTER);
        Self { last: None }
    }

    /// The current size.
    pub(super) fn size() -> Size {
        match terminal_size() {
            Some((Width(columns), Height(rows))) if columns > 0 && rows > 0 => {
                Size { columns: usize::from(columns), rows: usize::from(rows) }
            }
            Some(_) | None => UNKNOWN,
        }
    }

    /// Draws a frame over the last one.
    pub(super) fn draw(&mut self, out: &mut Out, lines: &[String], size: Size) {
        // In one write, so that no partial frame is visible. After a change of size the screen is cleared.
        let mut text = String::from(if self.last == Some(size) { "\x1b[H" } else { "\x1b[H\x1b[2J" });
        self.last = Some(size);
        for (at, line) in lines.iter().enumerate() {
            if at > 0 {
                text.push_str("\r\n");
            }
            text.push_str(line);
            text.push_str("\x1b[K");
        }
        text.push_str("\x1b[J");
        out.text(&text);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// Switches back, once.
fn leave() {
    if ENTERED.swap(false, Ordering::SeqCst) {
        let mut to = std::io::stdout();
        // If the terminal is gone, there is nothing to restore.
        let _written = to.write_all(LEAVE.as_bytes()).and_then(|()| to.flush());
    }
}

/// The style of frames on this terminal; `None` if it cannot move its cursor.
pub(super) fn style() -> Option<Style> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that asks the environment about the terminal"
    )]
    let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    style_of(&variable)
}

fn style_of(variable: &dyn Fn(&str) -> Option<String>) -> Option<Style> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    if set("TERM").is_none_or(|term| term == "dumb") {
        return None;
    }
    // The first variable that is set decides, as in the C library. If none is set, UTF-8 is assumed.
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    let unicode = locale.is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    });
    Some(Style {
        glyphs: if unicode { Glyphs::Unicode } else { Glyphs::Ascii },
        paint: if set("NO_COLOR").is_some() { Paint::None } else { Paint::Colours },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn style(set: &[(&str, &str)]) -> Option<(Glyphs, Paint)> {
        let find =
            |name: &str| set.iter().find(|(one, _)| *one == name).map(|(_, value)| (*value).to_owned());
        style_of(&find).map(|style| (style.glyphs, style.paint))
    }

    #[test]
    fn the_environment_says_what_the_terminal_can() {
        let full = Some((Glyphs::Unicode, Paint::Colours));
        assert_eq!(style(&[("TERM", "xterm-256color")]), full);
        assert_eq!(style(&[("TERM", "xterm"), ("LANG", "de_DE.UTF-8")]), full);
        assert_eq!(style(&[("TERM", "xterm"), ("LANG", "C.utf8"), ("NO_COLOR", "")]), full);
        assert_eq!(style(&[("TERM", "xterm"), ("NO_COLOR", "1")]), Some((Glyphs::Unicode, Paint::None)));
        let plain = Some((Glyphs::Ascii, Paint::Colours));
        assert_eq!(style(&[("TERM", "vt100"), ("LANG", "C")]), plain);
        assert_eq!(style(&[("TERM", "vt100"), ("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")]), plain);
        assert_eq!(style(&[("TERM", "dumb")]), None);
        assert_eq!(style(&[]), None);
    }
}
