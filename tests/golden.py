"""What kvbench says of the run folders in ``tests/data``: the cases as data, how each is rendered, and where its output is kept.

A case is one command line. It is run through :func:`kvbench.cli.main.main`, in a folder in which ``tests/data`` lies as it is, so that
every path in an output is relative. Kept in ``tests/data/reports``:

``GROUP/NAME.KIND``   what the case printed: every report for a terminal, and all forms of some
``index.json``        of every case the exit code, the standard error, and SHA-256 of what is not kept whole (pages and plots too)

Nothing is changed before it is compared, but for the manifest of a run that a case makes: the time, the machine and the version are left
out. Plots depend on matplotlib, so cases that draw are compared with the version of ``index.json`` only. The last bits of a floating-point
number depend on the CPU (numpy has several versions of a logarithm): where this machine computes others than the one that wrote the
index, numbers of seven decimals and more are compared to nine digits; hence two sums of each text.

    python tests/golden.py --write [PREFIX ...]      render the cases (all, or those whose names begin so), and keep what they say
    python tests/golden.py --check [PREFIX ...]      render them, and say which have changed
    python tests/golden.py --dump DIR [PREFIX ...]   write everything whole, pages and plots too, to compare two versions by hand

``tests/reports/test_golden_reports.py`` renders the quick cases; with KVBENCH_GOLDEN=all all of them.

Imports nothing of kvbench but its entry point, so that it holds whatever becomes of the modules.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import io
import json
import math
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from kvbench.cli.main import main

DATA = Path(__file__).parent / "data"
REPORTS = DATA / "reports"
INDEX = REPORTS / "index.json"
OUT = "out"
"""The folder into which a case writes files, below the one in which it runs."""

KINDS = {"terminal": "txt", "markdown": "md", "csv": "csv", "json": "json", "github": "github.md", "junit": "xml"}
SUMMARY = "GITHUB_STEP_SUMMARY"
MOST_LINES = 60
"""Lines of a diff that are shown."""


@dataclass(frozen=True, slots=True)
class Case:
    """One command line. ``name``: group and name, which with ``kind`` are its own.

    ``kind``: the ending of its name. ``kept``: its output is kept whole, else its sum. ``quick``: it is one of those that every run of the
    tests renders. ``drawn``: matplotlib has a part in it. ``environment``: variables that are set meanwhile.
    """

    name: str
    words: tuple[str, ...]
    kind: str
    kept: bool = False
    quick: bool = True
    drawn: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The case in the index, and below ``reports``."""
        return f"{self.name}.{self.kind}"


@dataclass(frozen=True, slots=True)
class Rendered:
    """What a case gave: the exit code, both outputs, and the files that it wrote."""

    code: int
    out: str
    err: str
    files: Mapping[str, str]


# The cases.

RATES = ("--prefill-rate", "8700", "--restore-rate", "570000", "--overhead-ms", "30")

THOROUGH = frozenset(
    {
        *(
            "cyclic",
            "cyclic-repeats-1",
            "cyclic-controls",
            "trace-simulator",
            "pressure",
            "pressure-vllm",
            "crossover-sweep",
            "fragmentation",
        ),
        *("sharing-short", "vllm-failed", "interrupted", "edited-invalid", "sweep", "log/latencies", "beside/many-options"),
    }
)
"""Runs of which every run of the tests renders all forms, and of which most of them are kept whole."""

DRAWN = frozenset(
    {"cyclic-repeats-1", "pressure", "crossover-sweep", "fragmentation", "sharing-short", "edited-invalid", "beside/many-options"}
)
"""Those of them whose page every run of the tests renders."""

BESIDE: Mapping[str, tuple[str, ...]] = {
    "one-option": ("cyclic-repeats-1", "cyclic-repeats-link"),
    "same-options": ("cyclic-repeats-1", "cyclic-repeats-2"),
    "many-options": ("cyclic", "simulator-rates", "trace", "vllm"),
    "other-experiments": ("pressure", "sharing", "fragmentation"),
    "not-finished": ("interrupted", "edited-early", "cyclic"),
    "predicted": ("simulator", "simulator-rates", "simulator-vllm"),
    "sweep-and-run": ("sweep", "cyclic-repeats-1"),
    "crossovers": ("crossover", "crossover-sweep"),
    "one-crossing": ("crossover", "crossover-sweep/context-32"),
    "invalid": ("vllm-failed", "vllm-foreign"),
}
"""Folders that are shown side by side."""

LOGS: Mapping[str, tuple[str, ...]] = {
    "source-001": ("--csv", "source_001.csv"),
    "source-001-named": ("--csv", "source_001.csv", "--map", "ttft=ttft_ms,pass=pass"),
    "latencies": (
        *("--csv", "logs/latencies.csv", "--map", "ttft_s=latency,pass=round,error=failure"),
        *("--map", "prompt=prompt_tokens,device=device_tokens,host=host_tokens,computed=computed_tokens"),
    ),
    "json-lines": ("--csv", "logs/requests.jsonl"),
    "tail": ("--csv", "logs/tail.csv"),
    "vllm-bench": ("--csv", "logs/vllm-bench.json"),
    "two-files": ("--csv", "logs/tail.csv", "--csv", "logs/vllm-bench.json"),
}

ONE_REPEAT, STEADY = "baselines/one-repeat.json", "baselines/steady.json"
COMPARED: Mapping[str, tuple[str, ...]] = {
    "same-file": (STEADY, STEADY),
    "slower": (STEADY, "baselines/slower.json"),
    "faster": (STEADY, "baselines/faster.json"),
    "small-effect": (STEADY, "baselines/slower.json", "--min-effect", "40%"),
    "hits-lost": (STEADY, "baselines/hits-lost.json"),
    "hits-gained": ("baselines/hits-lost.json", STEADY),
    "other-machine": (STEADY, "baselines/machine.json", "--fail-on", "ttft_p50[cpu,repeat] > +10%"),
    "format-1": ("baselines/format-1.json", STEADY),
    "thresholds": (
        *(STEADY, "baselines/slower.json", "--fail-on", "ttft_p50[cpu,repeat] > +10%", "--fail-on", "speedup_p50[cpu,*] < 5"),
        *("--fail-on", "host_hit_rate[cpu,repeat] < 20%", "--fail-on", "computed[*,*] > +0", "--fail-on", "ttft_mean[none,*] > 1000"),
    ),
    "threshold-kept": (STEADY, "baselines/faster.json", "--fail-on", "speedup_p50[cpu,repeat] < 2"),
    "threshold-of-nothing": (STEADY, STEADY, "--fail-on", "ttft_p50[disk,repeat] > +10%"),
    "three-runs": ("baselines/three-runs.json", "folders/cyclic-repeats-link"),
    "three-runs-steady": ("baselines/three-runs.json", STEADY, "--strict"),
    "two-folders": ("folders/cyclic-repeats-1", "folders/cyclic-repeats-2"),
    "other-capacity": ("folders/cyclic-repeats-1", "folders/cyclic-repeats-small-tier"),
    "other-capacity-allowed": ("folders/cyclic-repeats-1", "folders/cyclic-repeats-small-tier", "--allow", "host_tokens"),
    "one-repeat": (ONE_REPEAT, "folders/cyclic"),
    "one-repeat-strict": (ONE_REPEAT, "folders/cyclic", "--strict"),
    "other-workload": ("folders/cyclic", "folders/cyclic-mixed"),
    "invalid": ("folders/cyclic", "folders/edited-invalid"),
    "invalid-allowed": ("folders/cyclic", "folders/edited-invalid", "--allow", "status"),
    "passes-missing": ("folders/interrupted", "folders/edited-truncated"),
    "nothing-finished": ("folders/cyclic-one-arm", "folders/edited-early"),
    "failed-requests": ("folders/vllm", "folders/vllm-failed", "--allow", "status"),
    "requests-that-overlap": ("folders/vllm-concurrency", "folders/vllm-concurrency"),
    "unknown-tokens": ("folders/vllm-unknown", "folders/vllm-unknown"),
    "predicted": ("folders/simulator-rates", "folders/simulator-rates"),
    "pressure": ("baselines/pressure.json", "folders/edited-pressure-float32"),
    "pressure-itself": ("folders/pressure-repeats", "folders/pressure-repeats"),
    "sharing": ("folders/sharing", "folders/edited-sharing"),
    "fragmentation": ("folders/fragmentation", "folders/edited-fragmentation", "--allow", "cut_requests"),
    "trace": ("folders/trace", "folders/edited-trace", "--allow", "left_out"),
    "open-loop": ("folders/cyclic-rate", "folders/cyclic-rate"),
}

BASELINES: Mapping[str, tuple[str, ...]] = {
    **{
        name: (name,)
        for name in (
            *(
                "cyclic",
                "cyclic-repeats-1",
                "cyclic-concurrency",
                "cyclic-rate",
                "cyclic-mixed",
                "cyclic-documents",
                "interrupted",
                "trace",
            ),
            *(
                "pressure-repeats",
                "fragmentation",
                "sharing",
                "simulator-rates",
                "vllm",
                "vllm-concurrency",
                "vllm-unknown",
                "vllm-started",
            ),
            *("vllm-foreign", "edited-early"),
        )
    },
    "three-runs": ("cyclic-repeats-1", "cyclic-repeats-2", "cyclic-repeats-3"),
    "two-runs": ("cyclic-repeats-1", "cyclic-repeats-2"),
    "one-run-twice": ("cyclic-repeats-1", "cyclic-repeats-1"),
    "other-setups": ("cyclic-repeats-1", "cyclic"),
}

TRACE = ("--trace", "mooncake_conversation_excerpt.jsonl")
PLANS: Mapping[str, tuple[str, ...]] = {
    "defaults": (),
    "rates": RATES,
    "engine-nothing-again": ("--profile", "engine", "--reuse", "0"),
    "documents": ("--profile", "documents", *RATES),
    "half-again": ("--reuse", "0.5", "--question", "vary", *RATES),
    "orders": ("--passes", "sequential,shuffle,zipf:1.1,repeat", "--docs", "6", "--kv-tokens", "12000", "--overlap", "0.3"),
    "pool-range": ("--kv-tokens", "60000", "--pool-tokens", "10000:60000", *RATES),
    "sizes-given": ("--bytes-per-token", "131072", "--host-tokens", "20480", "--block-size", "32"),
    "llama-fp8": ("--model", "llama-3.1-8b", "--kv-dtype", "fp8", "--host-gib", "2", "--docs", "20"),
    "tiny-engine": ("--model", "tiny", "--profile", "engine", "--docs", "3", "--doc-tokens", "600", "--kv-tokens", "1024"),
    "fits": ("--docs", "3", "--doc-tokens", "500"),
    "calibrated": ("--calibrate", "folders/cyclic-tiny", "--restore-rate", "30000", "--model", "tiny", "--profile", "engine"),
    "trace": TRACE,
    "trace-window": (*TRACE, "--kv-tokens", "20480", "--window", "600"),
    "trace-own": ("--trace", "own_requests.jsonl", "--kv-tokens", "128", "--chunk-tokens", "32", "--window", "0.05"),
    "trace-engine": (
        *TRACE,
        "--profile",
        "engine",
        "--kv-tokens",
        "20000",
        "--limit",
        "40",
        "--max-prompt-tokens",
        "5000",
        "--host-gib",
        "0.5",
    ),
    "trace-documents": (*TRACE, "--profile", "documents", "--kv-tokens", "50000"),
    "pool-too-small": ("--kv-tokens", "4000"),
}

SIMULATED = ("run", "--runner", "simulator", "--docs", "4", "--doc-tokens", "600", "--kv-tokens", "1600")
REPLAYED = ("run", "trace", "--runner", "simulator", *TRACE, "--limit", "12", "--model", "qwen2.5-1.5b", "--kv-tokens", "20000")
RUNS: Mapping[str, tuple[str, ...]] = {
    "cyclic": SIMULATED,
    "cyclic-rates": (*SIMULATED, *RATES, "--per-document"),
    "cyclic-mixed": (*SIMULATED, "--passes", "sequential,shuffle,zipf:1.1", "--overlap", "0.4", "--reuse", "0.5", "--question", "vary"),
    "cyclic-vllm": (*SIMULATED, *RATES, "--profile", "vllm", "--concurrency", "2"),
    "trace": (*REPLAYED, "--concurrency", "1"),
    "trace-own": (*REPLAYED[:4], "--trace", "own_requests.jsonl", "--kv-tokens", "128", "--chunk-tokens", "32", "--rate", "50"),
    "trace-times": (*REPLAYED, *RATES, "--speedup", "10", "--profile", "vllm"),
    "sweep": (*SIMULATED, *RATES, "--sweep", "reuse=0,0.5,1"),
    "levels": (*SIMULATED, *RATES, "--concurrency", "1,4"),
}


def cases() -> list[Case]:
    """All cases, by group."""
    folders = sorted(path.name for path in (DATA / "folders").iterdir())
    return [
        *(case for name in folders for case in _of_run(name, (f"folders/{name}",))),
        *(case for name, shown in BESIDE.items() for case in _of_run(f"beside/{name}", tuple(f"folders/{one}" for one in shown))),
        *(case for name, words in LOGS.items() for case in _of_run(f"log/{name}", words)),
        *(case for name, shown in BESIDE.items() for case in _in_full(f"beside/{name}", shown)),
        *(case for name in folders if "sweep" in name for case in _in_full(name, (name,))),
        *(case for name, words in COMPARED.items() for case in _compared(name, words)),
        *(
            Case(f"baseline/{name}", ("baseline", *(f"folders/{one}" for one in runs)), "json", kept=True)
            for name, runs in BASELINES.items()
        ),
        *(case for name, words in PLANS.items() for case in _planned(name, words)),
        *(case for name, words in RUNS.items() for case in _run(name, words)),
        Case("refused/not-a-run-folder", ("report", "folders"), "txt"),
        Case("refused/empty-log", ("report", "--csv", "logs/empty.csv"), "txt"),
        Case("refused/two-kinds-of-line", ("report", "folders/cyclic", "--format", "csv", "--per-document", "--per-repeat"), "csv"),
    ]


def _of_run(name: str, words: tuple[str, ...]) -> Iterator[Case]:
    """A report in each of its forms."""
    more, thorough = ("--per-document", "--per-repeat"), name in THOROUGH
    yield Case(f"{name}/report", ("report", *words), "txt", kept=True)
    yield Case(f"{name}/report", ("report", *words, "--format", "json"), "json", kept=thorough)
    for kind in ("markdown", "csv"):
        yield Case(f"{name}/report", ("report", *words, "--format", kind), KINDS[kind], kept=thorough, quick=thorough)
    yield Case(f"{name}/whole", ("report", *words, *more), "txt", kept=thorough and name != "log/latencies", quick=thorough)
    for kind in ("markdown", "json"):
        yield Case(f"{name}/whole", ("report", *words, "--format", kind, *more), KINDS[kind], quick=thorough)
    for option in more:
        yield Case(f"{name}/report{option[1:]}", ("report", *words, "--format", "csv", option), "csv", quick=thorough)
    page = ("report", *words, "--format", "html", *more, "--plots", f"{OUT}/plots")
    yield Case(f"{name}/page", page, "html", quick=name in DRAWN, drawn=True)


def _in_full(name: str, folders: tuple[str, ...]) -> Iterator[Case]:
    """Several runs, each with its whole report."""
    for kind in ("terminal", "markdown"):
        words = ("report", *(f"folders/{one}" for one in folders), "--full", "--format", kind)
        yield Case(f"{name}/full", words, KINDS[kind], quick=name in THOROUGH)


def _compared(name: str, words: tuple[str, ...]) -> Iterator[Case]:
    for kind in ("terminal", "markdown", "json", "github", "junit"):
        kept = kind == "terminal" or (kind != "markdown" and name in ("thresholds", "hits-lost", "one-repeat", "passes-missing"))
        yield Case(f"compare/{name}", ("compare", *words, "--format", kind), KINDS[kind], kept=kept)
    if name == "slower":
        yield Case(f"compare/{name}", ("compare", *words, "--format", "github"), "summary", environment={SUMMARY: f"{OUT}/summary.md"})
        yield Case(f"compare/{name}", ("compare", *words, "--format", "json", "-o", f"{OUT}/comparison.json"), "file")


def _planned(name: str, words: tuple[str, ...]) -> Iterator[Case]:
    yield Case(f"plan/{name}", ("plan", *words), "txt", kept=True)
    yield Case(f"plan/{name}", ("plan", *words, "--json"), "json", kept=name in ("orders", "trace-window"))
    yield Case(f"plan/{name}", ("plan", *words, "--format", "markdown"), "md", quick=name in ("rates", "trace-window"))
    yield Case(f"plan/{name}", ("plan", *words, "--plots", f"{OUT}/plots"), "plots", quick=name in ("orders", "trace-window"), drawn=True)


def _run(name: str, words: tuple[str, ...]) -> Iterator[Case]:
    yield Case(f"run/{name}", (*words, "--quiet", "--out", f"{OUT}/run"), "txt", kept=True)
    yield Case(f"run/{name}", (*words, "--quiet", "--json", "--out", f"{OUT}/run"), "json")


# How they are rendered.


@contextmanager
def workplace() -> Iterator[Path]:
    """A folder in which ``tests/data`` lies, and into which a case may write."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for path in DATA.iterdir():
            if path != REPORTS:
                (folder / path.name).symlink_to(path.resolve(), target_is_directory=path.is_dir())
        yield folder


def render(case: Case, folder: Path) -> Rendered:
    """Run a case in the folder of :func:`workplace`."""
    out, err = io.StringIO(), io.StringIO()
    written = folder / OUT
    shutil.rmtree(written, ignore_errors=True)
    written.mkdir()
    before = dict(os.environ)
    os.environ.pop(SUMMARY, None)
    os.environ.update(case.environment)
    try:
        with chdir(folder), redirect_stdout(out), redirect_stderr(err):
            code = main(list(case.words))
    finally:
        os.environ.clear()
        os.environ.update(before)
    files = {path.relative_to(written).as_posix(): _content(path) for path in sorted(written.rglob("*")) if path.is_file()}
    return Rendered(code, out.getvalue(), err.getvalue(), files)


def _content(path: Path) -> str:
    """The text of a file; of a manifest without the time, the machine and the version of kvbench."""
    text = path.read_text(encoding="utf-8")
    if path.name not in ("manifest.json", "sweep.json"):
        return text
    return json.dumps({name: value for name, value in json.loads(text).items() if name not in ("created", "environment", "kvbench")})


# What is kept of it.


def described(case: Case, rendered: Rendered) -> dict[str, Any]:
    """The line of the index: ``stdout`` is ``None`` where the text lies in a file of its own."""
    return {
        "code": rendered.code,
        "stderr": rendered.err,
        "stdout": None if case.kept and rendered.out else _sums(rendered.out),
        "files": {name: _sums(text) for name, text in rendered.files.items()},
    }


def _sums(text: str) -> list[str]:
    """SHA-256 of the text, and of the text with long numbers rounded."""
    return [hashlib.sha256(one.encode()).hexdigest()[:20] for one in (text, rounded(text))]


def rounded(text: str) -> str:
    """The text with numbers of seven decimals or more at nine digits, which any CPU computes alike."""
    return re.sub(r"-?\d+\.\d{7,}(e[+-]?\d+)?", lambda number: f"{float(number[0]):.9g}", text)


def differences(case: Case, rendered: Rendered, index: Mapping[str, Any]) -> list[str]:
    """What has changed, in words; a text that is kept whole as a diff."""
    known = index["cases"].get(case.key)
    if known is None:
        return ["has never been kept: python tests/golden.py --write " + case.key]
    exact = index["numbers"] == numbers()
    now = described(case, rendered)
    found = [f"{name}: {known[name]!r} is now {now[name]!r}" for name in ("code", "stderr") if known[name] != now[name]]
    if known["stdout"] is None:
        kept = (REPORTS / case.key).read_bytes().decode()
        texts = [kept, rendered.out] if exact else [rounded(kept), rounded(rendered.out)]
        if texts[0] != texts[1]:
            before, after = (text.splitlines() for text in texts)
            lines = difflib.unified_diff(before, after, "kept", "now", lineterm="", n=1)
            found.append("\n".join(islice(lines, MOST_LINES)))
    elif known["stdout"][not exact] != _sums(rendered.out)[not exact]:
        found.append("standard output is another; see it with --dump DIR, here and where it was right")
    if known["files"].keys() != now["files"].keys():
        found.append(f"files: {', '.join(known['files'])} are now {', '.join(now['files'])}")
    changed = [name for name, sums in known["files"].items() if name in now["files"] and sums[not exact] != now["files"][name][not exact]]
    return [*found, *(f"{name} is another; see it with --dump DIR, here and where it was right" for name in changed)]


def read_index() -> dict[str, Any]:
    """What ``--write`` kept: ``matplotlib``, ``numbers`` and ``cases``, by key."""
    index: dict[str, Any] = json.loads(INDEX.read_text(encoding="utf-8"))
    return index


@cache
def numbers() -> str:
    """A sum over the last bits of what this machine computes."""
    import numpy as np
    from scipy import stats

    values = np.linspace(0.1, 700.0, 997)
    arrays = (np.log(values), np.exp(values / 100), values**0.37, np.percentile(values, [25, 50, 90, 99]), np.sqrt(values) / 3)
    single = (values.mean(), values.std(ddof=1), np.log(values).sum(), stats.t.isf(0.0013, 4), stats.median_abs_deviation(np.exp(-values)))
    plain = [function(0.1 + place / 7) for place in range(200) for function in (math.log1p, math.expm1, math.exp, math.log)]
    text = repr([[float(number).hex() for number in array] for array in (*arrays, single, plain)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def matplotlib_version() -> str:
    """Of this environment."""
    import matplotlib as mpl

    return str(mpl.__version__)


def _write(wanted: Sequence[Case], everything: bool) -> None:
    """Render the cases and keep what they say; files that no case has any more are removed."""
    index = read_index()["cases"] if INDEX.exists() and not everything else {}
    with workplace() as folder:
        for case in wanted:
            rendered = render(case, folder)
            index[case.key] = described(case, rendered)
            if index[case.key]["stdout"] is None:
                path = REPORTS / case.key
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(rendered.out, encoding="utf-8", newline="")
    names = [case.key for case in cases()]
    index = {name: line for name, line in index.items() if name in names}
    known = {REPORTS / name for name, line in index.items() if line["stdout"] is None}
    for path in REPORTS.rglob("*"):
        if path.is_file() and path != INDEX and path not in known:
            path.unlink()
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(line, ensure_ascii=False)}" for name, line in sorted(index.items()))
    head = f'"matplotlib": {json.dumps(matplotlib_version())},\n"numbers": {json.dumps(numbers())}'
    INDEX.write_text(f'{{\n{head},\n"cases": {{\n{lines}\n}}\n}}\n', encoding="utf-8", newline="")


def _check(wanted: Sequence[Case]) -> int:
    """The exit code: 1 if any has changed."""
    index, changed = read_index(), 0
    with workplace() as folder:
        for case in wanted:
            if found := differences(case, render(case, folder), index):
                changed += 1
                print(f"== {case.key}: kvbench {shlex.join(case.words)}", *found, sep="\n", flush=True)
    print(f"{changed} of {len(wanted)} cases have changed")
    return int(changed > 0)


def _dump(wanted: Sequence[Case], folder: Path) -> None:
    """Write everything that the cases say."""
    with workplace() as place:
        for case in wanted:
            rendered = render(case, place)
            whole = {"stdout": rendered.out, "stderr": rendered.err, "code": f"{rendered.code}\n", **rendered.files}
            for name, text in whole.items():
                path = folder / case.key / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8", newline="")


def _command(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Render the cases of the golden reports.")
    parser.add_argument("--write", action="store_true", help="keep what they say")
    parser.add_argument("--check", action="store_true", help="say which have changed")
    parser.add_argument("--dump", type=Path, metavar="DIR", help="write all of it into this folder")
    parser.add_argument("prefixes", nargs="*", metavar="PREFIX", help="only cases whose names begin so")
    options = parser.parse_args(arguments)
    wanted = [case for case in cases() if not options.prefixes or case.key.startswith(tuple(options.prefixes))]
    if not (options.write or options.check or options.dump):
        parser.error("--write, --check or --dump DIR")
    if options.dump is not None:
        _dump(wanted, options.dump)
    if options.write:
        _write(wanted, everything=not options.prefixes)
    return _check(wanted) if options.check else 0


if __name__ == "__main__":
    sys.exit(_command(sys.argv[1:]))
