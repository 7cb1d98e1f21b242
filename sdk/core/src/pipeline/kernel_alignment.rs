//! When two runs of kernels pass for the same.

/// Fewer kernels may be the same by chance.
pub(crate) const FEWEST: usize = 4;

/// The same of a replay that is a part of what is known, or differs from it.
const FEWEST_IN_PART: usize = 64;

/// At most one kernel in so many may have no other beside it, of a replay as of what is known: 95 % have.
const ONE_WITHOUT_IN: usize = 20;

/// A kernel as it is compared: the number of its name, its blocks and their threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ComparedKernel {
    pub(crate) name: u32,
    pub(crate) grid: Option<[u32; 3]>,
    pub(crate) block: Option<[u32; 3]>,
    /// Whether it is the first of its stream, behind those of another one: no piece of one stream is like the end of one and
    /// the beginning of the next.
    pub(crate) begins_stream: bool,
}

/// How a replay lies beside what is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Alignment {
    /// For each kernel of the replay the one beside it, if that can be told.
    pub(crate) of: Vec<Option<usize>>,
    /// Whether all of the replay stands in what is known as it is.
    pub(crate) is_whole: bool,
}

/// Lays what a replay `ran` beside what is `known`: it is the same, kernel by kernel, or it stands in it at one place
/// and no other, or both begin and end alike and have one piece in which they differ. Of what differs, which is so for
/// example where a record was lost, a twentieth of either at most. A kernel that could lie beside two, of different
/// intervals (`at`), has none, and counts as differing.
pub(crate) fn align(known: &[ComparedKernel], at: &[usize], ran: &[ComparedKernel]) -> Option<Alignment> {
    let beside = |first: usize| Alignment { of: (first..first + ran.len()).map(Some).collect(), is_whole: true };
    if known == ran {
        return (ran.len() >= FEWEST).then(|| beside(0));
    }
    if ran.len() < FEWEST_IN_PART {
        return None;
    }
    let mut found = places(known, ran);
    if let Some(first) = found.next() {
        return found.next().is_none().then(|| beside(first));
    }
    but_for_one_piece(known, at, ran)
}

/// Where `part`, of one kernel or more, stands in `whole`, first to last. The time grows with the length of both, also where
/// kernels repeat themselves (Knuth, Morris and Pratt).
fn places(whole: &[ComparedKernel], part: &[ComparedKernel]) -> impl Iterator<Item = usize> {
    // For each beginning of `part` the length of the longest shorter one that it ends with.
    let mut shorter = vec![0; part.len()];
    for end in 1..part.len() {
        shorter[end] = extended(part, &shorter, shorter[end - 1], part[end]);
    }
    let mut same = 0;
    whole.iter().enumerate().filter_map(move |(end, what)| {
        same = extended(part, &shorter, same, *what);
        (same == part.len()).then(|| end + 1 - same)
    })
}

/// How much of the beginning of `part` is there once `next` has come, behind `same` kernels of it.
fn extended(part: &[ComparedKernel], shorter: &[usize], mut same: usize, next: ComparedKernel) -> usize {
    while same > 0 && part.get(same) != Some(&next) {
        same = shorter[same - 1];
    }
    if part.get(same) == Some(&next) { same + 1 } else { 0 }
}

fn but_for_one_piece(known: &[ComparedKernel], at: &[usize], ran: &[ComparedKernel]) -> Option<Alignment> {
    let begin = known.iter().zip(ran).take_while(|(known, ran)| known == ran).count();
    let end = known.iter().rev().zip(ran.iter().rev()).take_while(|(known, ran)| known == ran).count();
    let is_enough = |part: usize, whole: usize| whole.saturating_sub(part) * ONE_WITHOUT_IN <= whole;
    if !is_enough(begin + end, known.len()) || !is_enough(begin + end, ran.len()) {
        return None;
    }
    let of = (0..ran.len()).map(|i| {
        let from_begin = (i < begin).then_some(i);
        let from_end = (i + end >= ran.len()).then(|| (i + known.len()).checked_sub(ran.len())).flatten();
        match (from_begin, from_end) {
            (Some(one), Some(other)) => (at[one] == at[other]).then_some(one),
            (one, other) => one.or(other),
        }
    });
    let of: Vec<Option<usize>> = of.collect();
    is_enough(of.iter().flatten().count(), ran.len()).then_some(Alignment { of, is_whole: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kernels by the number of their name.
    fn kernels(names: impl IntoIterator<Item = u32>) -> Vec<ComparedKernel> {
        let what = |name| ComparedKernel { name, grid: Some([1, 1, 1]), block: None, begins_stream: false };
        names.into_iter().map(what).collect()
    }

    /// A model of so many equal layers of eight kernels each between what stands before and after them, an interval a
    /// kernel.
    fn model(layers: u32) -> Vec<ComparedKernel> {
        kernels([100, 101].into_iter().chain((0..layers).flat_map(|_| 0..8)).chain([102]))
    }

    fn aligned(known: &[ComparedKernel], ran: &[ComparedKernel]) -> Option<Alignment> {
        align(known, &(0..known.len()).collect::<Vec<_>>(), ran)
    }

    #[test]
    fn what_is_the_same_lies_beside_itself_and_another_grid_is_not_the_same() {
        let known = model(10);
        assert_eq!(aligned(&known, &known).unwrap().of, (0..known.len()).map(Some).collect::<Vec<_>>());
        let mut wider = known.clone();
        wider.iter_mut().skip(2).step_by(8).for_each(|kernel| kernel.grid = Some([2, 1, 1]));
        assert_eq!(aligned(&known, &wider), None, "one kernel of each layer is another one");
        let few = kernels([1, 2, 3]);
        assert_eq!(aligned(&few, &few), None, "three kernels may be anybody's");
        let several = kernels([1, 2, 3, 4]);
        assert!(aligned(&several, &several).is_some());
        assert_eq!(aligned(&kernels([1, 2, 3, 4, 5]), &several), None, "a part of something must be longer");
    }

    #[test]
    fn a_part_has_one_place_or_none() {
        let known = model(10);
        let part = &known[1..known.len() - 1];
        let found = aligned(&known, part).unwrap();
        assert_eq!((found.of[0], found.is_whole), (Some(1), true));
        // Eight layers of ten stand in them three times.
        let layers = &known[2..2 + 8 * 8];
        assert_eq!(layers.len(), FEWEST_IN_PART);
        assert_eq!(aligned(&known, layers), None);
    }

    #[test]
    fn a_part_is_found_wherever_it_stands() {
        // Texts of two kernels, which begin like themselves again and again: all of up to nine against all of up to four.
        let text = |length: u32, bits: u32| kernels((0..length).map(|at| bits >> at & 1));
        let mut several = 0;
        for (length, part_length) in (1..=9).flat_map(|length| (1..=4).map(move |part| (length, part))) {
            for (bits, part_bits) in
                (0..1 << length).flat_map(|bits| (0..1 << part_length).map(move |part| (bits, part)))
            {
                let (whole, part) = (text(length, bits), text(part_length, part_bits));
                let compared = whole.windows(part.len()).enumerate().filter(|(_, piece)| *piece == part);
                let right: Vec<usize> = compared.map(|(at, _)| at).collect();
                several += usize::from(right.len() > 1);
                assert_eq!(places(&whole, &part).collect::<Vec<_>>(), right, "{part_bits:b} in {bits:b}");
            }
        }
        assert!(several > 0);
    }

    #[test]
    fn one_lost_record_leaves_the_others_their_places() {
        let known = model(10);
        let mut ran = known.clone();
        ran.remove(20);
        let found = aligned(&known, &ran).unwrap();
        assert!(!found.is_whole);
        assert_eq!((found.of[19], found.of[20]), (Some(19), Some(21)));
        assert_eq!(found.of.iter().flatten().count(), ran.len());
        // And one that is not known has none.
        let mut ran = known.clone();
        ran.insert(20, kernels([77])[0]);
        let found = aligned(&known, &ran).unwrap();
        assert_eq!([19, 20, 21].map(|i| found.of[i]), [Some(19), None, Some(20)]);
    }

    #[test]
    fn more_than_a_twentieth_must_not_differ() {
        let known = model(10);
        for (lost, is_like) in [(4, true), (5, false)] {
            let mut ran = known.clone();
            // The last layer's first kernels, of 83.
            ran.drain(74..74 + lost);
            assert_eq!(aligned(&known, &ran).is_some(), is_like, "{lost} of {}", known.len());
        }
    }

    #[test]
    fn a_model_with_fewer_layers_is_another_one() {
        assert_eq!(aligned(&model(30), &model(29)), None, "each layer of it could be two of the other's");
        assert_eq!(aligned(&model(29), &model(30)), None);
    }

    #[test]
    fn a_kernel_that_could_be_two_of_one_interval_is_its() {
        let known = kernels((0..80).map(|i| if (40..44).contains(&i) { 500 } else { i }));
        let mut ran = known.clone();
        ran.remove(41);
        let own: Vec<usize> = (0..80).collect();
        let found = align(&known, &own, &ran).unwrap();
        assert_eq!(found.of.iter().flatten().count(), 76, "each of three could be one of two");
        let at: Vec<usize> = (0..80).map(|i| if (40..44).contains(&i) { 40 } else { i }).collect();
        assert_eq!(align(&known, &at, &ran).unwrap().of.iter().flatten().count(), 79);
    }
}
