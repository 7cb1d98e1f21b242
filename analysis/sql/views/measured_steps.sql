-- The steps that figures are made of: without those of warm-up requests and without spans of the application. A step for
-- several requests counts if one of them does.
SELECT steps.*
FROM steps
JOIN warmup ON warmup.run = steps.run
LEFT JOIN (SELECT run, step, 1 AS is_none FROM application_steps) AS application
  ON application.run = steps.run AND application.step = steps.step
LEFT JOIN (
    SELECT served.run, served.step, max(served.request) AS last_request FROM served GROUP BY served.run, served.step
) AS serving ON serving.run = steps.run AND serving.step = steps.step
WHERE (steps.request IS NULL OR steps.request > warmup.warmup)
  AND application.is_none IS NULL
  AND (steps.serves IS NULL OR serving.last_request > warmup.warmup)
