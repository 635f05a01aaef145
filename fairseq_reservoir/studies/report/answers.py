"""The answers at the top of a report: one sentence for each question, such as "Which arm is best?"."""

from dataclasses import dataclass
from typing import NamedTuple

from .arms import Arm, mean
from .cells import fixed, listed, p_text, plural, signed, spread_text
from .comparisons import compare_pairs, corrected
from .exports import exported_by
from .measures import Study, spread
from .seed_differences import Difference, Score, difference, scores


class Answer(NamedTuple):
    question: str
    sentence: str


@dataclass(frozen=True)
class _Best:
    """The best arm by one score, compared with the baseline. If the baseline itself is best, it is compared with the second-best arm.

    Attributes:
        score: the score.
        arm: the best arm.
        other: the arm that the best arm is compared with; None if there is no such arm.
        tested: difference between the two arms over seeds; None if either arm has fewer than two seeds.
        p: p-value of the difference, after Holm's correction for the comparisons of all arms with the baseline; None if the difference
            cannot be tested.
        tests: number of comparisons in Holm's correction.
    """

    score: Score
    arm: Arm
    other: Arm | None = None
    tested: Difference | None = None
    p: float | None = None
    tests: int = 0


def answers(study: Study) -> list[Answer]:
    """Return the questions and answers: first one question for each pair of ``--compare``, then general questions.

    The answers about time and size describe the best arm first, then the other arms that are compared.
    """
    found = [best for score in _shown(study) if (best := _best(study, score))]
    shown = [arm for one in found for arm in (one.arm, one.other) if arm]
    shown += [study.baseline, *(arm for pair in study.comparisons for arm in pair)]
    arms = list({arm.name: arm for arm in shown}.values())
    if len(study.arms) > 1:
        of_scores = [
            Answer("Which arm is best?", _which(found)),
            Answer("By how much?", _capital(_sentence(_by_how_much(study, one) for one in found))),
            Answer("Is that significant?", _capital(_sentence(_is_significant(one) for one in found))),
        ]
    else:
        of_scores = [Answer("How good is it?", _which(found))]
    return [
        *_comparisons(study),
        *of_scores,
        Answer("How long does it train?", _sentence(_time(study, arm) for arm in arms)),
        Answer("How large is it?", _sentence(_size(study, arm) for arm in arms)),
        Answer("How many seeds?", _seeds(study)),
    ]


def _sentence(parts):
    return f"{'; '.join(parts)}."


def _capital(text):
    return text[:1].upper() + text[1:]


def _shown(study):
    """Return the validation score and at most one test score.

    The test score is sacreBLEU, or the test loss if there is no sacreBLEU.
    """
    metric, *tests = scores(study)
    return [metric, *[score for score in tests if score.label != "test chrF"][:1]]


def _best(study, score):
    """Find the best arm by a score; None if no arm has this score.

    An interrupted arm can be the best only if all arms were interrupted. If some arms have several seeds, arms with one seed cannot be the
    best.
    """
    finished = [arm for arm in study.arms if not arm.interrupted] or study.arms
    values = {arm.name: score.values(arm) for arm in finished}
    several = any(len(of_arm) > 1 for of_arm in values.values())
    arms = [arm for arm in study.arms if len(values.get(arm.name, ())) > several]
    if not arms:
        return None
    arms.sort(key=lambda arm: mean(values[arm.name]), reverse=score.higher)
    best, base = arms[0], study.baseline
    if base not in arms or len(arms) < 2:
        return _Best(score, best)
    other = arms[1] if best is base else base
    differences = {arm.name: difference(values[arm.name], values[base.name]) for arm in arms if arm is not base}
    ps = dict(zip(differences, corrected([one.p if one else None for one in differences.values()])))
    p = ps[other.name if best is base else best.name]
    return _Best(score, best, other, difference(values[best.name], values[other.name]), p, len(ps))


def _which(found):
    """Return a sentence such as "LTL has the lowest validation loss, 4.21 bits, and the highest test sacreBLEU, 36.79"."""
    parts: dict[str, list[str]] = {}
    for one in found:
        number = fixed(mean(one.score.values(one.arm)), one.score.digits)
        best = "highest" if one.score.higher else "lowest"
        parts.setdefault(one.arm.name, []).append(f"the {best} {one.score.noun}, {number} {one.score.unit}".rstrip())
    return _sentence(f"{arm} has {', and '.join(scores)}" for arm, scores in parts.items())


def _by_how_much(study, one):
    score, other = one.score, one.other
    if other is None:
        return f"{score.noun}: cannot be compared with the baseline"
    value = mean(score.values(one.arm)) - mean(score.values(other))
    named = f"the baseline {other.name}" if other is study.baseline else f"{other.name}, the next best arm"
    return f"{score.noun}: {_amount(value, score)} than {named} ({_interval(one.tested, score)})"


def _amount(value, score):
    """Return a difference in words: "0.38 higher", "0.005 bits lower"."""
    unit = "percentage points" if score.unit == "%" else score.unit
    return " ".join(filter(None, [fixed(abs(value), score.digits), unit, "higher" if value >= 0 else "lower"]))


def _interval(tested, score):
    if tested is None or tested.interval is None:
        return "no interval over seeds"
    low, high = (signed(tested.value + side * tested.interval, score.digits) for side in (-1, 1))
    return f"95 % interval {low} to {high}"


def _is_significant(one):
    if one.p is None:
        return f"{one.score.noun}: {_untested(one.tested)}"
    return f"{one.score.noun}: {_verdict(one.p, one.tests)}"


def _untested(tested):
    return "not tested, because " + (
        "in each arm all seeds have the same score" if tested else "both arms need two seeds or more"
    )


def _verdict(p, tests):
    """Return in words whether a difference is significant. ``p`` has already been corrected for the number of ``tests``."""
    shown = p_text(p) if p_text(p).startswith("<") else f"= {p_text(p)}"
    how = f", with Holm's correction for {tests} comparisons" if tests > 1 else ""
    return f"{'significant' if p < 0.05 else 'no significant difference'} (p {shown}{how})"


def _comparisons(study):
    """Return an answer for each pair of ``--compare``."""
    pairs, answered = compare_pairs(study, _shown(study)), []
    for one, other, tests in pairs:
        parts = [
            f"{score.noun}: {_untested(tested)}"
            if tested is None or p is None
            else f"{score.noun}: {_amount(tested.value, score)} ({_interval(tested, score)}), {_verdict(p, len(pairs))}"
            for score, tested, p in tests
        ]
        answered.append(Answer(f"{one.name} or {other.name}?", f"{one.name}: {_sentence(parts)}"))
    return answered


def _named(study, arm):
    return f"{arm.name} (the baseline)" if arm is study.baseline and len(study.arms) > 1 else arm.name


def _time(study, arm):
    name, measured = _named(study, arm), study.measured_runs(arm)
    if any(one.run.clock.begins_at for one in measured):
        return f"{name}: unknown, because its log begins in the middle of training"
    minutes = spread_text(spread([one.to_best["seconds"] / 60 for one in measured]), 1)
    updates = mean([one.to_best["updates"] for one in measured])
    return f"{name}: {minutes} minutes ({fixed(updates, 0)} updates) to its best score"


def _size(study, arm):
    run, name = arm.runs[0], _named(study, arm)
    total, trained = run.log.parameters, run.log.trained
    if total is None or trained is None:
        return f"{name}: unknown, because its log does not contain the number of parameters"
    packed = exported_by(arm)
    parts = "all trained" if total == trained else f"{trained:,} of them trained"
    return f"{name}: {plural(total, 'parameter')}, {parts}" + (
        f", in a file of {packed.bytes:,} bytes" if packed else ""
    )


def _seeds(study):
    counts: dict[str, int] = {}
    for arm in sorted(study.arms, key=lambda arm: -len(arm.counted)):
        seeds, runs = arm.seed_count, len(arm.counted)
        text = plural(seeds, "seed") + (f" in {plural(runs, 'run')}" if runs > seeds else "")
        counts[text] = counts.get(text, 0) + 1
    parts = [f"{plural(arms, 'arm')} {'has' if arms == 1 else 'have'} {seeds}" for seeds, arms in counts.items()]
    found = listed(parts) if len(counts) > 1 else f"{next(iter(counts))} for each arm"
    if study.search:
        others = sum(len(arm.runs) for arm in study.search.others)
        found += f"; {plural(others, 'further run')} served only to choose {study.search.leaf}"
    if unfinished := sum(run.interrupted for run in study.runs):
        found += f"; {unfinished} of {plural(len(study.runs), 'run')} {'is' if unfinished == 1 else 'are'} unfinished"
    return f"{found}."
