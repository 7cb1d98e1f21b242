//! Operations computed naively, in 64 bits.

use candle_core::{DType, Tensor};

pub fn values(tensor: &Tensor) -> Vec<f64> {
    let flat = tensor.flatten_all().unwrap().to_dtype(DType::F64).unwrap();
    flat.to_vec1::<f64>().unwrap()
}

#[track_caller]
pub fn near(tensor: &Tensor, wanted: &[f64], tolerance: f64) {
    let got = values(tensor);
    assert_eq!(got.len(), wanted.len());
    for (at, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        assert!((got - wanted).abs() <= tolerance * (1.0 + wanted.abs()), "{at}: {got} is not {wanted}");
    }
}

/// (m×k)·(k×n), the second matrix by columns if `turned`.
pub fn product(a: &[f64], b: &[f64], (m, n, k): (usize, usize, usize), turned: bool) -> Vec<f64> {
    let at = |row: usize, column: usize| if turned { b[column * k + row] } else { b[row * n + column] };
    let cell = |cell: usize| (0..k).map(|i| a[cell / n * k + i] * at(i, cell % n)).sum();
    (0..m * n).map(cell).collect()
}

pub fn softmax(row: &[f64]) -> Vec<f64> {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = row.iter().map(|x| (x - largest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|x| x / sum).collect()
}

pub fn rms(row: &[f64], weight: &[f64]) -> Vec<f64> {
    let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
    row.iter().zip(weight).map(|(x, w)| x / (mean + 1e-5).sqrt() * w).collect()
}

/// LayerNorm, then GELU; the error function by its series, which is exact enough for |x| < 3.
pub fn layernorm_gelu(row: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
    let n = row.len() as f64;
    let mean = row.iter().sum::<f64>() / n;
    let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    let normal = row.iter().zip(weight).zip(bias).map(|((x, w), b)| (x - mean) / (variance + 1e-5).sqrt() * w + b);
    normal.map(|x| x / 2.0 * (1.0 + erf(x / 2f64.sqrt()))).collect()
}

fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..80 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    2.0 / std::f64::consts::PI.sqrt() * sum
}

/// Attention of `tokens` queries to `context` positions; the last query sees all of them.
pub fn attention(q: &[f64], k: &[f64], v: &[f64], [batch, heads, kv, head, tokens, context]: [usize; 6]) -> Vec<f64> {
    let mut out = Vec::new();
    for (b, h) in (0..batch).flat_map(|b| (0..heads).map(move |h| (b, h))) {
        let kept = (b * kv + h / (heads / kv)) * context * head;
        for t in 0..tokens {
            let query = &q[((b * heads + h) * tokens + t) * head..][..head];
            let seen = context - tokens + t + 1;
            let score = |p: usize| -> f64 {
                let key = &k[kept + p * head..][..head];
                query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>() / (head as f64).sqrt()
            };
            let weights = softmax(&(0..seen).map(score).collect::<Vec<_>>());
            let mix = |d: usize| weights.iter().enumerate().map(|(p, w)| w * v[kept + p * head + d]).sum();
            out.extend((0..head).map(mix).collect::<Vec<f64>>());
        }
    }
    out
}
