//! Element types, and their sums.
//!
//! Elements are bytes, little-endian and of any alignment, as frameworks and frames hold them. What has come
//! is added to what is held, one element to one, so a sum is the same to the bit on every machine whatever
//! instructions it has. Integers wrap around. `float16` and `bfloat16` are added as `float32` and rounded to
//! the nearest, ties to even, after every addition; a NaN stays one.

use allrail_core::dtype;

/// An element type that can be summed: those of [`dtype::SUMMED`], in that order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dtype {
    /// 32 bits, IEEE.
    Float32,
    /// 64 bits, IEEE.
    Float64,
    /// 16 bits, IEEE.
    Float16,
    /// The upper half of a `float32`.
    Bfloat16,
    /// 8 bits, signed.
    Int8,
    /// 16 bits, signed.
    Int16,
    /// 32 bits, signed.
    Int32,
    /// 64 bits, signed.
    Int64,
    /// 8 bits, unsigned.
    Uint8,
}

/// For each name a loop over the elements, compiled once for any machine and once for AVX2.
macro_rules! sums {
    ($($name:ident: $kind:ty, $plus:expr;)*) => { $(
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            #[inline(always)]
            fn each(held: &mut [u8], came: &[u8]) {
                const WIDTH: usize = size_of::<$kind>();
                let (held, _) = held.as_chunks_mut::<WIDTH>();
                let (came, _) = came.as_chunks::<WIDTH>();
                let plus: fn($kind, $kind) -> $kind = $plus;
                for (held, came) in held.iter_mut().zip(came) {
                    let sum = plus(<$kind>::from_le_bytes(*held), <$kind>::from_le_bytes(*came));
                    *held = sum.to_le_bytes();
                }
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn wide(held: &mut [u8], came: &[u8]) {
                each(held, came);
            }

            pub(super) fn add(held: &mut [u8], came: &[u8]) {
                #[cfg(target_arch = "x86_64")]
                if std::arch::is_x86_feature_detected!("avx2") {
                    // SAFETY: `wide` asks for nothing but AVX2, which this processor has.
                    return unsafe { wide(held, came) };
                }
                each(held, came);
            }
        }
    )* };
}

sums! {
    f32s: f32, |a, b| a + b;
    f64s: f64, |a, b| a + b;
    i8s: i8, i8::wrapping_add;
    u8s: u8, u8::wrapping_add;
    i16s: i16, i16::wrapping_add;
    i32s: i32, i32::wrapping_add;
    i64s: i64, i64::wrapping_add;
    bf16s: u16, |a, b| round_bf16(widen_bf16(a) + widen_bf16(b));
    f16s: u16, |a, b| round_f16(widen_f16(a) + widen_f16(b));
}

#[inline(always)]
fn widen_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[inline(always)]
fn round_bf16(number: f32) -> u16 {
    let bits = number.to_bits();
    // Half of the last place that stays, less one where that place is even: ties go to even.
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    let quiet = bits >> 16 | 0x40;
    (if number.is_nan() { quiet } else { rounded }) as u16
}

#[inline(always)]
fn widen_f16(bits: u16) -> f32 {
    let (sign, rest) = (u32::from(bits & 0x8000) << 16, u32::from(bits & 0x7fff));
    let magnitude = match rest >> 10 {
        // 2^-24 is the place of the last bit.
        0 => (rest as f32 * f32::from_bits(0x3380_0000)).to_bits(),
        31 => 0x7f80_0000 | rest << 13,
        _ => (rest << 13) + (112 << 23),
    };
    f32::from_bits(sign | magnitude)
}

#[inline(always)]
fn round_f16(number: f32) -> u16 {
    let bits = number.to_bits();
    let (sign, rest) = (bits >> 16 & 0x8000, bits & 0x7fff_ffff);
    let magnitude = if rest > 0x7f80_0000 {
        0x7e00 | rest >> 13 & 0x1ff
    } else if rest >= 0x477f_f000 {
        // 65,520 and above are nearer to 2^16 than to the largest number.
        0x7c00
    } else if rest < 0x3880_0000 {
        // Beside a half, the last place of a `float32` is 2^-24, that of the numbers wanted here.
        (f32::from_bits(rest) + 0.5).to_bits() - 0.5f32.to_bits()
    } else {
        (rest - (112 << 23) + 0xfff + (rest >> 13 & 1)) >> 13
    };
    (sign | magnitude) as u16
}

/// `float16`, eight at a time.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx,f16c")]
fn add_f16c(held: &mut [u8], came: &[u8]) {
    use std::arch::x86_64::{
        _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128, _mm256_add_ps,
        _mm256_cvtph_ps, _mm256_cvtps_ph,
    };
    let (held, _) = held.as_chunks_mut::<16>();
    let (came, _) = came.as_chunks::<16>();
    for (held, came) in held.iter_mut().zip(came) {
        // SAFETY: each is 16 bytes, as many as are read, and the reads need no alignment.
        let (a, b) = unsafe {
            (_mm_loadu_si128(held.as_ptr().cast()), _mm_loadu_si128(came.as_ptr().cast()))
        };
        let sum = _mm256_add_ps(_mm256_cvtph_ps(a), _mm256_cvtph_ps(b));
        let sum = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(sum);
        // SAFETY: `held` is 16 bytes that nothing else refers to; the write needs no alignment.
        unsafe { _mm_storeu_si128(held.as_mut_ptr().cast(), sum) };
    }
}

fn add_f16(held: &mut [u8], came: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx") && std::arch::is_x86_feature_detected!("f16c") {
        let whole = held.len().min(came.len()) / 16 * 16;
        // SAFETY: `add_f16c` asks for AVX and F16C, which this processor has.
        unsafe { add_f16c(&mut held[..whole], &came[..whole]) };
        return f16s::add(&mut held[whole..], &came[whole..]);
    }
    f16s::add(held, came);
}

impl Dtype {
    /// All of them.
    pub const ALL: [Self; dtype::SUMMED.len()] = [
        Self::Float32,
        Self::Float64,
        Self::Float16,
        Self::Bfloat16,
        Self::Int8,
        Self::Int16,
        Self::Int32,
        Self::Int64,
        Self::Uint8,
    ];

    /// As frameworks call it, and signatures do.
    #[must_use]
    pub fn name(self) -> &'static str {
        dtype::SUMMED[self as usize]
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Bytes of an element.
    #[must_use]
    pub fn width(self) -> u32 {
        dtype::width(self.name()).expect("its bytes are known")
    }

    /// Adds `came` to `held`, element by element; both are whole elements, and as many.
    pub fn add(self, held: &mut [u8], came: &[u8]) {
        debug_assert_eq!(held.len(), came.len());
        match self {
            Self::Float32 => f32s::add(held, came),
            Self::Float64 => f64s::add(held, came),
            Self::Int32 => i32s::add(held, came),
            Self::Int64 => i64s::add(held, came),
            Self::Float16 => add_f16(held, came),
            Self::Bfloat16 => bf16s::add(held, came),
            Self::Int8 => i8s::add(held, came),
            Self::Uint8 => u8s::add(held, came),
            Self::Int16 => i16s::add(held, came),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of two elements. Of two NaNs either may be the sum: which one is the compiler's choice, place by place.
    fn two(dtype: Dtype, a: u16, b: u16) -> u16 {
        let widen = if dtype == Dtype::Float16 { widen_f16 } else { widen_bf16 };
        // In the middle of a register and in the rest behind it.
        let mut held = [a.to_le_bytes(); 19].concat();
        dtype.add(&mut held, &[b.to_le_bytes(); 19].concat());
        let sum = u16::from_le_bytes([held[0], held[1]]);
        for one in held.as_chunks::<2>().0.iter().copied().map(u16::from_le_bytes) {
            assert!(one == sum || widen(one).is_nan() && widen(sum).is_nan(), "{a:x} {b:x}");
        }
        sum
    }

    #[test]
    fn every_half_is_itself_and_rounds_to_the_nearest() {
        for bits in 0..=u16::MAX {
            let wide = widen_f16(bits);
            if wide.is_nan() {
                assert!(bits & 0x7c00 == 0x7c00 && bits & 0x3ff != 0);
                assert!(widen_f16(two(Dtype::Float16, bits, 0x3c00)).is_nan());
                continue;
            }
            assert_eq!(round_f16(wide), bits);
            if bits & 0x7fff < 0x7bff {
                // Half-way to the next: to the even one; a little to either side: to that side.
                let next = widen_f16(bits + 1);
                let middle = ((f64::from(wide) + f64::from(next)) / 2.0) as f32;
                assert_eq!(round_f16(middle), bits + (bits & 1), "{bits:x}");
                assert_eq!(round_f16(f32::from_bits(middle.to_bits() - 1)), bits, "{bits:x}");
                assert_eq!(round_f16(f32::from_bits(middle.to_bits() + 1)), bits + 1, "{bits:x}");
            }
        }
        assert_eq!([65_519.9, 65_520.0, -1e9, 1e-9].map(round_f16), [0x7bff, 0x7c00, 0xfc00, 0]);
    }

    #[test]
    fn halves_add_alike_with_and_without_the_instructions() {
        let mut state = 1u32;
        for _ in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (a, b) = ((state >> 16) as u16, (state.wrapping_mul(0x9e37_79b9) >> 15) as u16);
            let plain = round_f16(widen_f16(a) + widen_f16(b));
            let sum = two(Dtype::Float16, a, b);
            assert!(sum == plain || widen_f16(sum).is_nan() && widen_f16(plain).is_nan());
            let exact = widen_bf16(a) + widen_bf16(b);
            let sum = widen_bf16(two(Dtype::Bfloat16, a, b));
            // Within half of the last of eight places.
            let near = (sum - exact).abs() <= exact.abs() / 256.0;
            assert!(
                near || sum.is_nan() == exact.is_nan() && !exact.is_finite() || sum.is_infinite()
            );
        }
        // Ties to even, and what is too large.
        assert_eq!(two(Dtype::Bfloat16, 0x3f80, 0x3b80), 0x3f80);
        assert_eq!(two(Dtype::Bfloat16, 0x3f81, 0x3b80), 0x3f82);
        assert_eq!(two(Dtype::Bfloat16, 0x7f7f, 0x7f7f), 0x7f80);
        assert_eq!(two(Dtype::Bfloat16, 0x7f80, 0xff80) & 0x7fc0, 0x7fc0);
    }

    #[test]
    fn integers_wrap_around() {
        let sum = |dtype: Dtype, a: &[u8], b: &[u8]| {
            let mut held = a.to_vec();
            dtype.add(&mut held, b);
            held
        };
        assert_eq!(sum(Dtype::Int8, &[127, 255], &[1, 1]), [128, 0]);
        assert_eq!(sum(Dtype::Uint8, &[255, 3], &[2, 4]), [1, 7]);
        assert_eq!(sum(Dtype::Int16, &[255, 127], &[1, 0]), [0, 128]);
        assert_eq!(sum(Dtype::Int32, &[255; 4], &[1, 0, 0, 0]), [0; 4]);
        assert_eq!(
            sum(Dtype::Int64, &[255; 8], &[2, 0, 0, 0, 0, 0, 0, 0]),
            [1, 0, 0, 0, 0, 0, 0, 0]
        );
    }
}
