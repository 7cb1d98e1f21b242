//! Ready-made sets of cases for language models.
