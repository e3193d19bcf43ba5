//! The terminal: reads keys, draws lines, and restores the terminal at the end, after a panic too.

use std::io;
use std::time::Duration;

use drumfire::control::SurveyOrder;
use drumfire_control::{Command, Response};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event as Input, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::Paragraph;

use super::lines::{Role, lines};
use super::state::{Effect, State};
use super::{SNAPSHOT_INTERVAL, SourceThread};
use crate::clock;

/// How long a wait for a key lasts before answers are handled.
const STEP: Duration = Duration::from_millis(50);

/// Whether roles have the sixteen colors of every terminal, or only bold and reversed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    Colored,
    Plain,
}

impl Theme {
    fn style(self, role: Role) -> Style {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let color = |style: Style, color| if self == Self::Colored { style.fg(color) } else { style };
        match role {
            Role::Title => color(bold, Color::Cyan),
            Role::Head | Role::Selected => Style::new().add_modifier(Modifier::REVERSED),
            Role::Row => Style::new(),
            Role::Bad => color(bold, Color::Red),
            Role::Keys => color(Style::new(), Color::Green),
        }
    }
}

/// Draws the view over the whole frame.
pub(crate) fn draw(frame: &mut Frame<'_>, state: &State, theme: Theme) {
    let area = frame.area();
    let rows = lines(state, area.width.into(), area.height.into());
    let width = usize::from(area.width);
    let rows = rows.into_iter().map(|(role, text)| {
        // A reversed line is reversed up to the edge of the screen.
        Line::styled(format!("{text:<width$}"), theme.style(role))
    });
    frame.render_widget(Paragraph::new(Text::from_iter(rows)), area);
}

/// Shows what `source` answers until a key or `is_over` ends it, and restores the terminal.
pub(crate) fn run(
    source: impl FnMut(Command) -> Result<Response, String> + Send + 'static,
    order: SurveyOrder,
    theme: Theme,
    is_over: &dyn Fn() -> bool,
) -> io::Result<()> {
    let source = SourceThread::start(source)?;
    let mut terminal = ratatui::try_init()?;
    let shown = show(&mut terminal, source, State::new(order), theme, is_over);
    let restored = ratatui::try_restore();
    shown.and(restored)
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    mut source: SourceThread,
    mut state: State,
    theme: Theme,
    is_over: &dyn Fn() -> bool,
) -> io::Result<()> {
    let mut due = clock::now();
    while !is_over() {
        let now = clock::now();
        let mut effect = None;
        // One request at a time, however slow the answers are.
        if now >= due && source.open_count == 0 {
            due = now + SNAPSHOT_INTERVAL;
            effect = state.due();
        } else if let Some(answer) = source.next_answer() {
            state.on_answer(answer);
        } else if !event::poll(STEP)? {
            continue;
        } else if let Input::Key(key) = event::read()? {
            effect = press(&mut state, key);
        }
        match effect {
            Some(Effect::Quit) => return Ok(()),
            Some(Effect::Request(command)) => source.request(command),
            None => {}
        }
        terminal.draw(|frame| draw(frame, &state, theme))?;
    }
    Ok(())
}

/// Handles a key. Ctrl-C ends the view from every screen, and a released key has no meaning.
fn press(state: &mut State, key: KeyEvent) -> Option<Effect> {
    let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        _ if key.kind == KeyEventKind::Release => None,
        KeyCode::Char('c' | 'd') if has_control => Some(Effect::Quit),
        _ if has_control => None,
        code => state.press(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_c_ends_the_view_and_other_keys_with_control_do_nothing() {
        let press = |key| press(&mut State::default(), key);
        let control = |letter| press(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL));
        assert_eq!(
            (control('c'), control('d'), control('q')),
            (Some(Effect::Quit), Some(Effect::Quit), None)
        );
        let mut key = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
        assert_eq!(press(key), Some(Effect::Quit));
        key.kind = KeyEventKind::Release;
        assert_eq!(press(key), None, "it would count twice");
    }
}
