//! Tensors of a checkpoint: where their bytes lie, and by how much two of them differ at most. Large ones are read
//! piece by piece.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Read at a time.
const PIECE: usize = 1 << 20;
/// A tensor that is not laid out in order is read whole.
const MOST_GATHERED: u64 = 2 << 30;

/// Bytes in a file or in memory.
#[derive(Clone, Debug)]
pub struct Bytes {
    held: Held,
    at: u64,
    length: u64,
}

#[derive(Clone, Debug)]
enum Held {
    File(Arc<File>),
    Memory(Arc<Vec<u8>>),
}

impl Bytes {
    pub fn in_file(file: &Arc<File>, at: u64, length: u64) -> Bytes {
        Bytes { held: Held::File(Arc::clone(file)), at, length }
    }

    pub fn held(bytes: Vec<u8>) -> Bytes {
        let length = bytes.len() as u64;
        Bytes { held: Held::Memory(Arc::new(bytes)), at: 0, length }
    }

    pub fn len(&self) -> u64 {
        self.length
    }

    /// A part of them.
    pub fn part(&self, from: u64, length: u64) -> Option<Bytes> {
        (from.checked_add(length)? <= self.length).then(|| Bytes { at: self.at + from, length, ..self.clone() })
    }

    pub fn read(&self, from: u64, length: usize) -> Option<Vec<u8>> {
        let part = self.part(from, length as u64)?;
        match &self.held {
            Held::File(file) => {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, part.at).ok()?;
                Some(bytes)
            }
            Held::Memory(bytes) => {
                let at = usize::try_from(part.at).ok()?;
                bytes.get(at..at + length).map(<[u8]>::to_vec)
            }
        }
    }

    pub fn all(&self, most: u64) -> Option<Vec<u8>> {
        self.read(0, usize::try_from(self.length).ok().filter(|_| self.length <= most)?)
    }
}

/// What an element is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Float,
    /// The upper half of a 32-bit float.
    Brain,
    Signed,
    Unsigned,
    /// Known by its width only.
    Other,
}

/// A tensor of a file.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub kind: Kind,
    /// Bytes of an element.
    pub width: u64,
    pub shape: Vec<u64>,
    /// Elements between neighbours in each dimension; none when they follow each other.
    pub strides: Option<Vec<u64>>,
    pub bytes: Bytes,
}

/// How two tensors compare.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Apart {
    Equal,
    /// By this much at most, in this many elements.
    By(f64, u64),
    /// In shape or type.
    Unlike,
    Unreadable,
}

/// Type and width from the name that torch, NumPy or safetensors give an element.
pub fn element(name: &str) -> (Kind, u64) {
    let name = name.trim_start_matches(['<', '=', '|', '>']);
    match name {
        "DoubleStorage" | "float64" | "f8" | "F64" => (Kind::Float, 8),
        "FloatStorage" | "float32" | "f4" | "F32" => (Kind::Float, 4),
        "HalfStorage" | "float16" | "f2" | "F16" => (Kind::Float, 2),
        "BFloat16Storage" | "bfloat16" | "BF16" => (Kind::Brain, 2),
        "LongStorage" | "int64" | "i8" | "I64" => (Kind::Signed, 8),
        "IntStorage" | "int32" | "i4" | "I32" => (Kind::Signed, 4),
        "ShortStorage" | "int16" | "i2" | "I16" => (Kind::Signed, 2),
        "CharStorage" | "int8" | "i1" | "I8" => (Kind::Signed, 1),
        "uint64" | "u8" | "U64" => (Kind::Unsigned, 8),
        "uint32" | "u4" | "U32" => (Kind::Unsigned, 4),
        "uint16" | "u2" | "U16" => (Kind::Unsigned, 2),
        "ByteStorage" | "BoolStorage" | "uint8" | "bool" | "u1" | "b1" | "U8" | "BOOL" => (Kind::Unsigned, 1),
        "ComplexDoubleStorage" | "complex128" | "c16" => (Kind::Other, 16),
        "ComplexFloatStorage" | "complex64" | "c8" => (Kind::Other, 8),
        _ => (Kind::Other, 1),
    }
}

impl Tensor {
    fn elements(&self) -> Option<u64> {
        self.shape.iter().try_fold(1_u64, |all, size| all.checked_mul(*size))
    }

    /// Its bytes in the order of its elements.
    fn in_order(&self) -> Option<Bytes> {
        let length = self.elements()?.checked_mul(self.width)?;
        let Some(strides) = self.strides.as_ref().filter(|strides| !is_in_order(&self.shape, strides)) else {
            return self.bytes.part(0, length);
        };
        if strides.len() != self.shape.len() || length > MOST_GATHERED {
            return None;
        }
        let (whole, width) = (self.bytes.all(MOST_GATHERED)?, usize::try_from(self.width).ok()?);
        let mut gathered = Vec::with_capacity(usize::try_from(length).ok()?);
        let mut index = vec![0_u64; self.shape.len()];
        for _ in 0..self.elements()? {
            let steps = index.iter().zip(strides).map(|(at, stride)| at.saturating_mul(*stride));
            let at = steps.fold(0_u64, u64::saturating_add);
            let at = usize::try_from(at).ok()?.checked_mul(width)?;
            gathered.extend_from_slice(whole.get(at..at.checked_add(width)?)?);
            for (place, size) in index.iter_mut().zip(&self.shape).rev() {
                *place += 1;
                if *place < *size {
                    break;
                }
                *place = 0;
            }
        }
        Some(Bytes::held(gathered))
    }

    /// The value of a tensor without dimensions, which is a number like any other.
    pub fn single(&self) -> Option<f64> {
        let width = usize::try_from(self.width).ok()?;
        (self.shape.is_empty() && self.kind != Kind::Other)
            .then(|| self.bytes.read(0, width))
            .flatten()
            .map(|bytes| self.value(&bytes))
    }

    /// Compares element by element.
    pub fn apart(&self, other: &Tensor) -> Apart {
        if self.shape != other.shape || self.kind != other.kind || self.width != other.width {
            return Apart::Unlike;
        }
        self.furthest(other).unwrap_or(Apart::Unreadable)
    }

    fn furthest(&self, other: &Tensor) -> Option<Apart> {
        let (one, other) = (self.in_order()?, other.in_order()?);
        let (mut most, mut many, mut at) = (0.0_f64, 0_u64, 0_u64);
        while at < one.len() {
            let length = PIECE.min(usize::try_from(one.len() - at).ok()?);
            let (left, right) = (one.read(at, length)?, other.read(at, length)?);
            if left != right {
                let width = usize::try_from(self.width).ok()?;
                for (left, right) in left.chunks(width).zip(right.chunks(width)).filter(|(left, right)| left != right) {
                    let (left, right) = (self.value(left), self.value(right));
                    let by = (left - right).abs();
                    // 0 and -0 are the same number in other bits; large integers differ by less than a float can tell.
                    let is_float = matches!(self.kind, Kind::Float | Kind::Brain);
                    if (by != 0.0 || !is_float) && !(self.kind != Kind::Other && left.is_nan() && right.is_nan()) {
                        many += 1;
                        most = if by.is_nan() || most.is_nan() { f64::NAN } else { most.max(by) };
                    }
                }
            }
            at += length as u64;
        }
        Some(if many == 0 { Apart::Equal } else { Apart::By(most, many) })
    }

    fn value(&self, bytes: &[u8]) -> f64 {
        let bits = bytes.iter().rev().fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
        match (self.kind, self.width) {
            (Kind::Float, 8) => f64::from_bits(bits),
            (Kind::Float, 4) => f64::from(f32::from_bits(bits as u32)),
            (Kind::Float, 2) => half(bits as u16),
            (Kind::Brain, _) => f64::from(f32::from_bits((bits as u32) << 16)),
            (Kind::Signed, width) if width <= 8 => {
                let shift = 64 - 8 * width as u32;
                (((bits << shift) as i64) >> shift) as f64
            }
            (Kind::Unsigned, _) => bits as f64,
            // Of what is not known, that it differs is all that can be said.
            _ => f64::NAN,
        }
    }
}

fn is_in_order(shape: &[u64], strides: &[u64]) -> bool {
    let mut expected = 1_u64;
    for (size, stride) in shape.iter().zip(strides).rev() {
        if *size != 1 && *stride != expected {
            return false;
        }
        expected = expected.saturating_mul(*size);
    }
    shape.len() == strides.len()
}

fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let size = match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2_f64.powi(exponent - 15),
    };
    if bits >> 15 == 1 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(values: &[f32], shape: &[u64], strides: &[u64]) -> Tensor {
        let bytes = Bytes::held(values.iter().flat_map(|value| value.to_le_bytes()).collect());
        Tensor { kind: Kind::Float, width: 4, shape: shape.to_vec(), strides: Some(strides.to_vec()), bytes }
    }

    #[test]
    fn a_transposed_tensor_equals_the_one_that_is_laid_out_in_order() {
        let rows = tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3], &[3, 1]);
        let columns = tensor(&[1.0, 4.0, 2.0, 5.0, 3.0, 6.0], &[2, 3], &[1, 2]);
        assert_eq!(rows.apart(&columns), Apart::Equal);
        let other = tensor(&[1.0, 4.0, 2.0, 5.5, 3.0, 6.0], &[2, 3], &[1, 2]);
        assert_eq!(rows.apart(&other), Apart::By(0.5, 1));
        assert_eq!(rows.apart(&tensor(&[1.0; 6], &[3, 2], &[2, 1])), Apart::Unlike);
    }

    #[test]
    fn halves_are_read_as_numbers() {
        assert_eq!([half(0x3c00), half(0xc000), half(0x0001)], [1.0, -2.0, 2_f64.powi(-24)]);
        assert!(half(0x7c00).is_infinite() && half(0x7e00).is_nan());
    }
}
