"""Tables of choices whose attributes have names of one letter and the alternative, ``pbeach``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpb_data.column_profiles import Profile
from dpb_data.questions import Answer
from dpb_data.wide_choices import MOST_ALTERNATIVES, code, name_patterns


def letter_choices(profiles: Mapping[str, Profile]) -> list[Answer]:
    """Return answers for tables of choices whose attributes have names of one letter.

    Such as ``pbeach``, ``ppier``, ``qbeach`` and ``qpier``: the letter and the alternative. Names
    are answered with the arguments that read them, for each column that may be the choice.

    Args:
        profiles: Values of the columns.
    """
    answers = []
    for name, profile in profiles.items():
        others = {other: profiles[other] for other in profiles if other != name}
        if not 2 <= profile.distinct <= MOST_ALTERNATIVES:
            continue
        settings: dict[str, Any] = {"problem": "assortment", "chosen": name}
        if profile.text:
            alternatives = {text: text for text in profile.texts}
            letters = [
                pattern[0]
                for pattern, by_code in name_patterns(others, alternatives)[1].items()
                if pattern[1:] == "{}" and len(by_code) == len(alternatives)
            ]
        else:
            letters, alternatives = _told(profile, others)
            settings["alternatives"] = alternatives
        if letters:
            settings["features"] = letters
            column = f"{letters[0]}{min(alternatives.values())}"
            means = f"a choice, with attributes in columns such as {column}"
            answers.append(Answer(settings, means))
    return answers


def _told(chosen: Profile, others: Mapping[str, Profile]) -> tuple[list[str], dict[str, str]]:
    """Return letters of attributes, and the alternative of each code by columns of 0 and 1."""
    codes = np.unique(chosen.known)
    for first in others:
        marks = [n for n in others if n[:1] == first[:1] and len(n) > 1 and others[n].binary]
        hits = {n[1:]: np.unique(chosen.values[others[n].values == 1.0]) for n in marks}
        if len(hits) != len(codes) or any(len(own) != 1 for own in hits.values()):
            continue
        known = {code(float(own[0])): text for text, own in hits.items()}
        letters = dict.fromkeys(n[:1] for n in others if n[1:] in hits and n[:1] != first[:1])
        full = [x for x in letters if all(x + text in others for text in hits)]
        if len(known) == len(codes) and full:
            return full, dict(sorted(known.items()))
    return [], {}
