-- The requests without those that warmed the run up.
SELECT requests.*
FROM requests JOIN warmup ON warmup.run = requests.run
WHERE requests.request > warmup.warmup
