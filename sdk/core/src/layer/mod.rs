pub(crate) mod thread;
