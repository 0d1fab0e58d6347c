"""Observers: told one at a time and in order, never able to stop a run, checked when made."""

import logging

import pytest

from focus_core import PluginError, RunFinished, RunStarted, StepFinished, StepReport, hookimpl
from focus_core.plugins.observers import Observers

EVENT = RunStarted(config={}, steps=1)


class Note:
    """Notes its calls."""

    def __init__(self, name, calls):
        self.name, self.calls = name, calls

    @hookimpl
    def focus_run_started(self, event):
        self.calls.append((self.name, event))


def test_they_are_told_in_the_order_given():
    calls = []
    Observers([Note(name, calls) for name in "abc"]).notify("focus_run_started", EVENT)
    assert calls == [("a", EVENT), ("b", EVENT), ("c", EVENT)]


def test_a_hook_nobody_implements_is_told_to_nobody():
    calls = []
    observers = Observers([Note("a", calls)])
    observers.notify("focus_run_finished", RunFinished(status="success", reports=[]))
    Observers().notify("focus_run_started", EVENT)
    assert calls == []


def test_a_hook_may_leave_out_the_event():
    calls = []

    class Bare:
        @hookimpl
        def focus_run_started(self):
            calls.append("told")

    Observers([Bare()]).notify("focus_run_started", EVENT)
    assert calls == ["told"]


def test_one_that_fails_is_logged_with_its_name_and_the_others_are_told(caplog):
    calls = []

    class Dashboard:
        @hookimpl
        def focus_run_started(self, event):
            raise ConnectionError("no route")

    with caplog.at_level(logging.ERROR, logger="focus"):
        observers = [Note("before", calls), Dashboard(), Note("after", calls)]
        Observers(observers).notify("focus_run_started", EVENT)
    assert [name for name, _ in calls] == ["before", "after"]
    (record,) = caplog.records
    assert "Dashboard" in record.getMessage()
    assert "focus_run_started" in record.getMessage()
    assert record.exc_info[0] is ConnectionError


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_inside_an_observer_is_not_swallowed(error):
    class Slow:
        @hookimpl
        def focus_run_started(self, event):
            raise error

    with pytest.raises(error):
        Observers([Slow()]).notify("focus_run_started", EVENT)


@pytest.mark.parametrize(
    "implementation",
    [
        type("Typo", (), {"focus_run_startd": hookimpl(lambda self, event: None)}),
        type("Extra", (), {"focus_run_started": hookimpl(lambda self, event, more: None)}),
    ],
)
def test_a_typo_is_refused_with_its_name(implementation):
    with pytest.raises(PluginError, match=f"observer {implementation.__name__}: .*focus_run_start"):
        Observers([Note("fine", []), implementation()])


def test_the_same_observer_twice_is_refused():
    one = Note("one", [])
    with pytest.raises(PluginError, match="Note"):
        Observers([one, one])


def test_two_observers_of_one_class_are_two():
    calls = []
    Observers([Note("a", calls), Note("b", calls)]).notify("focus_run_started", EVENT)
    assert [name for name, _ in calls] == ["a", "b"]


def test_events_cannot_be_changed_by_an_observer():
    event = StepFinished(report=StepReport(0, 0, 0, 0), seconds=1.0)
    with pytest.raises(AttributeError):
        event.seconds = 2.0


def test_calls_are_traced(monkeypatch, capsys):
    monkeypatch.setenv("FOCUS_TRACE", "1")
    Observers([Note("a", [])]).notify("focus_run_started", EVENT)
    assert "focus_run_started" in capsys.readouterr().err


def test_a_required_one_is_told_first_and_stops_the_run():
    calls = []

    class Full:
        @hookimpl
        def focus_run_started(self, event):
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        Observers([Note("a", calls)], required=[Note("first", calls), Full()]).notify(
            "focus_run_started", EVENT
        )
    assert [name for name, _ in calls] == ["first"]
