"""kernelgraft: make a Hugging Face language model faster, kernel by kernel, with every number measured.

The front door: the console script ``kernelgraft`` and the few public names. ``kernelgraft.patch(model, run)``
grafts a run's kernels into a model that is already loaded, ``kernelgraft.load(run)`` gives a patched model that
generates. Everything heavy is imported inside the commands, so that ``--help`` and ``import kernelgraft`` are quick.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from extractor.errors import KernelgraftError, UsageError

if TYPE_CHECKING:
    from integrator.load import load
    from integrator.patch import patch
    from integrator.pipeline import Pipeline
    from integrator.stop import Stop

__all__ = ["load", "main", "patch"]

_PUBLIC = {"patch": "integrator.patch", "load": "integrator.load"}
# What a full, read-only, foreign or failing file system says: the user's to cure, wherever it comes up.
_ENVIRONMENT = {
    getattr(errno, name)
    for name in ("EACCES", "EPERM", "EROFS", "ENOSPC", "EDQUOT", "EIO", "EMFILE", "ENAMETOOLONG")
}
# Typer carries its own copy of click in new releases and uses the real one in old ones; both name it only here.
_TYPER_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


def __getattr__(name: str) -> Any:
    """The public names, imported on first use."""
    from importlib import import_module

    if name == "__version__":
        from extractor.versions import version_of

        return version_of("kernelgraft")
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'kernelgraft' has no attribute {name!r}")


app = typer.Typer(
    name="kernelgraft",
    help="Make a Hugging Face language model faster, kernel by kernel, with every number measured.",
    epilog="Start with: kernelgraft optimize-and-patch preset:qwen3-tiny",
    add_completion=False,
    pretty_exceptions_enable=False,
)

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A Hub id, a local checkpoint folder, or preset:NAME.")
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, such as runs/demo.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Dtype = Annotated[str, typer.Option(help="bfloat16, float32 or float16.")]
Attention = Annotated[
    str, typer.Option(help="auto, eager or sdpa: the attention the graph is captured with.")
]
Batch = Annotated[list[str], typer.Option(help="Batch size; repeat it or give a list: --batch 1,4.")]
Prompt = Annotated[int, typer.Option(min=1, help="Prompt length in tokens.")]
Tokens = Annotated[int, typer.Option(min=1, help="New tokens decoded after the prompt.")]
Families = Annotated[
    list[str] | None,
    typer.Option(help="Only these families, by name, letter or tag: --families A,LM,rmsnorm."),
]
Out = Annotated[Path | None, typer.Option(help="Run folder.  [default: runs/NAME of the model]")]
Threads = Annotated[
    int,
    typer.Option(
        min=1, help="CPU threads of census and judge, at most the cores; the ledger always uses one."
    ),
]
JudgeThreads = Annotated[int, typer.Option(min=1, help="CPU threads while judging, at most the cores.")]
Seed = Annotated[int, typer.Option(help="Seed of preset weights and of the search.")]
CopyWeights = Annotated[bool, typer.Option("--copy-weights", help="Copy weights into the task folders.")]
PolicyName = Annotated[str, typer.Option("--policy", help="Who writes the candidates.")]
BudgetText = Annotated[str, typer.Option("--budget", help="Trajectories x turns for each task.")]
Resume = Annotated[
    bool, typer.Option(help="Continue the run's search; --no-resume refuses a run that already holds one.")
]
IncludeSick = Annotated[
    bool,
    typer.Option(
        "--include-sick", help="Search tasks with health flags too; a wrong kernel could pass on them."
    ),
]
Rungs = Annotated[
    list[str] | None, typer.Option(help="Stock rungs to compare with: sdpa, eager, inductor, inductor-max.")
]
Rounds = Annotated[int | None, typer.Option(min=2, help="Samples of each configuration in the ledger.")]
KeepAll = Annotated[
    bool,
    typer.Option("--keep-all", help="Integrate every correct kernel, also those that slow the model down."),
]


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"kernelgraft {__getattr__('__version__')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("optimize-and-patch")
def optimize_and_patch(
    context: typer.Context,
    model: Model,
    device: Device = "cpu",
    dtype: Dtype = "bfloat16",
    attention: Attention = "auto",
    batch: Batch = ["1"],  # noqa: B006  (typer reads the default, nothing changes it)
    prompt: Prompt = 32,
    tokens: Tokens = 32,
    policy: PolicyName = "catalog",
    budget: BudgetText = "4x4",
    families: Families = None,
    out: Out = None,
    rungs: Rungs = None,
    rounds: Rounds = None,
    keep_all: KeepAll = False,
    threads: Threads = 1,
    seed: Seed = 0,
    copy_weights: CopyWeights = False,
    resume: Resume = True,
    include_sick: IncludeSick = False,
) -> None:
    """Do it all: extract, optimize, integrate and report. The same command again continues where it stopped."""
    from integrator.options import extract_options, ledger_options, search_options
    from optimizer.optimize import require_judged_device

    what = extract_options(
        model=model, device=device, dtype=dtype, attention=attention, batch=batch, prompt=prompt, tokens=tokens,
        families=families, threads=threads, seed=seed, copy_weights=copy_weights,
    )  # fmt: skip
    search = search_options(
        policy=policy, budget=budget, families=families, seed=seed, threads=threads, resume=resume,
        include_sick=include_sick,
    )  # fmt: skip
    ledger = ledger_options(rungs=rungs, rounds=rounds, keep_all=keep_all)
    require_judged_device(device)
    with _pipeline(context, out or default_run_folder(model), threads).locked() as pipeline:
        pipeline.extract(what, reuse=True)
        pipeline.optimize(search)
        pipeline.integrate(ledger)
        pipeline.report()


@app.command()
def extract(
    context: typer.Context,
    model: Model,
    device: Device = "cpu",
    dtype: Dtype = "bfloat16",
    attention: Attention = "auto",
    batch: Batch = ["1"],  # noqa: B006
    prompt: Prompt = 32,
    tokens: Tokens = 32,
    families: Families = None,
    out: Out = None,
    threads: Threads = 1,
    seed: Seed = 0,
    copy_weights: CopyWeights = False,
) -> None:
    """Cut a model into operator tasks and show where its time goes."""
    from integrator.options import extract_options

    what = extract_options(
        model=model, device=device, dtype=dtype, attention=attention, batch=batch, prompt=prompt, tokens=tokens,
        families=families, threads=threads, seed=seed, copy_weights=copy_weights,
    )  # fmt: skip
    with _pipeline(context, out or default_run_folder(model), threads).locked() as pipeline:
        pipeline.extract(what)
        pipeline.suggest("optimize")


@app.command()
def optimize(
    context: typer.Context,
    run: Run,
    policy: PolicyName = "catalog",
    budget: BudgetText = "4x4",
    families: Families = None,
    threads: Threads = 1,
    seed: Seed = 0,
    resume: Resume = True,
    include_sick: IncludeSick = False,
) -> None:
    """Search a faster kernel for each task of a run. Continues where it stopped."""
    from integrator.options import search_options

    options = search_options(
        policy=policy, budget=budget, families=families, seed=seed, threads=threads, resume=resume,
        include_sick=include_sick,
    )  # fmt: skip
    with _pipeline(context, run, threads).locked(existing=True) as pipeline:
        pipeline.optimize(options)
        pipeline.suggest("integrate")


@app.command()
def integrate(
    context: typer.Context, run: Run, rungs: Rungs = None, rounds: Rounds = None, keep_all: KeepAll = False
) -> None:
    """Graft a run's kernels into its model one by one and measure tokens/s after each."""
    from integrator.options import ledger_options

    options = ledger_options(rungs=rungs, rounds=rounds, keep_all=keep_all)
    with _pipeline(context, run).locked(existing=True) as pipeline:
        pipeline.integrate(options)
        pipeline.suggest("report")


@app.command()
def report(context: typer.Context, run: Run) -> None:
    """Write report.json, report.html and ledger.png of a run, finished or not."""
    with _pipeline(context, run).locked(existing=True) as pipeline:
        pipeline.report()


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Say what this machine can do, and what to install for the rest."""
    from integrator.doctor import examine, print_findings

    findings = examine()
    if as_json:
        typer.echo(findings.model_dump_json(indent=1))
    else:
        from integrator.report.terminal import make_console

        print_findings(make_console(), findings)
    if not findings.main_job:
        raise typer.Exit(1)


@app.command()
def judge(
    context: typer.Context,
    task: Annotated[
        Path | None, typer.Argument(metavar="TASK", help="A task folder, or a KernelBench .py file.")
    ] = None,
    candidate: Annotated[
        Path | None, typer.Argument(metavar="CANDIDATE", help="A kernel: .cpp, or .py with ModelNew.")
    ] = None,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Judge the corpus of honest kernels, cheats and faults.")
    ] = False,
    device: Device = "cpu",
    language: Annotated[
        str | None, typer.Option(help="cpp, triton or cuda; told by the file unless given.")
    ] = None,
    tolerance: Annotated[
        str, typer.Option(help="strict: against fp64, for grafts; paper: KernelBench's rule.")
    ] = "strict",
    threads: JudgeThreads = 1,
    timing: Annotated[bool, typer.Option(help="Time it, or only check it.")] = True,
    profile: Annotated[
        bool, typer.Option("--profile", help="Say where a correct kernel's time goes.")
    ] = False,
    sanitize: Annotated[
        bool, typer.Option("--sanitize", help="On a GPU, also call it under compute-sanitizer.")
    ] = False,
    ncu: Annotated[
        bool, typer.Option("--ncu", help="On a GPU, add what ncu counts to a correct kernel's profile.")
    ] = False,
    limit: Annotated[float, typer.Option(help="Seconds for all checks and timings, 1 to 3600.")] = 20.0,
    only: Annotated[str, typer.Option(help="Self-test: only candidates whose path contains this.")] = "",
    repeat: Annotated[
        int | None, typer.Option(min=1, help="Self-test: judge everything so many times.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Judge one kernel on one task: is it right, and how fast. Exit status 0 only if it is correct."""
    from integrator.options import judge_options

    settings, spoken = judge_options(
        device=device, language=language, tolerance=tolerance, threads=threads, timing=timing, profile=profile,
        sanitize=sanitize, ncu=ncu, limit=limit,
    )  # fmt: skip
    _calm(threads)
    from integrator.judging import judge_one, run_self_test

    if self_test:
        if task is not None:
            raise UsageError(message="--self-test judges its own corpus; leave TASK and CANDIDATE out")
        right = run_self_test(
            settings, only=only, repeat=repeat or 1, as_json=as_json, check=context.obj.check
        )
    else:
        if task is None or candidate is None:
            raise UsageError(
                message="judge needs TASK and CANDIDATE, or --self-test; see `kernelgraft judge --help`"
            )
        if only or repeat is not None:
            raise UsageError(
                message="--only and --repeat are for --self-test; leave them out with TASK and CANDIDATE"
            )
        right = judge_one(task, candidate, settings, spoken, as_json=as_json)
    if not right:
        raise typer.Exit(1)


def default_run_folder(model: str) -> Path:
    """Where a run goes unless told otherwise: ``runs/`` and a safe form of the model's name.

    >>> default_run_folder("preset:qwen3-tiny").as_posix()
    'runs/qwen3-tiny'
    """
    name = model.removeprefix("preset:").rstrip("/").rsplit("/", 1)[-1]
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")
    return Path("runs") / (safe or "run")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    0, 1 (failed), 2 (usage), or 128 and a signal's number: 129 (closed terminal), 130 (Ctrl-C), 143 (SIGTERM).
    """
    from integrator.report.clean import one_line, tolerate_encoding
    from integrator.stop import Stop

    tolerate_encoding(sys.stdout, sys.stderr)
    words = list(sys.argv[1:] if arguments is None else arguments)
    with Stop() as stop:
        try:
            return _invoke(words, stop)
        except KernelgraftError as error:
            _complain(one_line(str(error), 2000))
            return error.exit_code
        except KeyboardInterrupt:
            stop.settle()
            _complain(_stopped(words))
            return stop.status
        except BrokenPipeError:
            # The reader has gone (`kernelgraft doctor | head`); without this, Python complains once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except OSError as error:
            if error.errno not in _ENVIRONMENT:
                raise
            where = error.filename or "a file"
            _complain(one_line(f"cannot use {where}: {error.strerror}; free it, or choose another folder"))
            return 1


def _invoke(words: list[str], stop: Stop) -> int:
    """Typer without its own exit and traceback handling; its usage errors become ours."""
    from integrator.stop import INTERRUPTED

    try:
        result = app(words, prog_name="kernelgraft", standalone_mode=False, obj=stop)
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    except _TYPER_USAGE_ERROR as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "kernelgraft"
        raise UsageError(message=f"{_usage_problem(error)}; see `{command} --help`") from error
    if result == INTERRUPTED:  # newer typers turn Ctrl-C into this status, older ones into Abort
        raise KeyboardInterrupt
    return result if isinstance(result, int) else 0


def _stopped(words: list[str]) -> str:
    """What is left of an interrupted command: the stages of a run continue, the others answer at once or not at all."""
    again = shlex.join(["kernelgraft", *words])
    if words[:1] in (["judge"], ["doctor"]):
        return f"stopped without an answer; start again with: {again}"
    return f"stopped; all that was measured is kept, and the same command continues: {again}"


def _usage_problem(error: Exception) -> str:
    """Typer's sentence, led by the option it is about."""
    problem = str(getattr(error, "message", "") or error).rstrip(".")
    names = getattr(getattr(error, "param", None), "opts", None) or [""]
    name = max(names, key=len)
    return f"{name}: {problem}" if name.startswith("--") else problem


def _complain(sentence: str) -> None:
    from rich.text import Text

    from integrator.report.terminal import make_console

    make_console(stderr=True).print(Text(f"kernelgraft: {sentence}", style="red"), soft_wrap=True)


def _calm(threads: int) -> None:
    """Thread counts must be in the environment before torch is first imported; other libraries keep quiet."""
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(threads)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if not sys.warnoptions:  # notes from library authors to library users; `python -W` brings them back
        for category in (FutureWarning, DeprecationWarning):
            warnings.simplefilter("ignore", category)


def _pipeline(context: typer.Context, folder: Path, threads: int = 1) -> Pipeline:
    """The stages over one run folder."""
    _calm(threads)
    from integrator.pipeline import Pipeline
    from integrator.report.terminal import make_console

    stop: Stop = context.obj
    return Pipeline(folder, make_console(), stop.check)


if __name__ == "__main__":
    sys.exit(main())
