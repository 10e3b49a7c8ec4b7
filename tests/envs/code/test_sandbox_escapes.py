"""Programs that try to get out of the sandbox, each in every kind of sandbox that this machine allows.

An attempt prints what it achieved; the test demands that this is nothing, and looks at the host where it can.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rlanything_jax.envs.code import sandbox as package
from rlanything_jax.envs.code.sandbox import Result, Sandbox, as_program

ROOT = Path(__file__).resolve().parents[3]
KINDS = ("forkserver", "forkserver-as-user", "bubblewrap")
USER, GROUP = 54321, 43210  # an ordinary user
SECRET = "correct-horse-battery-staple"
WORKER = """
import dataclasses, json, sys
sys.path.insert(0, sys.argv[1])
from sandbox import Sandbox, as_program
with Sandbox(4, backend="forkserver") as sandbox:
    print("ready", flush=True)
    for line in sys.stdin:
        results = sandbox.run_all(as_program(**settings) for settings in json.loads(line))
        print(json.dumps([dataclasses.asdict(result) for result in results]), flush=True)
"""
LIBC = "import ctypes, os, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n"
TRY = """
def attempt(action):
    try:
        return action()
    except Exception as error:
        return type(error).__name__
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")


@dataclasses.dataclass(frozen=True)
class Box:
    """One kind of sandbox. `run_all` takes, for each program, the arguments of as_program."""

    kind: str
    run_all: Callable[[list[dict[str, Any]]], list[Result]]

    def run(self, code: str, **settings: Any) -> Result:
        return self.run_all([{"code": code, "timeout_s": 30, **settings}])[0]

    def printed(self, code: str, **settings: Any) -> str:
        """What a program that must succeed prints."""
        result = self.run(code, **settings)
        assert result.status == "ok", result
        return result.stdout.strip()


@contextmanager
def open_box(kind: str) -> Iterator[Box]:
    if kind == "forkserver-as-user":
        with open_box_of_ordinary_user() as box:
            yield box
        return
    try:
        sandbox = Sandbox(4, backend=kind)
    except RuntimeError as error:
        pytest.skip(str(error).splitlines()[1])
    with sandbox:
        yield Box(kind, lambda programs: sandbox.run_all(as_program(**each) for each in programs))


@contextmanager
def open_box_of_ordinary_user() -> Iterator[Box]:
    if os.geteuid() != 0:
        pytest.skip("we are an ordinary user already: 'forkserver' covers it")
    if not os.path.exists("/usr/bin/python3"):
        pytest.skip("no /usr/bin/python3, and ours may lie where another user cannot read it")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        shutil.copytree(Path(package.__file__).parent, Path(folder, "sandbox"))
        for path in (Path(folder), *Path(folder).rglob("*")):
            path.chmod(0o755)
        worker = stack.enter_context(
            subprocess.Popen(
                ["/usr/bin/python3", "-B", "-c", WORKER, folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                user=USER,
                group=GROUP,
                extra_groups=[],
                env={"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"},
            )
        )
        if not worker.stdout.readline():
            pytest.skip(f"no sandbox for ordinary users here: {worker.stderr.read()[-800:]}")

        def run_all(programs: list[dict[str, Any]]) -> list[Result]:
            worker.stdin.write(json.dumps(programs) + "\n")
            worker.stdin.flush()
            return [Result(**fields) for fields in json.loads(worker.stdout.readline())]

        yield Box("forkserver-as-user", run_all)
        worker.stdin.close()


@pytest.fixture(scope="module", params=KINDS)
def box(request) -> Iterator[Box]:
    os.environ["SANDBOX_TEST_SECRET"] = SECRET  # in our environment before any sandbox starts
    try:
        with open_box(request.param) as opened:
            yield opened
    finally:
        del os.environ["SANDBOX_TEST_SECRET"]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder outside the sandbox that every user of the host may write to, with a file that all may read."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "secret").write_text(SECRET)
        (folder / "secret").chmod(0o644)
        yield folder


# --- network ---------------------------------------------------------------------------------------------------


def test_network_cannot_be_reached(box):
    code = TRY + "import socket\nprint(attempt(lambda: socket.create_connection(('1.1.1.1', 53), 2)))"
    assert box.printed(code) in ("PermissionError", "OSError")


def test_localhost_cannot_be_reached(box):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        address = server.getsockname()
        code = TRY + f"import socket\nprint(attempt(lambda: socket.create_connection({address}, 2)))"
        assert box.printed(code) in ("PermissionError", "OSError", "ConnectionRefusedError")
        with pytest.raises(BlockingIOError):
            server.accept()


def test_dns_does_not_answer(box):
    code = TRY + "import socket\nprint(attempt(lambda: socket.getaddrinfo('example.com', 80)))"
    assert box.printed(code) in ("gaierror", "PermissionError")


def test_no_socket_of_any_family(box):
    """vsock leads to the host of a virtual machine, whatever the network namespace; netlink and packets nowhere good."""
    code = TRY + (
        "import socket\nfor family in range(46):\n for kind in (1, 2, 3, 5):\n"
        "  result = attempt(lambda: socket.socket(family, kind))\n"
        "  if result != 'PermissionError': print(family, kind, result)"
    )
    assert box.printed(code) == ""


def test_abstract_unix_socket_of_the_host_cannot_be_reached(box):
    name = f"\0sandbox-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        code = TRY + f"import socket\nprint(attempt(lambda: socket.socket(socket.AF_UNIX).connect({name!r})))"
        assert box.printed(code) in ("PermissionError", "ConnectionRefusedError")


# --- reads -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/etc/shadow", "/etc/passwd", "/etc/hostname", "/proc/1/environ", "/sys/kernel"]
)
def test_host_file_cannot_be_read(box, path):
    assert box.printed(
        TRY + f"import os\nprint(attempt(lambda: os.stat({path!r}) and open({path!r}).read()))"
    ) in (
        "FileNotFoundError",
        "PermissionError",
    )


def test_homes_cannot_be_read(box):
    code = TRY + (
        "import os, sys\nfound = []\n"
        "for home in ('/home', '/root', os.path.expanduser('~root')):\n"
        "  for folder, folders, files in os.walk(home):\n"
        "    if sys.base_prefix.startswith(folder): continue\n"  # the way to an interpreter that lives there
        "    if folder.startswith(sys.base_prefix): folders.clear(); continue\n"
        "    found += [folder, *files]\nprint(found)"
    )
    assert box.printed(code) == "[]"


def test_world_readable_file_of_the_host_cannot_be_read(box, open_folder):
    code = TRY + f"print(attempt(lambda: open({str(open_folder / 'secret')!r}).read()))"
    assert box.printed(code) == "FileNotFoundError"


def test_repository_cannot_be_read(box):
    assert box.printed(TRY + f"import os\nprint(attempt(lambda: os.listdir({str(ROOT)!r})))") in (
        "FileNotFoundError",
        "PermissionError",
    )


def test_environment_of_the_host_cannot_be_read(box):
    code = (
        "import os, glob\nprint(dict(os.environ), glob.glob('/proc/*'))\n"
        "for path in glob.glob('/proc/*/environ'):\n  try: print(open(path).read())\n  except OSError: pass"
    )
    assert SECRET not in box.printed(code)


def test_work_folder_of_another_slot_cannot_be_read(box):
    writer = (
        f"import time\nopen('/tmp/mine', 'w').write('{SECRET}')\nprint('written', flush=True)\ntime.sleep(1)"
    )
    reader = (
        "import os, time\ntime.sleep(.3)\n"
        "for folder, _, files in os.walk('/tmp'): print(folder, files)\nprint(os.path.exists('/tmp/mine'))"
    )
    results = box.run_all([{"code": code, "timeout_s": 30} for code in (writer, reader)])
    assert [result.stdout for result in results] == ["written\n", "/tmp []\nFalse\n"]


def test_tests_and_expected_outputs_are_not_in_the_sandbox(box):
    """A solution that looks for the answers finds an empty folder and no argument, and no stack but its own."""
    code = (
        "import os, sys\nframe, names = sys._getframe(), []\n"
        "while frame: names += list(frame.f_locals); frame = frame.f_back\n"
        "print(sys.argv[1:], os.listdir('.'), [name for name in names if 'expect' in name or 'test' in name])"
    )
    assert box.printed(code, stdin="1\n") == "[] [] []"


# --- writes ----------------------------------------------------------------------------------------------------


def test_host_cannot_be_written(box, open_folder):
    code = TRY + (
        f"for folder in ({str(open_folder)!r}, '/usr', '/usr/lib', '/etc', '/dev', '/', '/bin', '/var/tmp'):\n"
        "  result = attempt(lambda: open(folder + '/planted', 'w'))\n"
        "  if result not in ('OSError', 'PermissionError', 'FileNotFoundError'): print(folder, result)"
    )
    assert box.printed(code) == ""
    assert sorted(path.name for path in open_folder.iterdir()) == ["secret"]


def test_interpreter_cannot_be_changed(box):
    code = TRY + (
        "import os, random, sys\nfor path in (random.__file__, sys.executable):\n"
        "  print(attempt(lambda: open(path, 'ab')), attempt(lambda: os.remove(path)), attempt(lambda: os.chmod(path, 0)))"
    )
    allowed = {"OSError", "PermissionError"}
    assert set(box.printed(code).split()) <= allowed


def test_symlink_out_of_the_work_folder_leads_nowhere(box, open_folder):
    code = TRY + (
        "import os\n"
        f"for i, path in enumerate(('/etc/shadow', {str(open_folder / 'secret')!r}, '/proc/self/environ', '../..')):\n"
        "  os.symlink(path, f'link{i}')\n"
        "print([attempt(lambda: open(f'link{i}').read()) for i in range(3)], 'etc/passwd' in os.listdir('link3'))\n"
        f"os.symlink({str(open_folder)!r}, 'folder')\nprint(attempt(lambda: open('folder/planted', 'w')))"
    )
    assert (
        box.printed(code)
        == "['FileNotFoundError', 'FileNotFoundError', 'FileNotFoundError'] False\nFileNotFoundError"
    )
    assert not (open_folder / "planted").exists()


def test_hard_link_and_device_file_cannot_be_made(box):
    code = TRY + (
        "import os, stat\n"
        "print(attempt(lambda: os.link('/usr/bin/env', 'link')))\n"
        "print(attempt(lambda: os.mknod('disk', 0o600 | stat.S_IFBLK, os.makedev(254, 0))))"
    )
    assert set(box.printed(code).split()) <= {"OSError", "PermissionError"}


def test_files_are_gone_with_the_run(box):
    for _ in range(5):  # every slot once more
        assert (
            box.printed("import os\nprint(os.listdir('/tmp'), os.listdir('/dev/shm'))\nopen('left', 'w')")
            == "[] []"
        )


# --- processes, memory, disk -------------------------------------------------------------------------------------


def marked(marker: str) -> list[int]:
    """Processes of the host with `marker` in their command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker in (folder / "cmdline").read_text(errors="replace"):
                found.append(int(folder.name))
        except OSError:
            pass
    return found


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_fork_bomb_is_bounded(box):
    code = (
        "import os, time\nmade = 0\nfor _ in range(400):\n  try:\n    if os.fork() == 0: time.sleep(60); os._exit(0)\n"
        "  except OSError: break\n  made += 1\nprint(made)"
    )
    assert 5 <= int(box.printed(code, processes=16)) <= 17


def test_exponential_fork_bomb_ends_with_its_run(box):
    result = box.run("import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", timeout_s=1)
    assert result.status == "timeout"
    assert box.printed("print('alive')") == "alive"


def test_threads_are_bounded(box):
    code = (
        "import threading, os\nmade = 0\nstop = threading.Event()\ntry:\n  for _ in range(400):\n"
        "    threading.Thread(target=stop.wait, daemon=True).start(); made += 1\nexcept RuntimeError: pass\n"
        "print(made, flush=True)\nos._exit(0)"
    )
    assert int(box.printed(code, processes=16)) <= 17


def test_memory_bomb_is_stopped(box):
    result = box.run("held = []\nwhile True: held.append(bytearray(1 << 20))", memory_mb=200)
    assert result.status == "memory"


def test_memory_of_all_processes_together_is_bounded(box):
    code = (
        "import os, time\nfor _ in range(8):\n"
        "  if os.fork() == 0:\n    held = b'x' * (100 << 20); time.sleep(60)\ntime.sleep(60)"
    )
    assert box.run(code, memory_mb=300).status == "memory"


def test_memory_that_no_limit_counts_is_refused(box):
    code = (
        TRY
        + LIBC
        + (
            "print(attempt(lambda: os.memfd_create('x')))\n"
            "print(libc.shmget(0, 1 << 30, 0o1600), libc.msgget(0, 0o1600), libc.semget(0, 1, 0o1600))"
        )
    )
    assert box.printed(code) == "PermissionError\n-1 -1 -1"


def test_disk_filler_is_stopped(box):
    code = (
        "import os\nwritten = 0\ntry:\n  for name in range(100):\n    with open(str(name), 'wb', buffering=0) as file:\n"
        "      for _ in range(4): written += file.write(bytes(1 << 20))\nexcept OSError as error: print(error.strerror)\n"
        "print(written >> 20)"
    )
    message, written = box.printed(code, disk_mb=16).split("\n")
    assert message == "No space left on device" and int(written) <= 16


def test_file_larger_than_the_disk_is_stopped(box):
    result = box.run("open('x', 'wb').write(bytes(20 << 20))", disk_mb=8)
    assert result.status == "error" and "OSError" in result.stderr


def test_million_files_are_stopped(box):
    if box.kind == "bubblewrap":
        pytest.skip("bubblewrap cannot limit the number of files; the time limit ends it")
    code = (
        "made = 0\ntry:\n  for name in range(10**6): open(str(name), 'w').close(); made += 1\n"
        "except OSError as error: print(error.strerror)\nprint(made)"
    )
    message, made = box.printed(code, files=1000).split("\n")
    assert message == "No space left on device" and int(made) < 1000


def test_output_flood_is_cut(box):
    result = box.run("while True: print('x' * 100000)", output_kb=256)
    assert (result.status, len(result.stdout)) == ("output", 256 * 1024)


def test_daemon_does_not_survive(box):
    duration = f"9876.{os.getpid()}"
    code = (
        "import os, subprocess, sys\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n"
        f"    subprocess.Popen(['sleep', '{duration}'], start_new_session=True); print('daemon', flush=True); os._exit(0)\n"
        "  os._exit(0)\nsys.stdin.read()\nimport time; time.sleep(.3)"
    )
    assert box.printed(code) == "daemon"
    assert wait_until(lambda: not marked(duration), 5)


def test_daemon_that_holds_the_output_does_not_stall_the_run(box):
    start = time.monotonic()
    assert box.printed("import os, time\nif os.fork() == 0: time.sleep(60)\nprint('done')") == "done"
    assert time.monotonic() - start < 25


def test_stopped_program_times_out(box):
    assert (
        box.run("import os, signal, time\nos.kill(0, signal.SIGSTOP)\ntime.sleep(60)", timeout_s=1).status
        == "timeout"
    )


def test_signal_handlers_do_not_save_from_the_time_limit(box):
    code = (
        "import signal, time\nfor number in range(1, 65):\n  try: signal.signal(number, signal.SIG_IGN)\n"
        "  except (OSError, ValueError): pass\nwhile True:\n  try: time.sleep(60)\n  except BaseException: pass"
    )
    assert box.run(code, timeout_s=1).status == "timeout"


# --- other processes ---------------------------------------------------------------------------------------------


def test_signals_reach_nobody(box):
    victim = subprocess.Popen(["sleep", "600"], user=USER if os.geteuid() == 0 else None)
    try:
        code = TRY + (
            "import os\nreached = []\n"
            f"for pid in [*range(3, 5000), *range({victim.pid} - 50, {victim.pid} + 50), {os.getpid()}]:\n"
            "  if attempt(lambda: os.kill(pid, 9)) is None: reached.append(pid)\n"
            "print(reached, attempt(lambda: os.kill(0, 0)), os.getppid() in (0, 1))"
        )
        assert box.printed(code).startswith("[] ")
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


def test_kill_everybody_kills_only_the_run(box):
    box.run("import os, signal, time\nsignal.signal(15, signal.SIG_IGN)\nos.kill(-1, 15)\nos.kill(-1, 9)")
    assert box.printed("print('alive')") == "alive"


def test_ptrace_is_refused(box):
    code = LIBC + (
        "attach, trace_me = 16, 0\n"
        f"print([libc.ptrace(attach, pid, 0, 0) for pid in (1, 2, {os.getpid()})], libc.ptrace(trace_me, 0, 0, 0))\n"
        "vector = (ctypes.c_void_p * 2)()\nprint(libc.process_vm_readv(1, vector, 1, vector, 1, 0))"
    )
    assert box.printed(code) == "[-1, -1, -1] -1\n-1"


def test_new_namespaces_and_mounts_are_refused(box):
    code = LIBC + (
        "flags = (0x10000000, 0x20000, 0x40000000, 0x20000000, 0x08000000, 0x04000000)\n"
        "print({libc.unshare(flag) for flag in flags})\n"
        "print(libc.mount(b'none', b'/tmp', b'tmpfs', 0, None), libc.mount(b'none', b'/tmp', b'proc', 0, None))\n"
        "print(libc.mount(None, b'/', None, 4096 | 32, None), libc.umount2(b'/tmp', 2), libc.chroot(b'/tmp'))\n"
        "print(libc.setns(0, 0))\n"
        "number = {'x86_64': 56, 'aarch64': 220}[os.uname().machine]\n"
        "print({libc.syscall(number, flag | 17, 0, 0, 0, 0) for flag in flags})"
    )
    assert box.printed(code) == "{-1}\n-1 -1\n-1 -1 -1\n-1\n{-1}"


def test_unshare_command_is_refused(box):
    assert box.run("unshare --user --map-root-user id", language="shell").status == "error"


def test_privileges_cannot_be_gained(box):
    code = (
        TRY
        + LIBC
        + (
            "import resource\n"
            "print(attempt(lambda: os.setuid(0)), attempt(lambda: os.setgid(0)), attempt(lambda: os.setgroups([0])))\n"
            "print(attempt(lambda: resource.setrlimit(resource.RLIMIT_NPROC, (10**4, 10**4))))\n"
            "print(os.getuid() != 0, libc.prctl(39, 0, 0, 0, 0))"  # PR_GET_NO_NEW_PRIVS
        )
    )
    ids, limits, rest = box.printed(code).split("\n")
    assert set(ids.split()) <= {"OSError", "PermissionError"}
    assert (limits, rest) == ("ValueError", "True 1")


def test_program_cannot_cancel_its_death_with_the_server(box):
    assert box.printed(LIBC + "print(libc.prctl(1, 0, 0, 0, 0))") == "-1"


def test_no_descriptor_is_inherited(box):
    code = (
        TRY + "import os\nprint([fd for fd in range(3, 4096) if attempt(lambda: os.fstat(fd)) != 'OSError'])"
    )
    assert box.printed(code) == "[]"
    script = "for fd in 3 4 5 6 7 8 9; do if (: <&$fd) 2>/dev/null; then echo $fd; fi; done"
    assert box.printed(script, language="shell") == ""


def test_attribute_chain_reaches_nothing_that_matters(box):
    """The tool sandbox can be escaped by an attribute chain: it can, and the operating system does not care."""
    code = (
        "chain = [c for c in ().__class__.__base__.__subclasses__() if c.__name__ == '_wrap_close'][0]\n"
        "system = chain.__init__.__globals__['system']\n"
        "print(system('cat /etc/shadow 2>/dev/null') != 0, system('kill -9 9999 2>/dev/null') != 0, system('true'))"
    )
    assert box.printed(code) == "True True 0"


def test_memory_of_an_earlier_run_cannot_be_searched(box):
    """The run before left its text in some process; none of those is a parent of this one."""
    box.run_all([{"code": f"print('{SECRET}' * 100)", "stdin": SECRET, "timeout_s": 30}] * 8)
    # Without /proc there is no map of the memory: search around objects that the interpreter made. The needles are
    # written backwards, or the search would find itself; `held` shows that it finds what is there.
    code = (
        "import ctypes, os\nlibc = ctypes.CDLL(None)\nr, w = os.pipe()\n"
        "held = [bytes(reversed(b'elpats-yrettab-esroh-gnorw')) for _ in range(1000)]\n"
        "objects = [o for c in object.__subclasses__() for o in (c, c.__dict__)] + held\n"
        "pages = {(id(o) >> 12) + near for o in objects for near in range(-16, 16)}\n"
        "found = {b'gnorw': 0, b'tcerroc': 0}\n"
        "for page in pages:\n  if libc.write(w, ctypes.c_void_p(page << 12), 4096) == 4096:\n"
        "    backwards = os.read(r, 4096)[::-1]\n    at = backwards.find(b'elpats-yrettab-esroh-')\n"
        "    while at >= 0:\n      for word in found: found[word] += backwards[at + 21:].startswith(word)\n"
        "      at = backwards.find(b'elpats-yrettab-esroh-', at + 1)\n"
        "print(found[b'gnorw'] >= 1000, found[b'tcerroc'])"
    )
    assert box.printed(code) == "True 0"


def test_patched_builtins_stay_in_their_run(box):
    box.run(
        "import builtins, sys\nbuiltins.print = lambda *a: None\nbuiltins.len = lambda x: 42\nsys.exit = None"
    )
    assert box.printed("print(len([]))") == "0"


def test_server_killed_takes_programs_along():
    duration = f"8765.{os.getpid()}"
    with ExitStack() as stack:
        try:
            sandbox = stack.enter_context(Sandbox(2, backend="forkserver"))
        except RuntimeError as error:
            pytest.skip(str(error).splitlines()[1])
        future = sandbox.submit(as_program(f"exec sleep {duration}", language="shell", timeout_s=60))
        assert wait_until(lambda: bool(marked(duration)))
        server = sandbox._backend._process.pid
        os.kill(server, signal.SIGKILL)
        with pytest.raises(RuntimeError, match="no answer from the sandbox"):
            future.result()
        assert wait_until(lambda: not marked(duration))


def test_client_killed_takes_server_and_programs_along():
    duration = f"7654.{os.getpid()}"
    code = (
        "from rlanything_jax.envs.code.sandbox import Sandbox\n"
        "with Sandbox(1, backend='forkserver') as sandbox:\n"
        "  print(sandbox._backend._process.pid, flush=True)\n"
        f"  sandbox.run('exec sleep {duration}', language='shell', timeout_s=60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT
    ) as client:
        server = client.stdout.readline()
        if not server:
            pytest.skip("no fork server here")
        assert wait_until(lambda: bool(marked(f"sleep\0{duration}")))
        client.kill()
    assert wait_until(
        lambda: not marked(f"sleep\0{duration}") and not Path("/proc", server.decode().strip()).exists()
    )
