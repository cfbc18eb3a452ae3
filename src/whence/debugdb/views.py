"""Saved questions: views that every stored database has, whichever compiler wrote it.

Times are those of the profile, where there is one: the tables `measured`, `attributed` and
`residual`. Elsewhere they are those of the samples, split by the weights of the tables `member` and
`origin`. All are integers. A part that belongs to no source operator has `source_id` NULL, so that
the times of `time_by_source` always add up: to the wall time of the profile, or to the time of the
samples.
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
        """SELECT k.id AS kernel_id, k.name, k.symbol, t.calls, t.time_ns, t.min_ns
           FROM kernel k JOIN (
               SELECT kernel_id, calls, time_ns, min_ns FROM measured
               UNION ALL
               SELECT k.id, count(s.kernel_id), coalesce(sum(s.end_ns - s.begin_ns), 0)::BIGINT, min(s.end_ns - s.begin_ns)
               FROM kernel k LEFT JOIN sample s ON s.kernel_id = k.id WHERE NOT EXISTS (FROM measured) GROUP BY k.id
           ) t ON t.kernel_id = k.id ORDER BY t.time_ns DESC, k.id""",
    ),
    View(
        "kernels_of_source",
        "which kernels an operator of the file runs in, and its part of each",
        # What the weights give is rounded where it ends, not how long it is: so the parts of a
        # kernel still add up.
        """WITH part AS (
               SELECT o.source_id, k.kernel_id, k.time_ns, sum(m.weight * coalesce(o.weight, 1)) AS weight
               FROM time_by_kernel k JOIN member m ON m.kernel_id = k.kernel_id LEFT JOIN origin o ON o.optimised_id = m.optimised_id
               WHERE NOT EXISTS (FROM measured) GROUP BY o.source_id, k.kernel_id, k.time_ns
           ), ends AS (
               SELECT source_id, kernel_id, weight,
                   round(time_ns * sum(weight) OVER (PARTITION BY kernel_id ORDER BY source_id NULLS LAST))::BIGINT AS until_ns FROM part
           ), split AS (
               SELECT source_id, kernel_id, weight,
                   until_ns - lag(until_ns, 1, 0) OVER (PARTITION BY kernel_id ORDER BY source_id NULLS LAST) AS time_ns FROM ends
               UNION ALL
               SELECT source_id, kernel_id, weight, time_ns FROM attributed WHERE EXISTS (FROM measured)
               UNION ALL
               SELECT NULL, kernel_id, 1, time_ns FROM measured WHERE kernel_id NOT IN (SELECT kernel_id FROM attributed)
           )
           SELECT t.source_id, n.name, n.operator, t.kernel_id, k.name AS kernel, t.weight, t.time_ns
           FROM split t JOIN kernel k ON k.id = t.kernel_id LEFT JOIN source_name n ON n.source_id = t.source_id
           ORDER BY t.source_id, t.kernel_id""",
    ),
    View(
        "time_by_source",
        "time of each operator of the file, and in a profile what is in none of them; all of it is"
        " the wall time",
        # A kernel of nobody's is among the residuals of a profile.
        """WITH spent AS (
               SELECT n.source_id, n.name, n.operator, n.fate, coalesce(sum(k.time_ns), 0)::BIGINT AS time_ns, count(k.kernel_id) AS kernels
               FROM source_name n FULL JOIN (FROM kernels_of_source WHERE source_id IS NOT NULL OR NOT EXISTS (FROM measured)) k
                   ON k.source_id = n.source_id
               GROUP BY n.source_id, n.name, n.operator, n.fate
               UNION ALL
               SELECT NULL, name, NULL, 'residual', time_ns, 0 FROM residual
           )
           SELECT source_id, name, operator, fate, time_ns, time_ns / nullif(sum(time_ns) OVER (), 0)::DOUBLE AS share, kernels
           FROM spent ORDER BY source_id IS NULL AND fate IS NOT NULL, time_ns DESC, source_id""",
    ),
    View(
        "time_by_type",
        "time of each type of operator in the file",
        """SELECT operator, count(source_id) AS operators, sum(time_ns)::BIGINT AS time_ns, sum(share) AS share
           FROM time_by_source GROUP BY operator ORDER BY time_ns DESC, operator""",
    ),
    View(
        "removed",
        "operators of the file that no longer run: which pass removed them and why, or what they"
        " were folded into",
        # Whoever writes no endings is taken by the last tombstone.
        """SELECT n.source_id, n.name, n.operator, n.fate, coalesce(e.reason, t.reason, 'folded') AS reason,
               coalesce(e.pass_name, t.pass_name, '') AS pass_name, coalesce(e.rule, t.rule, '') AS rule,
               coalesce(CASE WHEN e.source_id IS NULL THEN t.into_id ELSE e.into_id END,
                   (SELECT min(optimised_id) FROM origin o WHERE o.source_id = n.source_id)) AS into_id
           FROM source_name n LEFT JOIN ending e ON e.source_id = n.source_id
           LEFT JOIN tombstone t ON t.source_id = n.source_id AND NOT (n.fate = 'folded' AND t.reason = 'dead')
           WHERE n.fate NOT IN ('live', '') QUALIFY row_number() OVER (PARTITION BY n.source_id ORDER BY t.id DESC) = 1 ORDER BY n.source_id""",
    ),
    View(
        "fused_groups",
        "kernels that do the work of several operators of the file",
        """SELECT kernel_id, kernel, count(*) AS operators, list(name ORDER BY source_id) AS names, sum(time_ns)::BIGINT AS time_ns
           FROM kernels_of_source WHERE source_id IS NOT NULL GROUP BY kernel_id, kernel HAVING count(*) > 1 ORDER BY kernel_id""",
    ),
    View(
        "commands_of_source",
        "the queue by operator of the file, as Vela links it: through one source operator per"
        " optimised operator",
        """SELECT n.source_id, n.name, n.operator, count(DISTINCT o.id) AS optimised, count(q.optimised_id) AS commands,
               min(q."offset") AS first_offset
           FROM source_name n LEFT JOIN optimised o ON o.source_id = n.source_id LEFT JOIN queue q ON q.optimised_id = o.id
           GROUP BY n.source_id, n.name, n.operator ORDER BY n.source_id""",
    ),
)
