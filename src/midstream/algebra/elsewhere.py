"""Functions that other systems have and this language has not, with what is written instead.

A name that means something elsewhere is answered by its meaning; only other names are compared by their spelling.
"""

from __future__ import annotations

from collections.abc import Mapping

_TUMBLE = "a window stands behind its stream: FROM A [TUMBLE 10 MINUTES]; window_start and window_end are columns"
_HOP = "a window stands behind its stream: FROM A [HOP 10 MINUTES, 1 MINUTE], or [RANGE 10 MINUTES] for one that slides"
_SESSION = "a window stands behind its stream: FROM A [PARTITION BY k SESSION 10 MINUTES]; window_end is a column"
_RANDOM = "a batch that is repeated must give the same rows; use md5 of columns that differ"
_TIME = "time comes with the tuples: use the time column; WHERE ts > now() - INTERVAL '1' HOUR bounds a stream"

INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("window", "tumble", "tumbling", "tumblingwindow", "tumble_start", "tumble_end"), _TUMBLE),
    **dict.fromkeys(("window_start", "window_end", "window_time"), _TUMBLE),
    **dict.fromkeys(("hop", "hopping", "hoppingwindow", "hop_start", "hop_end", "sliding", "slidingwindow"), _HOP),
    **dict.fromkeys(("session", "session_window", "sessionwindow", "session_start", "session_end"), _SESSION),
    "top": "write ORDER BY … LIMIT n, or QUALIFY row_number() OVER (PARTITION BY k ORDER BY v) <= n",
    **dict.fromkeys(("countd", "uniq"), "use count(DISTINCT a)"),
    **dict.fromkeys(("random", "rand", "uuid", "gen_random_uuid", "randn", "shuffle"), _RANDOM),
    "isnull": "write a IS NULL",
    "age": "write a - b for the time between two instants, or date_diff('month', b, a) to count months",
    **dict.fromkeys(("now", "current_timestamp", "current_date", "current_time", "localtimestamp"), _TIME),
    **dict.fromkeys(("getdate", "today", "proctime", "processing_time", "rowtime"), _TIME),
    **dict.fromkeys(("watermark", "with_watermark"), "how late rows may be is said of the stream: lateness"),
}
