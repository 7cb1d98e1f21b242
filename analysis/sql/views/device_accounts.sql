-- What the energy of each GPU was used for since it was first sampled, joules: steps of requests, steps of none, time in which no
-- step ran, and time of which nobody knows whether one did. The four add up to `accounted_joules`; `counted_joules` is what the
-- GPU's own counter counted, between its resets. None has bounds, which only energy of requests has: that of all GPUs together, in
-- `request_accounts`.
SELECT run, device, requests_joules, other_steps_joules, idle_joules, unattributed_joules,
       requests_joules + other_steps_joules + idle_joules + unattributed_joules AS accounted_joules, counted_joules
FROM (
    SELECT run, device,
           max(CASE WHEN metric = 'candlescope_energy_joules_total_requests' THEN value END) AS requests_joules,
           max(CASE WHEN metric = 'candlescope_energy_joules_total_other_steps' THEN value END) AS other_steps_joules,
           max(CASE WHEN metric = 'candlescope_energy_joules_total_idle' THEN value END) AS idle_joules,
           max(CASE WHEN metric = 'candlescope_energy_joules_total_unattributed' THEN value END) AS unattributed_joules,
           sum(CASE WHEN metric = 'hw_energy_joules_total' AND later >= value THEN later - value END) AS counted_joules
    FROM (
        SELECT run, device, metric, value,
               lead(value) OVER (PARTITION BY run, device, metric ORDER BY time_ns) AS later
        FROM samples
        WHERE metric = 'hw_energy_joules_total' OR metric LIKE 'candlescope_energy_joules_total%'
    ) AS readings GROUP BY run, device
) AS sums WHERE requests_joules IS NOT NULL
