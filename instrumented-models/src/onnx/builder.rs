//! Puts a graph together, operation by operation.

use super::proto::{Attribute, Constant, Dim, Entry, Graph, Kind, Node, Shape, TensorKind, ValueInfo};
use candle_core::Tensor;

/// `TensorProto.DataType`.
pub(super) const FLOAT: i32 = 1;
pub(super) const INT64: i32 = 7;

/// Weights begin at multiples of this many bytes, so that they can be mapped into memory.
const PAGE: u64 = 4096;

/// A dimension of an input or output.
#[derive(Debug, Clone, Copy)]
pub(super) enum Size {
    /// The same in every call: it stands in the graph as a number.
    Fixed(usize),
    /// Different from call to call.
    Named(&'static str),
}

/// A value that operations take and give, by its name.
pub(super) type Value = String;

/// A graph in the making.
#[derive(Debug, Default)]
pub(super) struct Builder {
    pub(super) graph: Graph,
    /// Weights for the file beside the model's, with their places in it.
    pub(super) weights: Vec<(u64, Tensor)>,
    /// Where the next weight goes.
    end: u64,
    /// Name of the file of weights.
    data: String,
    made: usize,
}

impl Builder {
    pub(super) fn new(name: &str, data: &str) -> Self {
        let graph = Graph { name: name.to_string(), ..Graph::default() };
        Self { graph, data: data.to_string(), ..Self::default() }
    }

    /// The result of an operation.
    pub(super) fn op(&mut self, kind: &str, inputs: &[&str], attributes: &[Attribute]) -> Value {
        self.made += 1;
        let output = format!("{}_{}", kind.to_lowercase(), self.made);
        self.named(kind, inputs, attributes, &[&output]);
        output
    }

    /// An operation whose results have given names.
    pub(super) fn named(&mut self, kind: &str, inputs: &[&str], attributes: &[Attribute], outputs: &[&str]) {
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        self.graph.node.push(Node {
            input: owned(inputs),
            output: owned(outputs),
            name: outputs.first().map(|name| format!("{name}.{kind}")).unwrap_or_default(),
            op_type: kind.to_string(),
            attribute: attributes.to_vec(),
        });
    }

    /// Several results of one operation.
    pub(super) fn split(&mut self, input: &str, sizes: &[usize], axis: i64) -> Vec<Value> {
        let sizes: Vec<i64> = sizes.iter().map(|size| *size as i64).collect();
        let size = self.ints(&sizes);
        self.made += 1;
        let outputs: Vec<Value> = (0..sizes.len()).map(|part| format!("split_{}_{part}", self.made)).collect();
        let names: Vec<&str> = outputs.iter().map(String::as_str).collect();
        self.named("Split", &[input, &size], &[int("axis", axis)], &names);
        outputs
    }

    /// `input` in another shape; -1 stands for what is left, 0 for the size that the input has there.
    pub(super) fn reshape(&mut self, input: &str, shape: &[i64]) -> Value {
        let shape = self.ints(shape);
        self.op("Reshape", &[input, &shape], &[])
    }

    /// `x·Wᵀ + b` for a weight (out, in). Without a bias a zero is added: candle-onnx wants three inputs.
    pub(super) fn linear(&mut self, x: &str, weight: &str, bias: Option<&str>) -> Value {
        let bias = bias.map_or_else(|| self.number(0.0), str::to_string);
        self.op("Gemm", &[x, weight, &bias], &[int("transB", 1)])
    }

    /// The mean of each row.
    pub(super) fn mean(&mut self, x: &str) -> Value {
        self.op("ReduceMean", &[x], &[ints("axes", &[-1]), int("keepdims", 1)])
    }

    /// A constant list of whole numbers.
    pub(super) fn ints(&mut self, values: &[i64]) -> Value {
        self.constant(INT64, vec![values.len() as i64], values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// A constant whole number.
    pub(super) fn whole(&mut self, value: i64) -> Value {
        self.constant(INT64, Vec::new(), value.to_le_bytes().to_vec())
    }

    /// A constant number.
    pub(super) fn number(&mut self, value: f32) -> Value {
        self.constant(FLOAT, Vec::new(), value.to_le_bytes().to_vec())
    }

    /// A constant row of numbers, (1, n).
    pub(super) fn row(&mut self, values: &[f32]) -> Value {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(FLOAT, vec![1, values.len() as i64], bytes)
    }

    fn constant(&mut self, data_type: i32, dims: Vec<i64>, bytes: Vec<u8>) -> Value {
        let known = self.graph.initializer.iter().find(|constant| {
            (constant.data_type, &constant.dims, constant.raw_data.as_ref()) == (data_type, &dims, Some(&bytes))
        });
        if let Some(known) = known {
            return known.name.clone();
        }
        let name = format!("constant_{}", self.graph.initializer.len());
        let constant = Constant { dims, data_type, name: name.clone(), raw_data: Some(bytes), ..Constant::default() };
        self.graph.initializer.push(constant);
        name
    }

    /// A weight, in f32, in the file of weights; the same name twice is one weight.
    pub(super) fn weight(&mut self, name: &str, tensor: &Tensor) -> Value {
        if self.graph.initializer.iter().any(|constant| constant.name == name) {
            return name.to_string();
        }
        let (offset, length) = (self.end, 4 * tensor.elem_count() as u64);
        self.end = (offset + length).next_multiple_of(PAGE);
        self.weights.push((offset, tensor.clone()));
        let entry = |key: &str, value: String| Entry { key: key.to_string(), value };
        self.graph.initializer.push(Constant {
            dims: tensor.dims().iter().map(|size| *size as i64).collect(),
            data_type: FLOAT,
            name: name.to_string(),
            raw_data: None,
            external_data: vec![
                entry("location", self.data.clone()),
                entry("offset", offset.to_string()),
                entry("length", length.to_string()),
            ],
            data_location: Some(1),
        });
        name.to_string()
    }

    pub(super) fn input(&mut self, name: &str, kind: i32, shape: &[Size]) {
        self.graph.input.push(info(name, kind, shape));
    }

    pub(super) fn output(&mut self, name: &str, kind: i32, shape: &[Size]) {
        self.graph.output.push(info(name, kind, shape));
    }
}

fn info(name: &str, elem_type: i32, shape: &[Size]) -> ValueInfo {
    let dim = |size: &Size| match size {
        Size::Fixed(value) => Dim { value: Some(*value as i64), name: None },
        Size::Named(name) => Dim { value: None, name: Some((*name).to_string()) },
    };
    let shape = Some(Shape { dim: shape.iter().map(dim).collect() });
    ValueInfo { name: name.to_string(), kind: Some(Kind { tensor: Some(TensorKind { elem_type, shape }) }) }
}

/// A whole number as an attribute.
pub(super) fn int(name: &str, value: i64) -> Attribute {
    Attribute { name: name.to_string(), i: Some(value), kind: 2, ..Attribute::default() }
}

/// Whole numbers as an attribute.
pub(super) fn ints(name: &str, values: &[i64]) -> Attribute {
    Attribute { name: name.to_string(), ints: values.to_vec(), kind: 7, ..Attribute::default() }
}
