//! Types of elements, by the names that frameworks share, and the bytes of an element.

/// Every type with its bytes. Ranks tell each other its place, so a new one comes last.
pub const DTYPES: [(&str, u32); 26] = [
    ("bool", 1),
    ("uint8", 1),
    ("int8", 1),
    ("int16", 2),
    ("uint16", 2),
    ("int32", 4),
    ("uint32", 4),
    ("int64", 8),
    ("uint64", 8),
    ("float16", 2),
    ("bfloat16", 2),
    ("float32", 4),
    ("float64", 8),
    ("complex32", 4),
    ("complex64", 8),
    ("complex128", 16),
    ("float8_e4m3fn", 1),
    ("float8_e4m3fnuz", 1),
    ("float8_e5m2", 1),
    ("float8_e5m2fnuz", 1),
    ("float8_e8m0fnu", 1),
    ("float4_e2m1fn_x2", 1),
    ("quint8", 1),
    ("qint8", 1),
    ("qint32", 4),
    ("float8_e4m3b11fnuz", 1),
];

/// The types whose elements allrail sums, as errors list them.
pub const SUMMED: [&str; 9] =
    ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8"];

/// Bytes of an element of this type, if it is a known one.
#[must_use]
pub fn width(dtype: &str) -> Option<u32> {
    DTYPES.iter().find(|(name, _)| *name == dtype).map(|(_, width)| *width)
}

/// Bytes of an element, by the names of PyTorch and of C++ in traces and dumps, in any case.
#[must_use]
pub fn width_in_traces(dtype: &str) -> Option<u32> {
    let dtype = dtype.to_lowercase();
    let name = match dtype.trim_start_matches("c10::") {
        "complexdouble" | "complex<double>" => "complex128",
        "complexfloat" | "complex<float>" => "complex64",
        "double" => "float64",
        "float" => "float32",
        "half" => "float16",
        "long" | "long int" => "int64",
        "int" => "int32",
        "short" | "short int" => "int16",
        "char" | "signed char" => "int8",
        "byte" | "unsigned char" => "uint8",
        other if other.starts_with("float8") => "float8_e4m3fn",
        other => other,
    };
    width(name)
}
