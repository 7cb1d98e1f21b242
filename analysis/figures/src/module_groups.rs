//! Groups of modules by their names, for siblings that no span holds together.
//!
//! `decode/model.layers.*.mlp.up_proj` and `decode/model.layers.*.mlp.down_proj` have `decode/model.layers.*.mlp` in
//! common. Of names that are deeper than the siblings' parent, one level of groups is made at a time: the caller asks
//! again for what is in a group.

use std::collections::BTreeMap;

/// A path among its siblings.
pub(crate) struct Member<'a> {
    /// Its position among all paths.
    pub path: usize,
    /// Its rollup path, whose parts decide which group it is in.
    pub rollup: &'a str,
    /// Whether it stands for a module.
    pub is_module: bool,
}

/// A sibling as it is, or several modules under the name that they share.
#[derive(Debug, PartialEq)]
pub(crate) struct Group {
    /// The path, if it is a single one.
    pub path: Option<usize>,
    /// Its rollup path, or the common one.
    pub rollup: String,
    /// The paths in it.
    pub members: Vec<usize>,
}

/// The siblings below `above`, with modules grouped by the next part of their names; without `above` as they are.
///
/// A group has at least two members and is not all siblings: a level that holds everything tells nothing.
pub(crate) fn grouped(siblings: &[Member<'_>], above: Option<&str>) -> Vec<Group> {
    let single = |m: &Member<'_>| Group { path: Some(m.path), rollup: m.rollup.to_string(), members: vec![m.path] };
    let modules: Vec<&Member<'_>> = siblings.iter().filter(|m| m.is_module).collect();
    let Some(above) = above.filter(|_| modules.len() > 1) else { return siblings.iter().map(single).collect() };
    // Names are told apart after what all have in common, and after the parent's own name.
    let first = modules[0].rollup;
    let shared = modules.iter().fold(first.len(), |shared, m| shared.min(common(first, m.rollup)));
    let known = if modules.iter().all(|m| begins(m.rollup, above)) { above.len() } else { 0 };
    let at = boundary(first, shared).max(known);
    let mut groups: BTreeMap<&str, Vec<&Member<'_>>> = BTreeMap::new();
    for module in &modules {
        groups.entry(&module.rollup[..next_part(module.rollup, at)]).or_default().push(module);
    }
    let mut found: Vec<Group> = siblings.iter().filter(|m| !m.is_module).map(single).collect();
    for (name, members) in groups {
        match members.as_slice() {
            [only] => found.push(single(only)),
            // A module whose name is the group's stays beside what has longer names.
            all if all.iter().any(|m| m.rollup == name) => found.extend(all.iter().map(|m| single(m))),
            all => {
                // As far as all in the group agree.
                let shared = all.iter().fold(all[0].rollup.len(), |n, m| n.min(common(all[0].rollup, m.rollup)));
                let end = boundary(all[0].rollup, shared).max(name.len());
                let end = if all.iter().any(|m| m.rollup.len() == end) { name.len() } else { end };
                let rollup = all[0].rollup[..end].to_string();
                found.push(Group { path: None, rollup, members: all.iter().map(|m| m.path).collect() });
            }
        }
    }
    found
}

/// Bytes that two texts have in common from the start.
fn common(a: &str, b: &str) -> usize {
    let bytes = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    (0..=bytes).rev().find(|&at| a.is_char_boundary(at) && b.is_char_boundary(at)).unwrap_or(0)
}

/// The end of the last whole part of a name within its first `length` bytes.
fn boundary(name: &str, length: usize) -> usize {
    if name.len() == length {
        return length;
    }
    let ends = |at: usize| matches!(name.as_bytes().get(at), Some(b'.' | b'/')) && !name[at..].starts_with(".*");
    (0..=length).rev().find(|&at| ends(at)).unwrap_or(0)
}

/// The end of the part that begins at `at`; a layer's number belongs to the part before it.
fn next_part(name: &str, at: usize) -> usize {
    let mut end = at;
    loop {
        let from = end + usize::from(matches!(name.as_bytes().get(end), Some(b'.' | b'/')));
        end = name[from..].find(['.', '/']).map_or(name.len(), |n| from + n);
        if !name[end..].starts_with(".*") {
            return end;
        }
    }
}

/// Whether a name begins with the parts of another.
fn begins(name: &str, with: &str) -> bool {
    name.strip_prefix(with).is_some_and(|rest| rest.starts_with(['.', '/']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(names: &[&str], above: Option<&str>) -> Vec<(String, Vec<usize>)> {
        let members: Vec<Member<'_>> =
            names.iter().enumerate().map(|(path, rollup)| Member { path, rollup, is_module: true }).collect();
        grouped(&members, above).into_iter().map(|g| (g.rollup, g.members)).collect()
    }

    #[test]
    fn a_decoder_without_blocks_becomes_its_modules() {
        let names = [
            "decode/model.layers.*.self_attn.q_proj",
            "decode/model.layers.*.self_attn.k_proj",
            "decode/model.layers.*.mlp.up_proj",
            "decode/model.layers.*.mlp.down_proj",
            "decode/model.layers.*.input_layernorm",
            "decode/model.norm",
            "decode/lm_head",
        ];
        let first = groups(&names, Some("decode"));
        assert_eq!(
            first,
            [("decode/lm_head".to_string(), vec![6]), ("decode/model".to_string(), vec![0, 1, 2, 3, 4, 5])]
        );
        let model = groups(&names[..6], Some("decode/model"));
        assert_eq!(
            model,
            [("decode/model.layers.*".to_string(), vec![0, 1, 2, 3, 4]), ("decode/model.norm".to_string(), vec![5])]
        );
        let layer = groups(&names[..5], Some("decode/model.layers.*"));
        assert_eq!(
            layer,
            [
                ("decode/model.layers.*.input_layernorm".to_string(), vec![4]),
                ("decode/model.layers.*.mlp".to_string(), vec![2, 3]),
                ("decode/model.layers.*.self_attn".to_string(), vec![0, 1]),
            ]
        );
        let mlp = groups(&names[2..4], Some("decode/model.layers.*.mlp"));
        assert_eq!(mlp.iter().map(|(_, m)| m.len()).collect::<Vec<_>>(), [1, 1]);
    }

    #[test]
    fn a_level_that_all_share_is_none() {
        let names = ["encode/bert.encoder.layer.*.attention.query", "encode/bert.encoder.layer.*.output.dense"];
        let found = groups(&names, Some("encode"));
        assert_eq!(found, [(names[0].to_string(), vec![0]), (names[1].to_string(), vec![1])]);
    }

    #[test]
    fn names_that_extend_each_other_stay_beside_each_other() {
        let names = ["decode/a.b", "decode/a.b.c", "decode/a.b.d", "decode/x"];
        let found = groups(&names, Some("decode"));
        assert_eq!(found, [("decode/a".to_string(), vec![0, 1, 2]), ("decode/x".to_string(), vec![3])]);
        assert_eq!(groups(&names[..3], Some("decode/a")).len(), 3, "a name that others extend is no group");
        let names = ["decode/a", "decode/aé", "decode/b"];
        assert_eq!(groups(&names, Some("decode")).len(), 3);
        let names = ["decode/layers.*", "decode/lay", "decode/größe.x", "decode/große.y"];
        assert_eq!(groups(&names, Some("decode")).len(), 4, "parts, not bytes");
    }
}
