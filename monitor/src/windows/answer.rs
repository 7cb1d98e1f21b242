//! Answers of Prometheus' HTTP API. Pure.

use serde_json::Value;
use std::collections::BTreeMap;

/// A series: its labels, and its samples as seconds since 1970 and value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) samples: Vec<(f64, f64)>,
}

/// What is no result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoResult {
    /// Its answer has the status `error`: the words that it gives for it.
    Error(String),
    /// It is no answer of Prometheus.
    Other(String),
}

/// The series of an answer, vector or matrix. Samples that are no number are left out.
pub(super) fn series(body: &str) -> Result<Vec<Series>, NoResult> {
    let other = |what: &str| NoResult::Other(what.to_string());
    let answer: Value = serde_json::from_str(body).map_err(|_| other("its answer is not JSON"))?;
    match answer["status"].as_str() {
        Some("success") => {}
        Some("error") => {
            return Err(NoResult::Error(answer["error"].as_str().unwrap_or("it does not say why").to_string()));
        }
        _ => return Err(other("its answer has no status")),
    }
    let result = answer["data"]["result"].as_array().ok_or_else(|| other("its answer has no result"))?;
    Ok(result.iter().map(one).collect())
}

fn one(series: &Value) -> Series {
    let text = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_string()));
    let labels = series["metric"].as_object().into_iter().flatten().filter_map(text).collect();
    let sample = |sample: &Value| {
        let value: f64 = sample[1].as_str()?.parse().ok()?;
        Some((sample[0].as_f64()?, value)).filter(|_| value.is_finite())
    };
    let of_matrix = series["values"].as_array().into_iter().flatten();
    let of_vector = Some(&series["value"]).filter(|value| value.is_array());
    Series { labels, samples: of_matrix.chain(of_vector).filter_map(sample).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_and_matrices() {
        let vector = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"path":"a"},"value":[12.5,"0.25"]}]}}"#;
        let found = series(vector).unwrap();
        assert_eq!(found[0].samples, [(12.5, 0.25)]);
        assert_eq!(found[0].labels["path"], "a");
        let matrix =
            r#"{"status":"success","data":{"result":[{"metric":{},"values":[[1,"NaN"],[2,"3e2"],[3,"+Inf"]]}]}}"#;
        assert_eq!(series(matrix).unwrap()[0].samples, [(2.0, 300.0)]);
    }

    #[test]
    fn what_is_no_result_says_so() {
        let error = r#"{"status":"error","errorType":"bad_data","error":"parse error: unexpected \"}\""}"#;
        assert_eq!(series(error), Err(NoResult::Error("parse error: unexpected \"}\"".into())));
        for (body, says) in [("<html>", "not JSON"), ("{}", "no status"), (r#"{"status":"success"}"#, "no result")] {
            let Err(NoResult::Other(why)) = series(body) else { panic!("{body}") };
            assert!(why.contains(says), "{body}: {why}");
        }
    }
}
