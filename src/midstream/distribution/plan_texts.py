"""The plans of slots in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence


def plans_text(plans: Mapping[int, str]) -> str:
    """The plans of slots in one line.

    >>> plans_text({0: "((A B) C)", 1: "((A B) C)"})
    '((A B) C)'
    >>> plans_text({0: "((A B) C)", 1: "(A (B C))", 2: "((A B) C)"})
    '((A B) C) in slots 0, 2; (A (B C)) in slot 1'
    """
    by_plan = _by_plan(plans)
    return next(iter(by_plan)) if len(by_plan) == 1 else "; ".join(_placed(by_plan))


def slots_text(slots: Sequence[int]) -> str:
    """Some slots in words.

    >>> slots_text([0, 2])
    'slots 0, 2'
    """
    return f"slot{'s' * (len(slots) > 1)} {', '.join(map(str, slots))}"


def plan_text_beside(plan: str, local: Mapping[int, str]) -> str:
    """A query's plan and those of slots that run by another one, in one line.

    >>> plan_text_beside("((A B) C)", {1: "(A (B C))", 2: "((A B) C)"})
    '((A B) C); (A (B C)) in slot 1'
    """
    return "; ".join([plan, *_placed({text: slots for text, slots in _by_plan(local).items() if text != plan})])


def _by_plan(plans: Mapping[int, str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for slot, text in sorted(plans.items()):
        found.setdefault(text, []).append(slot)
    return found


def _placed(by_plan: Mapping[str, Sequence[int]]) -> Iterator[str]:
    return (f"{text} in {slots_text(slots)}" for text, slots in by_plan.items())
