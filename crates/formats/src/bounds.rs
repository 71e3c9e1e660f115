//! How much of a trace is read, so that a file of others takes neither all memory nor all day.
//!
//! Of one file: bytes once unpacked, how much smaller it was packed, bytes of one event. Of all files of
//! a trace: events that are kept. Two of them are larger where the environment says so:
//!
//! | bound | default | raised by |
//! |---|---|---|
//! | unpacked bytes of a file | 16 GiB | `ALLRAIL_MAX_TRACE_BYTES`, such as `64 GiB` |
//! | events that are kept, or nodes | 20,000,000 | `ALLRAIL_MAX_TRACE_EVENTS` |
//! | unpacked bytes for each packed one, beyond 256 MiB | 250 | |
//! | bytes of one event | 64 MiB | |

use std::cell::Cell;
use std::io::{Error, Read};
use std::rc::Rc;
use std::str::FromStr;

use allrail_core::{Bytes, FieldError, counted};

const BYTES: &str = "ALLRAIL_MAX_TRACE_BYTES";
const EVENTS: &str = "ALLRAIL_MAX_TRACE_EVENTS";
const MAX_BYTES: u64 = 16 << 30;
const MAX_EVENTS: u64 = 20_000_000;
/// JSON packs to a tenth or a thirtieth; zeros to a thousandth.
const MAX_RATIO: u64 = 250;
/// Below it any ratio will do.
const ANY_RATIO: u64 = 256 << 20;
/// The longest file of text that is read whole.
const MAX_TEXT: u64 = 1 << 30;
const MAX_EVENT: u64 = 64 << 20;

/// The bounds of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Of a file, unpacked.
    bytes: u64,
    /// Of all files.
    events: u64,
}

impl Bounds {
    /// The defaults, or what the environment says.
    ///
    /// # Errors
    /// What it says is no number.
    pub(super) fn of_environment() -> Result<Self, FieldError> {
        Self::of(&|name| std::env::var(name).ok())
    }

    fn of(said: &dyn Fn(&str) -> Option<String>) -> Result<Self, FieldError> {
        let number =
            |name: &str, usual: u64, read: &dyn Fn(&str) -> Option<u64>, hint: &str| match said(
                name,
            )
            .filter(|text| !text.is_empty())
            {
                None => Ok(usual),
                Some(text) => read(text.trim()).filter(|number| *number > 0).ok_or_else(|| {
                    FieldError::new(name, &text, "it is no such number above 0", hint)
                }),
            };
        let bytes = |text: &str| {
            let read = Bytes::from_str(text).ok().map(Bytes::count);
            text.parse().ok().or(read)
        };
        Ok(Self {
            bytes: number(BYTES, MAX_BYTES, &bytes, "for example `64 GiB`")?,
            events: number(EVENTS, MAX_EVENTS, &|text| text.parse().ok(), "for example 100000000")?,
        })
    }

    /// Says no to more events than are kept: why, and what to do.
    pub(super) fn check_events(self, kept: u64) -> Result<(), (String, String)> {
        if kept <= self.events {
            return Ok(());
        }
        Err((
            format!("it has more than {}", counted(self.events, "event")),
            format!("profile fewer steps; or set {EVENTS} where there is memory for more"),
        ))
    }
}

/// What is known of a file while it is read.
pub(super) struct Meter {
    bounds: Bounds,
    /// Of the file as it lies on the disk, where it is packed.
    packed: Option<u64>,
    read: Cell<u64>,
    /// Where the event began that is read now; `None` between events.
    event: Cell<Option<u64>>,
    exceeded: Cell<Option<(String, String)>>,
}

impl Meter {
    pub(super) fn new(bounds: Bounds, packed: Option<u64>) -> Rc<Self> {
        let (read, event, exceeded) = (Cell::new(0), Cell::new(None), Cell::new(None));
        Rc::new(Self { bounds, packed, read, event, exceeded })
    }

    /// An event begins.
    pub(super) fn begin(&self) {
        self.event.set(Some(self.read.get()));
    }

    /// It is read, and so many are kept in all.
    ///
    /// # Errors
    /// They are too many.
    pub(super) fn end(&self, kept: u64) -> Result<(), String> {
        self.event.set(None);
        self.bounds.check_events(kept).map_err(|(why, hint)| {
            self.exceeded.set(Some((why.clone(), hint)));
            why
        })
    }

    /// Which bound ended the reading, and what to do.
    pub(super) fn exceeded(&self) -> Option<(String, String)> {
        self.exceeded.take()
    }

    fn count(&self, bytes: usize) -> Result<(), Error> {
        let read = self.read.get() + bytes as u64;
        self.read.set(read);
        let room = |name: &str| format!("is it the right file? If so, set {name} higher");
        let over = if read > self.bounds.bytes {
            Some((
                format!("it has more than {} once unpacked", counted(self.bounds.bytes, "byte")),
                room(BYTES),
            ))
        } else if self.packed.is_some_and(|packed| read > ANY_RATIO.max(packed * MAX_RATIO)) {
            let hint = "is it a trace? If so, unpack it first: `gzip -d`".to_owned();
            Some((format!("it unpacks to more than {MAX_RATIO} times its size"), hint))
        } else if self.event.get().is_some_and(|begun| read - begun > MAX_EVENT) {
            let hint = "is it a trace? Events have some hundred bytes".to_owned();
            Some((format!("one of its events is longer than {} MiB", MAX_EVENT >> 20), hint))
        } else {
            None
        };
        let Some((why, hint)) = over else { return Ok(()) };
        self.exceeded.set(Some((why.clone(), hint)));
        Err(Error::other(why))
    }
}

/// A reader that counts what it gives.
pub(super) struct Metered<R> {
    inner: R,
    meter: Rc<Meter>,
}

impl<R> Metered<R> {
    pub(super) fn new(inner: R, meter: &Rc<Meter>) -> Self {
        Self { inner, meter: Rc::clone(meter) }
    }
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.meter.count(read)?;
        Ok(read)
    }
}

/// The text of a small file beside a trace.
///
/// # Errors
/// It cannot be read, or is no small file.
pub(super) fn read_text(path: &std::path::Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_TEXT + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_TEXT {
        return Err(Error::other(format!("it is larger than {} MiB", MAX_TEXT >> 20)));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &str, events: &str) -> Result<Bounds, FieldError> {
        let said = [(BYTES, bytes), (EVENTS, events)];
        Bounds::of(&|name| said.iter().find(|one| one.0 == name).map(|one| one.1.to_owned()))
    }

    #[test]
    fn the_environment_raises_them_and_must_say_numbers() {
        let usual = Bounds { bytes: MAX_BYTES, events: MAX_EVENTS };
        assert_eq!(of("", "").expect("it is there"), usual);
        assert_eq!(of("64 GiB", "7").expect("it is there"), Bounds { bytes: 64 << 30, events: 7 });
        assert_eq!(of("1000", "").expect("it is there").bytes, 1000);
        for (bytes, events) in [("many", ""), ("0", ""), ("-1", ""), ("", "1e9"), ("", "0")] {
            let wrong = of(bytes, events).expect_err("no number");
            assert!(wrong.field.starts_with("ALLRAIL_MAX_TRACE_"), "{wrong:?}");
        }
    }

    fn drained(bounds: Bounds, packed: Option<u64>, bytes: u64) -> Option<(String, String)> {
        let meter = Meter::new(bounds, packed);
        let zeros = Metered::new(std::io::repeat(0).take(bytes), &meter);
        let mut reader = std::io::BufReader::with_capacity(1 << 20, zeros);
        let _ = std::io::copy(&mut reader, &mut std::io::sink());
        meter.exceeded()
    }

    #[test]
    fn bytes_are_counted_once_unpacked() {
        let bounds = Bounds { bytes: 10 << 20, events: 1 };
        assert_eq!(drained(bounds, None, 10 << 20), None);
        assert!(
            drained(bounds, None, (10 << 20) + 1).expect("it is there").0.contains("once unpacked")
        );
        let bounds = Bounds { bytes: MAX_BYTES, events: 1 };
        assert_eq!(drained(bounds, Some(1), ANY_RATIO), None);
        assert!(
            drained(bounds, Some(1), ANY_RATIO + 1).expect("it is there").0.contains("250 times")
        );
        assert_eq!(drained(bounds, Some(2 << 20), ANY_RATIO + 1), None);
    }

    #[test]
    fn one_event_has_an_end() {
        let meter = Meter::new(Bounds { bytes: MAX_BYTES, events: 2 }, None);
        assert!(meter.count(1 << 30).is_ok(), "between events, where nothing is kept");
        meter.begin();
        assert!(meter.count(64 << 20).is_ok());
        assert!(meter.end(2).is_ok());
        meter.begin();
        assert!(meter.count((64 << 20) + 1).is_err());
        assert!(meter.exceeded().expect("it is there").0.contains("one of its events"));
        assert!(meter.end(3).is_err());
        assert!(meter.exceeded().expect("it is there").1.contains(EVENTS));
    }
}
