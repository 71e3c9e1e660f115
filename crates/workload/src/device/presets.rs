//! The devices that are known: one file each, with the source of every number.

use std::sync::LazyLock;

use super::file::DeviceFile;

/// Every file, in the order in which docs list them.
const FILES: &[&str] = &[
    include_str!("presets/a100.json"),
    include_str!("presets/a100_40gb.json"),
    include_str!("presets/a100_pcie.json"),
    include_str!("presets/h100.json"),
    include_str!("presets/h100_94gb.json"),
    include_str!("presets/h100_96gb_500w.json"),
    include_str!("presets/h100_pcie.json"),
    include_str!("presets/h200.json"),
    include_str!("presets/h800.json"),
    include_str!("presets/h20.json"),
    include_str!("presets/gh200.json"),
    include_str!("presets/b200.json"),
    include_str!("presets/b300.json"),
    include_str!("presets/gb200.json"),
    include_str!("presets/gb300.json"),
    include_str!("presets/mi300x.json"),
    include_str!("presets/mi325x.json"),
    include_str!("presets/mi355x.json"),
    include_str!("presets/mi250.json"),
    include_str!("presets/mi250_gcd.json"),
    include_str!("presets/mi250x.json"),
    include_str!("presets/mi250x_gcd.json"),
    include_str!("presets/gaudi2.json"),
    include_str!("presets/gaudi3.json"),
    include_str!("presets/v100.json"),
    include_str!("presets/l40s.json"),
    include_str!("presets/tpu_v3.json"),
    include_str!("presets/tpu_v4.json"),
    include_str!("presets/tpu_v5p.json"),
    include_str!("presets/tpu_v5e.json"),
    include_str!("presets/tpu_v6e.json"),
    include_str!("presets/trainium1.json"),
    include_str!("presets/trainium2.json"),
];

/// Every device.
pub static PRESETS: LazyLock<Vec<DeviceFile>> = LazyLock::new(|| {
    let read = |text: &&str| serde_json::from_str(text).expect("a packaged device file is right");
    FILES.iter().map(read).collect()
});

/// The device of a tag, in any case of letters.
#[must_use]
pub fn preset(tag: &str) -> Option<&'static DeviceFile> {
    PRESETS.iter().find(|device| device.name.eq_ignore_ascii_case(tag))
}
