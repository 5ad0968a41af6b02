"""Nexmark: over unbounded windows the last snapshot is the answer, over hopping ones all windows together."""

from __future__ import annotations

from tests.conformance.asked import Asked
from tests.conformance.comparisons import Bag, Final, Windows

LOW, MIDDLE, HIGH = "price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000"
DAY = "strftime(date_time, '%Y-%m-%d')"
IN_TIME = "b.auction = a.id AND b.date_time BETWEEN a.date_time AND a.expires"


def in_bands(function: str, name: str) -> str:
    """An aggregate over everything and over three bands of prices."""
    bands = [f"{function} FILTER (WHERE {band}) AS {name}{i}" for i, band in enumerate((LOW, MIDDLE, HIGH), 1)]
    return ", ".join([f"{function} AS {name}", *bands])


BANDS = ", ".join(
    [in_bands("count(*)", "n"), in_bands("count(DISTINCT bidder)", "b"), in_bands("count(DISTINCT auction)", "a")]
)
HOT = "(SELECT auction, count(*) AS n FROM bid [HOP 10 SECONDS, 2 SECONDS] GROUP BY auction)"
LOWEST = f"""(SELECT a.id, a.seller, b.price, b.date_time
  FROM auction [UNBOUNDED] AS a JOIN bid [UNBOUNDED] AS b ON {IN_TIME}
  WHERE NOT EXISTS (SELECT 1 FROM bid [UNBOUNDED] AS o WHERE o.auction = a.id
    AND o.date_time BETWEEN a.date_time AND a.expires AND o.price < b.price))"""

CASES = {
    "q0": Asked("SELECT auction, bidder, price, date_time FROM bid [UNBOUNDED]", Final()),
    "q1": Asked("SELECT auction, bidder, DECIMAL '0.908' * price AS p, date_time FROM bid [UNBOUNDED]", Final()),
    "q2": Asked("SELECT auction, price FROM bid [NOW] WHERE auction IN (1007, 1020, 2001, 2019, 2087)", Bag()),
    "q3": Asked(
        """SELECT p.name, p.city, p.state, a.id FROM auction [UNBOUNDED] AS a JOIN person [UNBOUNDED] AS p
        ON a.seller = p.id WHERE a.category = 10 AND p.state IN ('or', 'id', 'ca')""",
        Final(),
    ),
    "q4": Asked(
        f"""SELECT category, avg(final) AS mean FROM (
          SELECT max(b.price) AS final, a.category FROM auction [UNBOUNDED] AS a JOIN bid [UNBOUNDED] AS b
          ON {IN_TIME} GROUP BY a.id, a.category) AS won GROUP BY category""",
        Final(),
        "each auction ends by itself, so the interval stands in the condition",
    ),
    "q5": Asked(
        f"""SELECT c.auction, c.n FROM {HOT} AS c JOIN (SELECT max(n) AS most FROM {HOT} AS d) AS m
        ON c.n = m.most""",
        Windows(10_000, 2_000, ("auction", "n")),
    ),
    "q6": Asked(
        f"""SELECT seller, avg(price) AS mean FROM (
          SELECT t.id, t.seller, u.id AS other, u.price, count(*) AS since
          FROM {LOWEST} AS t, {LOWEST} AS u, {LOWEST} AS v
          WHERE t.seller = u.seller AND u.date_time <= t.date_time
          AND v.seller = t.seller AND v.date_time BETWEEN u.date_time AND t.date_time
          GROUP BY t.id, t.seller, u.id, u.price) AS pairs
        WHERE since <= 11 GROUP BY id, seller""",
        Final(),
        "an average over the last eleven rows is one over the rows that have at most ten between them and this one",
    ),
    "q7": Asked(
        """SELECT b.auction, b.price, b.bidder, b.date_time FROM bid [TUMBLE 10 SECONDS] AS b
        JOIN (SELECT max(price) AS most FROM bid [TUMBLE 10 SECONDS]) AS m ON b.price = m.most""",
        Windows(10_000, 10_000, ("auction", "price", "bidder", "date_time")),
    ),
    "q8": Asked(
        """SELECT DISTINCT p.id, p.name FROM person [TUMBLE 10 SECONDS] AS p
        JOIN auction [TUMBLE 10 SECONDS] AS a ON p.id = a.seller""",
        Windows(10_000, 10_000, ("id", "name", "start")),
    ),
    "q9": Asked(
        f"""SELECT a.id, a.item_name, a.description, a.initial_bid, a.reserve, a.date_time, a.expires, a.seller,
          a.category, b.auction, b.bidder, b.price, b.date_time AS bid_time
        FROM auction [UNBOUNDED] AS a JOIN bid [UNBOUNDED] AS b ON {IN_TIME}
        WHERE NOT EXISTS (SELECT 1 FROM bid [UNBOUNDED] AS o WHERE o.auction = a.id
          AND o.date_time BETWEEN a.date_time AND a.expires
          AND (o.price > b.price OR (o.price = b.price AND o.date_time < b.date_time)))""",
        Final(),
    ),
    "q14": Asked(
        """SELECT auction, bidder, DECIMAL '0.908' * price AS p,
          CASE WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
               WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS part,
          date_time, length(extra) - length(replace(extra, 'c', '')) AS c
        FROM bid [UNBOUNDED]
        WHERE DECIMAL '0.908' * price > 1000000 AND DECIMAL '0.908' * price < 50000000""",
        Final(),
    ),
    "q15": Asked(f"SELECT {DAY} AS d, {BANDS} FROM bid [UNBOUNDED] GROUP BY {DAY}", Final()),
    "q16": Asked(
        f"""SELECT channel, {DAY} AS d, max(strftime(date_time, '%I:%m')) AS at, {BANDS}
        FROM bid [UNBOUNDED] GROUP BY channel, {DAY}""",
        Final(),
    ),
    "q17": Asked(
        f"""SELECT auction, {DAY} AS d, {in_bands("count(*)", "n")}, min(price) AS least, max(price) AS most,
          avg(price) AS mean, sum(price) AS total FROM bid [UNBOUNDED] GROUP BY auction, {DAY}""",
        Final(),
    ),
    "q18": Asked(
        """SELECT auction, bidder, price, channel, url, date_time, extra FROM bid [UNBOUNDED] AS b
        WHERE NOT EXISTS (SELECT 1 FROM bid [UNBOUNDED] AS o WHERE o.bidder = b.bidder AND o.auction = b.auction
          AND (o.date_time > b.date_time OR (o.date_time = b.date_time AND o.extra < b.extra)))""",
        Final(),
    ),
}
