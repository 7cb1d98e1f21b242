//! Sequences in slots, and the step that advances them.

use super::buckets;
use super::graphs::Graphs;
use super::kv_memory::KvMemory;
use super::room::{self, GraphMemory, Need};
use super::slot_options::{SlotOptions, SlotStepRun};

use crate::layers::{AttendedPositions, Place, SlotPlaces, layer_span, record};
use crate::sampling::{self, Rule, WORDS};
use crate::slot_model::{EagerCause, SlotModel};
use candle_core::{DType, Device, Result, Tensor, bail};
use candlescope_core::llm;
use candlescope_core::{Annotation, is_recording};
use candlescope_work::operation::Cost;
use tracing::Span;

/// The position of a slot that no sequence has: nothing is written there.
const IDLE: u32 = u32::MAX;

/// A model with several sequences, each in a slot.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use candlescope_models::ModelConfig;
/// use candlescope_models::slots::{SlotDecoder, SlotOptions};
/// use candlescope_models::weights::random::RandomWeights;
/// use candlescope_models::Llama;
/// let (config, device) = (ModelConfig::named("embedded")?, Device::Cpu);
/// let mut weights = RandomWeights::new(&config, 42, candle_core::DType::F32, &device);
/// let model = Llama::load(&config, &mut weights, candle_core::DType::F32, &device)?;
/// let options = SlotOptions { slots: 2, context: Some(64), ..SlotOptions::default() };
/// let mut decoder = SlotDecoder::new(Box::new(model), &options)?;
/// decoder.prefill(0, &Tensor::new(&[[1u32, 2, 3]], &device)?, 0)?;
/// decoder.prefill(1, &Tensor::new(&[[7u32]], &device)?, 0)?;
/// // One token of each, at positions 3 and 1.
/// let logits = decoder.step(&Tensor::new(&[[4u32], [8]], &device)?, &[0, 1])?;
/// assert_eq!(logits.dims(), &[2, config.vocab_size]);
/// assert_eq!((decoder.held(0), decoder.held(1)), (4, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SlotDecoder {
    // Graphs hold addresses of the buffers and of the model's tensors, and go first.
    graphs: std::result::Result<Graphs, EagerCause>,
    buffers: Buffers,
    model: Box<dyn SlotModel>,
    /// Tokens whose keys and values each slot holds.
    held: Vec<usize>,
    /// Positions up to which something was written into each slot: what it holds, or an earlier sequence's rest.
    written: Vec<usize>,
    /// The positions that the device has.
    told: Vec<u32>,
    /// The tokens that the device has for the next step, which it chose itself; empty if it has none.
    fed: Vec<u32>,
    /// The rules that the device has.
    ruled: Vec<Rule>,
    memory: KvMemory,
    context: usize,
    ran: Option<SlotStepRun>,
    graph_memory: GraphMemory,
    /// Of a sequence that goes on in another slot.
    moving: Span,
}

/// What a step reads and writes: always the same memory.
struct Buffers {
    /// (slots, 1) u32.
    tokens: Tensor,
    /// (slots) u32.
    positions: Tensor,
    /// What a step adds to each position, (slots) u32: 1, and 0 to an idle one.
    advance: Tensor,
    /// (slots, vocabulary) in f32.
    logits: Tensor,
    /// How the next tokens are chosen, (slots, [`WORDS`]) u32.
    rules: Tensor,
    /// The tokens that were chosen, as [`chosen`](sampling::chosen) has them, (2, slots) u32.
    chosen: Tensor,
    /// The numbers of all positions, (1, context) u32.
    ends: Tensor,
    attended: Tensor,
    masked: Tensor,
}

impl Buffers {
    fn new(slots: usize, context: usize, vocabulary: usize, device: &Device) -> Result<Self> {
        Ok(Self {
            tokens: Tensor::zeros((slots, 1), DType::U32, device)?,
            positions: Tensor::full(IDLE, slots, device)?,
            advance: Tensor::zeros(slots, DType::U32, device)?,
            logits: Tensor::zeros((slots, vocabulary), DType::F32, device)?,
            rules: Tensor::from_vec(Rule::GREEDY.words().repeat(slots), (slots, WORDS), device)?,
            chosen: Tensor::zeros((2, slots), DType::U32, device)?,
            ends: Tensor::arange(0u32, context as u32, device)?.unsqueeze(0)?,
            attended: Tensor::zeros((1, 1), DType::F32, device)?,
            masked: Tensor::full(f32::NEG_INFINITY, (1, 1), device)?,
        })
    }

    /// One step of the first `slots` slots; logits (slots, vocabulary). `masked`: not
    /// every slot attends to all of them.
    fn step(
        &self,
        model: &mut dyn SlotModel,
        slots: usize,
        attending: AttendedPositions,
        masked: bool,
    ) -> Result<Tensor> {
        let positions = self.positions.narrow(0, 0, slots)?;
        let mask = masked.then(|| self.mask(&positions, attending.context)).transpose()?;
        let places = SlotPlaces { positions: positions.clone(), mask, attending };
        let step = model.slot_step(places)?;
        model.forward_at(&self.tokens.narrow(0, 0, slots)?, Place::Each(&step))
    }

    /// Chooses a token of each row of `logits`, which the next step passes unless it is given others.
    fn choose(&self, logits: &Tensor) -> Result<()> {
        let slots = logits.dim(0)?;
        let (rules, positions) = (self.rules.narrow(0, 0, slots)?, self.positions.narrow(0, 0, slots)?);
        let chosen = sampling::chosen(logits, &rules, &positions)?;
        self.chosen.slice_set(&chosen, 1, 0)?;
        self.tokens.slice_set(&chosen.get(1)?.unsqueeze(1)?, 0, 0)
    }

    /// The first `slots` positions go on.
    fn advance(&self, slots: usize) -> Result<()> {
        let positions = self.positions.narrow(0, 0, slots)?;
        positions.slice_set(&(&positions + self.advance.narrow(0, 0, slots)?)?, 0, 0)
    }

    /// 0 where a slot attends, −∞ where it does not, (n, 1, 1, context).
    fn mask(&self, positions: &Tensor, context: usize) -> Result<Tensor> {
        let (n, shape) = (positions.dim(0)?, (positions.dim(0)?, context));
        let ends = self.ends.narrow(1, 0, context)?.broadcast_as(shape)?;
        let seen = ends.le(&positions.unsqueeze(1)?.broadcast_as(shape)?)?;
        let mask = seen.where_cond(&self.attended.broadcast_as(shape)?, &self.masked.broadcast_as(shape)?)?;
        mask.reshape((n, 1, 1, context))
    }
}

/// Where the slots are in a step.
struct Positions {
    /// Of each slot, [`IDLE`] of those that rest.
    of: Vec<u32>,
    /// Positions that are attended to, of all slots together.
    attended: u64,
}

/// The cost of a step of `rows` slots, of which that of its sequences is needed: that of as many at their mean context, since
/// cost grows evenly with it.
fn replay_cost(model: &dyn SlotModel, rows: usize, of: AttendedPositions) -> Cost {
    let mean = of.attended.div_ceil(of.active.max(1));
    model.step_cost(rows as u64, of.context as u64).needing(model.step_cost(of.active, mean))
}

impl std::fmt::Debug for SlotDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlotDecoder")
            .field("held", &self.held)
            .field("context", &self.context)
            .field("ran", &self.ran)
            .finish_non_exhaustive()
    }
}

impl SlotDecoder {
    /// Allocates the slots.
    ///
    /// # Errors
    /// If there are none, if the model has no such context, or if the device has not enough memory.
    pub fn new(model: Box<dyn SlotModel>, options: &SlotOptions) -> Result<Self> {
        Self::beside(model, options, 0)
    }

    /// The same where models that load later, if there are any, have weights of so many bytes each.
    pub(crate) fn beside(mut model: Box<dyn SlotModel>, options: &SlotOptions, weights: u64) -> Result<Self> {
        let most = model.max_context();
        let context = options.context.unwrap_or(most);
        if options.slots == 0 || context == 0 {
            let slots = options.slots;
            bail!("{slots} slots of {context} tokens hold nothing: ask for at least one of each")
        }
        let device = model.device().clone();
        if context > most {
            bail!("{context} tokens exceed the context of {most} tokens")
        }
        let need = Need { token: model.kv_bytes_in_a_step(), context, models: options.models, weights };
        let slots = room::slots(&device, options, need)?;
        model.hold(slots, context)?;
        sampling::prepare(&device)?;
        let graphs = match (options.cuda_graph, model.capturable().cause) {
            (false, _) => Err(EagerCause::NotAsked),
            (true, None) => Graphs::new(&device),
            (true, Some(cause)) => Err(cause),
        };
        if let (true, Err(cause)) = (options.cuda_graph && !device.is_cpu(), &graphs) {
            let text = format!("steps of the slots run call by call, not as CUDA graphs: {}", cause.explained());
            candlescope_core::diagnostics::print(&format!("candlescope: {text}\n"));
        }
        let buffers = Buffers::new(slots, context, model.vocab_size(), &device)?;
        let (held, written, told) = (vec![0; slots], vec![0; slots], vec![IDLE; slots]);
        let (fed, ruled) = (Vec::new(), vec![Rule::GREEDY; slots]);
        let memory = KvMemory::new(model.kv_bytes_per_token(), slots * context);
        let (ran, graph_memory) = (None, GraphMemory::default());
        let moving = layer_span!("move_sequence", "move_sequence");
        Ok(Self { graphs, buffers, model, held, written, told, fed, ruled, memory, context, ran, graph_memory, moving })
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.held.len()
    }

    /// Most tokens of a sequence.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Entries of the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.model.vocab_size()
    }

    /// Bytes that are allocated for keys and values.
    pub fn kv_bytes(&self) -> u64 {
        self.memory.allocated()
    }

    /// The device that the model is on.
    pub fn device(&self) -> &Device {
        self.model.device()
    }

    /// Tokens whose keys and values a slot holds; 0 if there is no such slot.
    pub fn held(&self, slot: usize) -> usize {
        self.held.get(slot).copied().unwrap_or(0)
    }

    /// How the last step ran.
    pub fn last_ran(&self) -> Option<SlotStepRun> {
        self.ran
    }

    /// Why captures failed, one text for each shape.
    pub fn capture_failures(&self) -> &[String] {
        self.graphs.as_ref().map_or(&[], Graphs::failures)
    }

    /// Passes `tokens` (sequences, new tokens), those of the slots from `first` on, from `position` on: a prompt or a part
    /// of one. A position before what a slot holds replaces the rest, so that 0 begins anew. The answer are the logits of the
    /// last tokens, (sequences, vocabulary).
    ///
    /// # Errors
    /// If a slot holds fewer than `position` tokens, or has no room for more.
    pub fn prefill(&mut self, first: usize, tokens: &Tensor, position: usize) -> Result<Tensor> {
        let (batch, count) = tokens.dims2()?;
        self.check_room(first, batch, position + count)?;
        if let Some(slot) = (first..first + batch).find(|slot| self.held[*slot] < position) {
            let held = self.held[slot];
            bail!("slot {slot} holds {held} tokens, position {position} leaves a gap: pass the tokens in between")
        }
        let (slots, end) = (first..first + batch, position + count);
        let written = self.written[slots.clone()].iter().max().copied().unwrap_or(0);
        if written > end {
            self.model.erase(slots.clone(), end, written)?;
        }
        self.written[slots.clone()].fill(end);
        // What goes wrong on the way leaves keys of both sequences behind.
        self.held[slots.clone()].fill(position);
        self.memory.holds(self.held.iter().sum());
        let logits = self.model.forward_at(tokens, Place::Slots { first, position })?;
        self.held[slots].fill(end);
        self.memory.holds(self.held.iter().sum());
        Ok(logits)
    }

    /// Forgets all but the first `tokens` tokens of a slot.
    pub fn truncate(&mut self, slot: usize, tokens: usize) {
        if let Some(held) = self.held.get_mut(slot) {
            *held = (*held).min(tokens);
            self.memory.holds(self.held.iter().sum());
        }
    }

    /// Rows that a step computes if the last of its sequences is in the slot before `used`.
    pub(crate) fn rows(&self, used: usize) -> usize {
        match &self.graphs {
            Ok(_) => buckets::slots(used, self.slots()),
            // What is not captured need not be rounded.
            Err(_) => used,
        }
    }

    /// The sequence in slot `from` goes on in slot `to`, and what that held stands in `from`. Keys and values are
    /// copied: a step makes the same calls as before, and graphs find their memory where it was.
    ///
    /// # Errors
    /// If there is no such slot, or no memory for the copies: both slots hold nothing then.
    pub(crate) fn move_sequence(&mut self, from: usize, to: usize) -> Result<()> {
        if from == to || from.max(to) >= self.slots() {
            bail!("a sequence does not move from slot {from} to slot {to} of {}", self.slots())
        }
        let _entered = self.moving.enter();
        let (of_from, of_to) = (self.held[from], self.held[to]);
        let (rest_of_from, rest_of_to) = (self.written[from], self.written[to]);
        // The tokens that the device has for the next step are those of the slots as they were.
        self.fed.clear();
        // What goes wrong on the way leaves keys of both sequences behind, in both.
        for slot in [from, to] {
            (self.held[slot], self.written[slot]) = (0, rest_of_from.max(rest_of_to));
        }
        self.memory.holds(self.held.iter().sum());
        self.model.exchange((from, of_from), (to, of_to))?;
        if rest_of_to > of_from {
            self.model.erase(to..to + 1, of_from, rest_of_to)?;
        }
        (self.held[from], self.held[to]) = (of_to, of_from);
        (self.written[from], self.written[to]) = (rest_of_from.max(of_to), of_from);
        self.memory.holds(self.held.iter().sum());
        record(|| {
            // Each is read, written beside, read there, and written where it belongs.
            let bytes = 4 * (of_from + of_to) as u64 * self.model.kv_bytes_per_token();
            Annotation::from(Cost { activation_bytes: bytes as f64, ..Cost::ZERO })
        });
        Ok(())
    }

    /// Advances the sequences in `slots` by a token each: `tokens` (slots, 1), up to the last of these or further; a row of
    /// another slot has any token of the vocabulary. The other slots keep what they hold. The answer are logits, (slots,
    /// vocabulary), with a row for each slot up to the last of `slots` at least, in memory that the next step overwrites.
    ///
    /// # Errors
    /// If a slot is named twice or empty, or if its sequence has no room for another token: it has to leave first.
    pub fn step(&mut self, tokens: &Tensor, slots: &[usize]) -> Result<Tensor> {
        let given = tokens.dim(0)?;
        let (at, n, context) = self.places(slots, given)?;
        // Not cached with a step's constants: they may be others each time.
        self.buffers.tokens.slice_set(&tokens.narrow(0, 0, given.min(n))?.contiguous()?, 0, 0)?;
        let (logits, is_chosen) = self.run(at, slots, (n, context))?;
        if !is_chosen {
            self.positions_go_on(n)?;
        }
        logits.narrow(0, 0, given.min(n))
    }

    /// As [`step`](Self::step), with the token of each of `slots`, and chooses the next ones by these rules, on the device
    /// where it can: `None` where logits are no numbers. Logits are there for whoever chooses otherwise, (slots, vocabulary).
    pub(crate) fn advance(&mut self, next: &[(usize, u32, Rule)]) -> Result<(Vec<Option<u32>>, Tensor)> {
        let slots: Vec<usize> = next.iter().map(|(slot, ..)| *slot).collect();
        let (at, n, context) = self.places(&slots, self.slots())?;
        self.pass(next, n)?;
        self.rule(next)?;
        let (logits, is_chosen) = self.run(at, &slots, (n, context))?;
        let _sampling = llm::sample();
        if !is_chosen {
            self.buffers.choose(&logits).inspect_err(|_| self.told.clear())?;
            self.positions_go_on(n)?;
        }
        let chosen = sampling::read(&self.buffers.chosen)?;
        // Rows of other slots are an earlier step's.
        self.fed = chosen[..n].iter().map(|token| token.unwrap_or(0)).collect();
        Ok((slots.iter().map(|slot| chosen[*slot]).collect(), logits))
    }

    /// The first `n` positions go on, on the device.
    fn positions_go_on(&mut self, n: usize) -> Result<()> {
        self.buffers.advance(n).inspect_err(|_| self.told.clear())
    }

    /// The position of each slot in a step, and the step's shape.
    fn places(&self, slots: &[usize], given: usize) -> Result<(Positions, usize, usize)> {
        let Some(used) = slots.iter().max().map(|last| last + 1).filter(|used| *used <= given.min(self.slots())) else {
            bail!("{given} tokens for the slots {slots:?} of {}", self.slots())
        };
        let mut at = Positions { of: vec![IDLE; self.slots()], attended: 0 };
        let mut longest = 0;
        for slot in slots {
            let held = self.held[*slot];
            if at.of[*slot] != IDLE {
                bail!("slot {slot} is named twice in {slots:?}")
            }
            if held == 0 || held >= self.context {
                bail!(
                    "slot {slot} holds {held} of {} tokens: a sequence begins with its prompt, and leaves when its slot is full",
                    self.context
                )
            }
            at.of[*slot] = held as u32;
            longest = longest.max(held);
            at.attended += held as u64 + 1;
        }
        let context = match &self.graphs {
            Ok(_) => buckets::context(longest + 1, self.context),
            Err(_) => longest + 1,
        };
        Ok((at, self.rows(used), context))
    }

    /// One step of the first `n` slots, whose tokens the device has. The answer are logits, and whether tokens were chosen of
    /// them: a graph holds the choice.
    fn run(&mut self, at: Positions, slots: &[usize], (n, context): (usize, usize)) -> Result<(Tensor, bool)> {
        let attended = at.attended;
        // Whatever comes of it, the tokens for the next step are others.
        self.fed.clear();
        self.tell(at.of)?;
        let aligned = self.told[..n].iter().all(|position| *position as usize + 1 == context);
        // Also by a step that fails on its way.
        slots.iter().for_each(|slot| self.written[*slot] = self.written[*slot].max(self.held[*slot] + 1));
        let attending = AttendedPositions { context, active: slots.len() as u64, attended };
        // What a replay annotates, worked out before it while something is recorded.
        let may_replay = self.graphs.is_ok() && is_recording();
        let cost = if may_replay { replay_cost(self.model.as_ref(), n, attending) } else { Cost::ZERO };
        let (buffers, model) = (&self.buffers, self.model.as_mut());
        let stepped = match &mut self.graphs {
            Ok(graphs) => {
                // The mask of any positions, logits where they always are, and tokens whether they are wanted or not.
                let mut body = || {
                    let logits = buffers.step(model, n, attending, true)?;
                    buffers.logits.slice_set(&logits.contiguous()?, 0, 0)?;
                    {
                        let _sampling = llm::sample();
                        buffers.choose(&logits)?;
                    }
                    buffers.advance(n)
                };
                let annotate = |entered: bool| {
                    let stated = || if entered { Annotation::new() } else { Annotation::from(cost) };
                    record(|| stated().shape(&[n, context]));
                };
                let ran = graphs.run((n, context), &mut body, &annotate);
                if let Some((took, free)) = graphs.took() {
                    let shapes = buckets::shapes(self.held.len(), self.context);
                    if let Some(text) = self.graph_memory.captured(took, free, shapes) {
                        candlescope_core::diagnostics::print(&format!("candlescope: {text}\n"));
                    }
                }
                let replay = SlotStepRun::Replay { slots: n, context };
                ran.map(|ran| (buffers.logits.clone(), ran.map_or_else(SlotStepRun::Eager, |()| replay)))
            }
            Err(cause) => {
                buffers.step(model, n, attending, !aligned).map(|logits| (logits, SlotStepRun::Eager(*cause)))
            }
        };
        // After an error it is not known whether the device has advanced.
        let (logits, ran) = stepped.inspect_err(|_| self.told.clear())?;
        self.ran = Some(ran);
        // Of the step: no interval in it is open any more. Its shape is that of the graph that it ran as, or should have.
        let shaped = self.graphs.is_ok();
        record(|| {
            let ran = Annotation::new().ran(ran.into());
            if shaped { ran.shape(&[n, context]) } else { ran }
        });
        for slot in slots {
            self.held[*slot] += 1;
            self.told[*slot] += 1;
        }
        self.memory.holds(self.held.iter().sum());
        Ok((logits, self.graphs.is_ok()))
    }

    /// Tells the device the tokens of a step of `n` slots, unless it chose them itself.
    fn pass(&mut self, next: &[(usize, u32, Rule)], n: usize) -> Result<()> {
        if next.iter().all(|(slot, token, _)| self.fed.get(*slot) == Some(token)) {
            return Ok(());
        }
        let mut tokens = vec![0; n];
        next.iter().for_each(|(slot, token, _)| tokens[*slot] = *token);
        self.fed.clear();
        self.buffers.tokens.slice_set(&Tensor::from_vec(tokens, (n, 1), self.model.device())?, 0, 0)
    }

    /// Tells the device the rules, unless it knows.
    fn rule(&mut self, next: &[(usize, u32, Rule)]) -> Result<()> {
        if next.iter().all(|(slot, _, rule)| self.ruled.get(*slot) == Some(rule)) {
            return Ok(());
        }
        let mut rules = std::mem::take(&mut self.ruled);
        rules.resize(self.held.len(), Rule::GREEDY);
        next.iter().for_each(|(slot, _, rule)| rules[*slot] = *rule);
        let words: Vec<u32> = rules.iter().flat_map(Rule::words).collect();
        let words = Tensor::from_vec(words, (rules.len(), WORDS), self.model.device())?;
        self.buffers.rules.slice_set(&words, 0, 0)?;
        self.ruled = rules;
        Ok(())
    }

    fn check_room(&self, first: usize, batch: usize, tokens: usize) -> Result<()> {
        if first + batch > self.slots() {
            bail!("{batch} sequences from slot {first} on do not fit {} slots; ask for more", self.slots())
        }
        if tokens > self.context {
            bail!("{tokens} tokens exceed the context of {} tokens", self.context)
        }
        Ok(())
    }

    /// Tells the device where the slots are, unless it knows: a step advances its positions itself.
    fn tell(&mut self, positions: Vec<u32>) -> Result<()> {
        if self.told == positions {
            return Ok(());
        }
        let advance: Vec<u32> = positions.iter().map(|position| u32::from(*position != IDLE)).collect();
        // Not known until both are there.
        self.told.clear();
        let of = |values: Vec<u32>| Tensor::from_vec(values, self.held.len(), self.model.device());
        self.buffers.positions.slice_set(&of(positions.clone())?, 0, 0)?;
        self.buffers.advance.slice_set(&of(advance)?, 0, 0)?;
        self.told = positions;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ModelConfig;
    use crate::layers::KvCacheDType;
    use crate::llama::Llama;
    use crate::weights::random::RandomWeights;

    fn decoder(slots: usize) -> SlotDecoder {
        decoder_in(KvCacheDType::Auto, slots)
    }

    fn decoder_in(kept_as: KvCacheDType, slots: usize) -> SlotDecoder {
        let config = ModelConfig::named("embedded").unwrap();
        let mut weights = RandomWeights::new(&config, 7, DType::F32, &Device::Cpu);
        let model = Llama::load(&config, &mut weights, DType::F32, &Device::Cpu).unwrap().kv_cache_dtype(kept_as);
        let options = SlotOptions { slots, context: Some(300), cuda_graph: false, ..SlotOptions::default() };
        SlotDecoder::new(Box::new(model), &options).unwrap()
    }

    fn prompt(tokens: &[u32]) -> Tensor {
        Tensor::new(tokens, &Device::Cpu).unwrap().unsqueeze(0).unwrap()
    }

    /// A graph's step on a CPU: more slots than are in use, and more context.
    #[test]
    fn rounded_shapes_give_the_same_logits() {
        let mut decoder = decoder(4);
        decoder.prefill(1, &prompt(&[5, 6, 7]), 0).unwrap();
        decoder.prefill(2, &prompt(&[9]), 0).unwrap();
        let tokens = Tensor::new(&[[0u32], [8], [10]], &Device::Cpu).unwrap();
        let exact = decoder.step(&tokens, &[1, 2]).unwrap();
        decoder.truncate(1, 3);
        decoder.truncate(2, 1);
        decoder.tell(vec![IDLE, 3, 1, IDLE]).unwrap();
        let of = AttendedPositions { context: 256, active: 2, attended: 6 };
        let rounded = decoder.buffers.step(decoder.model.as_mut(), 4, of, true).unwrap();
        decoder.buffers.advance(4).unwrap();
        for slot in [1, 2] {
            let rows = [&exact, &rounded].map(|logits| logits.get(slot).unwrap().to_vec1::<f32>().unwrap());
            let largest = rows[0].iter().fold(0f32, |most, x| most.max(x.abs()));
            let apart = rows[0].iter().zip(&rows[1]).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
            assert!(apart <= 2e-6 * largest, "slot {slot}: {apart} of {largest}");
        }
        assert_eq!(decoder.buffers.positions.to_vec1::<u32>().unwrap(), [IDLE, 4, 2, IDLE], "it advanced them itself");
    }

    /// Two decoders that do the same, one of which is told each token anew.
    #[test]
    fn a_token_that_the_device_has_is_that_of_the_last_step_and_of_no_other() {
        let (mut one, mut other) = (decoder(3), decoder(3));
        for decoder in [&mut one, &mut other] {
            (0..3).for_each(|slot| _ = decoder.prefill(slot, &prompt(&[5 + slot as u32, 6, 7]), 0).unwrap());
        }
        let mut last = [1u32, 2, 3];
        // All, then one of them by logits alone, then one, then all again with what slots 1 and 2 had first.
        for (slots, by_logits) in
            [(vec![0, 1, 2], false), (vec![0, 1, 2], true), (vec![0], false), (vec![0, 1, 2], false)]
        {
            let next: Vec<_> = slots.iter().map(|slot| (*slot, last[*slot], Rule::GREEDY)).collect();
            let tokens = Tensor::from_vec(last.to_vec(), (3, 1), &Device::Cpu).unwrap();
            other.fed.clear();
            let expected = other.step(&tokens, &slots).unwrap();
            if by_logits {
                one.step(&tokens, &slots).unwrap();
                // What is passed next is another token than the device chose in the step before.
                last = last.map(|token| token + 1);
                continue;
            }
            let (chosen, logits) = one.advance(&next).unwrap();
            for (slot, chosen) in slots.iter().zip(chosen) {
                let row = |logits: &Tensor| logits.get(*slot).unwrap().to_vec1::<f32>().unwrap();
                assert_eq!(row(&logits), row(&expected), "slot {slot} of {slots:?}");
                assert_eq!(chosen, Some(expected.get(*slot).unwrap().argmax(0).unwrap().to_scalar().unwrap()));
                last[*slot] = chosen.unwrap();
            }
        }
    }

    /// One step of the sequence in a slot: the token that comes next, and logits.
    fn advanced(decoder: &mut SlotDecoder, slot: usize, token: u32) -> (u32, Vec<f32>) {
        let (chosen, logits) = decoder.advance(&[(slot, token, Rule::GREEDY)]).unwrap();
        (chosen[0].unwrap(), logits.get(slot).unwrap().to_vec1().unwrap())
    }

    /// Two decoders that do the same, in one of which the sequence moves.
    #[test]
    fn a_sequence_goes_on_in_another_slot_and_what_that_held_in_its_own() {
        // Of the largest logit: another number of rows is summed in another order, which may be another code of 8 bits.
        for (kept_as, near) in [(KvCacheDType::Auto, 2e-6), (KvCacheDType::Q8, 0.02)] {
            let (mut stays, mut moves) = (decoder_in(kept_as, 4), decoder_in(kept_as, 4));
            for decoder in [&mut stays, &mut moves] {
                decoder.prefill(3, &prompt(&[5, 6, 7, 8]), 0).unwrap();
                // An earlier sequence, of which the beginning is kept.
                decoder.prefill(0, &prompt(&[9; 40]), 0).unwrap();
                decoder.truncate(0, 2);
            }
            let same = |(token, logits): (u32, Vec<f32>), (other, others): (u32, Vec<f32>)| {
                let largest = logits.iter().fold(0f32, |most, x| most.max(x.abs()));
                let apart = logits.iter().zip(&others).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
                assert!(apart <= near * largest, "{kept_as:?}: {apart} of {largest}");
                assert_eq!(token, other, "{kept_as:?}");
                token
            };
            let mut token = same(advanced(&mut stays, 3, 11), advanced(&mut moves, 3, 11));
            moves.move_sequence(3, 0).unwrap();
            // What the earlier sequence left behind the moved one is erased.
            assert_eq!((moves.held(0), moves.held(3), moves.written[0]), (5, 2, 5), "{kept_as:?}");
            for _ in 0..3 {
                token = same(advanced(&mut stays, 3, token), advanced(&mut moves, 0, token));
            }
            same(advanced(&mut stays, 0, 4), advanced(&mut moves, 3, 4));
            assert!(moves.move_sequence(1, 1).is_err() && moves.move_sequence(0, 4).is_err());
        }
    }

    #[test]
    fn a_replay_costs_what_its_sequences_cost_alone_and_the_rest_is_surplus() {
        let decoder = decoder(4);
        let model = decoder.model.as_ref();
        let of = AttendedPositions { context: 256, active: 2, attended: 11 + 51 };
        let cost = replay_cost(model, 4, of);
        let (a, b) = (model.step_cost(1, 11), model.step_cost(1, 51));
        assert!((cost.flops - a.flops - b.flops).abs() < 1e-9 * cost.flops, "{cost:?}");
        assert!((cost.kv_bytes - a.kv_bytes - b.kv_bytes).abs() < 1e-9 * cost.kv_bytes, "{cost:?}");
        let done = model.step_cost(4, 256);
        assert!((cost.flops_executed() - done.flops).abs() < 1e-9 * done.flops && cost.surplus_flops > cost.flops);
    }

    #[test]
    fn what_a_sequence_leaves_behind_the_next_one_is_erased() {
        let mut decoder = decoder(2);
        decoder.prefill(0, &prompt(&[1; 40]), 0).unwrap();
        decoder.step(&Tensor::new(&[[8u32]], &Device::Cpu).unwrap(), &[0]).unwrap();
        assert_eq!(decoder.written, [41, 0]);
        decoder.prefill(0, &prompt(&[5, 6, 7]), 0).unwrap();
        assert_eq!((decoder.written[0], decoder.held(0)), (3, 3));
        // One that goes on from a shared beginning keeps that.
        decoder.prefill(0, &prompt(&[8]), 2).unwrap();
        assert_eq!((decoder.written[0], decoder.held(0)), (3, 3));
        let twice = decoder.step(&Tensor::new(&[[8u32]], &Device::Cpu).unwrap(), &[0, 0]).unwrap_err().to_string();
        assert!(twice.contains("slot 0 is named twice"), "{twice}");
    }
}
