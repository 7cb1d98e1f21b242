//! The variable's values.

use super::*;
use crate::gpu::KernelWindows;
use candlescope_core::{GpuTier, Schedule};
use std::time::Duration;

#[test]
fn everything_is_read() {
    let c = EnvConfig::parse(" parquet = a/b , parquet-hive,perfetto=t.pftrace,chrome=t.json,prometheus=:9464,prometheus-host=gpu-box,otlp=http://c:4318,otlp-metrics,host=off,gpu-timing=blocks,gpu-budget=0.05,cupti=9/8/7/6/5,cupti-graphs,nvml,nvtx=off,stacks=perf:99,overhead-probe=9,cost=1.5%,paused,report=off,schedule=1/2/3/4/5,exclude=h2,exclude=hyper,sigterm,ring-capacity=4096,queue-records=5000 ")
        .unwrap();
    assert_eq!(
        c,
        EnvConfig {
            parquet: Some("a/b".into()),
            parquet_hive: true,
            perfetto: Some("t.pftrace".into()),
            chrome: Some("t.json".into()),
            prometheus: Some(":9464".into()),
            prometheus_hosts: vec!["gpu-box".into()],
            otlp: Some("http://c:4318".into()),
            otlp_metrics: Some("".into()),
            no_host: true,
            gpu: Some(GpuTier::Blocks),
            gpu_budget: Some("0.05".into()),
            cupti: Some(KernelWindows::Scheduled(Schedule { skip_first: 9, wait: 8, warmup: 7, active: 6, repeat: 5 })),
            cupti_graphs: true,
            nvml: Some(true),
            nvtx: Some(false),
            stacks: Some(StackSampling { hz: 99, perf: Some(true) }),
            schedule: Some(Schedule { skip_first: 1, wait: 2, warmup: 3, active: 4, repeat: 5 }),
            overhead_probe: Some(9),
            cost: Some("0.015".into()),
            paused: true,
            no_report: true,
            exclude: vec!["h2".into(), "hyper".into()],
            sigterm: true,
            ring_capacity: Some(4096),
            queue_records: Some(5000),
        }
    );
    assert_eq!(EnvConfig::parse("").unwrap(), EnvConfig::default());
    let windows = |text| EnvConfig::parse(text).unwrap().cupti.unwrap();
    for (text, schedule) in [("cupti", "all"), ("cupti=all", "all"), ("cupti=5/500", "5/500")] {
        assert_eq!(windows(text), KernelWindows::Scheduled(schedule.parse().unwrap()));
    }
    assert_eq!(windows("cupti=on-request"), KernelWindows::OnRequest);
    assert_eq!(windows("cupti=5/10s"), KernelWindows::apart(5, Duration::from_secs(10)));
    for (text, on) in [("cupti=off", false), ("cupti=5/10s", true), ("cupti", true), ("", false)] {
        assert_eq!(EnvConfig::parse(text).unwrap().records_kernels(), on, "{text}");
    }
}

#[test]
fn a_configuration_without_destination_is_known() {
    for text in ["parquet=a", "perfetto=a", "chrome=a", "otlp", "otlp-metrics", "prometheus=1", "nvtx"] {
        assert!(EnvConfig::parse(text).unwrap().has_destination(), "{text}");
    }
    for text in ["", "schedule=5/500", "host,cupti=on-request", "nvtx=off"] {
        assert!(!EnvConfig::parse(text).unwrap().has_destination(), "{text}");
    }
}

#[test]
fn unknown_keys_are_left_out_and_the_others_hold() {
    let (config, left_out) = EnvConfig::understood("parket=a,parquet=./runs,sheduel=1/2,nvml=off").unwrap();
    assert_eq!((config.parquet.as_deref(), config.nvml), (Some("./runs"), Some(false)));
    let said: Vec<String> = left_out.iter().map(ToString::to_string).collect();
    assert!(said[0].contains("did you mean `parquet`?") && said[1].contains("did you mean `schedule`?"), "{said:?}");
    assert!(EnvConfig::understood("parquet=./runs,schedule=often").is_err(), "more would be recorded than asked for");
}

#[test]
fn nothing_of_a_password_with_a_comma_is_shown() {
    for text in ["otlp=http://u:A,Zq7@host:4318", "otlp=http://u:A,Zq=7@host", "otlp-metrics=http://u:A,Zq7,Zq@h"] {
        let (config, left_out) = EnvConfig::understood(text).unwrap();
        assert_eq!((config.otlp, config.otlp_metrics), (None, None), "no address cut short is used");
        for error in left_out {
            assert!(!error.to_string().contains("Zq") && error.to_string().contains("`\\,`"), "{error}");
        }
    }
    let escaped = EnvConfig::parse(r"otlp=http://u:A\,REST@host:4318,parquet=a\,b").unwrap();
    assert_eq!(escaped.otlp.unwrap().expose(), "http://u:A,REST@host:4318");
    assert_eq!(escaped.parquet.as_deref(), Some("a,b"));
}

#[test]
fn mistakes_are_named() {
    for (text, part) in [
        ("parquet", "`parquet` wants a directory, as in parquet=./runs"),
        ("prometheus=", "`prometheus` wants an address or a port, as in prometheus=9464"),
        ("parquet=./a;prometheus=9464", "`prometheus` stands behind a semicolon"),
        ("host=off; paused", "`paused` stands behind a semicolon"),
        ("cupti=never", "`on-request`"),
        ("cupti=5/soon", "N/TIME such as 5/10s"),
        ("overhead-probe=1", "from 2, as in overhead-probe=10, not `1`"),
        ("host=maybe", "on or off"),
        ("schedule=1/2/3", "N/EVERY such as 5/500"),
        ("schedule=a/b/c/d/e", "not `a/b/c/d/e`"),
        ("gpu-timing=most", "off, steps, blocks, all or adaptive"),
        ("gpu-budget=2", "a share of step time"),
        ("cupti=5", "`cupti` wants `all`, N/EVERY"),
        ("ring-capacity=12", "from 128, as in ring-capacity=131072, not `12`"),
        ("queue-records=0", "from 1, as in queue-records=2000000, not `0`"),
        ("otlp=http://u:pa;ss@host:1;x=2,nonsense", "what follows `otlp` is no known key"),
        ("paused,cuda=on", "entry 2 is not known"),
        ("parket=./runs", "`parket` (did you mean `parquet`?) is not known"),
        ("http://user:pass@host:4318", "entry 1 is not known"),
    ] {
        let message = EnvConfig::parse(text).unwrap_err().to_string();
        assert!(message.contains(part) && message.starts_with("CANDLESCOPE"), "{message}");
    }
}
