//! What is wrong with `schedule.tensor` is said with field, value and hint.

use allrail_core::{Bytes, FieldError, Time};
use allrail_schedule::ScheduleError;
use allrail_schedule::tensor::{ALL, MAX_PARTITIONS, Tensor, TensorParameters, named};

fn refused(text: &str) -> (String, String, String) {
    let parameters: TensorParameters = serde_json::from_str(text).expect("of the right form");
    let tensors = [Tensor { bytes: Bytes::new(1 << 30), place: 0, group: None }];
    match parameters.scheduler(&tensors).err() {
        Some(ScheduleError::Field(FieldError { field, value, why, hint })) => {
            assert!(!hint.is_empty(), "{field}: no hint");
            (field, value, why)
        }
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn wrong_values_are_refused() {
    for (text, field, value, why) in [
        (r#"{"policy": "lifo"}"#, "policy", "lifo", "it is not a tensor scheduler"),
        (
            r#"{"policy": "bytescheduler", "partition": "0 B"}"#,
            "partition",
            "0 B",
            "a partition must hold a byte at least",
        ),
        (
            r#"{"policy": "priority", "partition": "8 B"}"#,
            "partition",
            "8 B",
            "the largest tensor would have 134217728 partitions",
        ),
        (
            r#"{"policy": "bytescheduler", "credit": "0 MiB"}"#,
            "credit",
            "0 B",
            "without credit nothing is ever sent",
        ),
        (
            r#"{"policy": "priority", "credit": "4 MiB"}"#,
            "credit",
            "4 MiB",
            "`priority` does not read it",
        ),
        (
            r#"{"policy": "fifo", "bucket": "25 MiB"}"#,
            "bucket",
            "25 MiB",
            "`fifo` does not read it",
        ),
        (r#"{"policy": "fusion", "cycle": "2 hours"}"#, "", "", ""),
        (
            r#"{"policy": "fusion", "cycle": "3601 s"}"#,
            "cycle",
            "3601 s",
            "it is longer than an hour",
        ),
        (
            r#"{"start_overhead": "4000 s"}"#,
            "start_overhead",
            "4000 s",
            "it is longer than an hour",
        ),
        (r#"{"servers": {"count": 4}}"#, "servers", "", "an all-reduce has no servers"),
        (
            r#"{"exchange": "parameter_server", "servers": {"count": 0}}"#,
            "servers.count",
            "0",
            "there are between 1 and 65,536 servers",
        ),
    ] {
        if field.is_empty() {
            let error = serde_json::from_str::<TensorParameters>(text).expect_err("no unit");
            assert!(error.to_string().contains("`hours` is not a unit of time"), "{error}");
            continue;
        }
        let (told, shown, reason) = refused(text);
        assert_eq!(told, format!("schedule.tensor.{field}"));
        assert_eq!((shown.as_str(), reason.as_str()), (value, why), "{text}");
    }
}

#[test]
fn keys_that_nobody_knows_are_refused() {
    for text in [r#"{"partitions": "4 MiB"}"#, r#"{"servers": {"number": 4}}"#] {
        let error = serde_json::from_str::<TensorParameters>(text).expect_err("unknown key");
        assert!(error.to_string().contains("unknown field"), "{error}");
    }
    for text in [r#"{"partition": "4"}"#, r#"{"partition": "-4 MiB"}"#, r#"{"groups": -1}"#] {
        assert!(serde_json::from_str::<TensorParameters>(text).is_err(), "{text}");
    }
}

#[test]
fn the_most_partitions_are_taken() {
    let parameters = TensorParameters {
        policy: "priority".to_owned(),
        partition: Some(Bytes::new(2)),
        ..TensorParameters::default()
    };
    let of = |bytes| [Tensor { bytes: Bytes::new(bytes), place: 0, group: None }];
    assert!(parameters.scheduler(&of(2 * MAX_PARTITIONS)).is_ok());
    assert!(parameters.scheduler(&of(2 * MAX_PARTITIONS + 1)).is_err());
}

#[test]
fn every_policy_is_found_by_its_tag_and_runs_with_defaults() {
    for policy in ALL {
        assert_eq!(named(policy.tag()).expect("known").tag(), policy.tag());
        let parameters =
            TensorParameters { policy: policy.tag().to_owned(), ..TensorParameters::default() };
        assert!(parameters.scheduler(&[]).is_ok());
        assert_eq!(parameters.has_barrier(), Ok(!policy.crosses_barrier()));
        let told = TensorParameters { barrier: Some(true), ..parameters };
        assert_eq!(told.has_barrier(), Ok(true));
        let text = serde_json::to_string(&told).expect("plain data");
        assert_eq!(serde_json::from_str::<TensorParameters>(&text).expect("its own text"), told);
    }
}

#[test]
fn overheads_add_up_by_start_and_by_piece() {
    let parameters = TensorParameters {
        start_overhead: Time::from_us(5),
        partition_overhead: Time::from_us(2),
        ..TensorParameters::default()
    };
    assert_eq!(parameters.overhead(1), Time::from_us(7));
    assert_eq!(parameters.overhead(3), Time::from_us(11));
    assert_eq!(TensorParameters::default().overhead(3), Time::ZERO);
}
