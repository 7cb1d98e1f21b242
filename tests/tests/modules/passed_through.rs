//! A watched `VarBuilder` behaves as the one inside.

use candle_core::{DType, Device, Tensor};
use candle_nn::{Init, VarBuilder, VarMap};
use std::collections::HashMap;

fn tensors() -> VarBuilder<'static> {
    let names = ["a.b.weight", "a.b.bias", "top"];
    let tensors = names.map(|name| (name.to_owned(), Tensor::arange(0f32, 6., &Device::Cpu).unwrap()));
    VarBuilder::from_tensors(HashMap::from(tensors), DType::F32, &Device::Cpu)
}

#[test]
fn names_prefixes_types_and_errors_are_those_of_the_builder_inside() {
    // With a prefix and an element type that is not the hidden one.
    let inner = || tensors().pp("a").to_dtype(DType::F16);
    let (plain, observed) = (inner(), candlescope::observe(inner()));
    assert_eq!(observed.prefix(), plain.prefix());
    assert_eq!(observed.dtype(), plain.dtype());
    type Ask = fn(&VarBuilder<'_>) -> candle_core::Result<Tensor>;
    let questions: [(&str, Ask); 9] = [
        ("get", |vb| vb.get(6, "b.weight")),
        ("below", |vb| vb.pp("b").get(6, "bias")),
        ("root", |vb| vb.root().get(6, "top")),
        ("hidden type", |vb| vb.get_unchecked("b.weight")),
        ("asked type", |vb| vb.get_unchecked_dtype("b.weight", DType::BF16)),
        ("set type", |vb| vb.clone().set_dtype(DType::F64).get_unchecked("b.weight")),
        ("hints", |vb| vb.get_with_hints(6, "b.weight", Init::Const(1.))),
        ("shape", |vb| vb.get(7, "b.weight")),
        ("name", |vb| vb.get(6, "c.weight")),
    ];
    for (question, ask) in questions {
        let look = |answer: candle_core::Result<Tensor>| match answer {
            Ok(tensor) => (tensor.dtype().as_str().to_owned(), format!("{tensor}")),
            // Without the place where it was raised.
            Err(error) => ("error".into(), error.to_string().lines().next().unwrap_or_default().to_owned()),
        };
        assert_eq!(look(ask(&observed)), look(ask(&plain)), "{question}");
    }
    for name in ["b.weight", "b", "c.weight"] {
        assert_eq!(observed.contains_tensor(name), plain.contains_tensor(name), "{name}");
    }
}

#[test]
fn renamed_and_made_up_weights_arrive() {
    let renamed = candlescope::observe(tensors()).rename_f(|name: &str| name.replace("x.", "a."));
    assert_eq!(renamed.pp("x.b").get(6, "weight").unwrap().dims(), [6]);
    let inside = candlescope::observe(tensors().rename_f(|name: &str| name.replace("x.", "a.")));
    assert_eq!(inside.pp("x.b").get(6, "weight").unwrap().dims(), [6]);
    // A map makes what is asked for, by the hint.
    let map = VarMap::new();
    let vb = candlescope::observe(VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu));
    let ones = vb.get_with_hints((2, 3), "new", Init::Const(1.)).unwrap();
    assert_eq!(ones.sum_all().unwrap().to_scalar::<f32>().unwrap(), 6.);
    assert_eq!(map.all_vars().len(), 1);
}
