//! Modules of a model: spans that are made once, when it loads, and entered at each forward pass.

use crate::{switch, Entered, Inside};
use std::marker::PhantomData;

/// A module of a model, for example an attention: make it with the layer and enter it at each forward pass.
///
/// ```
/// use candlescope_markers::{Module, module};
///
/// struct Attention {
///     marker: Module,
/// }
///
/// impl Attention {
///     fn load(prefix: &str) -> Self {
///         Self { marker: module(prefix) } // "model.layers.7.self_attn"
///     }
///
///     fn forward(&self, x: f32) -> f32 {
///         let _in = self.marker.enter();
///         x * 2.0
///     }
/// }
/// # assert_eq!(Attention::load("model.layers.7.self_attn").forward(1.0), 2.0);
/// ```
///
/// Its time is that between enter and exit, on each thread by itself; a clone is the same module. Neither allocates.
/// Make it after the subscriber is in place: a span that is made while nobody listens stays disabled.
#[derive(Clone)]
pub struct Module {
    inner: switch::Module,
    _like: switch::LikeASpan,
}

/// A module by its name: that of its weights (`model.layers.7.self_attn`, what a `VarBuilder` calls its prefix), or a
/// word (`attn`).
///
/// Intervals have the last part as their name, and all of it as their module: sums are over the name without its
/// numbers, `decode/model.layers.*.self_attn`.
pub fn module(name: &str) -> Module {
    Module { inner: switch::module(name), _like: PhantomData }
}

/// The layer of a decoder or an encoder with this number, counted from 0: the module `layers.7`, whose intervals are
/// called `layer`. For a layer with a name of its own use [`module`].
pub fn layer(number: usize) -> Module {
    Module { inner: switch::layer(number), _like: PhantomData }
}

/// A module within the layer with this number: the module `layers.7.attn`, whose intervals are called `attn`. Allocates
/// nothing to make that name.
pub fn module_of_layer(number: usize, name: &str) -> Module {
    Module { inner: switch::module_of_layer(number, name), _like: PhantomData }
}

impl Module {
    /// Enters the module on this thread.
    #[inline]
    pub fn enter(&self) -> Inside<'_> {
        Inside::new(self.inner.enter())
    }

    /// Enters the module on this thread with a guard that borrows nothing, for a module that is made where it runs.
    #[inline]
    pub fn entered(self) -> Entered {
        Entered::new(self.inner.entered())
    }

    /// Runs `f` inside the module.
    #[inline]
    pub fn in_scope<T>(&self, f: impl FnOnce() -> T) -> T {
        let _in = self.enter();
        f()
    }

    /// With the feature `enabled`: the module's span.
    #[cfg(feature = "enabled")]
    pub fn span(&self) -> &tracing::Span {
        self.inner.span()
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module").finish_non_exhaustive()
    }
}
