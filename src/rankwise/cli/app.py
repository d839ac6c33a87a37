"""The commands and their arguments; what they do is in files of their own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from rankwise.files import TABLE_SUFFIXES
from rankwise.registry import nearest

__all__ = ["app"]

app = typer.Typer(
    name="rankwise",
    help="Train models directly for the ranking metric they are judged by.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Arguments that several commands take.
Recipe = Annotated[str, typer.Argument(help="A YAML file, or a name from `rankwise list recipes`.")]
SizeChanges = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the recipe, such as batches.size=64."),
]
Target = Annotated[str | None, typer.Option(help="For a table: the column to predict.", show_default=False)]
Positive = Annotated[str | None, typer.Option(help="For a table: the class to rank first.", show_default=False)]
Lists = Annotated[str | None, typer.Option(help="For a table: the column of the lists to rank.", show_default=False)]
Task = Annotated[str | None, typer.Option(help="The kind of problem, if data allow several.", show_default=False)]
Metrics = Annotated[
    list[str] | None, typer.Option(help="Such as ap or ndcg@10; may be repeated. See `rankwise list metrics`.")
]
ScoreColumn = Annotated[str | None, typer.Option(help="The column of the scores.", show_default="by name")]
LabelColumn = Annotated[str | None, typer.Option(help="The column of the labels.", show_default="by name")]
ListColumn = Annotated[str | None, typer.Option(help="The column of the lists.", show_default="by name")]
Run = Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The folder of a run.")]
Device = Annotated[
    str, typer.Option(help="Where to compute: cpu, cuda, cuda:1, mps, xpu; auto is the accelerator if there is one.")
]


def _print_version(asked: bool) -> None:
    if asked:
        from rankwise import __version__

        print(f"rankwise {__version__}")
        raise typer.Exit()


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", is_eager=True, callback=_print_version)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result of a command as JSON.")] = False,
) -> None:
    """Train models directly for the ranking metric they are judged by."""


@app.command(short_help="Train on hand-written digits by several losses; writes a report.")
def demo(
    out: Annotated[Path, typer.Option(help="Where to write the report, an HTML file.")] = Path("report.html"),
    seeds: Annotated[
        int, typer.Option(min=1, max=100, help="How often to repeat everything, each time on other data.")
    ] = 5,
    quick: Annotated[
        bool, typer.Option("--quick", help="A short version in seconds: to see it work, not to quote.")
    ] = False,
) -> None:
    """Compare losses on hand-written digits, print what came out and write a report.

    Takes a minute or two and downloads nothing.
    """
    from rankwise.cli.demo import show_demo

    _check_out(out)
    show_demo(out, seeds=seeds, quick=quick)


@app.command(short_help="Train a model on data, or as a recipe says; stop and go on at any time.")
def train(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA|RECIPE",
            help="Data, or a YAML file, or a name from `rankwise list recipes`.",
            show_default=False,
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the recipe, such as loss.prior=0.05."),
    ] = None,
    label: Target = None,
    positive: Positive = None,
    query: Lists = None,
    task: Task = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the run; runs/NAME by default.", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest good checkpoint.")] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Also record some steps: profile.json (a trace) and profile.md (a table).")
    ] = False,
    begin: Annotated[
        Path | None,
        typer.Option(
            "--from",
            exists=True,
            file_okay=False,
            help="The folder of a run to go on from, with more steps or with new DATA of the same form.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Train a model on data, or as a recipe says, and evaluate it on data it has not seen.

    From data (a table, a LETOR file, ratings, images by class, boxes) the recipe is inferred and shown: what was
    inferred, why, and how to change it. A recipe says what to train on, which model and loss, for how long, and what to
    measure. Everything that comes out is written to one folder: the complete recipe, the weights, the log, the metrics,
    the scores of the test part. A run that was stopped, by Ctrl-C or anything worse, goes on with --resume as if
    nothing had happened.
    """
    from rankwise.cli.train import default_folder, go_on, train

    options = {"label": label, "positive": positive, "query": query, "task": task}
    if begin is not None:
        if resume or profile or any(value is not None for value in options.values()):
            raise typer.BadParameter("expected alone: the run says the rest itself", param_hint="--from")
        given = [each for each in (what, *(changes or [])) if each is not None]
        data = given.pop(0) if given and ("=" not in given[0] or Path(given[0]).exists()) else None
        go_on(begin, data, given, begin.with_name(f"{begin.resolve().name}-continued") if out is None else out)
        return
    if what is None:
        raise typer.BadParameter("missing: expected data or a recipe", param_hint="DATA|RECIPE")
    folder = default_folder(what) if out is None else out
    train(what, changes or [], folder, resume=resume, profile=profile, options=options)


@app.command(short_help="Search the options of a recipe by Optuna; compare the best with the default.")
def tune(
    what: Annotated[
        str,
        typer.Argument(metavar="DATA|RECIPE", help="Data, or a YAML file, or a name from `rankwise list recipes`."),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the recipe, such as budget.steps=500."),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="How many trials the folder is to hold.", show_default=False)
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="How long to run trials; the comparison comes after.", show_default=False)
    ] = None,
    space: Annotated[
        list[str] | None,
        typer.Option(
            help='What to search, such as "optimiser.learning_rate=log:1e-4:1e-1" (or linear:, int:, choice:[A, B]; '
            "=fixed leaves an option alone); may be repeated.",
            show_default="by the kind of problem",
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=2, help="Seeds of the comparison at the end, if the recipe has one only.")
    ] = 5,
    label: Target = None,
    positive: Positive = None,
    query: Lists = None,
    task: Task = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the trials; runs/NAME-tuned by default.", show_default=False)
    ] = None,
) -> None:
    """Search the options of a recipe by Optuna, and compare the best with the default on data no trial has seen.

    Trials are judged on the validation part. At the end the best and the default are trained with several seeds and
    compared on the test part. The folder keeps every trial: the same command goes on after Ctrl-C, and several
    processes may run it at once. It gets best.yaml, a recipe for `rankwise train`, and report.html, which says what
    mattered.
    """
    from rankwise.cli.tune import tune

    if trials is None and minutes is None:
        raise typer.BadParameter("expected --trials, --minutes or both", param_hint="--trials")
    if minutes is not None and not minutes > 0:
        raise typer.BadParameter(f"expected a number above 0, got {minutes:g}", param_hint="--minutes")
    options = {"label": label, "positive": positive, "query": query, "task": task}
    tune(what, changes or [], out, trials=trials, minutes=minutes, spaces=space or [], seeds=seeds, options=options)


@app.command(short_help="Measure what a recipe costs, on made data of its true shape.")
def rehearse(
    recipe: Recipe,
    changes: SizeChanges = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps to take.")] = 20,
    clock: Annotated[
        str, typer.Option(help="What to count: wall, or cpu, the CPU time of this process, on a busy machine.")
    ] = "wall",
) -> None:
    """Measure what a recipe costs on this machine, without its data: memory, time of a step, of an evaluation, of all.

    Data of the shape that the recipe states (`about.shape`) are made at random in a temporary folder, read, trained on
    for some steps and evaluated once; nothing is left behind. Ends with 1 if the recipe cannot be run as it is:
    evaluations that take longer than the training between them, or too little memory.
    """
    from rankwise.cli.rehearse import show_rehearsal

    if clock not in (words := ("wall", "cpu")):
        raise typer.BadParameter(f"unknown word {clock!r}{nearest(clock, words)}", param_hint="--clock")
    raise typer.Exit(show_rehearsal(recipe, changes or [], steps=steps, clock=clock))


@app.command(short_help="Plan a training on many ranks: time, bytes and memory of a step.")
def plan(
    recipe: Recipe,
    changes: SizeChanges = None,
    ranks: Annotated[int, typer.Option(min=1, help="Number of ranks.")] = 8,
    network: Annotated[str, typer.Option(help="What the network gives each rank in a second, such as 100Gb.")] = "10Gb",
    latency: Annotated[float, typer.Option(min=0.1, help="Microseconds of one round of messages.")] = 20.0,
) -> None:
    """Say what a step of a recipe would cost on many ranks: the work of a rank is measured here, the network computed.

    The data of the recipe are read; if they are not there, data of the shape that it states (`about.shape`) are made in
    a temporary folder. Nothing is trained to the end and nothing is written.
    """
    from rankwise.cli.rehearse import read_network, show_plan

    try:
        read_network(network)
    except ValueError as problem:
        raise typer.BadParameter(str(problem).removeprefix("network: "), param_hint="--network") from None
    show_plan(recipe, changes or [], ranks=ranks, network=network, latency=latency)


@app.command(short_help="Measure how well scores, or a trained run, rank.")
def evaluate(
    what: Annotated[Path, typer.Argument(exists=True, help="A file of scores, or the folder of a run.")],
    data: Annotated[
        Path | None, typer.Option(exists=True, help="For a run: other data, in the form it was trained on.")
    ] = None,
    metric: Metrics = None,
    score: ScoreColumn = None,
    label: LabelColumn = None,
    query: ListColumn = None,
    group: Annotated[str | None, typer.Option(help="A column to report by.", show_default="by name")] = None,
    scores_out: Annotated[Path | None, typer.Option(help="For a run: where to write the scores, a CSV file.")] = None,
    report: Annotated[Path | None, typer.Option(help="For a run: where to write a report, an HTML file.")] = None,
    importance: Annotated[
        Path | None,
        typer.Option(help="For a run over a table: where to write how much each column matters, a CSV file."),
    ] = None,
    judgements: Annotated[
        Path | None, typer.Option(exists=True, help="For a TREC run file: the judgements (qrels, BEIR's TSV, a table).")
    ] = None,
) -> None:
    """Measure how well scores rank: means with intervals, the exact definitions, and what was left out.

    A file of scores has a row per item: its score, its label (0 or 1, or grades), perhaps the query it belongs to. A
    TREC run file is measured against --judgements as trec_eval does.
    """
    from rankwise.cli.evaluate import show_evaluation
    from rankwise.cli.scores import Columns

    for path, option in ((scores_out, "--scores-out"), (report, "--report"), (importance, "--importance")):
        if path is not None:
            _check_out(path, option, inputs=(what, data, judgements))
    columns = Columns(score, label, query, group)
    show_evaluation(what, data, metric or (), columns, scores_out, report, importance, judgements)


@app.command(short_help="Score new data with a trained run.")
def predict(
    run: Run,
    data: Annotated[Path, typer.Option(help="New data, in the form of the training data; - is the standard input.")],
    out: Annotated[Path, typer.Option(help="Where to write: .csv, .parquet or .jsonl; - is the standard output.")],
    keep: Annotated[
        str | None, typer.Option(help="Columns of the data to write beside the scores, such as id,name.")
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Probabilities of a positive label instead of scores.")
    ] = False,
    ranked: Annotated[
        bool, typer.Option("--ranked", help="Sort the rows of each list, best first, with a column rank.")
    ] = False,
    device: Device = "auto",
) -> None:
    """Score new data with a trained run; the training data are not needed.

    Columns are matched by name, in any order. Columns that the training data did not have are ignored with a note; a
    missing one is an error. A table that is larger than memory is read in chunks.
    """
    from rankwise.cli.predict import predict

    _check_data(data, "--data")
    _check_table(out, data)
    names = [name.strip() for name in keep.split(",") if name.strip()] if keep else []
    predict(run, data, out, keep=names, probabilities=probabilities, ranked=ranked, device=device)


@app.command(short_help="Recommend items to users with a trained run.")
def recommend(
    run: Run,
    out: Annotated[Path, typer.Option(help="Where to write: .csv, .parquet or .jsonl; - is the standard output.")],
    users: Annotated[
        Path | None,
        typer.Option(
            help="A table of users, or of users and items (what they chose, also of new users); - is the standard "
            "input. By default all users of the training data.",
            show_default=False,
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Items for each user.")] = 10,
    device: Device = "auto",
) -> None:
    """Recommend items to users with a trained recsys run, without those they are known to have chosen.

    Users of the training data are known by their name. New users come with what they chose: a table of users and items.
    """
    from rankwise.cli.predict import recommend

    if users is not None:
        _check_data(users, "--users")
    _check_table(out, users)
    recommend(run, users, out, k, device)


@app.command(short_help="Search texts, images or rows with a trained run.")
def search(
    run: Run,
    queries: Annotated[
        Path,
        typer.Option(exists=True, help="Images or rows to search for; texts: .txt (one per line), .jsonl or .csv."),
    ],
    out: Annotated[
        Path, typer.Option(help="Where to write: .csv, .parquet, .jsonl or, of texts, .trec; - is the standard output.")
    ] = Path("-"),
    gallery: Annotated[
        Path | None, typer.Option(exists=True, help="Images or rows to search; the queries themselves by default.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Matches for each query.")] = 10,
    device: Device = "auto",
) -> None:
    """Find the best documents of its corpus for each query by a text-search run, or the nearest images or rows of a
    gallery by a retrieval run."""
    from rankwise.cli.predict import search

    if out.suffix != ".trec":
        _check_table(out, queries, gallery)
    else:
        _check_out(out, inputs=(queries, gallery))
    search(run, queries, gallery, out, k, device)


@app.command(short_help="Detect objects in images with a trained run.")
def detect(
    run: Run,
    images: Annotated[Path, typer.Option(exists=True, help="A folder of images, or one image.")],
    out: Annotated[Path, typer.Option(help="Where to write the boxes: .json, in the form of COCO's results.")],
    drawings: Annotated[
        Path | None, typer.Option(help="A folder for the images with their boxes drawn in.", show_default=False)
    ] = None,
    device: Device = "auto",
) -> None:
    """Detect objects in images with a trained detection run."""
    from rankwise.cli.predict import detect

    if out.suffix != ".json":
        raise typer.BadParameter(f"expected .json, got {out.name!r}", param_hint="--out")
    _check_out(out, inputs=(images,))
    detect(run, images, out, drawings, device)


def _check_out(out: Path, option: str = "--out", *, inputs: Iterable[Path | None] = ()) -> None:
    """Refuse a path that no file can be written to, or one of the files to read, before any work is done."""
    if not out.parent.is_dir():
        raise typer.BadParameter(f"the folder {str(out.parent)!r} does not exist", param_hint=option)
    if out.is_dir():
        raise typer.BadParameter(f"{str(out)!r} is a folder; expected the name of a file", param_hint=option)
    if out.exists() and any(each is not None and each.exists() and out.samefile(each) for each in inputs):
        raise typer.BadParameter(f"{str(out)!r} is read, and would be lost; expected another file", param_hint=option)


def _check_data(path: Path, option: str) -> None:
    if str(path) != "-" and not path.exists():
        raise typer.BadParameter(f"no file or folder {str(path)!r}", param_hint=option)


def _check_table(out: Path, *inputs: Path | None) -> None:
    """Refuse a path that no table can be written to, or one of the files to read."""
    if str(out) == "-":
        return
    if out.suffix not in TABLE_SUFFIXES:
        raise typer.BadParameter(f"expected {', '.join(TABLE_SUFFIXES)} or -, got {out.name!r}", param_hint="--out")
    _check_out(out, inputs=inputs)


@app.command(short_help="Write the report of a run, finished or not.")
def report(
    run: Run,
    out: Annotated[
        Path | None, typer.Option(help="Where to write it, an HTML file; RUN/report.html by default.")
    ] = None,
) -> None:
    """Write the report of a run: its figures, how it learned, and where it fails, in one HTML file.

    `rankwise train` does so at its end. Of a run that is not over the report shows the best weights so far on the
    validation part. The data of the run are read again.
    """
    from rankwise.cli.outputs import write_reports

    if out is not None:
        _check_out(out)
    write_reports(run, out)


@app.command(short_help="Write the vectors of a trained retrieval run, or its weights.")
def embed(
    run: Run,
    data: Annotated[
        Path | None, typer.Option(exists=True, help="What to embed, in the form it was trained on; else the test part.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write vectors: .npz or .parquet.")] = None,
    weights: Annotated[Path | None, typer.Option(help="Where to write the weights: .safetensors.")] = None,
) -> None:
    """Write the vectors that a trained retrieval run gives to images or rows, with their labels, or its weights."""
    from rankwise.cli.outputs import FORMATS, write_embeddings

    if out is None and weights is None:
        raise typer.BadParameter("expected --out, --weights or both", param_hint="--out")
    for path, hint, suffixes in ((out, "--out", FORMATS), (weights, "--weights", (".safetensors",))):
        if path is not None:
            if path.suffix not in suffixes:
                raise typer.BadParameter(f"expected {' or '.join(suffixes)}, got {path.name!r}", param_hint=hint)
            _check_out(path, hint, inputs=(data,))
    write_embeddings(run, data, out, weights)


@app.command(short_help="Export the model of a run as ONNX or by torch.export.")
def export(
    run: Run,
    out: Annotated[Path, typer.Argument(help="Where to write the model: .onnx or .pt2 (torch.export).")],
    data: Annotated[
        Path | None, typer.Option(exists=True, help="Data to check on, in the form of the training data; else random.")
    ] = None,
) -> None:
    """Export the model of a run, with its numeric preprocessing, for use without rankwise.

    The file is compared with the run's own outputs before it is written. It holds the names and shapes of its inputs
    and outputs and the schema: columns in order, classes, items.
    """
    from rankwise.cli.outputs import write_export

    if out.suffix not in (".onnx", ".pt2"):
        raise typer.BadParameter(f"expected .onnx or .pt2, got {out.name!r}", param_hint="OUT")
    _check_out(out, "OUT", inputs=(data,))
    write_export(run, out, data)


@app.command(short_help="Is one model better than another, or was it luck?")
def compare(
    paths: Annotated[
        list[Path],
        typer.Argument(
            exists=True, help="Two or more files of scores, TREC run files or folders of runs, same test data."
        ),
    ],
    metric: Metrics = None,
    score: ScoreColumn = None,
    label: LabelColumn = None,
    query: ListColumn = None,
    group: Annotated[str | None, typer.Option(help="A column to compare by.", show_default="by name")] = None,
    judgements: Annotated[
        Path | None, typer.Option(exists=True, help="For TREC run files: the judgements (qrels, BEIR's TSV, a table).")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Where to write a report, an HTML file.")] = None,
) -> None:
    """Test whether one model is better than another: differences to the first, with intervals and a paired test.

    With many queries their differences are tested; with a single list its items are drawn with replacement.
    """
    if len(paths) < 2:
        raise typer.BadParameter("expected two or more", param_hint="PATHS")
    from rankwise.cli.compare import show_comparison
    from rankwise.cli.scores import Columns

    if report is not None:
        _check_out(report, "--report", inputs=(*paths, judgements))
    show_comparison(paths, metric or (), Columns(score, label, query, group), report, judgements)


@app.command("list", short_help="List losses, metrics, samplers, tasks and recipes.")
def list_(
    kind: Annotated[
        str | None,
        typer.Argument(help="losses, metrics, samplers, tasks or recipes; else all.", show_default=False),
    ] = None,
) -> None:
    """List the losses, metrics, batch samplers, tasks and recipes by name, one line each."""
    from rankwise.cli.listing import KINDS, show_list

    if kind is not None and kind not in KINDS:
        raise typer.BadParameter(f"unknown kind {kind!r}{nearest(kind, KINDS)}", param_hint="list")
    show_list(kind)


@app.command("check-data", short_help="Look for what will go wrong with data, before training.")
def check_data(
    files: Annotated[
        list[Path],
        typer.Argument(
            exists=True,
            help="Tables or LETOR files, the first for training; or images, boxes, pairs, rows with many labels, each "
            "in the layout of its data set.",
        ),
    ],
    label: Annotated[
        str | None, typer.Option(help="The label column of a table.", show_default="by name, else the last")
    ] = None,
    query: Annotated[
        str | None, typer.Option(help="The column that says which list a row belongs to.", show_default="by name")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="A column to leave out; may be repeated.")] = None,
    positive: Annotated[str | None, typer.Option(help="What the positive class is called.")] = None,
    missing: Annotated[str, typer.Option(help="What to do with missing cells: report or median.")] = "report",
    positives: Annotated[int | None, typer.Option(min=1, help="Positive rows of a training batch.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=2, help="Rows of a training batch.")] = None,
) -> None:
    """Look for what will go wrong with data: exit code 1 if it cannot be used as it is."""
    if missing not in (words := ("report", "median")):
        raise typer.BadParameter(f"unknown word {missing!r}{nearest(missing, words)}", param_hint="--missing")
    if (positives is None) != (batch_size is None) or (positives or 0) >= (batch_size or 1):
        raise typer.BadParameter("needs --batch-size, which must be larger", param_hint="--positives")
    from rankwise.cli.check_data import show_check

    code = show_check(
        files, label=label, query=query, drop=drop or (), positive=positive, missing=missing,
        positives=positives, batch_size=batch_size,
    )  # fmt: skip
    raise typer.Exit(code)


@app.command(short_help="Show on made-up scores how batches misjudge a ranking.")
def simulate(
    out: Annotated[Path, typer.Option(help="Where to write the report, an HTML file.")] = Path("simulation.html"),
    csv: Annotated[
        Path | None, typer.Option(help="Where to write the numbers, a CSV file.", show_default=False)
    ] = None,
    repeats: Annotated[int, typer.Option(min=2, max=100_000, help="Batches for each share of positives.")] = 500,
    quick: Annotated[bool, typer.Option("--quick", help="30 batches only: to see it work, not to quote.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0,
) -> None:
    """Show on made-up scores how batches misjudge a ranking, and how SOPRC does not.

    Average precision measured on a batch depends on how many positives the batch holds. This draws scores whose average
    precision is known, then batches with 1 to 20 % positives, and compares what each batch says with the truth. Takes
    a minute or two.
    """
    from rankwise.cli.audit import show_simulation

    _check_out(out)
    if csv is not None:
        _check_out(csv, "--csv")
    show_simulation(out, csv, repeats=30 if quick else repeats, seed=seed)


@app.command(short_help="Check on your own scores what the losses promise.")
def audit(
    file: Annotated[Path, typer.Argument(help="Scores and labels: .csv, .tsv, .parquet or .npz.")],
    question: Annotated[
        list[str] | None,
        typer.Option(
            "--ask",
            help="bias, stability, list-stability, bounds or generalisation; may be repeated. All by default.",
        ),
    ] = None,
    score: ScoreColumn = None,
    label: Annotated[str | None, typer.Option(help="The column of labels 0 / 1.", show_default="by name")] = None,
    query: Annotated[
        str | None, typer.Option(help="The column that says which list a row is in.", show_default="by name")
    ] = None,
    features: Annotated[
        list[str] | None, typer.Option(help='Columns for list-stability, such as "x*"; may be repeated.')
    ] = None,
    positives: Annotated[int, typer.Option(min=1, help="Positives in a batch.")] = 8,
    negatives: Annotated[int, typer.Option(min=1, help="Negatives in a batch.")] = 56,
    out: Annotated[Path, typer.Option(help="Where to write the report, an HTML file.")] = Path("audit.html"),
    quick: Annotated[bool, typer.Option("--quick", help="A first look in seconds, not to quote.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0,
) -> None:
    """Check on your own scores what the losses for average precision (AP) promise.

    bias: does a batch say what all the data would, and which batches and prior to use? stability: how far can one bad
    example move a loss? list-stability: how far does one example move a trained model? bounds: does a low loss
    guarantee a high AP? generalisation: what does theory promise for new data, from scores on the training data?
    """
    from rankwise.cli.audit import QUESTIONS, show_audit
    from rankwise.cli.scores import read_file

    for asked in question or ():
        if asked not in QUESTIONS:
            raise typer.BadParameter(f"unknown question {asked!r}{nearest(asked, QUESTIONS)}", param_hint="--ask")
    _check_out(out, inputs=(file,))
    data = read_file(file, score=score, label=label, query=query, features=features or ())
    batch = {"positives": positives, "negatives": negatives}
    show_audit(data, file.name, out, questions=question or QUESTIONS, **batch, quick=quick, seed=seed)
