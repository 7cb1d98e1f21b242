-- Steps whose kernels were recorded.
SELECT DISTINCT run, step FROM kernels WHERE step IS NOT NULL
