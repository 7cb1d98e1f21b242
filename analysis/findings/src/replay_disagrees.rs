//! An experiment and the replay say different things of the same path.

use candlescope_figures::advice::{AdvicePlace, Confidence, ConfidenceLevel, Diagnosis};
use candlescope_figures::sensitivity::Criticality;
use candlescope_schema::run::{Code, Finding};
use candlescope_schema::{PathPattern, Perturbation};

/// Takes confidence from gains of these paths, and of what is inside them.
pub(crate) fn doubt(diagnosis: &mut Diagnosis, tried: &[Criticality]) {
    for path in tried.iter().filter(|path| path.disagrees() == Some(true)) {
        let Some(pattern) = PathPattern::new(Perturbation::path_of(&path.target)) else { continue };
        let own = diagnosis.findings.iter_mut().filter(|advice| advice.place.phase == path.step);
        for advice in own.filter(|advice| is_inside(&advice.place, &pattern)) {
            let reason = "an experiment with this path and the replay of the step say different things of it";
            advice.confidence = Confidence { level: ConfidenceLevel::Low, reason };
        }
    }
}

/// Whether a place is meant, or lies inside what is meant.
fn is_inside(place: &AdvicePlace, pattern: &PathPattern) -> bool {
    let Some(path) = place.path.as_deref() else { return false };
    let ends = path.match_indices('/').map(|(at, _)| at);
    pattern.matches(path, place.module.as_deref()) || ends.into_iter().any(|end| pattern.matches(&path[..end], None))
}

/// What is said where any of the paths that were tried has a replay that lies apart from the experiment, by more than both
/// of their intervals and what is within agreement.
pub(crate) fn find(tried: &[Criticality]) -> Option<Finding> {
    let apart: Vec<&Criticality> = tried.iter().filter(|path| path.disagrees() == Some(true)).collect();
    let first = apart.first()?;
    let replay = first.replay?;
    let message = match apart.len() {
        1 => {
            "Replay and experiment disagree about {path} on the {side}: the replay says that {replayed} of what it takes \
             is waited for, and {measured} was measured"
        }
        _ => {
            "Replay and experiment disagree about {paths} places, of which {path} on the {side} is one: the replay says \
             that {replayed} of what it takes is waited for, and {measured} was measured"
        }
    };
    let remedy = "Do not rely on gains that are promised there: they rest on a replay that does not hold for this \
                  program; the table of criticality has all paths";
    let finding = Finding::new(Code::ReplayDisagrees, message, remedy)
        .text("path", Perturbation::path_of(&first.target))
        .text("side", first.side.as_str())
        .ratio("replayed", replay.mid)
        .ratio("measured", first.criticality);
    Some(if apart.len() > 1 { finding.count("paths", apart.len() as u64) } else { finding })
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_schema::Side;
    use candlescope_work::estimate::Estimate;

    fn path(target: &str, measured: f64, replayed: f64) -> Criticality {
        Criticality {
            target: target.into(),
            side: Side::Host,
            step: "decode".into(),
            pairs: 100,
            took_ns: 1e6,
            share: 0.3,
            added_ns: 1e5,
            criticality: measured,
            interval: Some((measured - 0.05, measured + 0.05)),
            replay: Some(Estimate { low: replayed - 0.05, mid: replayed, high: replayed + 0.05 }),
        }
    }

    #[test]
    fn only_what_lies_apart_by_more_than_both_intervals_is_told() {
        assert_eq!(find(&[path("path=mlp", 0.8, 0.95)]), None, "within both intervals and a tenth");
        let told = find(&[path("path=mlp", 0.9, 0.95), path("path=self_attn", 0.3, 1.0)]).unwrap();
        assert_eq!((told.figure("measured"), told.figure("replayed")), (Some(0.3), Some(1.0)));
        assert!(told.message().contains("disagree about self_attn on the host"), "{}", told.message());
        let two = find(&[path("path=mlp", 0.1, 0.9), path("path=self_attn", 0.3, 1.0)]).unwrap();
        assert!(two.message().contains("2 places, of which mlp"), "{}", two.message());
    }

    #[test]
    fn what_is_inside_a_path_is_as_doubtful_as_the_path() {
        let mlp = PathPattern::new("mlp").unwrap();
        let at = |path: &str| is_inside(&AdvicePlace { path: Some(path.into()), ..AdvicePlace::default() }, &mlp);
        assert!(at("decode/block/mlp") && at("decode/block/mlp/up_proj"));
        assert!(!at("decode/block/self_attn") && !at("decode/block") && !is_inside(&AdvicePlace::default(), &mlp));
    }

    #[test]
    fn an_experiment_without_a_replay_disagrees_with_nothing() {
        assert_eq!(find(&[Criticality { replay: None, ..path("path=mlp", 0.1, 0.9) }]), None);
    }
}
