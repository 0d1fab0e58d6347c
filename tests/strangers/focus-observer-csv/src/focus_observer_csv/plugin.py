"""What this distribution registers."""

from focus_core import ObserverSpec, hookimpl


@hookimpl
def focus_observers() -> list[ObserverSpec]:
    """The observer ``csv``."""
    return [
        ObserverSpec("csv", "steps as a CSV table", "focus_observer_csv.observer:CsvObserver"),
        ObserverSpec("trace", "everything that happens", "focus_observer_csv.trace:Trace"),
    ]
