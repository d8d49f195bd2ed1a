//! Pictures of a report: the roofline as SVG, and one page of HTML that needs nothing else.

mod page;
mod roof;

pub use page::page;
pub use roof::roof;

/// The style of every page.
pub(crate) const STYLE: &str = include_str!("page.css");

/// Text that is safe inside of HTML and SVG.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            letter => safe.push(letter),
        }
    }
    safe
}
