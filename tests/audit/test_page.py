"""The page of an audit: what it shows, where it is red, and that it needs and trusts nothing from outside."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch

from audit.mutants import ReferencePolicy
from audit.mutants.episodes import ActingIgnoresTruncation, LearningIgnoresResets, NeverResets, ResetsAllSlots
from audit.mutants.slots import ScalesByBatchMaximum
from holdfast.audit import DEVIATIONS, Verdict, audit
from holdfast.audit.dependence import DependencyMap
from holdfast.audit.page import kinds_of_cells, picture, report_page

NOTHING = frozenset()
# Those that draw the maps, and no more: the page is tested here, not the audit.
CHECKS = ["reset_inside_sequence", "gradients_stop_at_reset", "slots_are_independent", "slot_gradients_are_independent"]


class RunsThroughOnPurpose(LearningIgnoresResets):
    declared = frozenset({"learning_without_resets"})


@pytest.fixture(scope="module")
def reports():
    return {
        kind: audit(kind(), CHECKS)
        for kind in (ReferencePolicy, NeverResets, ScalesByBatchMaximum, RunsThroughOnPurpose)
    }


@pytest.fixture(scope="module")
def pages(reports):
    return {kind: report_page(report) for kind, report in reports.items()}


def cells(page, kind, what="changes", form="step"):
    """((slot, step) of the output, (slot, step or start) of the source) of the cells of one kind in one picture."""
    (drawn,) = re.findall(rf'<svg class="map"[^>]*aria-label="Dependency map, {what}, {form}\..*?</svg>', page, re.S)
    says = re.findall(rf'class="{kind}"[^>]*><title>output: slot (\d) step (\d); \w+: slot (\d) (?:step )?(\w+)', drawn)
    return {((b, t), (c, s)) for b, t, c, s in says}


def map_of(size, first=((0,), (0,)), kind="changes"):
    """A map of one slot and two steps."""
    return DependencyMap(kind, "step", torch.tensor(first).bool(), torch.tensor(size).double().reshape(3, 1, 2, 1))


# ------------------------------------------------------------------------------------------------------------ maps


def test_a_sound_policy_has_no_forbidden_cell(reports, pages):
    assert 'class="forbidden"' not in pages[ReferencePolicy].split('<div class="maps">', 1)[1]
    for what, form in reports[ReferencePolicy].maps:
        assert cells(pages[ReferencePolicy], "forbidden", what, form) == set()
        assert (
            len(cells(pages[ReferencePolicy], "depends", what, form)) == 70
        )  # 27 + 15 + 16 + 12, by hand from MAP_RESETS


@pytest.mark.parametrize("what", ["changes", "gradients"])
def test_without_resets_cells_over_an_episode_start_are_forbidden(pages, what):
    found = cells(pages[NeverResets], "forbidden", what)
    of_slot_1 = {(("1", f"{t}"), ("1", s)) for t in (3, 4, 5) for s in ("start", "0", "1", "2")}
    assert {cell for cell in found if cell[0][0] == "1"} == of_slot_1
    assert not any(output[0] == "0" for output, _ in found)  # the slot whose episode never ends
    assert all(output[0] == source[0] for output, source in found)


def test_statistics_of_the_batch_show_as_forbidden_cells_between_slots(pages):
    found = cells(pages[ScalesByBatchMaximum], "forbidden")
    assert len(found) > 5
    assert all(output[0] != source[0] for output, source in found)


def test_what_is_declared_is_told_apart_from_what_is_forbidden(pages):
    page = pages[RunsThroughOnPurpose]
    assert DEVIATIONS["learning_without_resets"] in page
    assert (("1", "3"), ("1", "2")) in cells(page, "declared", form="sequence")
    assert cells(page, "declared", form="step") == set()
    assert cells(page, "forbidden", form="sequence") == set()


def test_every_kind_of_cell_by_hand():
    nan = float("nan")
    found = map_of([[0.5, 0.0], [nan, 2e-5], [0.0, 0.9e-5]], first=((0,), (1,)))
    kinds = {name: mask.flatten(1).nonzero().tolist() for name, mask in kinds_of_cells(found, NOTHING).items()}
    assert kinds == {
        "depends": [[0, 0]],
        "unused": [[2, 1]],  # below the limit
        "declared": [],
        "forbidden": [[1, 1]],
        "unmeasured": [[1, 0]],
    }


def test_a_gradient_counts_by_the_largest_that_is_allowed():
    found = map_of([[10.0, 0.0], [1.0, 0.9e-6], [1.1e-6, 1.0]], first=((0,), (1,)), kind="gradients")
    assert kinds_of_cells(found, NOTHING)["forbidden"].flatten(1).nonzero().tolist() == [[2, 0]]


def test_an_infinite_gradient_hides_none_that_is_forbidden():
    endless = float("inf")
    found = map_of([[endless, 0.0], [1.0, 0.0], [endless, 1.0]], first=((0,), (1,)), kind="gradients")
    assert kinds_of_cells(found, NOTHING)["forbidden"].flatten(1).nonzero().tolist() == [[2, 0]]
    assert "No forbidden dependence" not in " ".join(picture(found, NOTHING).sentences)


def test_strength_goes_by_factors_and_survives_infinity():
    drawn = picture(map_of([[1e-1, 1e-2], [1e-3, 1e-2], [0.0, 1e-2]]), NOTHING)
    strengths = [cell.strength for cell in drawn.cells if cell.kind == "depends"]
    assert strengths == [1.0, 0.65, 0.3, 0.65, 0.65]
    endless = picture(map_of([[float("inf"), 0.1], [0.1, 0.1], [float("inf"), 0.1]]), NOTHING)
    assert [cell.kind for cell in endless.cells].count("forbidden") == 1
    assert all(0 < cell.strength <= 1 for cell in endless.cells)


def test_pictures_speak_and_do_not_rely_on_colour(pages):
    page = pages[NeverResets]
    assert page.count('<svg class="map" role="img"') == page.count("aria-label=") == 5
    assert "38 of 602 forbidden cells show a dependence." in page
    crosses = re.findall(r'<g class="forbidden"><title>[^<]*</title><rect [^>]*/><path [^>]*/></g>', page)
    assert len(crosses) == page.count('class="forbidden"')


def test_a_map_that_could_not_have_shown_a_leak_says_so(pages):
    drawn = picture(map_of([[0.5, 0.5], [1e-6, 0.1], [0.0, 0.1]]), NOTHING)
    assert any(
        said.startswith("At 1 of 2 steps an output does not even depend on its own observation")
        for said in drawn.sentences
    )
    assert "leak would not show" not in pages[ReferencePolicy]


# ----------------------------------------------------------------------------------------------------------- flags


@pytest.fixture(scope="module")
def page_of_flags():
    """A function that returns the page of a policy that was audited with a single check and all maps of flags."""
    return lambda kind: report_page(audit(kind(), CHECKS[:1], flag_maps=True))


def test_flags_of_a_sound_policy_move_their_own_episode_and_nothing_else(page_of_flags):
    page = page_of_flags(ReferencePolicy)
    for form in ("step", "sequence", "act, terminated", "act, truncated"):
        assert cells(page, "forbidden", "flags", form) == set()
        moved = cells(page, "depends", "flags", form)
        assert len(moved) == 21 + 12 + 16 + 10  # by hand from MAP_RESETS
        assert (("1", "2"), ("1", "0")) in moved
        assert (("1", "5"), ("1", "3")) in moved


def test_a_flag_that_resets_other_slots_is_red_there(page_of_flags):
    found = cells(page_of_flags(ResetsAllSlots), "forbidden", "flags", "sequence")
    assert (("1", "1"), ("0", "1")) in found
    assert all(output[0] != source[0] for output, source in found)


def test_a_flag_without_effect_has_no_blue(page_of_flags):
    page = page_of_flags(ActingIgnoresTruncation)
    assert cells(page, "depends", "flags", "act, truncated") == set()
    assert len(cells(page, "depends", "flags", "act, terminated")) == 59
    assert "24 of 24 flags have no effect on the output of their own step." in page


def test_a_policy_that_raises_when_a_flag_is_set_still_has_a_page(page_of_flags):
    class Raises(ReferencePolicy):
        def act(self, obs, terminated, truncated, slots):
            if truncated.any():
                raise ValueError("no truncation here")
            return super().act(obs, terminated, truncated, slots)

    page = page_of_flags(Raises)
    assert "Dependency map, flags, sequence" in page
    assert "Dependency map, flags, act" not in page


# ------------------------------------------------------------------------------------------------------------ text


def test_failures_come_first_with_all_there_is_to_say(reports, pages):
    page = pages[NeverResets]
    order = [page.index(heading) for heading in ("not sound</span>", 'id="failed"', 'id="maps"', 'id="checks"')]
    assert order == sorted(order)
    (finding,) = [finding for finding in reports[NeverResets].failures if finding.check.name == "reset_inside_sequence"]
    card = page.split('id="failed-reset_inside_sequence"')[1].split("</article>")[0]
    for said in (finding.check.promise, finding.check.cost, finding.check.fix, finding.evidence, finding.where):
        assert said
        assert said in card


def test_a_sound_page_says_so_and_lists_every_check(reports, pages):
    assert "✓ nothing failed in" in pages[ReferencePolicy]
    assert "What failed" not in pages[ReferencePolicy]
    for finding in reports[ReferencePolicy].findings:
        assert f"<code>{finding.check.name}</code>" in pages[ReferencePolicy]


def test_a_page_without_maps_says_why(reports):
    assert "No maps were drawn" in report_page(replace(reports[ReferencePolicy], maps={}))


# ------------------------------------------------------------------------------------------- nothing from outside


def test_names_and_evidence_are_text_not_markup(reports):
    evil = "<script>alert(1)</script>\"'&{{ 7 * 7 }}"
    finding = replace(reports[ReferencePolicy].findings[0], verdict=Verdict.FAIL, evidence=evil, where=evil)
    page = report_page(replace(reports[ReferencePolicy], name=evil, findings=(finding,)))
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 5  # title, heading, card twice, table
    assert "{{ 7 * 7 }}" in page


@pytest.mark.parametrize("kind", [ReferencePolicy, ScalesByBatchMaximum])
def test_the_page_refers_to_nothing_outside_itself(pages, kind):
    page = pages[kind]
    for outside in ("http:", "https:", "src=", "@import", "url(", "<link", "<script", "<iframe"):
        assert outside not in page
    assert all(target.startswith("#") for target in re.findall(r'href="([^"]*)"', page))


def test_tags_are_closed_and_links_lead_somewhere(pages):
    page, still_open = pages[NeverResets], []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            if tag not in {"br", "meta"}:  # those that HTML never closes
                still_open.append(tag)

        def handle_startendtag(self, tag, attrs):
            assert tag in {"path", "rect", "circle"}

        def handle_endtag(self, tag):
            assert still_open.pop() == tag

    Reader().feed(page)
    assert still_open == []
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]*)"', page)) <= set(ids)
