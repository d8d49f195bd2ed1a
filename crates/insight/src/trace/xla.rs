//! Traces of XLA, which JAX writes: their events have no category. What an event is follows from the names of its process
//! and its thread, which stand at the beginning of the file.
//!
//! An accelerator's process has a thread for each stream, and where XProf wrote the file more threads that tell of the same
//! work again, by operator and by module: they are not counted. A TPU has no streams; its work is the thread of operators.

use crate::read::event::Event;
use crate::read::json::{integer, text};
use std::collections::{HashMap, HashSet};

/// Streams of operators that run beside the others have this number.
const BESIDE: i64 = 1;

/// What the events of a thread are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Stream(i64),
    Operators,
    OperatorsBeside,
    Steps,
    Other,
}

/// What an event of such a trace means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Work of an accelerator.
    Span { device: u64, stream: i64 },
    /// A call that puts work into a stream.
    Launch,
    /// A call that returns when the accelerator is done.
    Wait,
    /// The runtime at work on the host.
    Work,
    /// A step that the program marked on the host.
    Step(u64),
    /// A step as an accelerator saw it.
    DeviceStep(u64),
    /// Nothing that is counted.
    Nothing,
}

/// Processes and threads by their names.
#[derive(Default)]
pub struct Lines {
    /// Processes that are accelerators, with the accelerator's number.
    accelerators: HashMap<u64, u64>,
    hosts: HashSet<u64>,
    lines: HashMap<(u64, u64), Line>,
    /// Accelerators whose streams are in the trace.
    streamed: HashSet<u64>,
}

/// A call that copies to the host returns when the accelerator is done; so does one that waits for an array.
const WAITS: [&[u8]; 5] =
    [b"np.asarray(jax.Array)", b"block_until_ready", b"BlockUntilReady", b"PjRtBuffer::Await", b"BlockHostUntilDone"];

/// Operators that only hold others, which the trace has too.
const HOLDERS: [&[u8]; 3] = [b"while", b"conditional", b"call"];

impl Lines {
    /// Takes the name of a process or a thread.
    pub fn named(&mut self, event: &Event<'_>, process: u64, thread: u64) {
        let label = unquoted(event.label);
        if event.name == b"process_name" {
            if label.starts_with(b"/device:") && !label.starts_with(b"/device:CPU") {
                // `/device:GPU:2` is number 2; what has no number is told apart by its process.
                let number = label.rsplit(|byte| *byte == b':').next().and_then(integer);
                let number = number.and_then(|number| u64::try_from(number).ok());
                self.accelerators.insert(process, number.unwrap_or(process));
            } else if label.starts_with(b"/host:") {
                self.hosts.insert(process);
            }
        } else if event.name == b"thread_name" {
            let line = line(label);
            if matches!(line, Line::Stream(_)) {
                self.streamed.insert(process);
            }
            self.lines.insert((process, thread), line);
        }
    }

    /// Whether this is such a trace at all.
    pub fn known(&self) -> bool {
        !self.accelerators.is_empty() || !self.hosts.is_empty()
    }

    /// What an event without a category means.
    pub fn meaning(&self, event: &Event<'_>, process: u64, thread: u64) -> Meaning {
        if let Some(device) = self.accelerators.get(&process) {
            return self.on_accelerator(event, *device, process, thread);
        }
        if !self.hosts.contains(&process) {
            return Meaning::Nothing;
        }
        let has = |words: &[&[u8]]| words.iter().any(|word| memchr::memmem::find(event.name, word).is_some());
        match event.step.and_then(|step| u64::try_from(step).ok()) {
            Some(step) => Meaning::Step(step),
            None if event.correlation.is_some() => Meaning::Launch,
            None if has(&WAITS) => Meaning::Wait,
            // With the tracer of Python on, its functions cover all of the time; what they do shows in the runtime's spans.
            None if event.name.starts_with(b"$") => Meaning::Nothing,
            None if has(&[b"::", b"PjitFunction", b"PJRT_", b"Dispatch", b"DevicePut"]) => Meaning::Work,
            None => Meaning::Nothing,
        }
    }

    fn on_accelerator(&self, event: &Event<'_>, device: u64, process: u64, thread: u64) -> Meaning {
        let holds = |word: &&[u8]| {
            unquoted(event.sort) == *word
                || event.name.strip_prefix(*word).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
        };
        match self.lines.get(&(process, thread)) {
            Some(Line::Stream(stream)) => Meaning::Span { device, stream: *stream },
            Some(Line::Steps) => match integer(event.name).and_then(|step| u64::try_from(step).ok()) {
                Some(step) => Meaning::DeviceStep(step),
                None => Meaning::Nothing,
            },
            _ if self.streamed.contains(&process) || HOLDERS.iter().any(holds) => Meaning::Nothing,
            Some(Line::Operators) => Meaning::Span { device, stream: 0 },
            Some(Line::OperatorsBeside) => Meaning::Span { device, stream: BESIDE },
            _ => Meaning::Nothing,
        }
    }
}

fn line(label: &[u8]) -> Line {
    if let Some(rest) = label.strip_prefix(b"Stream #") {
        let digits = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
        return integer(&rest[..digits]).map_or(Line::Other, Line::Stream);
    }
    match label {
        b"XLA Ops" => Line::Operators,
        b"Async XLA Ops" => Line::OperatorsBeside,
        b"Steps" => Line::Steps,
        _ => Line::Other,
    }
}

fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] => inner,
        _ => value,
    }
}

/// A name that says what CUPTI's does: copies with both memories, operators with what the compiler calls them.
pub fn name(event: &Event<'_>) -> Option<String> {
    let copied = |way: &str| {
        let (source, sink) = memories(unquoted(event.copied));
        format!("Memcpy {way} ({source} -> {sink})")
    };
    match event.name {
        b"MemcpyH2D" => Some(copied("HtoD")),
        b"MemcpyD2H" => Some(copied("DtoH")),
        b"MemcpyD2D" => Some(copied("DtoD")),
        b"MemcpyP2P" => Some(copied("PtoP")),
        other if !event.sort.is_empty() => Some(format!("{} ({})", text(other), text(unquoted(event.sort)))),
        _ => None,
    }
}

/// The memories of `kind_src:pinned kind_dst:device size:4`.
fn memories(details: &[u8]) -> (&'static str, &'static str) {
    let of = |key: &[u8]| {
        let from = memchr::memmem::find(details, key).map_or(details.len(), |at| at + key.len());
        let rest = &details[from..];
        let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        match &rest[..end] {
            b"pinned" => "Pinned",
            b"pageable" => "Pageable",
            b"device" => "Device",
            b"managed" => "Managed",
            _ => "Unknown",
        }
    };
    (of(b"kind_src:"), of(b"kind_dst:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(lines: &mut Lines, process: u64, thread: u64, what: &'static [u8], label: &'static [u8]) {
        lines.named(&Event { name: what, label, ..Event::default() }, process, thread);
    }

    fn lines() -> Lines {
        let mut lines = Lines::default();
        named(&mut lines, 1, 0, b"process_name", b"\"/device:GPU:0\"");
        named(&mut lines, 1, 14, b"thread_name", b"\"Stream #14(Compute,MemcpyD2D)\"");
        named(&mut lines, 1, 20, b"thread_name", b"\"XLA Ops\"");
        named(&mut lines, 3, 0, b"process_name", b"\"/device:TPU:0\"");
        named(&mut lines, 3, 3, b"thread_name", b"\"XLA Ops\"");
        named(&mut lines, 3, 1, b"thread_name", b"\"Steps\"");
        named(&mut lines, 3, 2, b"thread_name", b"\"XLA Modules\"");
        named(&mut lines, 9, 0, b"process_name", b"\"/host:CPU\"");
        lines
    }

    #[test]
    fn work_that_is_told_twice_is_counted_once() {
        let lines = lines();
        let span = |name| Event { name, ..Event::default() };
        assert_eq!(lines.meaning(&span(b"gemm"), 1, 14), Meaning::Span { device: 0, stream: 14 });
        assert_eq!(lines.meaning(&span(b"dot.1"), 1, 20), Meaning::Nothing);
        assert_eq!(lines.meaning(&span(b"fusion.1"), 3, 3), Meaning::Span { device: 0, stream: 0 });
        assert_eq!(lines.meaning(&span(b"while.7"), 3, 3), Meaning::Nothing);
        assert_eq!(lines.meaning(&span(b"whiledom"), 3, 3), Meaning::Span { device: 0, stream: 0 });
        assert_eq!(lines.meaning(&span(b"jit_step"), 3, 2), Meaning::Nothing);
        assert_eq!(lines.meaning(&span(b"12"), 3, 1), Meaning::DeviceStep(12));
        assert_eq!(lines.meaning(&span(b"anything"), 77, 1), Meaning::Nothing);
    }

    #[test]
    fn copies_say_which_memory_they_come_from() {
        let copied = b"\"kind_src:pageable kind_dst:device size:4 dest:0 async:1\"";
        let event = Event { name: b"MemcpyH2D", copied, ..Event::default() };
        assert_eq!(name(&event).as_deref(), Some("Memcpy HtoD (Pageable -> Device)"));
        let event = Event { name: b"fusion.3", sort: b"\"convolution fusion\"", ..Event::default() };
        assert_eq!(name(&event).as_deref(), Some("fusion.3 (convolution fusion)"));
    }
}
