"""A job as one HTML file that opens without a server: the page, its script and style, and all it needs to know.

The file states which script and style it may run, by their hashes; what the job is told of lies beside them as data,
in which no text can end the element that holds it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.trials import last_trial
from midstream.interface.dashboard.assets import asset
from midstream.interface.dashboard.page_data import job_summary, results_preview
from midstream.interface.dashboard.series import series_summary

MOST_BATCHES = 60
"""How many retained batches the file can be wound back to."""


def exported(job: StoredJob) -> str:
    """The file's content."""
    batches = job.batches[-MOST_BATCHES:]
    replay = {str(batch): job_summary(job.at(batch)) for batch in batches if batch != job.batch}
    results = {query: results_preview(job, query) for query in job.queries}
    shown = {"job": job_summary(job), "series": series_summary(job), "replay": replay, "results": results}
    data = {**shown, "trial": last_trial(job.store.files)}
    script, style = asset("app.js").decode(), asset("app.css").decode()
    policy = f"default-src 'none'; img-src data:; script-src {_hash(script)}; style-src {_hash(style)}"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Midstream, batch {job.batch}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f'<div id="app"></div>\n<script type="application/json" id="data">{in_element(data)}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def in_element(value: Any) -> str:
    """JSON that can stand inside a script element.

    >>> in_element("</script><!--")
    '"\\\\u003c/script\\\\u003e\\\\u003c!--"'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
