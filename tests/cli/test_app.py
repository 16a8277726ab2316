import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import minisgl
from minisgl.env import ENV
from minisgl.kernel import cpu_library, cpu_ops, triton
from minisgl.kernel.cpu_build import Library
from minisgl.kernel.cpu_choice import Choice, Rates
from minisgl.utils import hardware
from minisgl.utils.hardware import Gpu
from minisgl.utils.model_store import SMOLLM2

RATES_SAID = (
    "rates     GFLOP/s of a core, measured once: avx512 200 in bfloat16, 100 in float32; avx2 80 in bfloat16, 90 in"
)


def test_version_and_help_import_nothing_heavy():
    code = (
        "import sys; from minisgl.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: print(sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    for argument, words in (("--version", f"minisgl {minisgl.__version__}"), ("--help", "doctor")):
        done = subprocess.run([sys.executable, "-c", code, argument], capture_output=True, text=True, check=True)
        assert words in done.stdout
        assert done.stdout.endswith("[]\n")


def test_what_is_cheap_to_check_is_refused_before_torch_is_imported(tmp_path: Path):
    """Without torch: whatever needs it would say so instead."""
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "none.csv").write_text("")
    empty = str(tmp_path)
    names = {
        "nope": "no model 'nope'",
        empty: "holds neither config.json nor a .gguf",
        f"{empty}/a.txt": "no .gguf file",
    }
    commands = [
        ["generate", "hi"],
        ["chat"],
        ["serve", "--port", "0"],
        ["bench", "offline"],
        ["bench", "radix"],
        ["explain", "one", "two"],
        ["launch", "--port", "0"],
        ["launch", "--shell"],
    ]
    cases = [([*command, "--model", name], words) for command in commands for name, words in names.items()]
    cases += [([*command, "--page-size", "0"], "page-size") for command in commands]
    cases += [
        (["generate", "hi", "--temperature", "-1"], "--temperature=-1.0"),
        (["chat", "--top-p", "2"], "--top-p=2.0"),
        (["generate", "hi", "--output", f"{empty}/no/where"], "--output"),
        (["serve", "--port", "70000"], "--port=70000"),
        (["bench", "offline", "--json", f"{empty}/no/where"], "--json"),
        (["simulate", f"{empty}/no.jsonl"], "No such file"),
        (["simulate", f"{empty}/none.csv"], "none.csv"),
        (["simulate", f"{empty}/none.csv", "--page-size", "0"], "--page-size=0"),
    ]
    code = (
        "import json, sys\nsys.modules['torch'] = None\nfrom minisgl.cli import main\n"
        "for line in json.load(sys.stdin):\n"
        "    try: main(line)\n"
        "    except SystemExit as error: print(f'exit {error.code}', file=sys.stderr)"
    )
    lines = json.dumps([line for line, _ in cases])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, input=lines)
    said = done.stderr.split("exit 2\n")
    assert len(said) == len(cases) + 1, done.stderr
    for (line, words), refusal in zip(cases, said, strict=False):
        assert words in refusal, (line, refusal)


def test_without_arguments_the_help_is_shown(run):
    done = run()
    assert done.code == 0
    assert "generate" in done.out
    assert "launch" not in done.out


def test_an_unknown_command_is_a_usage_error(run):
    done = run("serve-me")
    assert done.code == 2
    assert "No such command" in done.err


def test_doctor_knows_this_python_and_the_pulled_models(run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    kernels = ENV.CACHE_DIR.value / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    (tmp_path / "kernels").symlink_to(kernels)  # which are not compiled again
    monkeypatch.setattr(ENV.CACHE_DIR, "value", tmp_path)
    done = run("doctor")
    assert done.code == 0
    assert sys.executable in done.out
    assert "none pulled" in done.out


def test_doctor_says_which_sampling_holds_where_nobody_says(run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("minisgl.cli.doctor.pulled_models", lambda: [SMOLLM2])
    (line,) = [line for line in run("doctor").out.splitlines() if line.startswith("sampling")]
    assert "smollm2: temperature 0.2, top_p 0.9, min_p 0.75, repetition_penalty 1.08; others: as their files" in line
    found = json.loads(run("doctor", "--json").out)
    assert found["sampling_defaults"] == {"smollm2": SMOLLM2.sampling}


@pytest.mark.parametrize(
    ("gpus", "kernels", "backend"),
    [
        ((), "torch on the CPU\n", "torch"),
        ((Gpu("a GPU", 1 << 30, (9, 0)),), "torch on the CPU, Triton on a GPU", "triton"),
    ],
)
def test_doctor_says_what_computes_here(run, monkeypatch: pytest.MonkeyPatch, gpus, kernels: str, backend: str):
    found = replace(hardware.find_hardware(), gpus=gpus)
    monkeypatch.setattr(hardware, "find_hardware", lambda: found)
    monkeypatch.setattr(cpu_ops, "in_use", lambda: False)
    monkeypatch.setattr(triton, "in_use", lambda: True)
    done = run("doctor")
    assert kernels in done.out
    assert f"attention {backend}, unless" in done.out
    assert "integers  quantization none for a GGUF file: more takes a CPU and kernels in C++" in done.out


@pytest.mark.parametrize(
    ("rates", "features", "dtype", "says"),
    [
        (
            {"avx512": (100.0, 200.0), "avx2": (90.0, 80.0)},
            (),
            "bfloat16 for checkpoints of 16 bits, by the rates",
            RATES_SAID,
        ),
        (
            {"avx512": (100.0, 50.0)},
            ("amx_bf16",),
            "float32 for checkpoints of 16 bits, by the rates",
            "50 in bfloat16",
        ),
        (
            None,
            ("amx_bf16",),
            "bfloat16 for checkpoints of 16 bits, by the processor's flags",
            "not measured, for they",
        ),
        (None, (), "float32 for checkpoints of 16 bits, by the processor's flags", "not measured, for they"),
    ],
)
def test_doctor_says_which_numbers_are_chosen_here_and_why(
    run,
    monkeypatch: pytest.MonkeyPatch,
    rates: dict[str, tuple[float, float]] | None,
    features: tuple[str, ...],
    dtype: str,
    says: str,
):
    of_levels = None if rates is None else {isa: Rates(*of_level) for isa, of_level in rates.items()}
    choice = Choice(Library(Path("x.so"), "avx512", shipped=True), of_levels)
    monkeypatch.setattr(cpu_library, "choice", lambda: choice)
    monkeypatch.setattr(cpu_ops, "in_use", lambda: True)
    found = replace(hardware.find_hardware(), gpus=(), cpu_features=features)
    monkeypatch.setattr(hardware, "find_hardware", lambda: found)
    monkeypatch.setattr("minisgl.engine.quantization.cpu_ops.in_use", lambda: True)
    done = run("doctor")
    assert f"dtype     {dtype}" in done.out
    assert says in done.out
    assert json.loads(run("doctor", "--json").out)["kernel_rates"] == (
        of_levels and {isa: each._asdict() for isa, each in of_levels.items()}
    )
    assert "float32 for others and most GGUF files" in done.out
    assert "integers  quantization none for a GGUF file in float32, gguf for one in bfloat16" in done.out


def test_pull_of_an_unknown_alias_is_one_line_and_exit_2(run):
    done = run("pull", "nonsense")
    assert done.code == 2
    assert done.out == ""
    assert done.err == "error: no model has the alias 'nonsense'; known: smollm2, smollm2-135m-instruct\n"


def test_a_wrong_variable_is_one_line_and_exit_2():
    done = subprocess.run(
        [sys.executable, "-m", "minisgl", "doctor"],
        capture_output=True,
        text=True,
        env=os.environ | {"MINISGL_LOG_LEVEL": "LOUD"},
        check=False,
    )
    assert done.returncode == 2
    said = "error: MINISGL_LOG_LEVEL='LOUD' is not a valid log_level: least severe message that the command line shows"
    assert done.stderr == f"{said}\n"


def test_the_predecessors_command_line_opens_the_shell(run, fake_llm):
    done = run("--model", "m", "--page-size", "4", "--shell", stdin="hi\n")
    assert done.code == 0
    assert "HI" in done.out
    assert fake_llm.last.model == "m"
    assert fake_llm.last.config == {"page_size": 4}


def test_the_predecessors_command_line_says_how_many_gpus(run, fake_llm):
    done = run("--model", "m", "--tensor-parallel-size", "2", "--shell", stdin="hi\n")
    assert done.code == 0
    assert fake_llm.last.config == {"tensor_parallel_size": 2}


def test_a_reader_that_leaves_early_ends_the_command_quietly():
    pipeline = f"{sys.executable} -m minisgl doctor --json | true"
    done = subprocess.run(["bash", "-c", pipeline], capture_output=True, text=True, check=True)
    assert done.stderr == ""


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_as_good_as_dev_null(closed: str) -> None:
    command = f"{sys.executable} -m minisgl pull nonsense {closed}"
    assert subprocess.run(["bash", "-c", command], check=False).returncode == 2
