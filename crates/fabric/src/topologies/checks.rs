//! Checks that several topologies share, and the defaults of their keys.

use allrail_core::FieldError;

/// More NPUs than this are refused.
const MAX_NPUS: u64 = 1 << 24;
const MAX_PLANES: u32 = 1 << 10;
const MAX_RADIX: u32 = 1 << 12;

pub(super) const fn one() -> u32 {
    1
}

pub(super) const fn radix_64() -> u32 {
    64
}

/// Between 1 and `most`.
pub(super) fn count(key: &str, value: u32, most: u32) -> Result<(), FieldError> {
    let why = match value {
        0 => "it is below 1".to_owned(),
        _ if value > most => format!("it is above {most}"),
        _ => return Ok(()),
    };
    Err(FieldError::new(format!("fabric.{key}"), value, why, format!("from 1 to {most}")))
}

pub(super) fn planes(value: u32) -> Result<(), FieldError> {
    count("planes", value, MAX_PLANES)
}

pub(super) fn switch_radix(value: u32) -> Result<(), FieldError> {
    let why = match value {
        0..4 => "a switch has 4 ports at least".to_owned(),
        _ if value > MAX_RADIX => format!("a switch has {MAX_RADIX} ports at most"),
        _ if !value.is_multiple_of(2) => "half of a switch's ports lead up: it is odd".to_owned(),
        _ => return Ok(()),
    };
    Err(FieldError::new("fabric.switch_radix", value, why, "for example `switch_radix: 64`"))
}

pub(super) fn taper(value: f64) -> Result<(), FieldError> {
    if (0.0..1.0).contains(&value) {
        return Ok(());
    }
    Err(FieldError::new(
        "fabric.taper",
        value,
        "it is the share of the uplinks left out, from 0 to below 1",
        "`taper: 0.5` leaves half of the uplinks out",
    ))
}

/// Refuses a taper where there are no uplinks to leave out.
pub(super) fn nothing_to_taper(value: f64) -> Result<(), FieldError> {
    if value == 0.0 {
        return Ok(());
    }
    Err(FieldError::new(
        "fabric.taper",
        value,
        "every tree fits one switch: there are no uplinks to leave out",
        "leave `taper` out, or make the trees larger than one switch",
    ))
}

/// The product of `factors`, between 2 and the most NPUs that are taken.
pub(super) fn npus(key: &str, factors: &[u32]) -> Result<u64, FieldError> {
    let shown = factors.iter().map(u32::to_string).collect::<Vec<_>>().join(" x ");
    let product = factors.iter().try_fold(1u64, |product, &factor| {
        product.checked_mul(u64::from(factor)).filter(|&product| product <= MAX_NPUS)
    });
    let why = match product {
        Some(0 | 1) => "a network joins 2 NPUs at least".to_owned(),
        Some(product) => return Ok(product),
        None => format!("these are more than {MAX_NPUS} NPUs"),
    };
    let hint = if product.is_some() { "make it larger" } else { "make it smaller" };
    Err(FieldError::new(format!("fabric.{key}"), shown, why, hint))
}

/// Two or three dimensions of 2 or more; one of 1 has no `lacking`.
pub(super) fn shape(
    shape: &[u32],
    name: &str,
    lacking: &str,
    example: &str,
) -> Result<(), FieldError> {
    let refuse =
        |why: String, hint: &str| Err(FieldError::new("fabric.shape", list(shape), why, hint));
    if !(2..=3).contains(&shape.len()) {
        return refuse(format!("{name} has 2 or 3 dimensions"), example);
    }
    match shape.iter().find(|&&size| size < 2) {
        Some(size) => refuse(
            format!("a dimension of {size} has no {lacking}"),
            "leave the dimension out, or make it 2 or more",
        ),
        None => Ok(()),
    }
}

/// A list as it is written in a file.
pub(super) fn list(values: &[u32]) -> String {
    format!("{values:?}")
}
