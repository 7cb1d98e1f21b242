//! Time of numbered siblings, such as the layers of a decoder: one row for each ordinal.

use candlescope_schema::{PathInfo, SpanRecord};
use std::sync::Arc;

/// One of several siblings of the same name, over all its intervals. Times are nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Path with its ordinal: the last element is the only one that has one.
    pub path: Arc<PathInfo>,
    /// Intervals that were added: of a run's figures, those in usual steps or with time on the device.
    pub calls: u64,
    /// Of these, the ones that a CUDA graph replayed: they have rows in steps with recorded kernels only, and no time
    /// on the host.
    pub replayed: u64,
    /// And of these, the ones of graphs whose capture nobody saw: which layer they are in is derived.
    pub derived: u64,
    /// Sum of their durations on the host.
    pub host_ns: u64,
    /// Intervals with time on the device.
    pub gpu_calls: u64,
    /// Sum of that time.
    pub gpu_ns: u64,
}

/// Collects layers from spans in any order.
#[derive(Debug, Default)]
pub struct LayerPass {
    /// By the reader's number of the path: its place in `layers`, `None` if it is no numbered sibling.
    known: Vec<Option<Option<u32>>>,
    layers: Vec<Layer>,
}

impl LayerPass {
    /// Takes one span. All must come from one [`Batches`](candlescope_reader::Batches), which numbers paths.
    pub fn add(&mut self, span: &SpanRecord) {
        let id = span.path.id as usize;
        if self.known.len() <= id {
            self.known.resize(id + 1, None);
        }
        let place = match self.known[id] {
            Some(place) => place,
            None => {
                let place = is_numbered_sibling(&span.path.path).then(|| {
                    self.layers.push(Layer {
                        path: span.path.clone(),
                        calls: 0,
                        replayed: 0,
                        derived: 0,
                        host_ns: 0,
                        gpu_calls: 0,
                        gpu_ns: 0,
                    });
                    self.layers.len() as u32 - 1
                });
                self.known[id] = Some(place);
                place
            }
        };
        let Some(place) = place else { return };
        let layer = &mut self.layers[place as usize];
        layer.calls += 1;
        layer.replayed += u64::from(span.graph.is_some());
        layer.derived += u64::from(span.derived == Some(true));
        layer.host_ns = layer.host_ns.saturating_add(span.host_dur_ns);
        if let Some(gpu) = span.gpu {
            layer.gpu_calls += 1;
            layer.gpu_ns = layer.gpu_ns.saturating_add(gpu.dur_ns);
        }
    }

    /// The layers, in order of path.
    pub fn finish(mut self) -> Vec<Layer> {
        self.layers.sort_by(|a, b| a.path.path.cmp(&b.path.path));
        self.layers
    }
}

/// Whether the last element of a path is the only one with an ordinal.
fn is_numbered_sibling(path: &str) -> bool {
    match path.rsplit_once('/') {
        Some((above, last)) => last.ends_with(']') && !above.contains('['),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_numbered_sibling;

    #[test]
    fn layers_are_told_from_parts_of_layers() {
        let paths =
            ["decode/block[3]", "decode/block[3]/linear[1]", "decode/norm", "decode[2]", "decode/model/layer[0]"];
        assert_eq!(paths.map(is_numbered_sibling), [true, false, false, false, true]);
    }
}
