//! The live view of one job: a few lines that are drawn over themselves on a terminal, plain lines
//! elsewhere. Plain escape codes: eight lines do not need a screen library, and the scroll-back stays whole.

use crate::fitted::wrapped;
use crate::show;
use std::io::{IsTerminal, Write};
use windfall_core::Span;
use windfall_core::english::counted;
use windfall_core::view::{JobView, State};
use windfall_server::api_types::{Hello, JobAnswer};

/// A terminal is taken to be at least this wide.
const NARROWEST: usize = 24;

/// Draws a job as it goes.
pub struct View {
    /// Escape codes are understood.
    terminal: bool,
    live: bool,
    colour: bool,
    world: String,
    drawn: usize,
    last: Option<JobView>,
    events: Vec<String>,
}

impl View {
    /// A view on standard output; plain lines when that is no terminal or `plain` is set.
    pub fn new(hello: &Hello, plain: bool) -> View {
        let terminal = std::io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        View {
            terminal,
            live: terminal && !plain,
            colour: terminal && std::env::var_os("NO_COLOR").is_none(),
            world: hello.world(),
            drawn: 0,
            last: None,
            events: Vec::new(),
        }
    }

    /// Shows the job as it is now.
    pub fn show(&mut self, answer: &JobAnswer) {
        let job = &answer.job;
        let news = self.last.as_ref().and_then(|last| happened(last, job));
        if self.live {
            self.events.extend(news.map(|news| format!("{:>8}  {news}", (job.at - job.submitted_at).to_string())));
            let excess = self.events.len().saturating_sub(4);
            self.events.drain(..excess);
            self.draw(answer);
        } else {
            let told = self.last.as_ref().is_none_or(|last| worth_a_line(last, job));
            if told {
                println!("{}{}", show::line(job), news.map(|news| format!("  ({news})")).unwrap_or_default());
                self.last = Some(job.clone());
            }
            return;
        }
        self.last = Some(job.clone());
    }

    /// A line of our own, above the live view or among the plain lines.
    pub fn say(&mut self, text: &str) {
        print_at_once(&self.erasure());
        self.drawn = 0;
        if self.terminal {
            eprintln!("{}", wrapped(text, size().0).trim_end());
        } else {
            eprintln!("{text}");
        }
    }

    /// Leaves the last picture where it is, and goes on below it.
    pub fn leave(&mut self) {
        self.drawn = 0;
        print_at_once(&self.erasure());
    }

    /// The escape codes that remove the picture. The cursor need not be where the picture left it: the terminal itself writes `^C`
    /// where somebody presses it.
    fn erasure(&self) -> String {
        match (self.terminal, self.drawn) {
            (false, _) => String::new(),
            (true, 0) => "\r\x1b[J".to_owned(),
            (true, lines) => format!("\r\x1b[{lines}A\x1b[J"),
        }
    }

    fn draw(&mut self, answer: &JobAnswer) {
        let (columns, rows) = size();
        let mut lines = self.lines(answer, columns);
        lines.truncate(rows.saturating_sub(1).max(1));
        let picture: String = lines.iter().map(|line| format!("{}\n", fit(line, columns))).collect();
        print_at_once(&format!("{}{picture}", self.erasure()));
        self.drawn = lines.len();
    }

    fn lines(&self, answer: &JobAnswer, columns: usize) -> Vec<String> {
        let job = &answer.job;
        let mut lines = vec![
            format!("{} · job {} · {}", self.paint("1", &job.name), job.id, self.state(job.state)),
            format!("market    {}", self.world),
            format!("progress  {}", self.progress(job, columns)),
            format!("lease     {}", self.lease(job)),
        ];
        if let Some(deadline) = job.deadline {
            let slack = job.slack.map(|slack| format!("   slack {slack}")).unwrap_or_default();
            lines.push(format!("deadline  in {}{slack}", deadline - job.at));
        }
        let elapsed = job.at - job.submitted_at;
        let bought = match (job.owned, job.spot + job.firm) {
            (Span::ZERO, _) => format!("spot {}   on-demand {}", job.spot, job.firm),
            (owned, Span::ZERO) => format!("owned {owned}"),
            (owned, _) => format!("owned {owned}   spot {}   on-demand {}", job.spot, job.firm),
        };
        lines.push(format!(
            "so far    {elapsed}   {}   {}   {} lost   {bought}",
            job.cost,
            counted(job.interruptions.into(), "interruption"),
            job.lost,
        ));
        if let Some(trouble) = &answer.trouble {
            lines.push(format!("trouble   {trouble}"));
        }
        lines.extend(self.events.iter().map(|event| self.paint("2", event)));
        lines
    }

    fn progress(&self, job: &JobView, columns: usize) -> String {
        let Some(done) = show::fraction(job, job.done) else {
            return format!("{} so far", show::work(job, job.done));
        };
        let durable = show::fraction(job, job.durable).unwrap_or(0.0);
        let words = format!(
            "{:>4} of {}   saved {:.0} %",
            show::percent(job),
            job.total.map(|total| show::work(job, total)).unwrap_or_default(),
            durable * 100.0
        );
        let width = columns.saturating_sub(words.len() + 14).clamp(0, 40);
        let (solid, shade) = ((durable * width as f64) as usize, (done * width as f64) as usize);
        let bar: String = (0..width)
            .map(|i| {
                if i < solid {
                    '█'
                } else if i < shade {
                    '▓'
                } else {
                    '░'
                }
            })
            .collect();
        format!("{bar}  {words}")
    }

    fn lease(&self, job: &JobView) -> String {
        let text = show::lease(job);
        match job.lease.as_ref().and_then(|lease| lease.ends_at) {
            Some(ends_at) => format!("{text}   {}", self.paint("33", &format!("taken away in {}", ends_at - job.at))),
            None => text,
        }
    }

    fn state(&self, state: State) -> String {
        let colour = match state {
            State::Running | State::Succeeded => "32",
            State::Draining | State::Paused | State::Waiting | State::Acquiring | State::Starting => "33",
            State::Failed | State::Cancelled | State::Stopped => "31",
        };
        self.paint(colour, state.word())
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// In one piece, so that nothing comes between.
fn print_at_once(text: &str) {
    print!("{text}");
    let _ = std::io::stdout().flush();
}

/// What changed, in words, if people should know.
fn happened(last: &JobView, job: &JobView) -> Option<String> {
    let noticed = |job: &JobView| job.lease.as_ref().is_some_and(|lease| lease.ends_at.is_some());
    if let Some(told) = job.told.as_ref().filter(|_| job.told != last.told) {
        return Some(told.to_string());
    }
    let trouble = |job: &JobView| job.trouble.as_ref().map(|trouble| trouble.text.clone());
    if trouble(job) != trouble(last) {
        return Some(trouble(job).map_or("the trouble is over".to_owned(), |text| format!("trouble: {text}")));
    }
    if job.interruptions > last.interruptions {
        return Some(format!("interruption {}: {} of work lost in all", job.interruptions, job.lost));
    }
    if noticed(job) && !noticed(last) {
        let why = job.lease.as_ref().and_then(|lease| lease.not_well.as_ref());
        let why = why.map_or(String::new(), |why| format!(", its machine is not well: {why}"));
        return Some(format!("notice: the program was told to save{why}"));
    }
    if job.state == last.state {
        return None;
    }
    Some(match job.state {
        State::Waiting => format!("waiting: {}", job.waits_for.as_deref().unwrap_or("for capacity")),
        State::Acquiring => format!("asking for {}", show::lease(job)),
        State::Starting => format!("starting on {}", show::lease(job)),
        State::Running if job.stints > 1 => match show::fraction(job, job.done) {
            Some(_) => format!("resumed at {} on {}", show::percent(job), show::lease(job)),
            None => format!("resumed on {}", show::lease(job)),
        },
        State::Running => format!("running on {}", show::lease(job)),
        State::Draining => "the program was told to save and stop".to_owned(),
        over => over.word().to_owned(),
    })
}

/// Plain output says when something happens, and every tenth of the work.
fn worth_a_line(last: &JobView, job: &JobView) -> bool {
    let tenth = |job: &JobView| show::fraction(job, job.done).map(|fraction| (fraction * 10.0) as u32);
    job.state != last.state
        || job.interruptions != last.interruptions
        || tenth(job) > tenth(last)
        || happened(last, job).is_some()
}

/// How wide a table may be: what COLUMNS says, else the terminal; what is read by a program is not cut.
pub fn width() -> usize {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse::<usize>().ok());
    match said.filter(|columns| *columns > 0) {
        Some(columns) => columns.max(NARROWEST),
        None if std::io::stdout().is_terminal() => size().0,
        None => usize::MAX,
    }
}

/// Columns and rows of the terminal.
pub fn size() -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    let (columns, rows) = size.map_or((80, 24), |size| (usize::from(size.ws_col), usize::from(size.ws_row)));
    (if columns == 0 { 80 } else { columns.max(NARROWEST) }, if rows == 0 { 24 } else { rows })
}

/// Cuts a line to the terminal, so that it never wraps; escape codes take no room.
fn fit(line: &str, columns: usize) -> String {
    let mut text = String::new();
    let (mut shown, mut escape) = (0, false);
    for letter in line.chars() {
        if letter == '\x1b' {
            escape = true;
        } else if !escape {
            shown += 1;
            if shown > columns.saturating_sub(1) {
                text.push('…');
                break;
            }
        }
        text.push(letter);
        if escape && letter.is_ascii_alphabetic() {
            escape = false;
        }
    }
    if line.contains('\x1b') {
        text.push_str("\x1b[0m");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_never_wraps_and_escape_codes_take_no_room() {
        assert_eq!(fit("abcdef", 5), "abcd…");
        assert_eq!(fit("\x1b[1mabc\x1b[0m", 5), "\x1b[1mabc\x1b[0m\x1b[0m");
    }
}
