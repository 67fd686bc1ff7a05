"""Program for a Pod that tries to escape, and prints a line for each try.

`python escapes.py DATA_DIR SERVER_PID`; each try runs in a process of its own. A try that succeeds
does no harm: files are opened or created empty and removed again, settings are not changed.
"""

import ctypes
import glob
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable

DATA_DIR, SERVER_PID = sys.argv[1], int(sys.argv[2])
#: Folder of the files that options of the server name.
OPTION_FILES = os.path.dirname(DATA_DIR)
LIBC = ctypes.CDLL(None, use_errno=True)


def checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def make(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    os.unlink(path)


def make_folder(path: str) -> None:
    os.mkdir(path)
    os.rmdir(path)


def link_into_etc() -> None:
    os.link("/etc/passwd", "/etc/escape-link")
    os.unlink("/etc/escape-link")


def open_to_write(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY))


def read(path: str) -> None:
    with open(path, "rb") as file:
        file.read(1)


def mount(source: str, target: str, kind: str, flags: int = 0) -> None:
    checked(LIBC.mount(source.encode(), target.encode(), kind.encode(), flags, None))


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def make_device() -> None:
    os.mknod("escape-disk", stat.S_IFBLK | 0o600, os.makedev(8, 0))
    os.unlink("escape-disk")


def connect(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(5)
        client.connect(path)


def host_sockets() -> None:
    found = [
        path
        for path in glob.glob("/run/**/*", recursive=True)
        if stat.S_ISSOCK(os.stat(path).st_mode)
    ]
    if not found:
        raise OSError("no sockets")


def new_mounts_in_a_user_namespace() -> None:
    checked(LIBC.unshare(0x10000000 | 0x00020000))
    mount("none", "/etc", "", 4096 | 32)
    make("/etc/escape")


def second_chroot() -> None:
    os.mkdir("escape-root")
    os.chroot("escape-root")
    for _ in range(50):
        os.chdir("..")
    os.chroot(".")
    os.stat(f"{DATA_DIR}/server/admin.token")


def open_by_handle() -> None:
    handle = ctypes.create_string_buffer(b"\x08\x00\x00\x00\x01\x00\x00\x00\x02" + bytes(24))
    fd = os.open("/", os.O_RDONLY)
    checked(LIBC.open_by_handle_at(fd, handle, os.O_RDONLY))


def other_pods() -> None:
    """Find anything in the data dir except the folder that this Pod starts in."""
    found = [os.path.join(top, name) for top, _, names in os.walk(DATA_DIR) for name in names]
    seen = [path for path in found if not path.startswith(os.getcwd())]
    if not seen:
        raise OSError("no files")


def extra_descriptors() -> None:
    own = os.open("/proc/self/fd", os.O_RDONLY)
    found = [int(name) for name in os.listdir(own) if int(name) > 2 and int(name) != own]
    for number in found:
        try:
            where = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if not where.startswith("pipe:"):
            return
    raise OSError("none")


def environment_of(pid: str) -> None:
    with open(f"/proc/{pid}/environ", "rb") as file:
        if b"in-the-environment" not in file.read():
            raise OSError("not that of the server")


def any_environment() -> None:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                environment_of(name)
            except OSError:
                continue
            return
    raise OSError("none")


def signal_server() -> None:
    os.kill(SERVER_PID, 0)
    with open(f"/proc/{SERVER_PID}/cmdline", "rb") as file:
        if b"onejob" not in file.read():
            raise OSError("another process")


def more_groups() -> None:
    if os.getuid() == 0:
        raise OSError("root needs no groups")
    os.setgroups([0])


def become_root() -> None:
    if os.getuid() == 0:
        raise OSError("is root")
    os.setuid(0)


def set_uid_program() -> None:
    if os.getuid() == 0:
        raise OSError("is root")
    run("su", "-c", "true")


def capability(number: int) -> Callable[[], None]:
    def has() -> None:
        with open("/proc/self/status") as file:
            line = next(line for line in file if line.startswith("CapEff"))
        if not int(line.split()[1], 16) >> number & 1:
            raise OSError("not there")

    return has


def keyring(ring: int) -> None:
    """Get the number of a keyring."""
    call = {"x86_64": 250, "aarch64": 219}[os.uname().machine]
    checked(LIBC.syscall(call, 0, ctypes.c_long(ring), 0))


def name_host() -> None:
    name = socket.gethostname().encode()
    checked(LIBC.sethostname(name, len(name)))


def void(_: object) -> None:
    return None


TRIES: dict[str, Callable[[], None]] = {
    "write to /etc": lambda: make("/etc/escape"),
    "write to /usr/bin": lambda: make("/usr/bin/escape"),
    "write to /root": lambda: make("/root/escape"),
    "write to /var/tmp": lambda: make("/var/tmp/escape"),
    "plant a cron job": lambda: make("/etc/cron.d/escape"),
    "plant a preload": lambda: make("/etc/ld.so.preload"),
    "change the mode of a file": lambda: os.chmod("/etc/passwd", os.stat("/etc/passwd").st_mode),
    "link into /etc": link_into_etc,
    "read the admin token": lambda: read(f"{DATA_DIR}/server/admin.token"),
    "read the signing keys": lambda: read(f"{DATA_DIR}/server/pki/service-account-keys.json"),
    "read the kubeconfig": lambda: read(f"{DATA_DIR}/kubeconfig"),
    "read the database": lambda: read(f"{DATA_DIR}/server/onejob.db"),
    "read the encryption key": lambda: read(f"{OPTION_FILES}/encryption.key"),
    "read the audit log": lambda: read(f"{OPTION_FILES}/audit.log"),
    "read an earlier audit log": lambda: read(f"{OPTION_FILES}/audit-earlier.log"),
    "read the notification secrets": lambda: read(f"{OPTION_FILES}/notify.yaml"),
    "read the key of a webhook": lambda: read(f"{OPTION_FILES}/webhook.key"),
    "keyring of the user": lambda: keyring(-4),
    "keyring of the session": lambda: keyring(-3),
    "see other Pods' files": other_pods,
    "talk to the supervisor": lambda: connect(f"{DATA_DIR}/server/supervisor/socket"),
    "sockets of the host's daemons": host_sockets,
    "talk to D-Bus": lambda: connect("/run/dbus/system_bus_socket"),
    "talk to Docker": lambda: connect("/var/run/docker.sock"),
    "remount the root": lambda: mount("none", "/", "", 4096 | 32),
    "remount /etc": lambda: mount("none", "/etc", "", 4096 | 32),
    "mount a tmpfs": lambda: mount("none", "/mnt", "tmpfs"),
    "mount another /proc": lambda: mount("none", "/mnt", "proc"),
    "mount the cgroups": lambda: mount("none", "/mnt", "cgroup2"),
    "mount in a user namespace": new_mounts_in_a_user_namespace,
    "unmount what covers": lambda: void(checked(LIBC.umount2(DATA_DIR.encode(), 2))),
    "enter the host's namespaces": lambda: run("nsenter", "-t", "1", "-m", "-p", "ls", DATA_DIR),
    "files by /proc/1/root": lambda: void(os.stat(f"/proc/1/root{DATA_DIR}/server/admin.token")),
    "files by the server's root": lambda: void(
        os.stat(f"/proc/{SERVER_PID}/root{DATA_DIR}/server/admin.token")
    ),
    "chroot out": second_chroot,
    "pivot the root": lambda: void(checked(LIBC.syscall(155, b"/tmp", b"/tmp"))),
    "open by handle": open_by_handle,
    "descriptors that were left open": extra_descriptors,
    "make a disk device": make_device,
    "read the disk": lambda: read("/dev/sda"),
    "read another disk": lambda: read("/dev/vda"),
    "read the memory": lambda: read("/dev/mem"),
    "read the kernel's log": lambda: read("/dev/kmsg"),
    "read the kernel's memory": lambda: read("/proc/kcore"),
    "fuse": lambda: read("/dev/fuse"),
    "core pattern": lambda: open_to_write("/proc/sys/kernel/core_pattern"),
    "sysctl": lambda: open_to_write("/proc/sys/kernel/hostname"),
    "sysrq": lambda: open_to_write("/proc/sysrq-trigger"),
    "uevent helper": lambda: open_to_write("/sys/kernel/uevent_helper"),
    "release agent": lambda: open_to_write("/sys/fs/cgroup/release_agent"),
    "make a cgroup": lambda: make_folder("/sys/fs/cgroup/escape"),
    "trace the server": lambda: void(checked(LIBC.ptrace(16, SERVER_PID, 0, 0))),
    "signal the server": signal_server,
    "environment of the server": lambda: environment_of(str(SERVER_PID)),
    "environment of anybody": any_environment,
    "name the host": name_host,
    "become root": become_root,
    "get a group": more_groups,
    "a set-uid program": set_uid_program,
    "CAP_SYS_ADMIN": capability(21),
    "CAP_SYS_PTRACE": capability(19),
    "CAP_SYS_MODULE": capability(16),
    "CAP_SYS_RAWIO": capability(17),
    "CAP_DAC_READ_SEARCH": capability(2),
    "CAP_MKNOD": capability(27),
    "CAP_SYS_TIME": capability(25),
    "CAP_SYS_BOOT": capability(22),
    "CAP_NET_ADMIN": capability(12),
    "CAP_BPF": capability(39),
}


def attempt(name: str, act: Callable[[], None]) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            act()
            line = f"{name}: ESCAPED"
        except BaseException as error:
            line = f"{name}: closed ({type(error).__name__}: {error})"
        os.write(1, f"{line}\n".encode())
        os._exit(0)
    os.waitpid(pid, 0)


if __name__ == "__main__":
    for tried, act in TRIES.items():
        attempt(tried, act)
    print("all tried", flush=True)
