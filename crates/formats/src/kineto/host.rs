//! When the threads of a host worked, from its nested operators.
//!
//! The outermost operators of a thread are its work. One that calls for communication is cut where the
//! call begins and ends, so that what the backend does meanwhile waits for what came before it.

use std::collections::BTreeMap;

use super::events::HostWork;

/// The work of each thread, without overlaps.
pub(super) fn spans(work: &[HostWork]) -> Vec<HostWork> {
    let mut threads: BTreeMap<&str, Vec<&HostWork>> = BTreeMap::new();
    for one in work {
        threads.entry(&one.thread).or_default().push(one);
    }
    let mut spans = Vec::new();
    for mut list in threads.into_values() {
        list.sort_by(|a, b| a.start.total_cmp(&b.start).then(b.end.total_cmp(&a.end)));
        let mut outer: Option<HostWork> = None;
        for one in list {
            match &mut outer {
                Some(open) if one.start < open.end => {
                    if one.name.starts_with("c10d::") {
                        let end = one.end.min(open.end);
                        let mut before = open.clone();
                        before.end = one.start;
                        spans.push(before);
                        spans.push(HostWork { end, ..one.clone() });
                        open.start = end;
                    }
                }
                _ => spans.extend(outer.replace(one.clone())),
            }
        }
        spans.extend(outer);
    }
    spans.retain(|span| span.end > span.start);
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(name: &str, thread: &str, start: f64, end: f64) -> HostWork {
        HostWork { name: name.into(), thread: thread.into(), start, end }
    }

    #[test]
    fn nested_operators_are_one_span_cut_at_calls() {
        let list = [
            work("backward", "1", 0.0, 10.0),
            work("mm", "1", 1.0, 3.0),
            work("c10d::allreduce_", "1", 4.0, 5.0),
            work("add", "1", 6.0, 7.0),
            work("step", "1", 12.0, 13.0),
            work("load", "2", 2.0, 3.0),
        ];
        let shown: Vec<(String, f64, f64)> =
            spans(&list).into_iter().map(|span| (span.name, span.start, span.end)).collect();
        assert_eq!(
            shown,
            [
                ("backward".to_owned(), 0.0, 4.0),
                ("c10d::allreduce_".to_owned(), 4.0, 5.0),
                ("backward".to_owned(), 5.0, 10.0),
                ("step".to_owned(), 12.0, 13.0),
                ("load".to_owned(), 2.0, 3.0),
            ]
        );
    }
}
