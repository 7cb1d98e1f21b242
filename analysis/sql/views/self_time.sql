-- Measured intervals with their self time, `self_ns`: their duration less those of the intervals directly inside them.
SELECT s.run, s.operator, s.phase, s.step, s.seq, s.host_dur_ns, s.host_dur_ns - coalesce(inside.ns, 0) AS self_ns,
       s.flops, s.bytes, s.io_bytes
FROM measured_spans AS s
LEFT JOIN (
    SELECT run, parent_seq, CAST(sum(host_dur_ns) AS BIGINT) AS ns FROM spans WHERE parent_seq IS NOT NULL GROUP BY run, parent_seq
) AS inside ON inside.run = s.run AND inside.parent_seq = s.seq
