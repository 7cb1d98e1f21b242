-- Spans of the application that were entered before the first phase was marked: they stand in `steps`, and are none.
SELECT run, step
FROM steps
WHERE phase IS NULL AND flops IS NULL AND bytes IS NULL AND tokens IS NULL AND module IS NULL AND target <> ''
  AND target NOT LIKE 'candle%' AND run IN (SELECT run FROM steps WHERE phase IS NOT NULL)
