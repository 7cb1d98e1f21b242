//! The choice of tokens as an operation of candle, on the device that the logits are on.

use super::rule::{NONE, Rule, WORDS};
use candle_core::{CpuStorage, CustomOp3, Device, Layout, Result, Shape, Tensor, bail};

/// Of logits (rows, vocabulary) in f32, rules (rows, [`WORDS`]) and the positions (rows) of the tokens that were
/// passed, both in u32: the tokens that follow, (2, rows). A row has [`NONE`] where logits are no numbers; the second
/// one has 0 there, for the next pass. A row whose position is `u32::MAX` is nobody's: both are 0.
struct ChooseTokens;

/// [`ChooseTokens`] of tensors on one device: there if it can be, or else on the host.
pub(crate) fn chosen(logits: &Tensor, rules: &Tensor, positions: &Tensor) -> Result<Tensor> {
    let device = logits.device();
    if matches!(device, Device::Cpu | Device::Cuda(_)) {
        return logits.contiguous()?.apply_op3_no_bwd(rules, positions, &ChooseTokens);
    }
    let on_host = |of: &Tensor| of.to_device(&Device::Cpu)?.contiguous();
    on_host(logits)?.apply_op3_no_bwd(&on_host(rules)?, &on_host(positions)?, &ChooseTokens)?.to_device(device)
}

/// [`ChooseTokens`] for rules and positions that the host knows: what is chosen for each row, `None` where logits are
/// no numbers. Waits for the device once.
pub(super) fn choose(logits: &Tensor, rules: &[Rule], positions: &[u32]) -> Result<Vec<Option<u32>>> {
    let device = logits.device();
    let words: Vec<u32> = rules.iter().flat_map(Rule::words).collect();
    let rules = Tensor::from_vec(words, (rules.len(), WORDS), device)?;
    let positions = Tensor::new(positions, device)?;
    read(&chosen(logits, &rules, &positions)?)
}

/// What [`ChooseTokens`] has chosen.
pub(crate) fn read(chosen: &Tensor) -> Result<Vec<Option<u32>>> {
    let chosen = chosen.get(0)?.to_vec1::<u32>()?;
    Ok(chosen.into_iter().map(|token| (token != NONE).then_some(token)).collect())
}

/// The rows and the vocabulary, if the operands fit together.
fn sizes(logits: &Layout, rules: &Layout, positions: &Layout) -> Result<(usize, usize)> {
    let (rows, vocabulary) = logits.shape().dims2()?;
    let fits = rules.dims() == [rows, WORDS] && positions.dims() == [rows];
    if !fits || vocabulary == 0 || vocabulary >= NONE as usize {
        bail!("logits {:?} with rules {:?} and positions {:?}", logits.dims(), rules.dims(), positions.dims())
    }
    if [logits, rules, positions].iter().any(|layout| !layout.is_contiguous()) {
        bail!("a token is chosen of contiguous tensors")
    }
    Ok((rows, vocabulary))
}

/// The elements of a contiguous operand.
fn elements<'a, T: candle_core::WithDType>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [T]> {
    let from = layout.start_offset();
    Ok(&storage.as_slice::<T>()?[from..from + layout.shape().elem_count()])
}

impl CustomOp3 for ChooseTokens {
    fn name(&self) -> &'static str {
        "choose-token"
    }

    fn cpu_fwd(
        &self,
        logits: &CpuStorage,
        of_logits: &Layout,
        rules: &CpuStorage,
        of_rules: &Layout,
        positions: &CpuStorage,
        of_positions: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (rows, vocabulary) = sizes(of_logits, of_rules, of_positions)?;
        let logits = elements::<f32>(logits, of_logits)?;
        let rules = elements::<u32>(rules, of_rules)?;
        let positions = elements::<u32>(positions, of_positions)?;
        let rules = rules.as_chunks::<WORDS>().0;
        let of_row = |((logits, rule), position): ((&[f32], &[u32; WORDS]), &u32)| {
            if *position == u32::MAX { 0 } else { Rule::of(*rule).choose(logits, *position) }
        };
        let mut chosen: Vec<u32> = logits.chunks(vocabulary).zip(rules).zip(positions).map(of_row).collect();
        let passed: Vec<u32> = chosen.iter().map(|token| if *token == NONE { 0 } else { *token }).collect();
        chosen.extend(passed);
        Ok((CpuStorage::U32(chosen), (2, rows).into()))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        logits: &candle_core::CudaStorage,
        of_logits: &Layout,
        rules: &candle_core::CudaStorage,
        of_rules: &Layout,
        positions: &candle_core::CudaStorage,
        of_positions: &Layout,
    ) -> Result<(candle_core::CudaStorage, Shape)> {
        let (rows, vocabulary) = sizes(of_logits, of_rules, of_positions)?;
        let logits = (logits, of_logits.start_offset());
        let rules = (rules, of_rules.start_offset());
        let positions = (positions, of_positions.start_offset());
        Ok((super::cuda::choose(logits, rules, positions, rows, vocabulary)?, (2, rows).into()))
    }
}
