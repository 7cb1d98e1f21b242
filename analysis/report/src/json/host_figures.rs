//! What the host did inside intervals, as one object.

use candlescope_figures::HostTime;
use candlescope_figures::host_time::{FrameName, Weights};
use serde_json::{Value, json};

/// Time by function and by path; null if no stacks were sampled. `functions` is how many functions there may be.
pub fn host(host: Option<&HostTime>, functions: usize) -> Value {
    let Some(host) = host else { return Value::Null };
    let all = host.all.cpu_ns().max(1) as f64;
    let name = |object: &mut Value, name: &FrameName| {
        object["function"] = json!(&*name.function);
        object["crate"] = json!(name.crate_name.as_deref());
    };
    let of_functions = host.functions.iter().take(functions).map(|function| {
        let mut object = json!({
            "self": weights(&function.own),
            "total_cpu_ns": function.total.cpu_ns(),
            "self_share": function.own.cpu_ns() as f64 / all,
            "self_share_error": function.share_error(&host.all),
            "path": (!function.place.is_empty()).then_some(&*function.place),
        });
        name(&mut object, &function.name);
        object
    });
    let paths = host.places.iter().map(|(path, place)| {
        let mut object = json!({ "path": path, "time": weights(&place.all) });
        if let Some((function, ns)) = &place.top {
            object["top"] = json!({ "self_cpu_ns": ns });
            name(&mut object["top"], function);
        }
        object
    });
    json!({
        "label": "sampled",
        "account": host.account,
        "all": weights(&host.all),
        "shared_pool_ns": host.shared_pool_ns,
        "functions_known": host.functions.len(),
        "functions": of_functions.collect::<Vec<_>>(),
        "paths": paths.collect::<Vec<_>>(),
    })
}

fn weights(time: &Weights) -> Value {
    json!({
        "cpu_ns": time.cpu_ns(),
        "own_ns": time.own_ns,
        "pool_ns": time.pool_ns,
        "kernel_ns": time.kernel_ns,
        "blocked_ns": time.blocked_ns,
        "preempted_ns": time.preempted_ns,
        "samples": time.samples,
    })
}
