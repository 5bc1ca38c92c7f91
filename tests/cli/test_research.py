"""The commands `experiment`, `report` and `datasets`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attnknn._cache import cache_folder
from attnknn.research import datasets
from attnknn.research.evaluation.baselines import UniformKNN
from attnknn.research.evaluation.protocol import Method
from attnknn.research.evaluation.protocol import run as run_methods

from .samples import animals, run, write

pytestmark = pytest.mark.usefixtures("without_pdf")
FEW = "methods = ['uniform', 'distance']\n"
OURS = "methods = ['uniform', 'attnknn']\n"


def test_every_encoder_that_is_suggested_is_accepted(tmp_path):
    done = run("experiment", "main", "--dataset", "iris", "--encoder", "foo")
    named = done.output.partition("is not one of ")[2].rstrip(". \n").split(", ")
    assert "learned-tabular" in named
    for name in named:
        again = run("experiment", "main", "--dataset", "irsi", "--encoder", name)
        assert "Did you mean 'iris'" in again.output  # it got past the encoder


@pytest.mark.slow
def test_tables_are_embedded_by_an_encoder_that_is_trained_for_the_vote(tmp_path, few):
    options = ["--encoder", "learned-tabular", "--seeds", "0,", "--settings", few, "--no-page"]
    out = tmp_path / "out"
    done = run("experiment", "main", "--dataset", "iris", *options, "-o", out, "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert "encoder learned-tabular" in done.output
    assert '"validation_losses": [' in (out / "main" / "iris" / "report.json").read_text()


@pytest.fixture
def few(tmp_path):
    path = tmp_path / "few.toml"
    path.write_text(FEW)
    return path


def test_a_claim_leaves_reports_and_a_page(tmp_path, few):
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    done = run(
        "experiment", "main", "--dataset", "iris", "--seeds", 2, "--settings", few, "-o", out
    )
    assert done.exit_code == 0, done.output
    assert "Which votes are best on the same embeddings: iris" in done.output
    assert "| method | accuracy | macro_f1 | nll | ece |" in done.output
    assert "| distance | 0.9" in done.output
    assert "iris: distance, seed 1" in done.output
    table = json.loads((out / "main" / "iris" / "report.json").read_text())["tables"][""]
    assert {run["seed"] for run in table["runs"]} == {0, 1}
    assert table["checksum"]
    assert table["versions"]["attnknn"]
    page = (out / "main" / "iris" / "page" / "index.html").read_text()
    assert "<h1>main, iris</h1>" in page


def test_the_page_looks_closely_at_our_mistakes(tmp_path, few):
    pytest.importorskip("matplotlib")
    few.write_text(OURS)
    out = tmp_path / "out"
    asked = ("--dataset", "iris", "--settings", few, "--seeds", 2, "-o", out)
    done = run("experiment", "main", *asked)
    assert done.exit_code == 0, done.output
    place = out / "main" / "iris"
    report = json.loads((place / "report.json").read_text())
    analyses, table = report["error_analyses"][""]["0"], report["tables"][""]
    assert [seen["method"] for seen in analyses] == ["uniform", "attnknn"]
    for seen, found in zip(analyses, table["runs"], strict=False):
        matrix = seen["confusions"]
        right = sum(
            count
            for cell, count in zip(matrix["cells"], matrix["counts"], strict=True)
            if cell % 4 == 0  # the diagonal of three classes
        )
        assert right / 30 == pytest.approx(found["scores"]["accuracy"])
        assert len(seen["mistakes"]) == 30 - right
    assert all("(" in mistake["evidence"] for mistake in seen["mistakes"])
    assert all("; prior 0." in mistake["evidence"] for mistake in seen["mistakes"])
    page = (place / "page" / "index.html").read_text()
    assert "confusions of attnknn, 2 seeds" in page
    are_shown = "the most confident mistakes of attnknn, seed 0" in page
    assert are_shown == bool(seen["mistakes"])
    done = run("report", out, "--ours", "uniform", "-o", tmp_path / "page")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page" / "index.html").read_text()
    assert "confusions of uniform, 2 seeds" in page
    assert "classes, uniform, 2 seeds" in page
    assert "embeddings, seed 0" in page
    assert "crosses are errors of uniform" in page
    assert "On average uniform is" in page
    for words in (*("of attnknn", "On average attnknn"), "attnknn does not differ"):
        assert words not in page


def test_the_page_of_images_shows_mistakes_as_images(tmp_path, few):
    few.write_text("methods = ['logistic', 'distance']\n")
    out = tmp_path / "out"
    asked = ("--dataset", "digits", "--rows", 100, "--network", "none", "--settings", few)
    assert run("experiment", "main", *asked, "--seeds", 1, "-o", out, "--no-page").exit_code == 0
    for method, words in (("distance", "each with the neighbors"), ("logistic", "mistakes.<")):
        done = run("report", out, "--ours", method, "-o", tmp_path / method)
        assert done.exit_code == 0, done.output
        page = (tmp_path / method / "index.html").read_text()
        figure = page.split('id="main-digits-mistakes-images"')[1].split("</figure>")[0]
        assert words in figure


def test_a_page_says_nothing_about_a_method_that_a_table_does_not_have(tmp_path):
    for place, names in {"a": ("learned", "attnknn"), "b": ("uniform", "attnknn")}.items():
        methods = [Method(name, lambda _: UniformKNN()) for name in names]
        run_methods(datasets.load("iris"), methods, [0], folder=tmp_path / "results" / place)
    done = run("report", tmp_path / "results", "--reference", "learned", "-o", tmp_path / "page")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page" / "index.html").read_text()
    assert "On average learned is" in page
    assert "On average attnknn" not in page
    assert "On average uniform" not in page


def test_a_report_without_the_confusions_of_a_method_is_named(tmp_path, few):
    few.write_text(OURS)
    out = tmp_path / "out"
    asked = ("--dataset", "iris", "--settings", few, "--seeds", 1, "-o", out, "--no-page")
    assert run("experiment", "main", *asked).exit_code == 0
    path = out / "main" / "iris" / "report.json"
    report = json.loads(path.read_text())
    _, ours = report["error_analyses"][""]["0"]
    cells = dict(zip(*ours["confusions"].values(), strict=True))
    ours["confusions"] = [[cells.get(3 * row + col, 0) for col in range(3)] for row in range(3)]
    report["error_analyses"][""]["0"] = ours  # as earlier versions stored it
    path.write_text(json.dumps(report))
    done = run("report", out, "-o", tmp_path / "page")
    assert done.exit_code == 0, done.output
    assert "confusions of attnknn, one seed" in (tmp_path / "page" / "index.html").read_text()
    done = run("report", out, "--reference", "uniform", "-o", tmp_path / "other")
    assert done.exit_code == 1
    assert "the report has no confusions of 'uniform'" in done.output


def test_a_sweep_becomes_lines_along_its_axis(tmp_path, few):
    pytest.importorskip("matplotlib")
    few.write_text(FEW + "neighbors = [1, 4]\n")
    out = tmp_path / "out"
    asked = ("--dataset", "iris", "--seeds", "1,2", "--settings", few, "-o", out)
    done = run("experiment", "k-sweep", *asked)
    assert done.exit_code == 0, done.output
    assert "k-sweep 4" in done.output
    folder = out / "k-sweep" / "iris" / "page"
    assert "number of neighbors" in (folder / "index.html").read_text()
    assert list((folder / "figures").glob("*.png"))
    whole = run("report", out, "-o", tmp_path / "all")
    assert whole.exit_code == 0, whole.output
    assert "k-sweep/iris/K" in (tmp_path / "all" / "index.html").read_text()


def test_numbers_are_printed_and_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    few = tmp_path / "few.toml"
    few.write_text("neighbors = 4\nqueries = 8\nrepeats = 1\n")
    asked = ("--dataset", "iris", "--seeds", 1, "--settings", few, "-o", tmp_path / "out")
    done = run("experiment", "overhead", *asked)
    assert done.exit_code == 0, done.output
    assert "| learned |" in done.output
    page = (tmp_path / "out" / "overhead" / "iris" / "page" / "index.html").read_text()
    assert "What an answer costs: iris" in page


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["mian"], 2, "mian"),
        (["main", "--seeds", "a"], 2, "must be a number, or numbers with commas"),
        (["main", "--seeds", "0"], 2, "the number of seeds, at least 1"),
        (["main", "--seeds", "1,1"], 2, "distinct seeds"),
        (["main", "--seeds", ","], 2, "must be a number, or numbers with commas"),
        (["main", "--full"], 2, "--full requires --preset"),
        (["main", "--dataset", "irsi"], 1, "Did you mean 'iris'"),
        (["main", "--dataset", "iris", "--preset", "experiment-4"], 1, "trains an image encoder"),
        (["main", "--settings", "nowhere.toml"], 1, "nowhere.toml: No such file"),
        (["main", "--preset", "experiment-4", "--network", "wide"], 2, "network of its own"),
        (["main", "--dataset", "iris", "--network", "none"], 2, "iris is a table; omit --network."),
        (["main", "--encoder", "foo"], 2, "'foo' is not one of auto, identity,"),
        (["main", "--encoder", "ngrams"], 2, "'ngrams' is not one of auto, identity,"),
        (["shift", "--dataset", "iris"], 1, "Only images that a network is trained on"),
        (["main", "--dataset", "iris", "--rows", "1000"], 1, "at most the 120 training rows"),
    ],
)
def test_bad_arguments_are_one_line(tmp_path, arguments, code, words):
    done = run("experiment", *arguments, "-o", tmp_path / "out")
    assert done.exit_code == code
    assert words in done.output
    assert not (tmp_path / "out").exists()


def test_a_bad_settings_file_is_one_line(tmp_path, few):
    few.write_text("methods = [")
    done = run("experiment", "main", "--dataset", "iris", "--settings", few)
    assert done.exit_code == 1
    assert "is not a valid TOML file" in done.output
    few.write_text("method = ['uniform']")
    done = run("experiment", "main", "--dataset", "iris", "--settings", few)
    assert "Did you mean 'methods'" in done.output
    few.write_text("methods = 3")
    done = run("experiment", "main", "--dataset", "iris", "--settings", few)
    assert done.exit_code == 1
    assert "`methods` must be a list of methods" in done.output
    few.write_bytes("title = 'Größe'".encode("latin-1"))
    done = run("experiment", "main", "--dataset", "iris", "--settings", few)
    assert done.exit_code == 1
    assert "few.toml must be UTF-8" in done.output


def test_a_file_is_no_folder_for_reports(tmp_path, few):
    done = run("experiment", "main", "--dataset", "iris", "--settings", few, "-o", few)
    assert done.exit_code == 2
    assert "few.toml is a file" in done.output
    assert "seed 0" not in done.output


def test_missing_data_are_listed(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNKNN_DATA", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    done = run("experiment", "main", "--dataset", "banking77", "-o", tmp_path / "out")
    assert done.exit_code == 1
    assert "banking77" in done.output
    assert str(tmp_path) in done.output


pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    methods = [Method(name, lambda _: UniformKNN()) for name in ("uniform", "attnknn")]
    run_methods(datasets.load("iris"), methods, [0, 1], folder=folder / "quality" / "iris")
    return folder


def test_experiments_become_a_page(results, tmp_path):
    done = run("report", results, "-o", tmp_path / "page", "--title", "All of it")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page" / "index.html").read_text()
    assert "<h1>All of it</h1>" in page
    assert "quality/iris" in page
    assert (tmp_path / "page" / "tables" / "quality-iris.md").exists()


def test_bad_arguments_of_report_are_one_line(results, tmp_path):
    done = run("report", results, "--reference", "nobody", "-o", tmp_path / "page")
    assert done.exit_code == 2
    assert "--reference must be one of 'uniform', 'attnknn'" in done.output
    done = run("report", tmp_path / "nowhere")
    assert done.exit_code == 1
    assert "nowhere does not exist" in done.output
    done = run("report", tmp_path)
    assert done.exit_code == 1
    assert "There is no report.json below" in done.output


def test_a_users_own_model_gets_the_same_page(model, labeled, tmp_path):
    done = run("evaluate", model, labeled, "--report", tmp_path / "page")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page" / "index.html").read_text()
    for heading in ("Scores", "Calibration", "Classes", "Confusions", "Embeddings"):
        assert f"<h2>{heading}</h2>" in page
    assert (tmp_path / "page" / "figures" / "reliability.png").exists()


def test_the_voters_behind_a_mistake_include_the_prior(model, tmp_path):
    rows = write(animals(12, seed=2).assign(kind="bird"), tmp_path / "birds.csv")
    done = run("evaluate", model, rows, "--report", tmp_path / "page")
    assert done.exit_code == 0, done.output
    mistakes = (tmp_path / "page" / "tables" / "mistakes.md").read_text()
    assert "; prior 0." in mistakes


def test_a_page_is_not_written_onto_a_file(tmp_path):
    (tmp_path / "file").write_text("mine")
    result = run("report", tmp_path, "-o", tmp_path / "file")
    assert result.exit_code == 1
    assert "Reports need a folder" in result.output
    assert (tmp_path / "file").read_text() == "mine"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a file of letters, and nothing to be found elsewhere."""
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA", "HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.setenv("ATTNKNN_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "letter.tsv.gz").touch()
    return tmp_path / "data"


def line_of(name: str, lines: list[str]) -> str:
    return next(line for line in lines if line.split(" ")[0] == name)


def test_every_set_is_listed_with_its_origin_and_whether_it_is_here(folder: Path) -> None:
    lines = run("datasets").stdout.splitlines()
    for source in datasets.SOURCES.values():
        assert line_of(source.name, lines).endswith(source.origin)
    assert " yes " in line_of("iris", lines)
    assert " yes " in line_of("letter", lines)
    assert " no " in line_of("adult", lines)


def test_what_is_missing_is_named_with_the_folder_it_belongs_in(folder: Path) -> None:
    missing = run("datasets").stdout.split("To use the others")[1]
    assert f"into {cache_folder()}:" in missing
    lines = missing.splitlines()
    files = "tabular/adult-train.csv.gz and tabular/adult-test.csv.gz"
    assert line_of("adult", lines).split(maxsplit=1)[1] == files
    assert line_of("mnist", lines).endswith(" mnist.npz (or MNIST/raw)")
    people = line_of("cifar10n-worst", lines).split(maxsplit=1)[1]
    assert people.startswith("cifar10.npz (or cifar-10-batches-py, ")
    assert people.endswith(") and cifar10n.npz")
    assert not [line for line in lines if line.startswith(("letter", "iris"))]
    assert str(folder) in lines[-3]
    assert "FOLDER/train/CLASS/file.png" in lines[-1]


def test_nothing_is_said_to_be_missing_when_all_is_here(folder: Path) -> None:
    for source in datasets.SOURCES.values():
        for file in source.files:
            (folder / Path(file.path).name).touch()
    shown = run("datasets").stdout
    assert "not here" not in shown
    assert " no " not in shown


def test_a_program_gets_the_same_as_json(folder: Path) -> None:
    rows = {row["name"]: row for row in json.loads(run("datasets", "--format", "json").stdout)}
    assert list(rows) == datasets.names()
    assert rows["letter"]["found"] == str(folder / "letter.tsv.gz")
    assert rows["letter"]["missing"] == []
    assert rows["letter"]["put_into"] is None
    assert rows["mnist"]["found"] is None
    assert rows["mnist"]["missing"] == [["mnist.npz", "MNIST/raw"]]
    assert rows["mnist"]["put_into"] == str(cache_folder())
    assert rows["mnist"]["source"].startswith("http://yann.lecun.com")
