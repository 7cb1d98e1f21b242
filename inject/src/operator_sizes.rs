//! What PyTorch's operators do, as far as their ranges tell it: `emit_nvtx(record_shapes=True)` appends the sizes of an
//! operator's tensors to its name. Products of matrices alone are counted, where they are computed: `aten::linear` and
//! `aten::matmul` have one of these inside.

use candlescope_core::Annotation;
use candlescope_work::operation::{self, product_flops};

/// What stands before the sizes.
const SIZES: &str = ", sizes = [[";

/// What an operator does by its sizes: its shape (M, N and K of a product, with the number of products before them where
/// there are several), and FLOPs if `counts_flops`. `None` of other ranges, and of what is not understood.
pub(crate) fn told(text: &str, counts_flops: bool) -> Option<Annotation> {
    // Every range passes here.
    let (operator, tail) = text.strip_prefix("aten::")?.split_once(',')?;
    let at = match operator {
        "mm" | "bmm" => 0,
        // The first is what is added.
        "addmm" | "baddbmm" => 1,
        "_scaled_dot_product_flash_attention"
        | "_scaled_dot_product_efficient_attention"
        | "_scaled_dot_product_cudnn_attention" => return attended(tail, counts_flops),
        _ => return None,
    };
    let mut tensors = tensors(tail)?.skip(at);
    let (a, b) = (tensors.next()?, tensors.next()?);
    let is_batch = matches!(operator, "bmm" | "baddbmm");
    let ((count, [m, k]), (_, [inner, n])) = (matrices(a, is_batch)?, matrices(b, is_batch)?);
    if inner != k {
        return None;
    }
    let all = [count, m, n, k];
    let annotation = Annotation::new().shape(if count == 1 { &all[1..] } else { &all });
    // Bytes are not known: sizes come without the type of what they count.
    let flops = operation::gemm(m as f64, n as f64, k as f64, 0.0).flops * count as f64;
    Some(if counts_flops { annotation.flops(flops as u64) } else { annotation })
}

/// A fused attention: its queries are the first tensor, (batch, heads, queries, features), keys the second. Nothing says
/// whether it is masked, so that FLOPs are those of one query each, which attends to all keys.
fn attended(tail: &str, counts_flops: bool) -> Option<Annotation> {
    let mut tensors = tensors(tail)?;
    let [batch, heads, queries, features] = dims(tensors.next()?)?;
    let [_, _, keys, _] = dims(tensors.next()?)?;
    let annotation = Annotation::new().shape(&[batch, heads, queries, keys]);
    let product = product_flops((heads * features) as f64, (batch * keys) as f64);
    Some(if counts_flops && queries == 1 { annotation.flops((2.0 * product) as u64) } else { annotation })
}

/// The sizes of each tensor, as text: `7, 576`.
fn tensors(tail: &str) -> Option<impl Iterator<Item = &str>> {
    // The comma before them may be the one that ended the name.
    let from = tail.find(&SIZES[1..])? + SIZES.len() - 1;
    let (sizes, _) = tail[from..].split_once("]]")?;
    Some(sizes.split("], ["))
}

/// How many matrices a tensor holds, and the sizes of each. The first size of a batch is their number.
fn matrices(text: &str, is_batch: bool) -> Option<(usize, [usize; 2])> {
    if !is_batch {
        return Some((1, dims(text)?));
    }
    let [count, rows, columns] = dims(text)?;
    Some((count, [rows, columns]))
}

fn dims<const N: usize>(text: &str) -> Option<[usize; N]> {
    let mut numbers = text.split(", ");
    let mut dims = [0; N];
    for dim in &mut dims {
        *dim = numbers.next()?.parse::<u32>().ok()? as usize;
    }
    numbers.next().is_none().then_some(dims)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope::sdk::Shape;

    fn of(text: &str) -> Option<(Shape, Option<u64>)> {
        told(text, true).map(|did| (did.get_shape().expect("a shape"), did.get_flops()))
    }

    #[test]
    fn products_have_the_work_of_their_sizes() {
        // As PyTorch 2.11 writes them.
        let linear = "aten::addmm, seq = 7, op_id = 12, sizes = [[1536], [64, 576], [576, 1536], [], []], input_op_ids = [(3,0)]";
        assert_eq!(of(linear), Some((Shape::new(&[64, 1536, 576]), Some(2 * 64 * 1536 * 576))));
        let row = "aten::mm, op_id = 3, sizes = [[1, 576], [576, 192]]";
        assert_eq!(of(row), Some((Shape::new(&[1, 192, 576]), Some(2 * 192 * 576))));
        let scores = "aten::bmm, sizes = [[9, 5, 64], [9, 64, 7]]";
        assert_eq!(of(scores), Some((Shape::new(&[9, 5, 7, 64]), Some(2 * 9 * 5 * 7 * 64))));
        let added = "aten::baddbmm, sizes = [[9, 5, 7], [9, 5, 64], [9, 64, 7], [], []]";
        assert_eq!(of(added), of(scores));
        assert_eq!(told(row, false).and_then(|did| did.get_flops()), None);
    }

    #[test]
    fn attention_of_one_query_is_whole_and_of_several_not_known() {
        let attention = |queries: usize| {
            let keys = "[1, 3, 40, 64]";
            of(&format!(
                "aten::_scaled_dot_product_flash_attention, sizes = [[1, 9, {queries}, 64], {keys}, {keys}, [], [], []]"
            ))
        };
        assert_eq!(attention(1), Some((Shape::new(&[1, 9, 1, 40]), Some(4 * 9 * 64 * 40))));
        assert_eq!(attention(40), Some((Shape::new(&[1, 9, 40, 40]), None)));
    }

    #[test]
    fn what_is_not_understood_says_nothing() {
        for text in [
            "decode 7",
            "aten::linear, seq = 7, sizes = [[1, 576], [1536, 576], []]",
            "aten::mm",
            "aten::mm, seq = 4",
            "aten::mm, sizes = []",
            "aten::mm, sizes = [[1, 576], [575, 192]]",
            "aten::mm, sizes = [[1, 576]]",
            "aten::mm, sizes = [[1, 576, 3], [576, 192]]",
            "aten::mm, sizes = [[1, 576], [576, 192",
            "aten::mm, sizes = [[-1, x], [x, 99999999999999999999]]",
            "aten::bmm, sizes = [[], []]",
        ] {
            assert_eq!(told(text, true), None, "{text}");
        }
    }
}
