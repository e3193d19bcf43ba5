//! The terminal: reads keys, draws lines, and restores the terminal at the end, after a panic too.

use std::io;
use std::time::Duration;

use drumfire::control::SurveyOrder;
use drumfire_control::{Answer, Command};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event as Input, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::Paragraph;

use super::lines::{Role, lines};
use super::state::{Effect, Event, State};
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
    source: impl FnMut(Command) -> Result<Answer, String> + Send + 'static,
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
        // One request at a time, however slow the answers are.
        let is_due = now >= due && source.open_count == 0;
        let event = if is_due { Some(Event::Due) } else { source.next_answer().map(Event::Answer) };
        if is_due {
            due = now + SNAPSHOT_INTERVAL;
        }
        let event = match event {
            Some(event) => Some(event),
            None if event::poll(STEP)? => match event::read()? {
                Input::Key(pressed) => key(pressed),
                // After any other event, such as a new size, the view is drawn again.
                _ => {
                    terminal.draw(|frame| draw(frame, &state, theme))?;
                    None
                }
            },
            None => None,
        };
        let Some(event) = event else { continue };
        match state.update(event) {
            Some(Effect::Quit) => return Ok(()),
            Some(Effect::Request(command)) => source.request(command),
            None => {}
        }
        terminal.draw(|frame| draw(frame, &state, theme))?;
    }
    Ok(())
}

/// Translates a key; `None` for a released key or one without a meaning.
fn key(pressed: KeyEvent) -> Option<Event> {
    match pressed.code {
        _ if pressed.kind == KeyEventKind::Release => None,
        KeyCode::Char('c' | 'd') if pressed.modifiers.contains(KeyModifiers::CONTROL) => {
            Some(Event::Interrupt)
        }
        _ if pressed.modifiers.contains(KeyModifiers::CONTROL) => None,
        code => Some(Event::Key(code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_translated_and_control_c_always_ends_the_view() {
        let plain = |code| key(KeyEvent::new(code, KeyModifiers::NONE));
        let control = |letter| key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL));
        assert_eq!(plain(KeyCode::Char('c')), Some(Event::Key(KeyCode::Char('c'))));
        assert_eq!((control('c'), control('k')), (Some(Event::Interrupt), None));
        let mut released = KeyEvent::new(KeyCode::Char('k'), KeyModifiers::NONE);
        released.kind = KeyEventKind::Release;
        assert_eq!(key(released), None, "it would close twice");
    }
}
