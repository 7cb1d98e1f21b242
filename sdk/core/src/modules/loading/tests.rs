//! A book, without a model.

use super::*;
use crate::vocabulary::DType;

const LINEAR: Rule = Rule::Before(Operation::Linear);
const NORM: Rule = Rule::After { operation: Operation::Norm, part: None, weights: 1 };
const CONV: Rule = Rule::After { operation: Operation::Convolution, part: None, weights: 2 };

fn weight(name: &str, dims: &[usize]) -> Weight {
    let bytes = dims.iter().product::<usize>() as u64 * 4;
    Weight { name: name.into(), dims: dims.into(), dtype: DType::F32, bytes }
}

fn read(loading: &mut Loading, names: &[&str]) {
    names.iter().for_each(|name| loading.read(weight(name, if name.ends_with("weight") { &[6, 4] } else { &[6] })));
}

/// The module's name and how many weights it has.
fn told(claim: Claim) -> Option<(String, usize)> {
    let Claim::Module(slot) = claim else { return None };
    slot.get().map(|module| (module.name.to_string(), module.weights.len()))
}

fn some(name: &str, weights: usize) -> Option<(String, usize)> {
    Some((name.into(), weights))
}

#[test]
fn a_layer_that_reads_first_owns_what_was_read_just_before() {
    let mut loading = Loading::default();
    read(&mut loading, &["embed.weight", "0.q.weight", "0.q.bias"]);
    assert_eq!(told(loading.span(LINEAR, 1)), some("0.q", 2), "and not the embedding");
    assert_eq!(told(loading.span(LINEAR, 1)), None, "nothing was read since");
    read(&mut loading, &["0.norm.weight"]);
    loading.span(Rule::Work, 1);
    assert_eq!(told(loading.span(LINEAR, 1)), None, "what another span followed is not its");
    assert_eq!(
        (loading.unowned.len(), loading.told.iter().map(|(_, told)| told.weights as usize).sum::<usize>()),
        (2, 4)
    );
}

#[test]
fn a_layer_that_reads_last_owns_what_comes_next() {
    let mut loading = Loading::default();
    let norm = loading.span(NORM, 1);
    read(&mut loading, &["0.norm.weight", "0.q.weight"]);
    assert_eq!(told(norm), some("0.norm", 1));
    assert_eq!(told(loading.span(LINEAR, 1)), some("0.q", 1));

    let conv = loading.span(CONV, 1);
    read(&mut loading, &["patch.weight", "position.weight"]);
    assert_eq!(told(conv), some("patch", 1), "a bias would have come next");
    let failed = loading.span(NORM, 1);
    loading.span(Rule::Group, 1);
    read(&mut loading, &["1.norm.weight"]);
    assert_eq!(told(failed), None, "its read failed: what comes after the next span is not its");
}

#[test]
fn spans_that_are_made_together_find_their_weights_by_name() {
    let mut loading = Loading::default();
    let part = |part| Rule::After { operation: Operation::Convolution, part: Some(part), weights: 2 };
    let (one, two) = (loading.span(part("conv1"), 1), loading.span(part("conv2"), 1));
    let head = loading.span(Rule::Shares { part: "embed_tokens" }, 1);
    read(&mut loading, &["e.conv1.weight", "e.conv1.bias", "e.conv2.weight", "e.conv2.bias", "d.embed_tokens.weight"]);
    assert_eq!((told(one), told(two)), (some("e.conv1", 2), some("e.conv2", 2)));
    assert_eq!(told(head), some("lm_head", 1));
    assert_eq!(loading.unowned.len(), 1, "the embedding is still there for a span of its own");
}

#[test]
fn a_loader_of_whole_layers_is_told_by_patterns() {
    let mut loading = Loading::default();
    let linear = Rule::Batch(Operation::Linear, &["ffn_gate.*", "ffn_up", "attn_q", "output", "token_embd"]);
    let norm = Rule::Batch(Operation::Norm, &["attn_q_norm", "*norm"]);
    read(&mut loading, &["token_embd.weight", "output_norm.weight"]);
    assert_eq!(told(loading.span(norm, 1)), some("output_norm", 1));
    for layer in 0..2 {
        for name in ["attn_q", "ffn_gate.0", "ffn_gate.1", "ffn_up", "attn_norm", "ffn_norm", "attn_q_norm"] {
            read(&mut loading, &[&format!("blk.{layer}.{name}.weight")]);
        }
        let mut take = |rule| told(loading.span(rule, 1)).unwrap().0;
        let got: Vec<String> = [linear, linear, linear, linear, norm, norm, norm].into_iter().map(&mut take).collect();
        let expected = ["ffn_gate.0", "ffn_gate.1", "ffn_up", "attn_q", "attn_q_norm", "attn_norm", "ffn_norm"];
        assert_eq!(got, expected.map(|name| format!("blk.{layer}.{name}")));
    }
    assert_eq!(told(loading.span(linear, 1)), some("lm_head", 1), "tied: only the embedding is left");
    assert_eq!(loading.unowned.len(), 0);
    // Another loader reads the table a second time, for the head.
    read(&mut loading, &["token_embd.weight"]);
    assert_eq!(told(loading.span(LINEAR, 1)), some("lm_head", 1));
}

#[test]
fn a_tied_head_is_the_one_table_as_wide_as_the_model() {
    let tied = Rule::Given(Operation::Linear);
    let table = |loading: &mut Loading, name: &str, dims: &[usize]| loading.read(weight(name, dims));
    let mut loading = Loading::default();
    table(&mut loading, "embed.weight", &[100, 8]);
    assert_eq!(told(loading.span(tied, 1)), some("lm_head", 1), "nothing else was read");
    table(&mut loading, "a_log", &[16, 3]);
    table(&mut loading, "norm.weight", &[8]);
    assert_eq!(told(loading.span(tied, 1)), some("lm_head", 1), "other tables are not as wide");
    loading.span(Rule::Work, 1);
    loading.architecture = Architecture::of_config(r#"{"model_type": "m", "vocab_size": 100}"#).unwrap();
    table(&mut loading, "q.weight", &[8, 8]);
    table(&mut loading, "q.bias", &[12]);
    assert_eq!(told(loading.span(tied, 1)), None, "a layer made of what was just read, most likely");
    assert_eq!(told(loading.span(tied, 1)), some("lm_head", 1), "no other table has so many words");
    loading.architecture = Architecture::default();
    table(&mut loading, "positions.weight", &[50, 8]);
    assert_eq!(told(loading.span(tied, 1)), None, "two tables: no guess");
    loading.architecture = Architecture::of_config(r#"{"model_type": "m", "vocab_size": 100}"#).unwrap();
    assert_eq!(told(loading.span(tied, 1)), some("lm_head", 1), "the configuration says which");
    assert_eq!(told(loading.span(Rule::Given(Operation::Embedding), 1)), None);
}

#[test]
fn a_head_that_is_handed_its_table_may_have_one_of_its_own() {
    let tied = Rule::Given(Operation::Linear);
    let mut loading = Loading::default();
    for name in ["words.weight", "positions.weight"] {
        loading.read(weight(name, if name == "words.weight" { &[100, 8] } else { &[50, 8] }));
        loading.span(Rule::Before(Operation::Embedding), 1);
    }
    loading.read(weight("norm.weight", &[8]));
    assert_eq!(told(loading.span(tied, 1)), None, "one of the two tables, if any");
    loading.read(weight("head.decoder.weight", &[100, 8]));
    loading.read(weight("head.bias", &[100]));
    assert_eq!(told(loading.span(tied, 1)), some("head.decoder", 1));
    loading.read(weight("a.weight", &[100, 8]));
    loading.read(weight("b.weight", &[100, 8]));
    assert_eq!(told(loading.span(tied, 1)), None, "one of the two, or both");
}

#[test]
fn the_model_before_leaves_nothing() {
    let tied = Rule::Given(Operation::Linear);
    let mut loading = Loading::default();
    loading.read(weight("embed.weight", &[100, 8]));
    loading.read(weight("embed.weight", &[50, 8]));
    assert_eq!(&*loading.tied(Operation::Linear).unwrap().weights[0].dims, [50, 8], "the one that was read last");

    let shares = loading.span(Rule::Shares { part: "embed_tokens" }, 1);
    let rest = Rule::Batch(Operation::Linear, &["embed"]);
    loading.load_next(Architecture::default());
    assert_eq!(told(loading.span(rest, 1)), None, "what was left is gone");
    loading.read(weight("shared.weight", &[100, 8]));
    loading.read(weight("norm.weight", &[8]));
    assert_eq!(told(loading.span(tied, 1)), some("lm_head", 1), "the only table of this model");
    loading.read(weight("decoder.embed_tokens.weight", &[100, 8]));
    assert_eq!(told(shares), None, "it waited for the model before");
}

#[test]
fn a_layer_of_candle_nn_owns_what_it_read_or_what_has_the_shape_it_was_given() {
    let made = |operation, rows, columns| Rule::Made { operation, matrix: Some([rows, columns]) };
    let mut loading = Loading::default();
    loading.read(weight("words.weight", &[100, 8]));
    assert_eq!(told(loading.span(Rule::Layer(Operation::Embedding), 1)), some("words", 1));
    read(&mut loading, &["0.q.weight", "0.q.bias"]);
    assert_eq!(told(loading.span(Rule::Layer(Operation::Linear), 1)), some("0.q", 2));
    let around = loading.span(Rule::Before(Operation::Linear), 1);
    assert!(matches!(&around, Claim::Module(slot) if slot.is_group()), "what it stands around owns them");
    loading.read(weight("0.in_proj_weight", &[24, 8]));
    loading.read(weight("0.in_proj_bias", &[24]));
    assert_eq!(told(loading.span(made(Operation::Linear, 8, 8), 1)), None, "a third of it is no module");
    loading.read(weight("0.own.weight", &[8, 8]));
    assert_eq!(told(loading.span(made(Operation::Linear, 8, 8), 1)), some("0.own", 1));
    loading.read(weight("norm.weight", &[8]));
    assert_eq!(told(loading.span(made(Operation::Linear, 100, 8), 1)), some("lm_head", 1), "tied");
    loading.read(weight("blocks.weight", &[16, 8]));
    loading.read(weight("router.weight", &[4, 8]));
    assert_eq!(told(loading.span(made(Operation::Linear, 16, 8), 1)), None, "no embedding, and so no head");
    assert_eq!(told(loading.span(Rule::Made { operation: Operation::Linear, matrix: None }, 1)), None);
    loading.read(weight("conv.weight", &[4, 3, 2, 2]));
    let given = |operation| Rule::Made { operation, matrix: None };
    assert_eq!(told(loading.span(given(Operation::Norm), 1)), None, "a norm is no convolution");
    loading.read(weight("conv1.weight", &[4, 3, 2, 2]));
    loading.read(weight("conv1.bias", &[4]));
    assert_eq!(told(loading.span(given(Operation::Convolution), 1)), some("conv1", 2));
}

#[test]
fn only_the_table_of_all_words_makes_a_layer_the_head() {
    let made = |rows| Rule::Made { operation: Operation::Linear, matrix: Some([rows, 8]) };
    let loaded = |config: Option<&str>, tables: &[(&str, usize)]| {
        let architecture = config.map_or_else(Architecture::default, |c| Architecture::of_config(c).unwrap());
        let mut loading = Loading { architecture, ..Loading::default() };
        for (name, rows) in tables {
            loading.read(weight(name, &[*rows, 8]));
            loading.span(Rule::Layer(Operation::Embedding), 1);
        }
        loading.read(weight("norm.weight", &[8]));
        loading.span(Rule::Layer(Operation::Norm), 1);
        loading
    };
    let tables = [("words.weight", 100), ("positions.weight", 50)];
    let mut model = loaded(None, &tables);
    assert_eq!(told(model.span(made(50), 1)), None, "of positions");
    assert_eq!(told(model.span(made(100), 1)), some("lm_head", 1), "of the larger table");
    let longer = [("words.weight", 100), ("positions.weight", 512)];
    let mut model = loaded(Some(r#"{"model_type": "m", "vocab_size": 100}"#), &longer);
    assert_eq!(told(model.span(made(512), 1)), None, "there are not as many words");
    assert_eq!(told(model.span(made(100), 1)), some("lm_head", 1));
    let mut model = loaded(Some(r#"{"model_type": "m", "vocab_size": 96}"#), &tables);
    assert_eq!(told(model.span(made(100), 1)), some("lm_head", 1));
    assert_eq!(model.contradictions.len(), 1, "the configuration is another model's");
    let mut model = loaded(None, &[("source.weight", 100), ("target.weight", 100)]);
    assert_eq!(told(model.span(made(100), 1)), None, "one of the two");
    // An embedding that was made of a tensor is one all the same.
    let mut model = loaded(None, &[]);
    model.read(weight("words.weight", &[100, 8]));
    model.span(Rule::Work, 1);
    assert_eq!(told(model.span(made(100), 1)), None, "nothing looks words up in it");
    model.span(Rule::Made { operation: Operation::Embedding, matrix: Some([100, 8]) }, 1);
    assert_eq!(told(model.span(made(100), 1)), some("lm_head", 1));
}

#[test]
fn a_group_in_which_nothing_runs_is_the_tied_head() {
    let mut loading = Loading::default();
    read(&mut loading, &["shared.weight"]);
    loading.span(Rule::Before(Operation::Embedding), 1);
    let (alone, around) = (loading.span(Rule::Head, 1), loading.span(Rule::Head, 1));
    let (Claim::Module(alone), Claim::Module(around)) = (alone, around) else { panic!("groups") };
    alone.name_group(None);
    around.name_group(Some("decoder"));
    assert_eq!(&*alone.get().unwrap().name, "lm_head");
    assert_eq!(&*around.get().unwrap().name, "decoder");
}

#[test]
fn a_model_without_spans_does_not_fill_the_memory() {
    let mut loading = Loading::default();
    for i in 0..MAX_UNOWNED + 10 {
        loading.read(weight(&format!("{i}.weight"), &[1]));
    }
    assert_eq!(
        (loading.unowned.len(), loading.told.iter().map(|(_, told)| told.weights as usize).sum::<usize>()),
        (MAX_UNOWNED, MAX_UNOWNED + 10)
    );
    assert_eq!(told(loading.span(LINEAR, 1)), some(&(MAX_UNOWNED + 9).to_string(), 1));
    for _ in 0..MAX_WAITING + 1 {
        let part = Some("never");
        loading.span(Rule::After { operation: Operation::Linear, part, weights: 1 }, 1);
    }
    assert_eq!(loading.waiting.len(), MAX_WAITING);
}
