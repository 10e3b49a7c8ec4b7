"""The sandbox as its users see it: statuses, limits, many programs at a time, and nothing left behind."""

from __future__ import annotations

import collections
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlanything_jax.envs import code as code_world
from rlanything_jax.envs.code.sandbox import (
    BACKENDS,
    STATUSES,
    Program,
    Result,
    Sandbox,
    as_program,
    client,
    protocol,
    seccomp,
    watch,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")


def opened(slots: int, backend: str) -> Sandbox:
    try:
        return Sandbox(slots, backend=backend)
    except RuntimeError as error:
        pytest.skip(str(error).splitlines()[1])


@pytest.fixture(scope="module", params=BACKENDS)
def sandbox(request) -> Iterator[Sandbox]:
    with opened(4, request.param) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def server() -> Iterator[Sandbox]:
    """The fork server alone, for what it adds."""
    with opened(4, "forkserver") as sandbox:
        yield sandbox


def test_backend_says_which_it_is(sandbox, request):
    assert sandbox.backend == request.node.callspec.params["sandbox"]


@pytest.mark.parametrize(
    ("code", "status", "exit_code"),
    [
        ("pass", "ok", 0),
        ("import sys; sys.exit()", "ok", 0),
        ("exit(3)", "error", 3),
        ("raise SystemExit('why')", "error", 1),
        ("1 / 0", "error", 1),
        ("def f(:", "error", 1),
        ("import os; os._exit(7)", "error", 7),
        ("import ctypes; ctypes.string_at(0)", "signal", -11),
        ("while True: pass", "timeout", None),
        ("import time; time.sleep(60)", "timeout", None),
        ("print('x' * (3 << 20))", "output", None),
        ("x = bytearray(1 << 30)", "memory", 1),
    ],
)
def test_status(sandbox, code, status, exit_code):
    result = sandbox.run(code, timeout_s=1 if status == "timeout" else 30)
    assert result.status == status and result.status in STATUSES, result
    if exit_code is not None:
        assert result.exit_code == exit_code


def test_input_reaches_the_program_and_its_output_comes_back(sandbox):
    result = sandbox.run("import sys\nprint(input()[::-1])\nprint('é', file=sys.stderr)", stdin="größe\nmore")
    assert (result.status, result.stdout, result.stderr) == ("ok", "eßörg\n", "é\n")
    assert 0 < result.seconds < 30


def test_megabytes_of_input_and_output_at_the_same_time(sandbox):
    text = "line of text\n" * 200_000
    result = sandbox.run(
        "import sys\nfor line in sys.stdin: print(line, end='')", stdin=text, output_kb=4096, timeout_s=60
    )
    assert result.status == "ok" and result.stdout == text


def test_input_that_nobody_reads(sandbox):
    assert sandbox.run("print(1)", stdin="x" * (1 << 20), timeout_s=30).stdout == "1\n"


def test_200_kb_of_output_is_no_timeout(sandbox):
    """200 kB of output makes the executor report a time-out."""
    result = sandbox.run("print('x' * 200_000)", timeout_s=30)
    assert (result.status, len(result.stdout)) == ("ok", 200_001)


def test_200_mb_of_output_are_cut_and_said_so(sandbox):
    result = sandbox.run("for _ in range(200): print('x' * 1_000_000)", timeout_s=60)
    assert (result.status, len(result.stdout)) == ("output", 1024 * 1024)


def test_output_that_is_too_long_only_at_the_end(sandbox):
    result = sandbox.run("print('x' * 3000)", output_kb=2, timeout_s=30)
    assert (result.status, len(result.stdout)) == ("output", 2048)


def test_output_before_a_timeout_is_kept(sandbox):
    result = sandbox.run("print('so far', flush=True)\nwhile True: pass", timeout_s=1)
    assert (result.status, result.stdout) == ("timeout", "so far\n")


def test_output_that_is_not_text_is_replaced(sandbox):
    assert sandbox.run("import os\nos.write(1, b'a\\xffb')").stdout == "a\N{REPLACEMENT CHARACTER}b"


def test_seconds_are_those_of_the_program(sandbox):
    assert 0.5 <= sandbox.run("import time\ntime.sleep(.5)", timeout_s=30).seconds < 5


def test_program_that_closes_its_output_still_ends(sandbox):
    result = sandbox.run("import os, time\nos.close(1); os.close(2)\ntime.sleep(60)", timeout_s=1)
    assert result.status == "timeout"


def test_timeout_off_the_main_thread(sandbox):
    """All math rewards 0: signal timeout raises off the main thread and is swallowed."""
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(sandbox.run("while True: pass", timeout_s=0.5)))
    thread.start()
    thread.join(30)
    assert [result.status for result in results] == ["timeout"]


def test_timeout_cannot_be_swallowed(sandbox):
    code = "while True:\n  try:\n    while True: pass\n  except BaseException: pass"
    assert sandbox.run(code, timeout_s=0.5).status == "timeout"


def test_shell_and_command(sandbox):
    assert sandbox.run("echo $((6 * 7)) | tr 2 3; pwd", language="shell", timeout_s=30).stdout == "43\n/tmp\n"
    assert sandbox.run_command(["sort", "-r"], stdin="a\nb\n", timeout_s=30).stdout == "b\na\n"
    assert sandbox.run_command(["head", "-c", "3", "/dev/zero"], timeout_s=30).stdout == "\0\0\0"


def test_unknown_command(server):
    result = server.run_command(["nonesuch", "x"])
    assert (result.status, result.exit_code) == ("error", 127)
    assert result.stderr == "nonesuch: No such file or directory\n"


def test_results_come_in_the_order_of_the_programs(sandbox):
    programs = [
        Program(f"import time\ntime.sleep({0.2 * (i % 2 == 0)})\nprint({i})", timeout_s=30) for i in range(8)
    ]
    assert [result.stdout for result in sandbox.run_all(programs)] == [f"{i}\n" for i in range(8)]


def test_slots_run_at_the_same_time(server):
    start = time.monotonic()
    server.run_all([Program("import time\ntime.sleep(1)", timeout_s=30)] * 4)
    assert time.monotonic() - start < 3


def test_64_in_flight():
    with opened(64, "auto") as sandbox:
        results = sandbox.run_all([Program(f"print({i})", timeout_s=60) for i in range(192)])
    assert [result.stdout for result in results] == [f"{i}\n" for i in range(192)]


# --- the program finds Python as it knows it ---------------------------------------------------------------------


def printed(sandbox: Sandbox, code: str) -> str:
    result = sandbox.run(code, timeout_s=30)
    assert result.status == "ok", result
    return result.stdout.strip()


def test_program_is_main(sandbox):
    code = (
        "from dataclasses import dataclass\nimport pickle, sys\n@dataclass\nclass Point:\n  x: 'int' = 1\n"
        "print(__name__, sys.modules['__main__'].Point, pickle.loads(pickle.dumps(Point(2))).x, len(sys.argv))"
    )
    assert printed(sandbox, code) == "__main__ <class '__main__.Point'> 2 1"


def test_program_inherits_no_future_import(sandbox):
    assert printed(sandbox, "def f(x: 1 + 1): pass\nprint(f.__annotations__)") == "{'x': 2}"


def test_end_of_the_program_is_that_of_an_interpreter(sandbox):
    """Threads are waited for, exit handlers run, buffers are written."""
    code = (
        "import atexit, threading, time\natexit.register(print, 'exit')\n"
        "threading.Thread(target=lambda: (time.sleep(.2), print('thread'))).start()\nprint('main')"
    )
    assert printed(sandbox, code) == "main\nthread\nexit"


def test_children_and_pools(sandbox):
    code = (
        "import multiprocessing\nif __name__ == '__main__':\n"
        "  with multiprocessing.get_context('fork').Pool(2) as pool: print(pool.map(abs, [-1, -2]))"
    )
    assert printed(sandbox, code) == "[1, 2]"


def test_traceback_shows_the_program_alone(server):
    result = server.run("def f(x):\n    return 1 / x\n\nf(0)")
    assert result.stderr == (
        "Traceback (most recent call last):\n"
        '  File "program.py", line 4, in <module>\n    f(0)\n'
        '  File "program.py", line 2, in f\n    return 1 / x\n           ~~^~~\n'
        "ZeroDivisionError: division by zero\n"
    )


def test_random_numbers_differ_between_runs_and_the_order_of_sets_does_not(server):
    """n samples with a fixed seed are identical: all runs are forks of one process."""
    results = server.run_all([Program("import random\nprint(random.random())")] * 8)
    assert len({result.stdout for result in results}) == 8
    results = server.run_all([Program("print({'a', 'b', 'c', 'd', 'e', 'f'})")] * 2)
    with opened(1, "forkserver") as another:
        results.append(another.run("print({'a', 'b', 'c', 'd', 'e', 'f'})"))
    assert len({result.stdout for result in results}) == 1


def test_server_knows_nothing_of_jax_and_of_us(server):
    code = (
        "import sys\nprint([name for name in sys.modules if name.split('.')[0] in "
        "('jax', 'jaxlib', 'numpy', 'rlanything_jax', 'sandbox')])\nprint([p for p in sys.path if 'rlanything' in p])"
    )
    assert printed(server, code) == "[]\n[]"


def test_program_with_lone_surrogates_and_null_characters(server):
    assert server.run("print('\ud800')").status == "error"
    assert server.run("print(input())", stdin="\ud800").stdout == "?\n"
    assert server.run("print(1)\0").status == "error"
    assert server.run("# " + "x" * 500_000 + "\nprint(1)").stdout == "1\n"


# --- nothing left behind -----------------------------------------------------------------------------------------


def children(pid: int) -> list[str]:
    return [
        child
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]


def test_thousand_runs_leave_nothing_behind():
    programs = [
        Program("open('left', 'w').write('x')"),
        Program("import os\nif os.fork() == 0: os.setsid(); os.execvp('sleep', ['sleep', '600'])"),
        Program("1 / 0"),
        Program("import os\nos.mkdir('a'); os.symlink('a', 'b'); print('x' * 70_000)"),
    ]
    with opened(8, "forkserver") as sandbox:
        sandbox.run_all(programs * 4)
        pid = sandbox._backend._process.pid

        def held() -> tuple[object, ...]:
            return (
                len(os.listdir("/proc/self/fd")),
                len(os.listdir(f"/proc/{pid}/fd")),
                Path("/proc/self/mounts").read_text(),
                Path(f"/proc/{pid}/mounts").read_text(),
                children(pid),
                set(os.listdir("/tmp")) & {"left", "a", "b"},
            )

        before = held()
        results = sandbox.run_all(programs * 250)
        assert collections.Counter(result.status for result in results) == {"ok": 750, "error": 250}
        assert held() == before and before[4] == []
    assert not Path(f"/proc/{pid}").exists()


def test_failed_sandbox_leaves_no_descriptor(server, monkeypatch):
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(protocol, "json", None)
    for _ in range(3):
        with pytest.raises(AttributeError):
            server.run("pass")
    assert len(os.listdir("/proc/self/fd")) == before
    monkeypatch.undo()
    assert server.run("print(1)").stdout == "1\n"


def test_run_that_cannot_start_does_not_end_the_server(server):
    with pytest.raises(RuntimeError, match="could not be made: OverflowError"):
        server.run("pass", disk_mb=1 << 60)
    assert server.run("print(1)").stdout == "1\n"


def test_shared_sandbox_closes_with_the_process():
    code = (
        "from rlanything_jax.envs.code import run\nprint(run('print(input())', stdin='hello').stdout, end='')"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        cwd=Path(__file__).resolve().parents[3],
        timeout=120,
    )
    if "no sandbox works here" in done.stderr:
        pytest.skip("no sandbox works here")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")


# --- refusals ----------------------------------------------------------------------------------------------------


def test_refuses_loudly_where_nothing_holds(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(client, "interpreters", lambda: ["/bin/false"])
    with pytest.raises(RuntimeError) as refusal:
        Sandbox()
    message = str(refusal.value)
    assert "nothing is run without one" in message and "To fix it" in message
    assert "forkserver with /bin/false: /bin/false failed" in message
    assert "bubblewrap: not installed: bwrap, prlimit" in message


def test_backend_that_runs_programs_wrongly_is_not_used(monkeypatch):
    class Wrong:
        name = "wrong"

        def run(self, program: Program, slot: int) -> Result:
            return Result("ok", "41\n", "", 0.0, 0)

        def close(self) -> None:
            pass

    monkeypatch.setattr(client, "_ways", lambda names: [("wrong", Wrong)])
    with pytest.raises(RuntimeError, match="wrong: a first program ended with"):
        Sandbox()


def test_needs_linux(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(RuntimeError, match="needs Linux .* this is darwin"):
        Sandbox()


def test_needs_a_machine_whose_calls_are_known(monkeypatch):
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "x", "6", "v", "riscv64")))
    with pytest.raises(OSError, match="no system-call numbers for riscv64; known: x86_64, aarch64"):
        seccomp.filter_program()


@pytest.mark.parametrize("field", ["timeout_s", "memory_mb", "processes", "disk_mb", "files", "output_kb"])
def test_limits_must_be_positive(field):
    with pytest.raises(ValueError, match=f"Program.{field} must be positive, got 0"):
        Program("pass", **{field: 0})


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="code or argv, not both"):
        Program("pass", argv=("ls",))
    with pytest.raises(ValueError, match="null character"):
        Program(argv=("l\0s",))
    with pytest.raises(ValueError, match="'python' or 'shell', got 'perl'"):
        as_program("pass", language="perl")
    with pytest.raises(ValueError, match="between 1 and 128, got 1000"):
        Sandbox(1000)
    with pytest.raises(ValueError, match="backend must be one of auto, forkserver, bubblewrap; got 'none'"):
        Sandbox(backend="none")
    with pytest.raises(AttributeError, match="no attribute 'nonesuch'"):
        code_world.nonesuch  # noqa: B018


# --- parts -------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.builds(
        Program,
        code=st.text(st.characters(exclude_categories=["Cs"])),
        timeout_s=st.floats(0.1, 100),
        memory_mb=st.integers(1, 10**6),
    )
)
def test_program_crosses_the_pipe_unchanged(program):
    assert protocol.from_json(protocol.to_json(program)) == program


def test_family_memory_counts_descendants():
    code = (
        "import subprocess, sys\nheld = b'x' * (30 << 20)\n"
        "child = subprocess.Popen([sys.executable, '-c', \"held = b'x' * (40 << 20); print(1, flush=True); input()\"], stdin=0)\n"
        "child.wait()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin and process.stdout
        process.stdout.readline()
        kb = watch.family_kb(process.pid)
        process.stdin.close()
    assert 70 << 10 <= kb < 130 << 10
    assert watch.family_kb(process.pid) == 0


def test_filter_jumps_stay_inside():
    """Every path through the filter ends in a verdict."""
    program = seccomp.filter_program()
    instructions = [program[i : i + 8] for i in range(0, len(program), 8)]
    for place, (code, _, if_true, if_false) in enumerate(instruction[:4] for instruction in instructions):
        if code in (0x15, 0x35, 0x45):
            assert place + 1 + max(if_true, if_false) < len(instructions)
    assert instructions[-1][0] == 0x06
