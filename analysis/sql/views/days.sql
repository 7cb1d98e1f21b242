-- Change from day to day: figures of the runs of a model on a device that began on the same day (UTC).
SELECT runs.started_day, runs.model_name, runs.device_name, runs.version, count(DISTINCT runs.run) AS runs,
       median(CASE WHEN s.phase = 'decode' THEN s.host_dur_ns END) AS decode_step_ns,
       median(CASE WHEN s.phase = 'prefill' THEN s.host_dur_ns END) AS prefill_step_ns
FROM runs JOIN measured_steps AS s ON s.run = runs.run
GROUP BY runs.started_day, runs.model_name, runs.device_name, runs.version
