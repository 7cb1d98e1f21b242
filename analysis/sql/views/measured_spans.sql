-- The intervals of measured steps.
SELECT spans.*
FROM spans
WHERE EXISTS (SELECT 1 FROM measured_steps AS m WHERE m.run = spans.run AND m.step = spans.step)
