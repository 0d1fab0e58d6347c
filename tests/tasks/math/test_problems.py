"""Reading MATH records: every shape, and every way in which a file can be wrong."""

import gzip
import json
import pickle

import pytest
from focus_task_math import UnreadableGoldWarning, load_problems

from focus_core import DataError, DataWarning

A = r'{"problem": "1+1?", "solution": "$\\boxed{2}$"}'
B = r'{"problem": "1+2?", "answer": "3"}'
INDENTED = '{\n "problem": "1+1?",\n "solution": "$\\\\boxed{2}$"\n}\n'


@pytest.fixture
def file(tmp_path):
    def write(content, name="p.json"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return path

    return write


def error(path):
    """The one-line message, which starts with the file's name."""
    with pytest.raises(DataError) as caught:
        load_problems(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    assert str(pickle.loads(pickle.dumps(caught.value))) == message
    return message.removeprefix(str(path))


@pytest.mark.parametrize(
    ("content", "count"),
    [
        (A, 1),
        (f"{A}\n{B}\n", 2),
        (f"{A}\r\n\r\n{B}", 2),
        (f"[{A},\n{B}]", 2),
        (f"  [\n{A}\n,{B}\n]\n\n", 2),
        (INDENTED + INDENTED, 2),
        (f"{A}{B}", 2),
        (b"\xef\xbb\xbf" + A.encode(), 1),
        (b"\xef\xbb\xbf[" + A.encode() + b"]", 1),
        (json.dumps({"problem": "p", "solution": None, "answer": "3"}), 1),
        (json.dumps({"problem": "p", "solution": "by inspection", "answer": "3"}), 1),
    ],
)
@pytest.mark.parametrize("name", ["p.json", "p.jsonl", "p.txt"])
def test_the_shape_is_told_by_content(file, content, count, name):
    assert len(load_problems(file(content, name))) == count


def test_what_a_problem_holds(file):
    first = {"problem": "1+1?", "solution": r"It is $\boxed{2}$.", "id": 7, "level": 3}
    second = {"problem": "half?", "answer": r"\frac12", "id": None}
    third = {"problem": "x?", "solution": r"$\boxed{0.5}$", "answer": r"\frac12", "id": "x"}
    problems = load_problems(
        file("\n".join(map(json.dumps, (first, second, third))), "train.jsonl")
    )
    assert [problem.id for problem in problems] == ["7", "train-2", "x"]
    assert [problem.prompt for problem in problems] == ["1+1?", "half?", "x?"]
    assert [problem.label for problem in problems] == [
        first["solution"], r"\frac12", third["solution"],
    ]  # fmt: skip
    assert dict(problems[0].metadata) == {"level": 3}
    assert load_problems(str(file(A)))[0].id == "p-1"


def test_the_shared_problems(math500):
    from pathlib import Path

    shared = Path(__file__).parents[4] / "shared/data/math500-a.jsonl"
    problems = load_problems(shared)
    assert [problem.id for problem in problems] == [record["id"] for record in math500]
    assert all(problem.label not in problem.prompt for problem in problems)


def test_maths_own_folders(tmp_path):
    """Case d10: a file per problem, a folder per subject, what is no data beside them."""
    for name in ("algebra/1", "algebra/10", "algebra/2", "geometry/1"):
        path = tmp_path / f"train/{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        fields = {"problem": name, "level": "Level 5", "solution": r"$\boxed{2}$"}
        path.write_text(json.dumps(fields))
    for name in ("._1.json", "README.md"):
        (tmp_path / "train" / name).write_text("no data")
    (tmp_path / "train/algebra/3.json").write_text("")
    with pytest.warns(DataWarning, match=r"3\.json"):
        problems = load_problems(tmp_path / "train")
    ids = [problem.id for problem in problems]
    assert (
        ids
        == ["algebra/1", "algebra/2", "algebra/10", "geometry/1"]
        == [problem.prompt for problem in problems]
    )
    assert problems[0].metadata["level"] == "Level 5"


def test_mistakes_in_several_files_are_one_error(tmp_path):
    (tmp_path / "a.jsonl").write_text(f"{A}\n{line(id='x')}\n")
    (tmp_path / "b.jsonl").write_text(f"{line(id='x')}\n{line(answer=3)}\n")
    message = error(tmp_path)
    assert message.startswith("/b.jsonl:1: field 'id': 'x' is also the id of ")
    assert "a.jsonl:2" in message
    assert "line 2 (field 'answer' is of type int, not text)" in message


def test_problems_in_gzip(file):
    packed = gzip.compress(f"{A}\n{B}\n".encode())
    problems = load_problems(file(packed, "train.jsonl.gz"))
    assert [problem.id for problem in problems] == ["train-1", "train-2"]


def line(**fields):
    return json.dumps({"problem": "p", "answer": "3"} | fields)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("", ["is empty"]),
        (" \n\n", ["is empty"]),
        ("[]", ["empty array"]),
        (b"\xff\xfe{\x00", [":1:", "not UTF-8", "0xff", "UTF-8"]),
        (A.encode() + b'\n{"problem": "caf\xe9"}', [":2:", "not UTF-8", "0xe9"]),
        (f"[{A},\n{B},\n]", [":3:", "comma before the closing bracket"]),
        (f"{A},\n{B},\n", [":1:", "comma after the object", "line 2"]),
        (f"[{A}\n{B}]", [":2:", "comma or ] is missing"]),
        (f"[{A},\n{B}", [":2:", "comma or ] is missing"]),
        (f"[{A}]\n{B}", [":2:", "after the array"]),
        (f"{A}\n{{'problem': 1}}\n{B}\n{{\n", [":2:", "not JSON", "double quotes", "line 4"]),
        (f"{A}\n" + '{"problem": "p", "answer": "3",}', [":2:", "not JSON"]),
        (f"{A}\n" + r'{"problem": "p", "answer": "\sqrt{2}"}', [":2:", "two backslashes"]),
        (f"{A}\n" + '{"problem": "p\tq", "answer": "3"}', [":2:", "control character"]),
        (
            f"{A}\n" + '{"problem": "a", "problem": "b", "answer": "3"}',
            [":2:", "'problem'", "twice"],
        ),
        (f"{A}\n" + '{"problem": "p", "answer": NaN}', [":2:", "NaN"]),
        (f'{A}\n"str"\n17\nnull\n[1]', [":2:", "text, not an object", "line 3", "line 5"]),
        ("[" * 100_000, [":1:", "nested too deep"]),
        ('{"problem": "p", "answer": ' + "9" * 5000 + "}", [":1:"]),
        (f"{A}\n" + line(problem=None), [":2:", "'problem'", "null"]),
        (f"{A}\n" + '{"answer": "3"}', [":2:", "'problem'", "is missing"]),
        (f"{A}\n" + '{"problem": "p"}', [":2:", "'solution'", "is missing"]),
        (f"{A}\n" + line(problem="  "), [":2:", "'problem'", "is empty"]),
        (f"{A}\n" + line(problem=["p"]), [":2:", "'problem'", "type list"]),
        (f"{A}\n" + line(answer=3), [":2:", "'answer'", "type int", "double quotes"]),
        (f"{A}\n" + line(answer=""), [":2:", "'answer'", "is empty"]),
        (f"{A}\n" + '{"problem": "p", "solution": "no box here"}', [":2:", "no closed \\boxed"]),
        (f"{A}\n" + r'{"problem": "p", "solution": "\\boxed{"}', [":2:", "no closed \\boxed"]),
        (f"{A}\n" + r'{"problem": "p", "solution": "\\boxed{}"}', [":2:", "empty last box"]),
        (f"{A}\n" + line(id=["x"]), [":2:", "'id'"]),
        (line(id="x") + "\n" + line(id="x"), [":2:", "'id'", "'x'", "line 1"]),
        (f"{A}\n" + line(id="p-1"), [":2:", "'id'", "'p-1'", "line 1"]),
        (
            f"{A}\n" + line(solution=r"$\boxed{4}$"),
            [":2:", "'answer'", "'3'", "box says '4'"],
        ),
    ],
)
def test_what_is_wrong_is_named(file, content, parts):
    message = error(file(content))
    for part in parts:
        assert part in message


def test_a_file_that_is_none(tmp_path):
    assert "does not exist" in error(tmp_path / "missing.jsonl")
    assert "holds no .json" in error(tmp_path)


def test_every_bad_line_is_reported(file):
    lines = [
        '{"problem":"a","solution":null}',
        B,
        r'{"problem":"","solution":"$\\boxed{1}$"}',
        '{"problem":"c","solution":["x"]}',
        '{"problem":"d","solution":"no box here"}',
        '"str"',
        "17",
    ]
    message = error(file("\n".join(lines)))
    assert message.startswith(":1: field 'solution'")
    for number in (3, 4, 5, 6, 7):
        assert f"line {number} (" in message
    assert "line 2" not in message


def test_hundreds_of_bad_lines_stay_one_readable_message(file):
    message = error(file('{"problem": "p"}\n' * 300))
    assert "and 290 more" in message
    assert len(message) < 1500


@pytest.mark.parametrize(
    ("field", "written", "shown"),
    [
        ("solution", r"so $\boxed{2}$", r"\b"),
        ("solution", r"\\boxed{2} as \frac{1}{2}", r"\f"),
        ("answer", r"2\times 3", r"\t"),
        ("problem", r"Is \text{this} so?", r"\t"),
        ("problem", r"the \right) one", r"\r"),
        ("problem", r"1 \neq 2", r"\n"),
        ("problem", r"a\u0000b", r"\x00"),
    ],
)
def test_latex_that_json_has_eaten_is_found(file, field, written, shown):
    fields = {"problem": '"p"', "solution": r'"$\\boxed{6}$"', field: f'"{written}"'}
    text = "{" + ", ".join(f'"{key}": {value}' for key, value in fields.items()) + "}"
    message = error(file(f"{A}\n{text}"))
    assert f":2: field '{field}'" in message
    assert f"({shown})" in message
    assert "two backslashes" in message


def test_ordinary_white_space_is_no_harm(file):
    text = "Tan:\ta tan\tan apple\nequal parts\nnot eq\tto\rm"
    (problem,) = load_problems(file(json.dumps({"problem": text, "answer": "3"})))
    assert problem.prompt == text


def test_doubtful_latex_is_warned_of_by_line_and_refused_when_strict(file):
    path = file(f"{A}\n" + line(answer="x \ne 2") + "\n" + line(problem="$2\tan x$", id="t"))
    with pytest.warns(DataWarning) as caught:
        assert len(load_problems(path)) == 3
    (warning,) = caught
    assert str(warning.message).startswith(f"{path}:2: field 'answer': has a control character (")
    for part in ("\\ne?", "line 3 (field 'problem' ", "\\tan?", "two backslashes", "--strict"):
        assert part in str(warning.message)
    assert warning.filename == __file__
    with pytest.raises(DataError, match=r":2: field 'answer': .*; also line 3 "):
        load_problems(path, strict=True)


def test_the_shared_cases(file):
    from pathlib import Path

    shared = Path(__file__).parents[4] / "shared/cases/data-2.jsonl"
    if not shared.exists():
        pytest.skip("no ../shared")
    for case in map(json.loads, shared.read_text().splitlines()):
        content = case["input"]["content"]
        if case["symptom"] == "LaTeX that JSON has eaten":
            with pytest.raises(DataError) as caught:
                load_problems(file(content), strict=True)
            assert ":1: field 'answer'" in str(caught.value), case
        elif not content.startswith("Parquet"):
            assert [problem.label for problem in load_problems(file(content))] == ["2"], case


@pytest.mark.parametrize(
    "fields",
    [
        {"answer": "2", "solution": ""},
        {"answer": "2", "solution": " \n"},
        {"answer": " ", "solution": "$\\boxed{2}$"},
        {"answer": "2", "solution": "so $\\boxed{}$"},
        {"answer": "2", "id": ""},
        {"answer": "2", "id": " "},
    ],
)
def test_a_blank_field_is_a_missing_one(file, fields):
    (problem,) = load_problems(file(json.dumps({"problem": "1+1?", **fields})))
    assert problem.label == (fields["answer"].strip() or fields["solution"])
    assert problem.id == "p-1"


def parquet(tmp_path, **columns):
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    path = tmp_path / "p.parquet"
    pyarrow.parquet.write_table(arrow.table(columns), path)
    return path


def test_numbers_of_a_parquet_column_are_answers(tmp_path):
    half = [2.0, float("nan"), -7.0]  # what pandas makes of integers where one is missing
    solutions = [None, r"$\boxed{5}$", None]
    path = parquet(tmp_path, problem=["a", "b", "c"], answer=half, solution=solutions, id=half)
    problems = load_problems(path)
    assert [(p.label, p.id) for p in problems] == [
        ("2", "2"),
        (r"$\boxed{5}$", "p-2"),
        ("-7", "-7"),
    ]
    assert load_problems(parquet(tmp_path, problem=["a"], answer=[2]))[0].label == "2"


@pytest.mark.parametrize(
    ("column", "remedy"),
    [([0.1], "make the column text"), ([True], "make the column text"), (["\frac12"], 'r"\\frac"')],
)
def test_remedies_fit_a_parquet_file(tmp_path, column, remedy):
    message = error(parquet(tmp_path, problem=["a"], answer=column))
    assert message.startswith(":1: field 'answer'")
    assert remedy in message
    assert "quotes" not in message
    assert "JSON" not in message


@pytest.mark.parametrize(
    ("solution", "answer", "label"),
    [
        (r"$\boxed{\frac{3}{2}}$ or $\boxed{1.5}$", "1.5", "1.5"),
        (r"$\boxed{\frac{3}{2}}$, or $\boxed{1\frac12}$.", r"\frac{3}{2}", r"\frac{3}{2}"),
        (r"$\boxed{0.25}$ or $\boxed{\frac14}$", None, "0.25"),
        (r"$\boxed{\frac{3}{2} \text{ or } 1.5}$", "1.5", "1.5"),
        (r"$\boxed{2}$ and $\boxed{3}$", "2, 3", r"$\boxed{2}$ and $\boxed{3}$"),
    ],
)
def test_boxes_that_are_forms_of_one_value(file, solution, answer, label):
    fields = {"problem": "p", "solution": solution, "answer": answer}
    (problem,) = load_problems(file(json.dumps(fields)))
    assert problem.label == label


def test_boxes_of_two_values_are_not_one_answer(file):
    fields = {"problem": "p", "solution": r"$\boxed{1.5}$ or $\boxed{2}$", "answer": "1.5"}
    assert "the solution's box says" in error(file(json.dumps(fields)))


def test_bad_rows_can_be_left_out_counted_and_named(file):
    lines = [
        A,
        line(solution=r"$\boxed{4}$", id="odd"),
        '{"problem": "p"}',
        line(id="twice"),
        line(id="twice"),
        line(answer="x \ne 2"),
        line(answer=r"\foo{x}"),
    ]
    path = file("\n".join(lines))
    with pytest.raises(DataError):
        load_problems(path)
    with pytest.warns((DataWarning, UnreadableGoldWarning)) as caught:
        problems = load_problems(path, skip_bad_rows=True)
    assert [problem.id for problem in problems] == ["p-1", "twice", "p-6", "p-7"]
    unread, doubt, left_out = (str(warning.message) for warning in caught)
    assert "problem 'p-7'" in unread
    assert doubt.startswith(f"{path}:6: ")
    for part in (
        "3 of 7 rows left out: ",
        f"{path}:2: ",
        "says '4'",
        "line 3 (",
        "line 5 (field 'id'",
    ):
        assert part in left_out
    with pytest.warns(DataWarning) as caught:
        problems = load_problems(path, strict=True, skip_bad_rows=True)
    assert [problem.id for problem in problems] == ["p-1", "twice"]
    (left_out,) = (str(warning.message) for warning in caught)
    assert left_out.startswith("5 of 7 rows left out: ")
    for part in ("line 6 (", "line 7 ("):
        assert part in left_out


@pytest.mark.parametrize("content", [line(answer=3), f"{A}\n{{"])
def test_leaving_out_rows_is_no_way_to_load_nothing_or_half_a_file(file, content):
    with pytest.raises(DataError):
        load_problems(file(content), skip_bad_rows=True)


@pytest.mark.parametrize("answer", [r"\frac{1}{", "1 2", r"\foo{x}"])
def test_a_gold_that_cannot_be_read_is_warned_of(file, answer):
    path = file(f"{A}\n" + line(answer=answer, id="odd"))
    with pytest.warns(UnreadableGoldWarning, match="problem 'odd'") as caught:
        problems = load_problems(path)
    assert len(problems) == 2
    assert str(caught[0].message).startswith(f"{path}:2: ")
    assert caught[0].filename == __file__


def test_half_a_character_is_refused_with_its_line(file):
    path = file('{"problem": "a", "answer": "1"}\n{"problem": "x\\ud800y", "answer": "1"}')
    with pytest.raises(DataError, match=r":2: field 'problem': holds half a character") as caught:
        load_problems(path)
    str(caught.value).encode()


def test_an_answer_of_null_is_what_is_said(file):
    with pytest.raises(DataError, match="field 'answer': is null"):
        load_problems(file('{"problem": "a", "answer": null}'))
