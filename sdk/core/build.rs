//! Tells the library with which optimisation it is built, which nothing else does.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let level = std::env::var("OPT_LEVEL").unwrap_or_default();
    println!("cargo::rustc-env=CANDLESCOPE_OPT_LEVEL={level}");
}
