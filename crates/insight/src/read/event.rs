//! One event of a trace, as it lies in the buffer.

use super::json::{Cursor, Stop, integer, nanoseconds, real};

/// An event of the Chrome trace format with what profilers put into its `args`. Text is as written, between the quotes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Event<'b> {
    /// `X` for a span; zero where nothing is said.
    pub phase: u8,
    pub category: &'b [u8],
    pub name: &'b [u8],
    pub process: &'b [u8],
    pub thread: &'b [u8],
    pub start_ns: Option<i64>,
    pub duration_ns: Option<i64>,
    /// The start was written with a fraction of a microsecond.
    pub fraction: bool,
    pub stream: Option<i64>,
    pub correlation: Option<i64>,
    pub external: Option<i64>,
    pub bytes: Option<i64>,
    /// Estimated occupancy in percent.
    pub occupancy: Option<f64>,
    pub shapes: &'b [u8],
    pub types: &'b [u8],
    /// Values of inputs that are no tensors.
    pub values: &'b [u8],
    /// `args.name`: what a process or thread is called.
    pub label: &'b [u8],
    /// The number of a step that XLA's profiler was told of.
    pub step: Option<i64>,
    /// What XLA's compiler calls this kind of operation.
    pub sort: &'b [u8],
    /// From where to where XLA copies.
    pub copied: &'b [u8],
}

/// Takes one event.
pub fn event<'b>(cursor: &mut Cursor<'b>) -> Result<Event<'b>, Stop> {
    let mut event = Event::default();
    cursor.object(|key, cursor| {
        match key {
            b"ph" => event.phase = text(cursor)?.first().copied().unwrap_or(0),
            b"cat" => event.category = text(cursor)?,
            b"name" => event.name = text(cursor)?,
            b"pid" => event.process = cursor.value()?,
            b"tid" => event.thread = cursor.value()?,
            b"ts" => {
                if let Some((start, fraction)) = nanoseconds(cursor.value()?) {
                    (event.start_ns, event.fraction) = (Some(start), fraction);
                }
            }
            b"dur" => event.duration_ns = nanoseconds(cursor.value()?).map(|(duration, _)| duration),
            b"args" if cursor.peek()? == b'{' => arguments(cursor, &mut event)?,
            _ => {
                cursor.value()?;
            }
        }
        Ok(())
    })?;
    Ok(event)
}

fn text<'b>(cursor: &mut Cursor<'b>) -> Result<&'b [u8], Stop> {
    if cursor.peek()? == b'"' { cursor.string() } else { cursor.value() }
}

fn arguments<'b>(cursor: &mut Cursor<'b>, event: &mut Event<'b>) -> Result<(), Stop> {
    cursor.object(|key, cursor| {
        let value = cursor.value()?;
        match key {
            b"stream" => event.stream = integer(value),
            b"correlation" | b"correlation_id" => event.correlation = integer(value),
            b"External id" | b"external id" => event.external = integer(value),
            b"bytes" => event.bytes = integer(value),
            b"est. achieved occupancy %" => event.occupancy = real(value),
            b"Input Dims" | b"Input dims" => event.shapes = value,
            b"Input type" => event.types = value,
            b"Concrete Inputs" => event.values = value,
            b"name" => event.label = value,
            b"step_num" => event.step = integer(value),
            b"hlo_category" => event.sort = value,
            b"memcpy_details" => event.copied = value,
            _ => {}
        }
        Ok(())
    })
}
