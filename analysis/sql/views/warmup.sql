-- How many of a run's first requests warmed it up: they are in no figure. A run that ended while it warmed up has no other
-- requests, so that these count.
SELECT runs.run, CASE WHEN coalesce(max(requests.request), 0) > runs.asked THEN runs.asked ELSE 0 END AS warmup
FROM runs LEFT JOIN requests ON requests.run = runs.run
GROUP BY runs.run, runs.asked
