"""One mistake for each contract, as changes of the strangers' code."""

from tests.strangers.mistakes_of_tasks import ENV, TASK
from tests.strangers.mistakes_of_trainers import POLICY, TRAINER
from tests.strangers.strangers_kit import COUNT, Break

LANE = [
    Break("lane", "is_a_lane", "lane", {'export, "sink")': 'export, "update")'}, "consumer='sink'"),
    Break(
        "lane",
        "something_is_exported",
        "lane",
        {"margin > 0.0": "margin > 100.0"},
        "is the selection right?",
    ),
    Break(
        "lane",
        "small_trees_are_fine",
        "lane",
        {"    return found\n": "    return [found[0], *found[1:]]\n"},
        "give no record where there is nothing",
    ),
    Break(
        "lane",
        "records_are_of_the_type",
        "lane",
        {'Lane("preferences", Preference': 'Lane("preferences", dict'},
        "export gave a Preference; the lane says dict",
    ),
    Break(
        "lane",
        "plain_records_are_complete",
        "lane",
        {'                "group_index": collection.group_index,\n': ""},
        "the metadata lacks group_index",
    ),
    Break(
        "lane",
        "metadata_is_each_records_own",
        "lane",
        {'"metadata": dict(self.metadata)': '"metadata": {**self.metadata, "training": None}'},
        "give each record a dict of its own",
    ),
    Break(
        "lane",
        "export_repeats",
        "lane",
        {
            "@attrs.frozen\n": COUNT + "@attrs.frozen\n",
            "margin = float(": "margin = next(_COUNT) + float(",
        },
        "exported otherwise the second time",
    ),
    Break(
        "lane",
        "export_leaves_the_tree_alone",
        "lane",
        {"        worst, best =": "        tree.reward[parent] += 1.0\n        worst, best ="},
        "other lanes read it too",
    ),
    Break(
        "lane",
        "plain_records_read_back",
        "lane",
        {'plain["margin"],': "0.0,"},
        "is another record",
    ),
]

OBSERVER = [
    Break(
        "observer",
        "hooks_fit",
        "observer",
        {"    @hookimpl\n    def focus_step": "    def focus_step"},
        "decorate it with hookimpl",
    ),
    Break(
        "observer",
        "takes_a_whole_run",
        "observer",
        {'report.metrics.get(name, "")': 'report.metrics[f"mean_{name}"]'},
        "focus_step_finished raised KeyError",
    ),
    Break(
        "observer",
        "takes_a_run_that_ends_early",
        "observer",
        {"(event.status,)": "(event.status, event.reports[-1].batch)"},
        "focus_run_finished raised IndexError",
    ),
    Break(
        "observer",
        "events_stay_as_they_were",
        "observer",
        {"report.metrics.get(name": "report.metrics.pop(name"},
        "focus_step_finished changed the event",
    ),
    Break(
        "observer",
        "does_not_hold_the_run",
        "observer",
        {
            "import csv\n": "import csv\nimport time\n",
            "        report = event": "        time.sleep(0.03)\n        report = event",
        },
        "hand slow work to a thread",
    ),
]

MISTAKES = [*ENV, *TASK, *POLICY, *TRAINER, *LANE, *OBSERVER]
