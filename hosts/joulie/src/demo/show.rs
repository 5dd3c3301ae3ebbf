//! The output on a terminal or as lines, and the table at the end.

use super::events::{EventLog, Line, Tone};
use super::plain::Plain;
use super::state::{Placement, State};
use super::summary::RunSummary;
use super::terminal::{self, Screen};
use super::view::{self, Fixed, Glyphs, Size, Sparkline, Style};
use crate::args::Demo;
use crate::out::Out;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// The interval of points in the power sparkline: 80 columns show the last 20 seconds, wide terminals more.
const POINT: Duration = Duration::from_millis(500);
/// The number of event lines that are kept for the view.
const LINES: usize = 200;

/// The demo's output.
pub(super) struct Show {
    out: Out,
    face: Face,
    fixed: Fixed,
    events: EventLog,
    lines: Vec<Line>,
    untold: Vec<Line>,
    power: Sparkline,
    /// When the sparkline gets its next point.
    point: Duration,
    summary: RunSummary,
    picture: Option<Picture>,
}

/// The form of the output.
enum Face {
    Live { screen: Screen, style: Style },
    Plain(Plain),
}

/// The picture that is drawn of the last state.
struct Picture {
    file: File,
    last: State,
}

/// The size of a picture is that of a large terminal.
const PICTURE: Size = Size { columns: 124, rows: 36 };

impl Show {
    /// Starts the output, before anything is known.
    ///
    /// # Errors
    /// If the requested picture cannot be written.
    pub(super) fn begin(
        out: Out,
        args: &Demo,
        lasting: Option<Duration>,
        kubeconfig: &Path,
    ) -> Result<Self, String> {
        let mut out = out;
        let picture = args.picture.as_deref().map(|path| {
            let file = File::create(path);
            let file = file.map_err(|error| format!("--picture {}: {error}", path.display()))?;
            Ok::<_, String>(Picture { file, last: State::default() })
        });
        let picture = picture.transpose()?;
        let fixed = Fixed { lasting, kubeconfig: kubeconfig.display().to_string(), page: None };
        let face = match terminal::style() {
            Some(style) if out.is_terminal() && !args.plain => {
                let screen = Screen::enter(&mut out);
                Face::Live { screen, style }
            }
            Some(_) | None => Face::Plain(Plain::default()),
        };
        Ok(Self {
            out,
            face,
            fixed,
            events: EventLog::default(),
            lines: Vec::new(),
            untold: Vec::new(),
            power: Sparkline::default(),
            point: Duration::ZERO,
            summary: RunSummary::default(),
            picture,
        })
    }

    /// Says where the page is.
    pub(super) fn has_page(&mut self, url: String) {
        self.fixed.page = Some(url);
    }

    /// Prints the first lines, while the parts start.
    pub(super) fn first(&mut self) {
        let way_in =
            format!("kubectl --kubeconfig {} get nodes,nodetwins,nodepowerprofiles", self.fixed.kubeconfig);
        match &self.face {
            Face::Live { .. } => self.draw(&State::default()),
            Face::Plain(_) => {
                self.out.line("joulie demo: the whole system on 12 simulated nodes; Ctrl-C ends it");
                self.out.line(format!("look at it with: {way_in}"));
                if let Some(page) = &self.fixed.page {
                    self.out.line(format!("or open its page: {page}"));
                }
            }
        }
    }

    /// Adds a line that does not come from the state.
    pub(super) fn tell(&mut self, line: Line) {
        self.untold.push(line);
    }

    /// Shows a state, and the events up to it, which it returns.
    pub(super) fn go_on(&mut self, state: &State, placed: &[Placement]) -> Vec<Line> {
        let mut told = std::mem::take(&mut self.untold);
        told.extend(self.events.go_on(state));
        for line in &told {
            if matches!(line.tone, Tone::Warn | Tone::Bad) {
                self.summary.trouble();
            }
        }
        self.summary.take(state, placed);
        if state.at >= self.point {
            self.point = state.at + POINT;
            self.power.push(state.power());
        }
        if let Some(picture) = &mut self.picture {
            picture.last = state.clone();
        }
        if let Face::Plain(plain) = &mut self.face {
            for line in plain.lines(state, &told, placed) {
                self.out.line(line);
            }
        }
        self.lines.extend(told.iter().cloned());
        let old = self.lines.len().saturating_sub(LINES);
        self.lines.drain(..old);
        self.draw(state);
        told
    }

    fn draw(&mut self, state: &State) {
        let Face::Live { screen, style } = &mut self.face else { return };
        let size = Screen::size();
        let frame = view::frame(state, &self.fixed, &self.lines, &self.power, (size, *style));
        screen.draw(&mut self.out, &frame, size);
    }

    /// Whether the output is still open.
    pub(super) const fn is_seen(&self) -> bool {
        self.out.is_open()
    }

    /// Restores the terminal and prints the table of the whole run. Returns an error if output was lost.
    pub(super) fn end(self) -> Result<(), String> {
        let Self { mut out, face, summary, picture, fixed, lines, power, .. } = self;
        drop(face);
        let drawn = picture.map_or(Ok(()), |Picture { mut file, last }| {
            let rows = view::rows(&last, &fixed, &lines, &power, (PICTURE, Glyphs::Unicode));
            file.write_all(view::svg(&rows, PICTURE.columns).as_bytes())
        });
        out.line("");
        for line in summary.table() {
            out.line(line);
        }
        match out.failure() {
            None => drawn.map_err(|error| format!("the picture cannot be written: {error}")),
            Some(error) => Err(format!("the output is not complete: {error}")),
        }
    }
}
