"""Confine a process that reads untrusted bytes. The confinement is permanent and needs no privilege.

1. `limit` limits its memory, time and output, on every system.
2. `seal` adds two layers of the Linux kernel, each of which works without the other. Landlock allows the process only
   the files that are listed. seccomp refuses network, programs, writing, and calls to other processes.
3. `seal_program` does the same for a process that becomes another program.
"""

import contextlib
import ctypes
import json
import mimetypes
import os
import platform
import resource
import signal
import struct
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

CPU_SECONDS = 40
OUTPUT = 200_000_000  # bytes: 20 million characters with the overhead of JSON
OPEN_FILES = 64
NICENESS = 10  # so that processes that write answers run first
OOM_SCORE = 500  # of 1,000; out of memory, the kernel ends a reader before the process that started it
# Names of the layers.
FILE_LAYER = "landlock"
CALL_LAYER = "seccomp"

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
# Numbers of system calls, the same on all architectures.
_LANDLOCK_CREATE = 444
_LANDLOCK_ADD = 445
_LANDLOCK_RESTRICT = 446
_EXECUTE = 1 << 0
_WRITE = 1 << 1
_READ_FILE = 1 << 2
_READ_DIR = 1 << 3
_TRUNCATE = 1 << 14
_CHANGE_RIGHTS = sum(
    1 << bit for bit in (1, 4, 5, 7, 8, 9, 10, 12)
)  # write, remove, make folders, files, sockets, pipes, links
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # number of file rights by version of Landlock; 16 since version 5
_LIBRARIES = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache", "/dev/urandom"),
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    f"{sys.base_prefix}/lib",
    *mimetypes.knownfiles,  # openpyxl reads these when it is imported
)

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
# From this number on, system calls have the same number on all architectures (io_uring, clone3). They get ENOSYS, as on
# an old kernel.
_FIRST_COMMON_CALL = 424
_CLONE = (56, 220)
_OPEN = (2, None)
_OPENAT = (257, 56)
_PRLIMIT = (302, 261)
_SOCKET = (41, 198)
_AF_UNIX = 1  # the family of sockets within the machine, AF_UNIX
_CLONE_THREAD = 0x10000
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# Refused calls, with their numbers on x86_64 and aarch64. The first list applies only to readers, the second to all.
_REFUSED_TO_READERS = """
socket 41 198, socketpair 53 199, connect 42 203, bind 49 200, listen 50 201, accept 43 202, accept4 288 242,
sendto 44 206, sendmsg 46 211, sendmmsg 307 269,
execve 59 221, execveat 322 281, fork 57 -, vfork 58 -, kill 62 129, tkill 200 130, tgkill 234 131,
creat 85 -, truncate 76 45, rename 82 -, renameat 264 38, renameat2 316 276, mkdir 83 -, mkdirat 258 34, rmdir 84 -,
unlink 87 -, unlinkat 263 35, link 86 -, linkat 265 37, symlink 88 -, symlinkat 266 36, mknod 133 -, mknodat 259 33,
chmod 90 -, fchmod 91 52, fchmodat 268 53, chown 92 -, fchown 93 55, lchown 94 -, fchownat 260 54, utime 132 -,
utimes 235 -, futimesat 261 -, utimensat 280 88, setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7,
removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16
"""
_REFUSED_TO_ALL = """
ptrace 101 117, process_vm_readv 310 270,
process_vm_writev 311 271, kcmp 312 272, rt_sigqueueinfo 129 138,
rt_tgsigqueueinfo 297 240, setpriority 141 140, ioprio_set 251 30, sched_setscheduler 144 119, setns 308 268,
sched_setparam 142 118, sched_setattr 314 274, sched_setaffinity 203 122, bpf 321 280, unshare 272 97,
shmget 29 194, shmat 30 196, semget 64 190, msgget 68 186, mq_open 240 180, mq_unlink 241 181, keyctl 250 219,
add_key 248 217, request_key 249 218, perf_event_open 298 241, userfaultfd 323 282, syslog 103 116,
mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, reboot 169 142, name_to_handle_at 303 264,
open_by_handle_at 304 265, init_module 175 105, acct 163 89, finit_module 313 273, delete_module 176 106,
kexec_load 246 104, swapon 167 224, kexec_file_load 320 294, swapoff 168 225, quotactl 179 60, settimeofday 164 170,
clock_settime 227 112, adjtimex 159 171, clock_adjtime 305 266, iopl 172 -, ioperm 173 -, sethostname 170 161,
setdomainname 171 162, fanotify_init 300 262
"""
_EPERM = 1
_ENOSYS = 38
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_KILL = 0x80000000
# Instructions of a BPF filter.
_LOAD = 0x20
_EQUAL = 0x15
_AT_LEAST = 0x35
_ANY_BIT = 0x45
_RETURN = 0x06


def limit(parent: int, memory: int, cpu_seconds: int = CPU_SECONDS) -> None:
    """Limit this process to `memory` bytes of address space, and end it when `parent`, which started it, ends."""
    for kind, maximum in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_FSIZE, OUTPUT),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (maximum, maximum + 1 if kind == resource.RLIMIT_CPU else maximum))
    os.nice(NICENESS)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # /proc may be missing, or the score be higher, which only root may lower
            Path("/proc/self/oom_score_adj").write_text(f"{OOM_SCORE}")
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the call above
        os.kill(os.getpid(), signal.SIGKILL)


def seal(readable: Iterable[Path]) -> list[str]:
    """Let this process read only these files and folders and Python's libraries. Returns the active layers.

    Open files stay open, such as standard input, output and error.
    """
    if sys.platform != "linux":
        return []
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return []
    layers = ((FILE_LAYER, _landlock(libc, [*map(Path, _LIBRARIES), *readable])), (CALL_LAYER, _seccomp(libc)))
    return [name for name, is_active in layers if is_active]


def seal_program(readable: Iterable[Path], writable: Path) -> bool:
    """Confine this process before it becomes another program. Returns whether both layers are active.

    The program may read and run these files and folders, may write into `writable`, and has no network. Do not start it
    unless both layers are active.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    places = [*map(Path, _LIBRARIES), *readable]
    return _landlock(libc, places, writable) and _seccomp(libc, of_program=True)


def _landlock(libc: ctypes.CDLL, readable: Iterable[Path], writable: Path | None = None) -> bool:
    """Apply Landlock. With `writable`, the process may also run the readable files and write into `writable`."""
    version = libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return False
    # Rights for files, for TCP ports, and for outside processes. Versions 4 and 6 each add a field.
    fields = ((1 << _FILE_RIGHTS.get(version, 16)) - 1, 0b11, 0b11)[: 1 if version < 4 else 2 if version < 6 else 3]
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = libc.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return False
    try:
        run_rights = _EXECUTE if writable else 0
        added = all(_allow(libc, ruleset, path, run_rights) for path in readable)
        if writable:
            added = added and _allow(libc, ruleset, writable, _CHANGE_RIGHTS | (_TRUNCATE if version >= 3 else 0))
            added = added and _allow(libc, ruleset, Path(os.devnull), _WRITE)
        return added and libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0) == 0
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, extra_rights: int = 0) -> bool:
    """Add a rule for a path. Returns whether that succeeded; a missing path needs no rule."""
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        rights = extra_rights | _READ_FILE | (_READ_DIR if path.is_dir() else 0)
        return bool(libc.syscall(_LANDLOCK_ADD, ruleset, 1, struct.pack("=Qi", rights, handle), 0) == 0)
    finally:
        os.close(handle)


def _seccomp(libc: ctypes.CDLL, *, of_program: bool = False) -> bool:
    architecture = _ARCHITECTURES.get(platform.machine())
    if architecture is None or sys.maxsize < 1 << 32:
        return False
    program = b"".join(struct.pack("=HBBI", *line) for line in _filter(*architecture, of_program=of_program))
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    return bool(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0) == 0)


def _filter(column: int, architecture: int, *, of_program: bool = False) -> Iterator[tuple[int, int, int, int]]:
    """Yield a BPF program over `struct seccomp_data`: call at byte 0, architecture at 4, arguments from 16."""
    refuse = (_RETURN, 0, 0, _ERRNO | _EPERM)
    allow = (_RETURN, 0, 0, _ALLOW)
    yield from ((_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0))
    yield from ((_AT_LEAST, 0, 1, _FIRST_COMMON_CALL), (_RETURN, 0, 0, _ERRNO | _ENOSYS))
    for call in (_REFUSED_TO_ALL if of_program else f"{_REFUSED_TO_READERS},{_REFUSED_TO_ALL}").split(","):
        if (digits := call.split()[1 + column]) != "-":
            yield from ((_EQUAL, 0, 1, int(digits)), refuse)
    # Allowed for some arguments: threads but no processes, reading but no writing, own limits but no others.
    reader_rules = (
        (_CLONE, 0, _ANY_BIT, _CLONE_THREAD, (allow, refuse)),
        (_OPEN, 1, _ANY_BIT, _WRITING, (refuse, allow)),
        (_OPENAT, 2, _ANY_BIT, _WRITING, (refuse, allow)),
        (_PRLIMIT, 0, _EQUAL, 0, (allow, refuse)),
    )
    program_rules = ((_SOCKET, 0, _EQUAL, _AF_UNIX, (allow, refuse)), (_PRLIMIT, 0, _EQUAL, 0, (allow, refuse)))
    for numbers, argument, test, value, then in program_rules if of_program else reader_rules:
        if (number := numbers[column]) is not None:
            yield from ((_EQUAL, 0, 4, number), (_LOAD, 0, 0, 16 + 8 * argument), (test, 0, 1, value), *then)
    yield allow


if __name__ == "__main__":
    sys.stdout.write(json.dumps(seal(())))
