//! Arithmetic and traffic of operators from the shapes of their inputs.
//!
//! Traffic is what must move at the least: every input read once, the output written once. A fused or cached kernel can
//! move less, a poor one more; intensity is therefore an upper bound.

/// What one call of an operator costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    pub flops: f64,
    pub bytes: f64,
}

type Shape = Vec<f64>;

/// Inputs of an operator.
struct Inputs {
    shapes: Vec<Shape>,
    /// Values of inputs that are lists of numbers, such as strides.
    lists: Vec<Shape>,
    /// Bytes of one number of the first tensor.
    width: f64,
}

impl Inputs {
    fn shape(&self, at: usize) -> Option<&Shape> {
        self.shapes.get(at).filter(|shape| !shape.is_empty())
    }

    fn matrix(&self, at: usize) -> Option<(f64, f64)> {
        match self.shape(at)?.as_slice() {
            [rows, columns] => Some((*rows, *columns)),
            _ => None,
        }
    }
}

type Rule = fn(&Inputs) -> Option<Cost>;

/// Operators whose arithmetic is known.
const RULES: &[(&str, Rule)] = &[
    ("aten::mm", |inputs| product(inputs, 0, 1, None)),
    ("aten::addmm", |inputs| product(inputs, 1, 2, Some(0))),
    ("aten::_addmm_activation", |inputs| product(inputs, 1, 2, Some(0))),
    ("aten::bmm", |inputs| products(inputs, 0, 1, None)),
    ("aten::baddbmm", |inputs| products(inputs, 1, 2, Some(0))),
    ("aten::_scaled_mm", |inputs| product(inputs, 0, 1, None)),
    ("aten::linear", linear),
    ("aten::cudnn_convolution", |inputs| convolution(inputs, 2, 3)),
    ("aten::miopen_convolution", |inputs| convolution(inputs, 3, 4)),
    ("aten::convolution_backward", convolution_backward),
    ("aten::_scaled_dot_product_flash_attention", |inputs| attention(inputs, 0, 2.0)),
    ("aten::_scaled_dot_product_efficient_attention", |inputs| attention(inputs, 0, 2.0)),
    ("aten::_scaled_dot_product_cudnn_attention", |inputs| attention(inputs, 0, 2.0)),
    ("aten::_flash_attention_forward", |inputs| attention_by_token(inputs, 0, 2.0)),
    ("aten::_efficient_attention_forward", |inputs| attention_by_token(inputs, 0, 2.0)),
    ("aten::_scaled_dot_product_flash_attention_backward", |inputs| attention(inputs, 1, 5.0)),
    ("aten::_scaled_dot_product_efficient_attention_backward", |inputs| attention(inputs, 1, 5.0)),
    ("aten::_scaled_dot_product_cudnn_attention_backward", |inputs| attention(inputs, 1, 5.0)),
    ("aten::_flash_attention_backward", |inputs| attention_by_token(inputs, 1, 5.0)),
    ("aten::_efficient_attention_backward", |inputs| attention_by_token(inputs, 1, 5.0)),
    ("aten::add", |inputs| elementwise(inputs, 1.0)),
    ("aten::add_", |inputs| elementwise(inputs, 1.0)),
    ("aten::sub", |inputs| elementwise(inputs, 1.0)),
    ("aten::mul", |inputs| elementwise(inputs, 1.0)),
    ("aten::mul_", |inputs| elementwise(inputs, 1.0)),
    ("aten::div", |inputs| elementwise(inputs, 1.0)),
    ("aten::div_", |inputs| elementwise(inputs, 1.0)),
    ("aten::relu", |inputs| elementwise(inputs, 1.0)),
    ("aten::clamp_min", |inputs| elementwise(inputs, 1.0)),
    ("aten::clamp_min_", |inputs| elementwise(inputs, 1.0)),
    ("aten::threshold_backward", |inputs| elementwise(inputs, 1.0)),
    ("aten::gelu", |inputs| elementwise(inputs, 8.0)),
    ("aten::gelu_backward", |inputs| elementwise(inputs, 12.0)),
    ("aten::silu", |inputs| elementwise(inputs, 4.0)),
    ("aten::tanh", |inputs| elementwise(inputs, 4.0)),
    ("aten::native_layer_norm", |inputs| elementwise(inputs, 8.0)),
    ("aten::_softmax", |inputs| elementwise(inputs, 5.0)),
    ("aten::cudnn_batch_norm", |inputs| elementwise(inputs, 8.0)),
    ("aten::native_batch_norm", |inputs| elementwise(inputs, 8.0)),
];

/// Whether an operator's arithmetic is known.
pub fn is_known(name: &str) -> bool {
    RULES.iter().any(|(known, _)| *known == name)
}

/// Whether an operator's arithmetic depends on values beside shapes.
pub fn needs_values(name: &[u8]) -> bool {
    matches!(name, b"aten::cudnn_convolution" | b"aten::miopen_convolution")
}

/// What one call costs, from `Input Dims`, `Input type` and `Concrete Inputs` as a trace has them.
pub fn cost(name: &str, shapes: &str, types: &str, values: &str) -> Option<Cost> {
    let (_, rule) = RULES.iter().find(|(known, _)| *known == name)?;
    let inputs = Inputs { shapes: read_shapes(shapes), lists: read_values(values), width: width(types) };
    rule(&inputs)
        .filter(|cost| cost.flops > 0.0 && cost.bytes > 0.0 && cost.flops.is_finite() && cost.bytes.is_finite())
}

/// `Input Dims`: a list with a list for each tensor; lists of tensors are flattened to their first.
fn read_shapes(written: &str) -> Vec<Shape> {
    let value: serde_json::Value = serde_json::from_str(written).unwrap_or_default();
    let numbers = |shape: &serde_json::Value| -> Shape {
        shape.as_array().into_iter().flatten().filter_map(serde_json::Value::as_f64).collect()
    };
    value.as_array().into_iter().flatten().map(numbers).collect()
}

/// `Concrete Inputs`: a list of texts, of which some are lists of numbers.
fn read_values(written: &str) -> Vec<Shape> {
    let value: Vec<String> = serde_json::from_str(written).unwrap_or_default();
    value.iter().map(|text| serde_json::from_str(text).unwrap_or_default()).collect()
}

/// The first number format of `Input type`, as written in the trace.
pub fn first_type(types: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(types).ok()?;
    let named = |name: &&str| bytes_of(name).is_some();
    value.as_array()?.iter().filter_map(serde_json::Value::as_str).find(named).map(str::to_owned)
}

fn bytes_of(name: &str) -> Option<f64> {
    match name {
        "c10::BFloat16" | "c10::Half" => Some(2.0),
        "float" | "int" => Some(4.0),
        "double" | "long int" | "long" => Some(8.0),
        "c10::Float8_e4m3fn" | "c10::Float8_e5m2" | "signed char" | "unsigned char" | "bool" => Some(1.0),
        _ => None,
    }
}

fn width(types: &str) -> f64 {
    first_type(types).and_then(|name| bytes_of(&name)).unwrap_or(4.0)
}

fn product(inputs: &Inputs, left: usize, right: usize, added: Option<usize>) -> Option<Cost> {
    let ((m, k), (other, n)) = (inputs.matrix(left)?, inputs.matrix(right)?);
    if k != other {
        return None;
    }
    let extra: f64 = added.and_then(|at| inputs.shape(at)).map_or(0.0, |shape| shape.iter().product());
    Some(Cost { flops: 2.0 * m * n * k, bytes: inputs.width * (m * k + k * n + m * n + extra) })
}

fn products(inputs: &Inputs, left: usize, right: usize, added: Option<usize>) -> Option<Cost> {
    let ([count, m, k], [_, other, n]) = (inputs.shape(left)?.as_slice(), inputs.shape(right)?.as_slice()) else {
        return None;
    };
    if k != other {
        return None;
    }
    let extra: f64 = added.and_then(|at| inputs.shape(at)).map_or(0.0, |shape| shape.iter().product());
    Some(Cost { flops: 2.0 * count * m * n * k, bytes: inputs.width * (count * (m * k + k * n + m * n) + extra) })
}

fn linear(inputs: &Inputs) -> Option<Cost> {
    let (n, k) = inputs.matrix(1)?;
    let input: f64 = inputs.shape(0)?.iter().product();
    let m = input / k;
    Some(Cost { flops: 2.0 * m * n * k, bytes: inputs.width * (input + n * k + m * n) })
}

/// A convolution; padding, strides and dilation are values of the inputs from `padding` on, where the trace has them.
fn convolution(inputs: &Inputs, padding: usize, stride: usize) -> Option<Cost> {
    let (input, weight) = (inputs.shape(0)?, inputs.shape(1)?);
    let (padding, strides, dilation) =
        (inputs.lists.get(padding)?, inputs.lists.get(stride)?, inputs.lists.get(stride + 1)?);
    let mut output: Shape = vec![*input.first()?, *weight.first()?];
    for axis in 0..input.len().checked_sub(2)? {
        let (size, window) = (input.get(axis + 2)?, weight.get(axis + 2)?);
        let (padding, stride, dilation) = (padding.get(axis)?, strides.get(axis)?, dilation.get(axis)?);
        output.push(((size + 2.0 * padding - dilation * (window - 1.0) - 1.0) / stride).floor() + 1.0);
    }
    Some(convolution_cost(inputs, input, weight, &output, 1.0))
}

/// Both gradients of a convolution, each as much arithmetic as the convolution itself.
fn convolution_backward(inputs: &Inputs) -> Option<Cost> {
    let (output, input, weight) = (inputs.shape(0)?, inputs.shape(1)?, inputs.shape(2)?);
    (input.len() == weight.len() && output.len() == input.len())
        .then(|| convolution_cost(inputs, input, weight, output, 2.0))
}

fn convolution_cost(inputs: &Inputs, input: &Shape, weight: &Shape, output: &Shape, times: f64) -> Cost {
    let size = |shape: &Shape| shape.iter().product::<f64>();
    let window = size(weight) / weight.first().copied().unwrap_or(1.0).max(1.0);
    let moved = size(input) + size(weight) + size(output);
    Cost { flops: times * 2.0 * size(output) * window, bytes: inputs.width * times * moved }
}

/// Batch, heads, length, width.
fn attention(inputs: &Inputs, first: usize, products: f64) -> Option<Cost> {
    let ([batch, heads, queries, width], [_, _, keys, _]) =
        (inputs.shape(first)?.as_slice(), inputs.shape(first + 1)?.as_slice())
    else {
        return None;
    };
    Some(attention_cost(inputs, *batch * *heads, *queries, *keys, *width, products))
}

/// Batch, length, heads, width.
fn attention_by_token(inputs: &Inputs, first: usize, products: f64) -> Option<Cost> {
    let ([batch, queries, heads, width], [_, keys, _, _]) =
        (inputs.shape(first)?.as_slice(), inputs.shape(first + 1)?.as_slice())
    else {
        return None;
    };
    Some(attention_cost(inputs, *batch * *heads, *queries, *keys, *width, products))
}

/// Without a mask: a causal one halves the arithmetic, and shapes do not say which it is.
fn attention_cost(inputs: &Inputs, count: f64, queries: f64, keys: f64, width: f64, products: f64) -> Cost {
    let moved = 2.0 * (queries + keys) * width * if products > 2.0 { 2.0 } else { 1.0 };
    Cost { flops: products * 2.0 * count * queries * keys * width, bytes: inputs.width * count * moved }
}

fn elementwise(inputs: &Inputs, flops: f64) -> Option<Cost> {
    let sizes = inputs.shapes.iter().filter(|shape| !shape.is_empty()).map(|shape| shape.iter().product::<f64>());
    let (mut largest, mut read) = (0.0f64, 0.0);
    for size in sizes.take(2) {
        largest = largest.max(size);
        read += size;
    }
    Some(Cost { flops: flops * largest, bytes: inputs.width * (read + largest) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALVES: &str = r#"["c10::BFloat16", "c10::BFloat16"]"#;

    /// The check value: 8944×2816×1024 in bf16 on an H100.
    #[test]
    fn a_matrix_product_is_counted_as_anybody_would() {
        let cost = cost("aten::mm", "[[8944, 1024], [1024, 2816]]", HALVES, "").expect("it is there");
        assert_eq!(format!("{:.2}", cost.flops / 1e9), "51.58");
        assert_eq!(format!("{:.0}", cost.flops / cost.bytes), "693");
    }

    #[test]
    fn shapes_that_do_not_fit_give_nothing() {
        assert_eq!(cost("aten::mm", "[[8, 4], [5, 2]]", HALVES, ""), None);
        assert_eq!(cost("aten::mm", "[[]]", HALVES, ""), None);
        assert_eq!(cost("aten::mm", "garbage", "garbage", "garbage"), None);
        assert_eq!(cost("aten::nonzero", "[[8, 4]]", HALVES, ""), None);
    }

    #[test]
    fn other_operators_are_counted_too() {
        let of = |name: &str, shapes: &str| cost(name, shapes, HALVES, "").expect("it is there");
        assert_eq!(of("aten::bmm", "[[2, 3, 4], [2, 4, 5]]").flops, 240.0);
        assert_eq!(of("aten::addmm", "[[5], [3, 4], [4, 5]]").flops, 120.0);
        assert_eq!(of("aten::linear", "[[2, 3, 4], [5, 4], [5]]").flops, 240.0);
        assert_eq!(
            of("aten::_scaled_dot_product_flash_attention", "[[1, 2, 8, 4], [1, 2, 8, 4], [1, 2, 8, 4]]").flops,
            2048.0
        );
        assert_eq!(of("aten::add", "[[10, 10], [10, 10], []]"), Cost { flops: 100.0, bytes: 600.0 });
        let backward = of("aten::convolution_backward", "[[1, 8, 4, 4], [1, 3, 4, 4], [8, 3, 3, 3]]");
        assert_eq!(backward.flops, 2.0 * 2.0 * 128.0 * 27.0);
        // The first convolution of ResNet-50: 118 million products an image.
        let values = r#"["", "", "[3, 3]", "[2, 2]", "[1, 1]", "1"]"#;
        let first =
            cost("aten::cudnn_convolution", "[[1, 3, 224, 224], [64, 3, 7, 7], [], [], [], []]", HALVES, values);
        assert_eq!(first.map(|cost| cost.flops), Some(2.0 * 118_013_952.0));
    }
}
