use candlescope_lab::kernels::{KernelError, MOST_CASES, Sizes, all, by_name, cases};
use candlescope_lab::operands::Element;

fn shapes(ops: &[&str], sizes: &str, elements: &[Element]) -> Result<Vec<String>, KernelError> {
    let kernels: Vec<_> = ops.iter().map(|name| by_name(name).unwrap()).collect();
    let all = cases(&kernels, &Sizes::parse(sizes)?, elements, false, true)?;
    Ok(all.iter().map(|case| case.name()).collect())
}

#[test]
fn sweeps_are_all_combinations() {
    let all = shapes(&["gemm"], "m=1,16; n=64-256*2 ;k=8-16+4", &[]).unwrap();
    assert_eq!(all.len(), 2 * 3 * 3);
    assert_eq!((all[0].as_str(), all[17].as_str()), ("gemm f32 m=1 n=64 k=8", "gemm f32 m=16 n=256 k=16"));
    assert_eq!(shapes(&["gemm"], "m=3-5", &[]).unwrap().len(), 3, "a range without a step counts by one");
    // Sizes that are not given are those of a quick run, and each kernel takes the sizes it has.
    let both = shapes(&["gemm", "softmax"], "m=2;rows=3", &[]).unwrap();
    assert_eq!(both, ["gemm f32 m=2 n=32 k=16", "softmax f32 rows=3 width=16"]);
    // Of the types, each kernel takes those that it runs in.
    let types = shapes(&["linear", "qmatmul"], "", &[Element::BF16, Element::Q4K]).unwrap();
    assert_eq!(types, ["linear bf16 m=4 n=32 k=16", "qmatmul q4_k m=2 n=16 k=256"]);
}

#[test]
fn on_a_gpu_the_usual_type_is_bf16() {
    let all = cases(all(), &Sizes::default(), &[], true, true).unwrap();
    let of = |name: &str| {
        let types = all.iter().filter(|case| case.kernel.name() == name).map(|case| case.element);
        types.collect::<Vec<_>>()
    };
    assert_eq!(of("gemm"), [Element::BF16]);
    assert_eq!(of("sampling"), [Element::F32]);
    assert_eq!(of("qmatmul"), [Element::Q4K, Element::Q8_0]);
}

#[test]
fn bad_input_is_named_with_what_would_do() {
    let message = |result: Result<Vec<String>, KernelError>| result.unwrap_err().to_string();
    for bad in ["m", "m=", "m=0", "m=1,,2", "m=a", "=3", "m=5-2", "m=1-8*1", "m=1;m=2", "m=99999999999999999999"] {
        let text = message(shapes(&["gemm"], bad, &[]));
        assert!(text.contains("cannot be read") && text.contains("NAME=VALUES"), "{bad}: {text}");
    }
    assert_eq!(message(shapes(&["gemm"], "rows=3", &[])), "size `rows` is not one of gemm's, which are k, m, n");
    assert_eq!(
        message(shapes(&["gemm"], "", &[Element::Q8_0])),
        "gemm cannot run in q8_0: name a type among f32, f16, bf16"
    );
    let many = message(shapes(&["gemm"], "m=1-100;n=1-100;k=1-2", &[]));
    assert!(many.contains("20000 cases") && many.contains(&MOST_CASES.to_string()), "{many}");
    assert!(by_name("gem").err().unwrap().to_string().contains("`gem` is not known; kernels are gemm, linear"));
    let odd = message(shapes(&["rotary"], "head=3", &[]));
    assert!(odd.contains("head must be even"), "{odd}");
    let heads = message(shapes(&["attention_decode"], "heads=3;kv_heads=2", &[]));
    assert!(heads.contains("multiple of kv_heads"), "{heads}");
    let block = message(shapes(&["qmatmul"], "k=100", &[Element::Q4K]));
    assert!(block.contains("256 for q4_k"), "{block}");
    let filter = message(shapes(&["conv2d"], "filter=7;side=3", &[]));
    assert!(filter.contains("larger than the image"), "{filter}");
}
