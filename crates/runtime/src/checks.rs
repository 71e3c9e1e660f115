//! Reads the settings of a node and checks them, each key and what goes together, and the plans that they give.

use allrail_core::{counted, either};

use crate::error::RuntimeError;
use crate::plans::check_given;
use crate::settings::{Settings, Timeouts};

/// The most records: 100 bytes each.
const MOST_RECORDS: u32 = 1 << 24;

/// The most ranks of one process group.
const MOST_RANKS: u32 = 1 << 16;

impl Settings {
    /// Reads and checks them.
    ///
    /// # Errors
    /// [`RuntimeError::Setting`] names the field.
    pub fn from_json(text: &str) -> Result<Self, RuntimeError> {
        let settings: Self = serde_json::from_str(text).map_err(|error| {
            let hint = "see the documentation of the settings of a node";
            RuntimeError::setting("settings", "...", error.to_string(), hint)
        })?;
        settings.check()?;
        Ok(settings)
    }

    pub(crate) fn check(&self) -> Result<(), RuntimeError> {
        let refuse = |field: &str, value: &dyn std::fmt::Display, why: &str, hint: &str| {
            RuntimeError::setting(field, value, why, hint)
        };
        if self.ranks == 0 || self.ranks > MOST_RANKS {
            let why = format!("a group has 1 to {MOST_RANKS} ranks");
            return Err(refuse("ranks", &self.ranks, &why, "the number of processes of the job"));
        }
        if self.rank >= self.ranks {
            let why = format!(
                "there {are} {}, counted from 0",
                counted(self.ranks, "rank"),
                are = either(&self.ranks, "is", "are")
            );
            return Err(refuse("rank", &self.rank, &why, "0 for the first"));
        }
        if let Some(d) = self.dimensions.iter().position(|one| one.size < 2) {
            let (field, size) = (format!("dimensions[{d}].size"), self.dimensions[d].size);
            let hint = "leave out a dimension of one rank";
            return Err(refuse(&field, &size, "a dimension joins 2 ranks or more", hint));
        }
        let product = self.dimensions.iter().try_fold(1u32, |all, one| all.checked_mul(one.size));
        if product != Some(self.ranks) {
            let sizes: Vec<String> = self.dimensions.iter().map(|d| d.size.to_string()).collect();
            let sizes = sizes.join("×");
            let why = format!("the sizes of `dimensions` give {sizes} ranks");
            let hint = "sizes whose product is the number of processes";
            return Err(refuse("ranks", &self.ranks, &why, hint));
        }
        if self.send_ahead.count() < 1 << 10 || self.send_ahead.count() > 1 << 30 {
            let why = "a socket holds 1 KiB to 1 GiB";
            return Err(refuse("send_ahead", &self.send_ahead, why, "64 KiB"));
        }
        if self.job.len() > 256 {
            let why = "it is longer than 256 bytes";
            return Err(refuse("job", &self.job, why, "a short name"));
        }
        if self.records > MOST_RECORDS {
            let why = format!("at most {MOST_RECORDS} are kept, in memory");
            return Err(refuse("records", &self.records, &why, "262144, a minute or so"));
        }
        let Timeouts { connect, link, silent, heartbeat, warn, stalled } = self.timeouts;
        let times = [("connect", connect), ("link", link), ("heartbeat", heartbeat)];
        if let Some((name, time)) = times.into_iter().find(|(_, time)| time.as_ps() == 0) {
            let field = format!("timeouts.{name}");
            return Err(refuse(&field, &time, "nothing happens in no time", "1 s"));
        }
        if silent < heartbeat + heartbeat {
            let why = format!("signs of life come every {heartbeat}");
            return Err(refuse("timeouts.silent", &silent, &why, "several heartbeats"));
        }
        if warn < heartbeat + heartbeat || stalled < warn {
            let (field, value, why) = match stalled < warn {
                true => ("timeouts.stalled", stalled, format!("a warning comes at {warn}")),
                false => {
                    ("timeouts.warn", warn, format!("ranks hear of each other every {heartbeat}"))
                }
            };
            return Err(refuse(field, &value, &why, "first `warn`, much later `stalled`"));
        }
        if self.secret()?.is_none() && self.tls {
            let why = "TLS without a secret hides data from nobody who answers in a rank's place";
            return Err(refuse("tls", &self.tls, why, "give `secret`"));
        }
        check_given(self)
    }
}

#[cfg(test)]
mod tests {
    use allrail_core::{Bytes, FieldError, Time};

    use super::*;
    use crate::settings::tests::local;

    #[test]
    fn what_cannot_be_names_the_field() {
        type Change = fn(&mut Settings);
        let table: [(&str, Change); 13] = [
            ("records", |one| one.records = u32::MAX),
            ("timeouts.warn", |one| one.timeouts.warn = Time::from_us(1)),
            ("timeouts.stalled", |one| one.timeouts.stalled = Time::from_us(9_000_000)),
            ("ranks", |one| one.ranks = 5),
            ("ranks", |one| one.ranks = 0),
            ("rank", |one| one.rank = 4),
            ("dimensions[1].size", |one| one.dimensions[1].size = 1),
            ("send_ahead", |one| one.send_ahead = Bytes::new(10)),
            ("job", |one| one.job = "x".repeat(300)),
            ("timeouts.link", |one| one.timeouts.link = Time::ZERO),
            ("timeouts.silent", |one| one.timeouts.silent = Time::from_us(1)),
            ("secret", |one| one.secret = Some("12".to_owned())),
            ("tls", |one| one.tls = true),
        ];
        for (wanted, change) in table {
            let mut settings = local(0, &[2, 2]);
            change(&mut settings);
            match settings.check() {
                Err(RuntimeError::Setting(FieldError { field, hint, .. })) => {
                    assert_eq!((field.as_str(), hint.is_empty()), (wanted, false));
                }
                other => panic!("{wanted}: {other:?}"),
            }
        }
        for text in ["", "{}", r#"{"rank": 0, "ranks": 1, "colour": "red"}"#] {
            assert!(Settings::from_json(text).is_err(), "{text}");
        }
        assert!(Settings::from_json(r#"{"rank": 0, "ranks": 1}"#).is_ok());
    }
}
