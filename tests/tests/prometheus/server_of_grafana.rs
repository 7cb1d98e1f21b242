//! Grafana itself as a child process, with the repository's provisioning.

use super::dashboards::{all, read};
use candlescope_testkit::ROOT;
use candlescope_testkit::services::{Service, free_addresses, from_script, get, post};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

pub(crate) struct Grafana {
    address: SocketAddr,
    _service: Service,
    _dir: tempfile::TempDir,
}

impl Grafana {
    /// Starts one as `grafana/compose.yaml` does, except for paths and addresses. Building it takes a quarter of an
    /// hour, the first time.
    pub(crate) fn start(prometheus: SocketAddr, jaeger: SocketAddr) -> Self {
        let home = from_script("services/grafana.sh");
        let dir = tempfile::tempdir().expect("a directory");
        let dashboards = format!("{ROOT}/grafana/dashboards");
        let moved = [
            ("http://prometheus:9090", format!("http://{prometheus}")),
            ("http://jaeger:16686", format!("http://{jaeger}")),
            ("/var/lib/grafana/dashboards", dashboards),
        ];
        let mut found = 0;
        for file in ["datasources/candlescope.yaml", "dashboards/candlescope.yaml"] {
            let mut text =
                std::fs::read_to_string(Path::new(ROOT).join("grafana/provisioning").join(file)).expect("read");
            for (there, here) in &moved {
                found += text.matches(there).count();
                text = text.replace(there, here);
            }
            let to = dir.path().join("provisioning").join(file);
            std::fs::create_dir_all(to.parent().expect("a parent")).expect("made");
            std::fs::write(to, text).expect("written");
        }
        assert_eq!(found, moved.len(), "what the stack's provisioning says");

        let [address] = free_addresses();
        let at = |name: &str| dir.path().join(name);
        let mut command = Command::new(home.join("bin/grafana"));
        command
            .args(["server", "--homepath"])
            .arg(&home)
            .envs(as_in_the_stack())
            .env("GF_SERVER_HTTP_ADDR", address.ip().to_string())
            .env("GF_SERVER_HTTP_PORT", address.port().to_string())
            .env("GF_PATHS_PROVISIONING", at("provisioning"))
            .env("GF_PATHS_DATA", at("data"))
            .env("GF_PATHS_LOGS", at("logs"))
            .env("GF_PATHS_PLUGINS", at("plugins"))
            .env("GF_ANALYTICS_REPORTING_ENABLED", "false")
            .env("GF_ANALYTICS_CHECK_FOR_UPDATES", "false");
        let mut service = Service::start(command);
        // It responds before it has read the last dashboard.
        let uids: Vec<String> = all().map(|name| read(name)["uid"].as_str().expect("uid").to_string()).collect();
        let has = |uid: &String| get(address, &format!("/api/dashboards/uid/{uid}")).is_ok();
        let lists = |body: String| uids.iter().all(|uid| body.contains(uid.as_str()));
        service.wait_until(|| get(address, "/api/search?type=dash-db").is_ok_and(lists) && uids.iter().all(has));
        Self { address, _service: service, _dir: dir }
    }

    /// The response of its API to a user without a login.
    pub(crate) fn get(&self, target: &str) -> Value {
        let body = get(self.address, target).unwrap_or_else(|error| panic!("{target}: {error}"));
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{target}: {error}: {body}"))
    }

    /// Values of a panel's query over the last minute, requested as the front end does.
    pub(crate) fn query(&self, target: &Value) -> Vec<f64> {
        self.query_since(target, "now-1m", 1_000)
    }

    /// The same over the time from `from` on.
    pub(crate) fn query_since(&self, target: &Value, from: &str, interval_ms: u64) -> Vec<f64> {
        let mut query = target.clone();
        query["datasource"] = json!({ "type": "prometheus", "uid": "prometheus" });
        query["intervalMs"] = json!(interval_ms);
        query["maxDataPoints"] = json!(100);
        let body = json!({ "queries": [query], "from": from, "to": "now" }).to_string();
        let answer = post(self.address, "/api/ds/query", &body).unwrap_or_else(|error| panic!("{target}: {error}"));
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let result = &answer["results"][target["refId"].as_str().expect("a name")];
        assert!(result["error"].is_null(), "{target}: {result}");
        let frames = result["frames"].as_array().expect("frames");
        let fields = frames.iter().flat_map(|frame| {
            let kinds =
                frame["schema"]["fields"].as_array().into_iter().flatten().map(|field| field["type"] == "number");
            frame["data"]["values"].as_array().into_iter().flatten().zip(kinds)
        });
        let numbers = fields.filter(|(_, is_number)| *is_number);
        numbers.flat_map(|(values, _)| values.as_array().into_iter().flatten().filter_map(Value::as_f64)).collect()
    }
}

/// The environment variables of `grafana/compose.yaml`.
fn as_in_the_stack() -> Vec<(String, String)> {
    let stack = std::fs::read_to_string(Path::new(ROOT).join("grafana/compose.yaml")).expect("readable");
    let set = |line: &str| {
        let (name, value) = line.trim().split_once(": ")?;
        name.starts_with("GF_").then(|| (name.to_string(), value.trim_matches('"').to_string()))
    };
    let all: Vec<_> = stack.lines().filter_map(set).collect();
    assert!(all.iter().any(|(name, _)| name == "GF_AUTH_ANONYMOUS_ENABLED"), "{all:?}");
    all
}
