"""Saved questions: views that every stored database has, whoever wrote it.

Times are those of the samples, split by the weights of the tables `member` and `origin`; a part that belongs to no source operator has
`source_id` NULL, so that the times of a view always add up to those of the samples.
"""

from __future__ import annotations

from typing import NamedTuple


class View(NamedTuple):
    name: str
    answers: str
    sql: str


VIEWS = (
    View(
        "source_name",
        "every operator of the file, by the name people know it by",
        """SELECT s.id AS source_id, coalesce(nullif(o.name, ''), s.operator || ' ' || coalesce(s.ext_key, s.id)) AS name, s.operator,
               coalesce(o.fate, '') AS fate, coalesce(o.module, '') AS module, coalesce(o.line, '') AS line
           FROM source s LEFT JOIN operator o ON o.source_id = s.id""",
    ),
    View(
        "time_by_kernel",
        "time of each kernel, over all runs",
        """SELECT k.id AS kernel_id, k.name, k.symbol, count(s.kernel_id) AS calls, coalesce(sum(s.end_ns - s.begin_ns), 0)::BIGINT AS time_ns,
               min(s.end_ns - s.begin_ns) AS min_ns
           FROM kernel k LEFT JOIN sample s ON s.kernel_id = k.id GROUP BY k.id, k.name, k.symbol ORDER BY time_ns DESC, k.id""",
    ),
    View(
        "kernels_of_source",
        "which kernels an operator of the file runs in, and its part of each",
        """SELECT o.source_id, n.name, n.operator, k.kernel_id, k.name AS kernel, sum(m.weight * coalesce(o.weight, 1)) AS weight,
               sum(k.time_ns * m.weight * coalesce(o.weight, 1)) AS time_ns
           FROM time_by_kernel k JOIN member m ON m.kernel_id = k.kernel_id LEFT JOIN origin o ON o.optimised_id = m.optimised_id
           LEFT JOIN source_name n ON n.source_id = o.source_id
           GROUP BY o.source_id, n.name, n.operator, k.kernel_id, k.name ORDER BY o.source_id, k.kernel_id""",
    ),
    View(
        "time_by_source",
        "time of each operator of the file",
        """SELECT n.source_id, n.name, n.operator, n.fate, coalesce(sum(k.time_ns), 0) AS time_ns,
               coalesce(sum(k.time_ns), 0) / nullif((SELECT sum(time_ns) FROM time_by_kernel), 0) AS share, count(k.kernel_id) AS kernels
           FROM source_name n FULL JOIN kernels_of_source k ON k.source_id = n.source_id
           GROUP BY n.source_id, n.name, n.operator, n.fate ORDER BY time_ns DESC, n.source_id""",
    ),
    View(
        "time_by_type",
        "time of each type of operator in the file",
        """SELECT operator, count(*) AS operators, sum(time_ns) AS time_ns, sum(share) AS share
           FROM time_by_source GROUP BY operator ORDER BY time_ns DESC, operator""",
    ),
    View(
        "removed",
        "operators of the file that no longer run: which pass removed them and why, or what they were folded into",
        """SELECT n.source_id, n.name, n.operator, n.fate, coalesce(t.reason, 'folded') AS reason, coalesce(t.pass_name, '') AS pass_name,
               coalesce(t.rule, '') AS rule, coalesce(t.into_id, (SELECT min(optimised_id) FROM origin o WHERE o.source_id = n.source_id)) AS into_id
           FROM source_name n LEFT JOIN tombstone t ON t.source_id = n.source_id AND NOT (n.fate = 'folded' AND t.reason = 'dead')
           WHERE n.fate NOT IN ('live', '') QUALIFY row_number() OVER (PARTITION BY n.source_id ORDER BY t.id DESC) = 1 ORDER BY n.source_id""",
    ),
    View(
        "fused_groups",
        "kernels that do the work of several operators of the file",
        """SELECT kernel_id, kernel, count(*) AS operators, list(name ORDER BY source_id) AS names, sum(time_ns) AS time_ns
           FROM kernels_of_source WHERE source_id IS NOT NULL GROUP BY kernel_id, kernel HAVING count(*) > 1 ORDER BY kernel_id""",
    ),
    View(
        "commands_of_source",
        "the queue by operator of the file, as Vela links it: through one source operator per optimised operator",
        """SELECT n.source_id, n.name, n.operator, count(DISTINCT o.id) AS optimised, count(q.optimised_id) AS commands,
               min(q."offset") AS first_offset
           FROM source_name n LEFT JOIN optimised o ON o.source_id = n.source_id LEFT JOIN queue q ON q.optimised_id = o.id
           GROUP BY n.source_id, n.name, n.operator ORDER BY n.source_id""",
    ),
)
